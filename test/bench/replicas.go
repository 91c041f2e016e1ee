package main

import (
	"context"
	"fmt"
	"slices"

	"butlerlabs.dev/ipam/test/sandbox"
)

const (
	replicas = 3
	// crowd is how many clients share several replicas.
	crowd = 64
)

var (
	throughLeader   = alloc.name + " create, through the leader"
	throughFollower = alloc.name + " create, through a follower"
)

func withReplicas(n int) string {
	return fmt.Sprintf("%s create, %d of %d replicas", alloc.name, n, replicas)
}

// arrangement is a way to run the managers.
type arrangement struct {
	name    string
	prepare func(context.Context) error
}

// measureReplicas measures what it costs that several replicas answer, and that a call is
// passed on.
func measureReplicas(ctx context.Context, o options) ([]figure, error) {
	several := slices.ContainsFunc([]string{withReplicas(replicas), withReplicas(replicas) + statusesWritten}, o.only.MatchString)
	passedOn := o.only.MatchString(throughFollower)
	if !several && !passedOn {
		return nil, nil
	}
	return onSandbox(ctx, replicas, func(b *bench) (figures []figure, err error) {
		if several {
			figures, err = b.duel(ctx, o, crowd,
				arrangement{withReplicas(1), func(ctx context.Context) error { return b.runOnly(ctx, 1) }},
				arrangement{withReplicas(replicas), func(ctx context.Context) error { return b.runOnly(ctx, replicas) }})
		}
		if err != nil || !passedOn {
			return figures, err
		}
		front, behind, spare := b.sandbox.Managers()[0], b.sandbox.Managers()[1], b.sandbox.Managers()[2:]
		if err := b.leaveOnly(ctx, front, behind, spare); err != nil {
			return nil, err
		}
		calls, err := b.duel(ctx, o, 1,
			arrangement{throughLeader, func(ctx context.Context) error { return b.give(ctx, front) }},
			arrangement{throughFollower, func(ctx context.Context) error { return b.give(ctx, behind) }})
		return append(figures, calls...), err
	})
}

// duel measures two arrangements in turn. The first is the other's baseline.
func (b *bench) duel(ctx context.Context, o options, clients int, arrangements ...arrangement) ([]figure, error) {
	samples := make([][][]sample, len(arrangements)) // of each: of each figure: of each round
	for round := range o.rounds {
		for turn := range arrangements {
			at := (turn + round) % len(arrangements)
			v := variant{subject: alloc, name: arrangements[at].name}
			if err := arrangements[at].prepare(ctx); err != nil {
				return nil, fmt.Errorf("%s: %w", v.name, err)
			}
			measured, err := b.run(ctx, &v, clients, v.ops(o.n, clients))
			if err != nil {
				return nil, fmt.Errorf("%s, %d clients: %w", v.name, clients, err)
			}
			if samples[at] == nil {
				samples[at] = make([][]sample, len(measured))
			}
			for i, s := range measured {
				samples[at][i] = append(samples[at][i], s)
				s.report(round, o.rounds, clients)
			}
		}
	}
	var figures []figure
	for i := range samples[0] {
		for at := range arrangements {
			figures = append(figures, figureOf(clients, samples[at][i], samples[0][i]))
		}
	}
	return figures, nil
}

// runOnly has the first n managers run, and no others: all of them anew, so that the API
// server has no connection from before.
func (b *bench) runOnly(ctx context.Context, n int) error {
	all := b.sandbox.Managers()
	if err := end(ctx, all...); err != nil {
		return err
	}
	if err := start(ctx, all[:n]...); err != nil {
		return err
	}
	_, err := b.awaitLeader(ctx, all[:n]...)
	return err
}

// leaveOnly has one manager behind the Service and another beside it, and no more.
func (b *bench) leaveOnly(ctx context.Context, front, behind *sandbox.Manager, others []*sandbox.Manager) error {
	for _, m := range append(others, behind) {
		b.sandbox.Front().Remove(m.Name())
	}
	if err := end(ctx, b.sandbox.Managers()...); err != nil {
		return err
	}
	return start(ctx, front, behind)
}

// give has a manager hold the journal: the one that does is ended and started again.
func (b *bench) give(ctx context.Context, to *sandbox.Manager) error {
	is, err := b.awaitLeader(ctx, b.sandbox.Managers()...)
	if err != nil || is == to {
		return err
	}
	if err := end(ctx, is); err != nil {
		return err
	}
	if _, err := b.awaitLeader(ctx, to); err != nil {
		return err
	}
	return start(ctx, is)
}
