package main

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	maxClients = 256
	maxCreates = 60_000 // and warm-up, in a /16
	// warmUp is how many objects each client creates before the clock runs: for
	// connections, and caches of a new namespace.
	warmUp = 2
	// What -n says is for this many clients and more.
	fullLoad = 4
	// loops is the share of creates that the variants with deletion make: one takes far
	// longer.
	loops = 10
	// apart is the pause of a client between two creates, as people and controllers make
	// one. With a pause, the allocator has no other create to share a write with.
	apart = 30 * time.Millisecond
	// statusesWritten follows the name of a variant where the time counts until all
	// objects have their status.
	statusesWritten = ", statuses written"
)

// variant is one thing that is done to one subject.
type variant struct {
	subject
	name     string
	deletes  bool
	pause    time.Duration // after each call; such a variant is measured with one client only
	writes   writes        // after each create, by its client
	baseline string        // name of the variant that it is compared with
}

// writes are what an allocator must write beside a create, in the order in which it does.
// Done by the clients, without an allocator, they show what the machine leaves room for.
type writes struct{ object, status bool }

// String follows the name of the create.
func (w writes) String() string {
	switch {
	case w.object:
		return ", another object and status"
	case w.status:
		return " and status"
	}
	return ""
}

// variantsFor are those whose names match, each group with its baseline.
func variantsFor(only *regexp.Regexp) []variant {
	var matching []variant
	for _, op := range []struct {
		name    string
		deletes bool
		pause   time.Duration
	}{{name: " create"}, {name: fmt.Sprintf(" create, %d ms apart", apart/time.Millisecond), pause: apart}, {name: " create and delete", deletes: true}} {
		var group []variant
		matches := false
		for _, s := range []subject{hookedCR, plainCR, service, alloc, vip, ipClaim, addressClaim} {
			v := variant{subject: s, name: s.name + op.name, deletes: op.deletes, pause: op.pause, baseline: hookedCR.name + op.name}
			if match := only.MatchString(v.name); match || s == hookedCR {
				group = append(group, v)
				matches = matches || match
			}
		}
		for _, s := range []subject{committedCR, hookedCR, hookedClaim} {
			for _, w := range []writes{{}, {status: true}, {object: true, status: true}} {
				v := variant{subject: s, name: s.name + op.name + w.String(), writes: w, baseline: hookedCR.name + op.name}
				if v.name != v.baseline && !op.deletes && op.pause == 0 && only.MatchString(v.name) {
					group, matches = append(group, v), true
				}
			}
		}
		if matches {
			matching = append(matching, group...)
		}
	}
	return matching
}

// ops is how many operations of a variant are timed in a round.
func (v *variant) ops(n, clients int) int {
	creates := max(1, n*min(clients, fullLoad)/fullLoad)
	switch {
	case v.deletes:
		return max(creates/loops, 4*clients)
	case v.pause > 0:
		return max(creates/2, 10)
	}
	return creates
}

// sample is what one run measured under one name.
type sample struct {
	name      string
	n         int
	p50, p99  time.Duration
	perSecond float64
	failed    int
	cpu       usage
	counters  apiServerCounters // for each
}

// compare measures the variants in rounds.
func (b *bench) compare(ctx context.Context, o options, variants []variant) ([]figure, error) {
	type cell struct {
		name    string
		clients int
	}
	samples := map[cell][]sample{}
	var cells []cell // in the order of the table
	baseline := map[string]string{}
	for round := range o.rounds {
		for _, clients := range o.clients {
			for turn := range variants {
				v := variants[(turn+round)%len(variants)]
				if v.pause > 0 && clients > 1 {
					continue
				}
				measured, err := b.run(ctx, &v, clients, v.ops(o.n, clients))
				if err != nil {
					return nil, fmt.Errorf("%s, %d clients: %w", v.name, clients, err)
				}
				for _, s := range measured {
					at := cell{s.name, clients}
					if baseline[s.name] = v.baseline; samples[at] == nil {
						cells = append(cells, at)
					}
					samples[at] = append(samples[at], s)
					s.report(round, o.rounds, clients)
				}
			}
		}
	}
	slices.SortStableFunc(cells, func(x, y cell) int { return cmp.Compare(baseline[x.name], baseline[y.name]) })
	var figures []figure
	for _, at := range cells {
		figures = append(figures, figureOf(at.clients, samples[at], samples[cell{baseline[at.name], at.clients}]))
	}
	return figures, nil
}

func (s *sample) report(round, rounds, clients int) {
	progress("round %d/%d, %d clients: %s: %.2f ms, %.0f/s, others %.0f %%", round+1, rounds, clients, s.name, ms(s.p50), s.perSecond, 100*s.cpu.others)
}

// run measures one variant once, in a namespace of its own, and cleans up.
func (b *bench) run(ctx context.Context, v *variant, clients, n int) ([]sample, error) {
	c, err := b.newCollection(ctx, v.subject)
	if err != nil {
		return nil, err
	}
	called, err := b.idleCalls()
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx, clients); err != nil {
		return nil, err
	}
	var measured []sample
	before := b.readCPU()
	counted, err := b.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	if v.deletes {
		measured, err = c.createAndDelete(ctx, v.name, clients, n)
	} else {
		measured, err = c.createAll(ctx, v, clients, n, warmUp*clients)
	}
	if err != nil {
		return nil, err
	}
	spent := b.readCPU().since(before, n)
	counters, err := b.readCounters(ctx)
	if err != nil {
		return nil, err
	}
	for i := range measured {
		measured[i].cpu = spent
		measured[i].counters = apiServerCounters{(counters.allocated - counted.allocated) / float64(n), (counters.writes - counted.writes) / float64(n)}
	}
	calls, err := b.idleCalls()
	if err != nil {
		return nil, err
	}
	if want := 2 * (n + warmUp*clients); v.idle != "" && calls-called != want {
		return nil, fmt.Errorf("the idle webhooks were called %d times, want %d", calls-called, want)
	}
	if v.writes.object {
		if err := c.beside().clear(ctx); err != nil {
			return nil, err
		}
	}
	return measured, c.remove(ctx)
}

// warm lets each client create its first objects, and waits until nothing of them is
// under way any more.
func (c *collection) warm(ctx context.Context, clients int) error {
	return c.add(ctx, "warm", clients, warmUp*clients, 0)
}

// add creates n objects beside those that exist already. Of claims it returns when all
// have their status.
func (c *collection) add(ctx context.Context, prefix string, clients, n, exist int) error {
	bodies := c.bodies(prefix, n)
	if _, err := timed(clients, n, 0, func(i int) error { return c.create(ctx, bodies[i]) }); err != nil || !c.hasPool {
		return err
	}
	return c.awaitReady(ctx, exist+n)
}

// createAll creates n objects beside those that exist already. Of claims a second sample
// says when all had their status.
func (c *collection) createAll(ctx context.Context, v *variant, clients, n, exist int) ([]sample, error) {
	name, bodies := v.name, c.bodies("bench", n)
	start := time.Now()
	calls, err := timed(clients, n, v.pause, func(i int) error {
		answer, err := c.created(ctx, bodies[i])
		if err != nil {
			return err
		}
		return c.write(ctx, v.writes, nameOf("bench", i), answer)
	})
	if err != nil {
		return nil, err
	}
	answered := time.Since(start)
	created := sampleOf(name, calls, answered)
	if !c.hasPool {
		return []sample{created}, nil
	}
	if err := c.awaitReady(ctx, exist+n); err != nil {
		return nil, err
	}
	all := time.Since(start)
	drain := all - answered
	return []sample{created, {name: name + statusesWritten, n: n, p50: drain, p99: drain, perSecond: float64(n) / all.Seconds()}}, nil
}

// createAndDelete creates n objects and deletes each as soon as it is created.
func (c *collection) createAndDelete(ctx context.Context, name string, clients, n int) (measured []sample, err error) {
	bodies := c.bodies("bench", n)
	gone := make(map[string]chan struct{}, n)
	for i := range n {
		gone[nameOf("bench", i)] = make(chan struct{})
	}
	group, ctx := errgroup.WithContext(ctx)
	if c.hasPool {
		changes, err := c.following(ctx, c.storage())
		if err != nil {
			return nil, err
		}
		group.Go(func() error {
			left := n
			return changes.until(ctx, func(o *object, deleted bool) bool {
				if is := gone[o.Metadata.Name]; is != nil && deleted {
					close(is)
					left--
				}
				return left == 0
			})
		})
	}
	group.Go(func() error {
		start := time.Now()
		calls, err := timed(clients, n, 0, func(i int) error {
			object := nameOf("bench", i)
			if err := c.create(ctx, bodies[i]); err != nil {
				return err
			}
			if err := c.delete(ctx, object); err != nil || !c.hasPool {
				return err
			}
			select {
			case <-gone[object]:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
		if err == nil {
			measured = []sample{sampleOf(name, calls, time.Since(start))}
		}
		return err
	})
	return measured, group.Wait()
}

// timed calls do for 0 to n-1 from a number of clients, each with a pause after a call,
// and returns the duration of each call. It stops at the first error.
func timed(clients, n int, pause time.Duration, do func(i int) error) ([]time.Duration, error) {
	var next atomic.Int64
	var group errgroup.Group
	calls := make([]time.Duration, n)
	for range clients {
		group.Go(func() error {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				start := time.Now()
				if err := do(i); err != nil {
					next.Store(int64(n))
					return err
				}
				calls[i] = time.Since(start)
				time.Sleep(pause)
			}
			return nil
		})
	}
	return calls, group.Wait()
}

func sampleOf(name string, calls []time.Duration, all time.Duration) sample {
	return sample{name: name, n: len(calls), p50: quantile(calls, 0.50), p99: quantile(calls, 0.99), perSecond: float64(len(calls)) / all.Seconds()}
}

// quantile is the smallest value with at least the share q of all at or below it. It
// sorts them.
func quantile[T cmp.Ordered](values []T, q float64) T {
	slices.Sort(values)
	return values[min(len(values)-1, int(q*float64(len(values))))]
}

func median[T cmp.Ordered](values []T) T { return quantile(values, 0.5) }

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
