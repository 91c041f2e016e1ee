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

// withAddress are claims that get an address object, and then a status that names it.
var withAddress = []subject{ipClaim, addressClaim}

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
	for _, of := range withAddress {
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

// complete creates n claims in one pool and follows each until its status names its address.
func (b *bench) complete(ctx context.Context, of subject, clients, n int) ([]figure, error) {
	c, err := b.newCollection(ctx, of)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx, clients); err != nil {
		return nil, err
	}
	bodies, index := c.bodies("bench", n), indexOf("bench", n)
	began, answered, made, ready := make([]time.Time, n), make([]time.Time, n), make([]time.Time, n), make([]time.Time, n)
	addresses, err := b.following(ctx, c.storageOf("ipaddresses"))
	if err != nil {
		return nil, err
	}
	claims, err := b.following(ctx, c.storage())
	if err != nil {
		return nil, err
	}
	before := b.readCPU()
	group, following := errgroup.WithContext(ctx)
	group.Go(func() error {
		return addresses.until(following, stamp(made, index, (*object).heldFor, func(*object) bool { return true }))
	})
	group.Go(func() error { return claims.until(following, stamp(ready, index, (*object).name, (*object).ready)) })
	start := time.Now()
	_, err = timed(clients, n, 0, func(i int) error {
		began[i] = time.Now()
		err := c.create(following, bodies[i])
		answered[i] = time.Now()
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	spent := b.readCPU().since(before, n)

	var figures []figure
	for _, reached := range []struct {
		part string
		at   []time.Time
	}{{toResponse, answered}, {toAddress, made}, {toStatus, ready}} {
		took := make([]time.Duration, n)
		for i := range took {
			took[i] = reached.at[i].Sub(began[i])
		}
		slices.SortFunc(reached.at, time.Time.Compare)
		fifth, last := n/5, reached.at[n-1]
		s := sampleOf(of.part(reached.part), took, last.Sub(start))
		s.cpu = spent
		f := figureOf(clients, []sample{s}, nil)
		f.RatioPerSecond = float64(reached.at[fifth-1].Sub(start)) / float64(last.Sub(reached.at[n-1-fifth]))
		figures = append(figures, f)
	}
	return figures, nil
}

// indexOf finds the number in a name.
func indexOf(prefix string, n int) map[string]int {
	index := make(map[string]int, n)
	for i := range n {
		index[nameOf(prefix, i)] = i
	}
	return index
}

// stamp notes when each object is first seen in a state, and has seen enough when all were.
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
