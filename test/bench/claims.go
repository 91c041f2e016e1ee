package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

// perClaimPool is how many claims one pool gets, in multiples of -n.
const perClaimPool = 5

// completed are claims that are followed until their status is written. Before the
// status, those of the second list get an address object.
var (
	completed   = []subject{alloc, ipClaim, addressClaim}
	withAddress = []subject{ipClaim, addressClaim}
)

// What is measured of such a claim, from the beginning of its create.
const (
	toResponse = "to its response"
	toAddress  = "to its IPAddress"
	toStatus   = "to its status"
)

func (s subject) part(of string) string { return s.name + " " + of }

// measureClaims fills pools with claims, each in a sandbox of its own.
func measureClaims(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, of := range completed {
		if !slices.ContainsFunc([]string{toResponse, toAddress, toStatus}, func(part string) bool { return o.only.MatchString(of.part(part)) }) {
			continue
		}
		for _, clients := range o.clients {
			n := perClaimPool * o.n * min(clients, fullLoad) / fullLoad
			measured, err := onSandbox(ctx, 1, func(b *bench) ([]figure, error) { return b.complete(ctx, of, clients, max(n, 5*clients)) })
			if err != nil {
				return nil, fmt.Errorf("%s, %d clients: %w", of.name, clients, err)
			}
			figures = append(figures, measured...)
		}
	}
	return figures, nil
}

// complete creates n claims in one pool and follows each until its status names its
// address.
func (b *bench) complete(ctx context.Context, of subject, clients, n int) ([]figure, error) {
	c, err := b.newCollection(ctx, of)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx, clients); err != nil {
		return nil, err
	}
	f, err := c.follow(ctx, "bench", clients, n)
	if err != nil {
		return nil, err
	}
	var figures []figure
	for _, reached := range []struct {
		part string
		at   []time.Time
	}{{toResponse, f.answered}, {toAddress, f.made}, {toStatus, f.ready}} {
		if reached.part == toAddress && !slices.Contains(withAddress, of) {
			continue
		}
		s := f.sample(of.part(reached.part), reached.at)
		slices.SortFunc(reached.at, time.Time.Compare)
		fifth, last := n/5, reached.at[n-1]
		figure := figureOf(clients, []sample{s}, nil)
		figure.RatioPerSecond = float64(reached.at[fifth-1].Sub(f.start)) / float64(last.Sub(reached.at[n-1-fifth]))
		figures = append(figures, figure)
	}
	return figures, nil
}

// followed has the times of claims: when each create began, when it returned, and when
// the address object and the status were stored.
type followed struct {
	start                        time.Time
	began, answered, made, ready []time.Time
	spent                        usage
}

// sample returns the times from the beginning of each create until a state. The rate
// counts until the last claim has reached the state.
func (f *followed) sample(name string, at []time.Time) sample {
	took := make([]time.Duration, len(at))
	for i := range took {
		took[i] = at[i].Sub(f.began[i])
	}
	s := sampleOf(name, took, slices.MaxFunc(at, time.Time.Compare).Sub(f.start))
	s.cpu = f.spent
	return s
}

// follow creates n claims and follows each until its status names its address. If the
// response has no address, its client waits for the address before the next create.
func (c *collection) follow(ctx context.Context, prefix string, clients, n int) (*followed, error) {
	bodies, index := c.bodies(prefix, n), indexOf(prefix, n)
	f := &followed{began: make([]time.Time, n), answered: make([]time.Time, n), made: make([]time.Time, n), ready: make([]time.Time, n)}
	known := make([]chan struct{}, n)
	for i := range known {
		known[i] = make(chan struct{}, 1)
	}
	// signal wraps a function that stamps, and signals the client of each claim that has
	// a stamp.
	signal := func(at []time.Time, name func(*object) string, see func(*object, bool) bool) func(*object, bool) bool {
		return func(o *object, deleted bool) bool {
			enough := see(o, deleted)
			if i, ok := index[name(o)]; ok && !at[i].IsZero() {
				select {
				case known[i] <- struct{}{}:
				default:
				}
			}
			return enough
		}
	}
	claims, err := c.following(ctx, c.storage())
	if err != nil {
		return nil, err
	}
	before := c.readCPU()
	group, following := errgroup.WithContext(ctx)
	if slices.Contains(withAddress, c.subject) {
		addresses, err := c.following(ctx, c.storageOf("ipaddresses"))
		if err != nil {
			return nil, err
		}
		group.Go(func() error {
			return addresses.until(following, signal(f.made, (*object).heldFor, stamp(f.made, index, (*object).heldFor, func(*object) bool { return true })))
		})
	}
	group.Go(func() error {
		return claims.until(following, signal(f.ready, (*object).name, stamp(f.ready, index, (*object).name, (*object).ready)))
	})
	f.start = time.Now()
	_, err = timed(clients, n, 0, func(i int) error {
		f.began[i] = time.Now()
		err := c.create(following, bodies[i])
		f.answered[i] = time.Now()
		if err != nil || c.gives != "" {
			return err
		}
		select {
		case <-known[i]:
			return nil
		case <-following.Done():
			return context.Cause(following)
		}
	})
	if err != nil {
		return nil, err
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	f.spent = c.readCPU().since(before, n)
	return f, nil
}

// indexOf finds the number in a name.
func indexOf(prefix string, n int) map[string]int {
	index := make(map[string]int, n)
	for i := range n {
		index[nameOf(prefix, i)] = i
	}
	return index
}

// stamp notes when each object is first seen in a state, and has seen enough when all
// were.
func stamp(at []time.Time, index map[string]int, name func(*object) string, state func(*object) bool) func(*object, bool) bool {
	left := len(at)
	return func(o *object, deleted bool) bool {
		if i, ok := index[name(o)]; ok && !deleted && at[i].IsZero() && state(o) {
			at[i] = time.Now()
			left--
		}
		return left == 0
	}
}
