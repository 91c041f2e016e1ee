package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/test/sandbox"
)

// outage is a way for the leader to be gone.
type outage struct {
	signal string
	begin  func(*sandbox.Manager) error
	// watched is for how long creates go on after it began.
	watched time.Duration
	end     func(context.Context, *sandbox.Manager) error
}

var outages = []outage{
	{"SIGTERM", (*sandbox.Manager).Terminate, 6 * time.Second, revive},
	{"SIGKILL", (*sandbox.Manager).Kill, 6 * time.Second, revive},
	{"SIGSTOP", (*sandbox.Manager).Freeze, 20 * time.Second, func(_ context.Context, m *sandbox.Manager) error { return m.Thaw() }},
}

func (o outage) name() string { return "longest gap between responses, " + o.signal + " of the leader" }

func revive(ctx context.Context, m *sandbox.Manager) error {
	if err := m.Wait(ctx); ctx.Err() != nil {
		return err
	}
	return start(ctx, m)
}

// measureOutages measures for how long nobody is answered when the leader is gone.
func measureOutages(ctx context.Context, o options) ([]figure, error) {
	wanted := slices.DeleteFunc(slices.Clone(outages), func(out outage) bool { return !o.only.MatchString(out.name()) })
	if len(wanted) == 0 {
		return nil, nil
	}
	return onSandbox(ctx, replicas, func(b *bench) ([]figure, error) {
		samples := make([][]sample, len(wanted))
		for round := range o.rounds {
			for i, out := range wanted {
				s, err := b.suffer(ctx, out)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", out.name(), err)
				}
				samples[i] = append(samples[i], s)
				progress("round %d/%d, %d clients: %s: %.0f ms, %d creates answered, %d failed, others %.0f %%",
					round+1, o.rounds, crowd, s.name, ms(s.p50), s.n, s.failed, 100*s.cpu.others)
			}
		}
		var figures []figure
		for _, s := range samples {
			figures = append(figures, outageFigure(crowd, s))
		}
		return figures, nil
	})
}

// suffer has a crowd create objects while the leader goes.
func (b *bench) suffer(ctx context.Context, out outage) (sample, error) {
	c, err := b.newCollection(ctx, alloc)
	if err != nil {
		return sample{}, err
	}
	leader, err := b.awaitLeader(ctx, b.sandbox.Managers()...)
	if err != nil {
		return sample{}, err
	}
	load := c.startLoad(ctx, crowd)
	if _, err := load.awaitAnswers(ctx, 10*crowd, time.Time{}); err != nil {
		return sample{}, err
	}
	before, began := b.readCPU(), time.Now()
	if err := out.begin(leader); err != nil {
		return sample{}, err
	}
	select {
	case <-ctx.Done():
		return sample{}, context.Cause(ctx)
	case <-time.After(out.watched):
	}
	load.stop()
	ended, spent := time.Now(), b.readCPU().since(before, 1)
	if err := out.end(ctx, leader); err != nil {
		return sample{}, err
	}
	calls := load.wait()
	s := sample{name: out.name(), p50: longestGap(calls, began, ended), cpu: usage{others: spent.others}}
	for _, c := range calls {
		if c.err == nil {
			s.n++
			continue
		}
		s.failed++
		progress("failed: %v", c.err)
	}
	if _, err := b.awaitLeader(ctx, b.sandbox.Managers()...); err != nil {
		return sample{}, err
	}
	return s, c.remove(ctx)
}

// longestGap is the longest time between two answers, as far as it lies between two
// moments.
func longestGap(calls []call, from, to time.Time) (gap time.Duration) {
	last := from
	for _, c := range calls {
		if c.err == nil && c.ended.After(from) && c.ended.Before(to) {
			gap = max(gap, c.ended.Sub(last))
			last = c.ended
		}
	}
	return max(gap, to.Sub(last))
}

// outageFigure is the median and the largest over the rounds. The times are their p50.
func outageFigure(clients int, samples []sample) figure {
	f := figure{table: outageTable, Name: samples[0].name, Clients: clients, N: len(samples)}
	var times []time.Duration
	for _, s := range samples {
		times = append(times, s.p50)
		f.Failed += s.failed
		f.Others = max(f.Others, 100*s.cpu.others)
	}
	f.P50, f.P99 = ms(median(times)), ms(slices.Max(times))
	return f
}
