package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	lagRate = 100 // creates per second
	lagFor  = 20 * time.Second
)

var lagName = fmt.Sprintf("status lag at %d/s", lagRate)

// statusLag creates IPAllocations at a steady rate and takes the time from each answer until a watch shows it Ready.
func (b *bench) statusLag(ctx context.Context) (figure, error) {
	c, err := b.newCollection(ctx, alloc)
	if err != nil {
		return figure{}, err
	}
	const n = int(lagFor/time.Second) * lagRate
	bodies, index := c.bodies("lag", n), map[string]int{}
	for i := range n {
		index[nameOf("lag", i)] = i
	}
	answered, ready := make([]time.Time, n), make([]time.Time, n)
	group, watching := errgroup.WithContext(ctx)
	w, err := c.watch(watching)
	if err != nil {
		return figure{}, err
	}
	before := b.readCPU()
	group.Go(func() error {
		left := n
		return w.until(func(e *event) bool {
			if at := &ready[index[e.Object.Metadata.Name]]; at.IsZero() && e.Object.ready() {
				*at = time.Now()
				left--
			}
			return left == 0
		})
	})
	tick := time.NewTicker(time.Second / lagRate)
	defer tick.Stop()
	start := time.Now()
	for i := range n {
		select {
		case <-tick.C:
		case <-watching.Done():
			return figure{}, group.Wait()
		}
		group.Go(func() error {
			err := c.create(watching, bodies[i])
			answered[i] = time.Now()
			return err
		})
	}
	created := time.Since(start)
	if err := group.Wait(); err != nil {
		return figure{}, err
	}
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = max(0, ready[i].Sub(answered[i])) // the watch may be ahead of the answer
	}
	s := sampleOf(lagName, lags, created)
	s.cpu = b.readCPU().since(before, n)
	return figureOf(0, []sample{s}, nil), c.remove(ctx)
}
