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

// lagging are those whose status follows their answer.
var lagging = []subject{alloc, ipClaim, addressClaim}

func (s subject) lagName() string { return fmt.Sprintf("%s, status lag at %d/s", s.name, lagRate) }

// measureLag creates claims at a steady rate, each kind in a sandbox of its own.
func measureLag(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, of := range lagging {
		if !o.only.MatchString(of.lagName()) {
			continue
		}
		measured, err := onSandbox(ctx, 1, func(b *bench) ([]figure, error) { return b.statusLag(ctx, of) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", of.lagName(), err)
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// statusLag takes the time from each answer until the object is stored as Ready.
func (b *bench) statusLag(ctx context.Context, of subject) ([]figure, error) {
	c, err := b.newCollection(ctx, of)
	if err != nil {
		return nil, err
	}
	if err := c.warm(ctx, 1); err != nil {
		return nil, err
	}
	const n = int(lagFor/time.Second) * lagRate
	bodies, index := c.bodies("lag", n), indexOf("lag", n)
	answered, ready := make([]time.Time, n), make([]time.Time, n)
	group, following := errgroup.WithContext(ctx)
	changes, err := c.following(ctx, c.storage())
	if err != nil {
		return nil, err
	}
	before := b.readCPU()
	group.Go(func() error { return changes.until(following, stamp(ready, index, (*object).name, (*object).ready)) })
	tick := time.NewTicker(time.Second / lagRate)
	defer tick.Stop()
	start := time.Now()
	for i := range n {
		select {
		case <-tick.C:
		case <-following.Done():
			return nil, group.Wait()
		}
		group.Go(func() error {
			err := c.create(following, bodies[i])
			answered[i] = time.Now()
			return err
		})
	}
	created := time.Since(start)
	if err := group.Wait(); err != nil {
		return nil, err
	}
	lags := make([]time.Duration, n)
	for i := range lags {
		lags[i] = max(0, ready[i].Sub(answered[i])) // etcd may be ahead of the answer
	}
	s := sampleOf(of.lagName(), lags, created)
	s.cpu = b.readCPU().since(before, n)
	return []figure{figureOf(0, []sample{s}, nil)}, nil
}
