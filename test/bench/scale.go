package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// stocks are what is stored while take-over and memory are measured.
var stocks = []stock{{1, 1_000}, {10, 1_000}, {5, 10_000}, {10, 10_000}, {1_000, 100}}

// takeOverClients create objects while the leader is killed.
const takeOverClients = 16

func (s stock) startToGrant() string    { return "start of all managers to first grant, " + s.String() }
func (s stock) killToGrant() string     { return "kill of the leader to first grant, " + s.String() }
func (s stock) fenceToServing() string  { return "fence to serving, " + s.String() }
func (s stock) memory(of string) string { return "memory of the " + of + ", " + s.String() }

const (
	leaderRole   = "leader"
	followerRole = "follower"
)

// measureScale measures what depends on how much is stored.
func measureScale(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, s := range stocks {
		takeOver := slices.ContainsFunc([]string{s.killToGrant(), s.fenceToServing()}, o.only.MatchString)
		memory := slices.ContainsFunc([]string{s.memory(leaderRole), s.memory(followerRole), s.startToGrant()}, o.only.MatchString)
		if !takeOver && !memory {
			continue
		}
		measured, err := onSandbox(ctx, 0, func(b *bench) ([]figure, error) {
			figures, err := b.store(ctx, s)
			if err != nil || !takeOver {
				return figures, err
			}
			times, err := b.takeOvers(ctx, o, s)
			return append(times, figures...), err
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s, err)
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// store brings two managers up with a stock, and measures what memory it takes.
func (b *bench) store(ctx context.Context, s stock) ([]figure, error) {
	for range 2 {
		if _, err := b.sandbox.AddManager(ctx); err != nil {
			return nil, err
		}
	}
	if err := b.sandbox.InstallWebhooks(ctx); err != nil {
		return nil, err
	}
	empty, err := b.footprints(ctx)
	if err != nil {
		return nil, err
	}
	first, err := b.createPools(ctx, s)
	if err != nil {
		return nil, err
	}
	managers := b.sandbox.Managers()
	if err := end(ctx, managers...); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.seed(ctx, s, first); err != nil {
		return nil, err
	}
	_, seeded, err := changed(ctx, b.etcd, storage, 0)
	if err != nil {
		return nil, err
	}
	if err := b.digested(ctx, seeded); err != nil {
		return nil, err
	}
	progress("%s, after %.1f s", s, time.Since(began).Seconds())
	starts, err := b.startAll(ctx, s, first)
	if err != nil {
		return nil, err
	}
	if err := b.counted(ctx, s); err != nil {
		return nil, err
	}
	full, err := b.footprints(ctx)
	if err != nil {
		return nil, err
	}
	written, _, err := changed(ctx, b.etcd, storage+"ipallocations/", seeded)
	if err != nil {
		return nil, err
	}
	if written > 0 {
		return nil, fmt.Errorf("the managers have written to %d allocations, want none: they were as they should be", written)
	}
	n := float64(s.pools * s.each)
	figures := []figure{starts}
	for _, role := range []string{leaderRole, followerRole} {
		was, is := empty[role], full[role]
		f := figure{table: memoryTable, Name: s.memory(role), N: int(n), HeapBytes: float64(is.heap-was.heap) / n,
			ResidentBytes: float64(is.resident-was.resident) / n, PeakBytes: float64(is.peak-was.resident) / n}
		progress("%s: empty %+v, full %+v", f.Name, was, is)
		figures = append(figures, f)
	}
	return figures, nil
}

// startAll starts all managers, of which none runs, and measures the time until a create
// would be granted addresses: a dry run changes nothing.
func (b *bench) startAll(ctx context.Context, s stock, model *v1alpha1.IPAllocation) (figure, error) {
	before, began := b.readCPU(), time.Now()
	for _, m := range b.sandbox.Managers() {
		if err := m.Start(); err != nil {
			return figure{}, err
		}
	}
	err := await(ctx, func(ctx context.Context) error {
		a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: stockNamespace}}
		a.Spec.PoolRef, a.Spec.TenantClusterRef, a.Spec.Type = model.Spec.PoolRef, model.Spec.TenantClusterRef, model.Spec.Type
		return b.setup.Create(ctx, a, client.DryRunAll)
	})
	if err != nil {
		return figure{}, err
	}
	grant := sample{name: s.startToGrant(), p50: time.Since(began), cpu: usage{others: b.readCPU().since(before, 1).others}}
	for _, m := range b.sandbox.Managers() {
		if err := m.Ready(ctx); err != nil {
			return figure{}, err
		}
	}
	ready := time.Since(began)
	if err := b.rest(ctx); err != nil {
		return figure{}, err
	}
	used := b.readCPU().since(before, 1)
	for _, m := range b.sandbox.Managers() {
		progress("%s used %.1f s of CPU from the start until it rested", m.Name(), used.perOp[m.Name()].Seconds())
	}
	progress("%s: %.1f s, all ready after %.1f s, others %.0f %%", grant.name, grant.p50.Seconds(), ready.Seconds(), 100*grant.cpu.others)
	return outageFigure(1, []sample{grant}), nil
}

// footprints of two managers, by what they are.
func (b *bench) footprints(ctx context.Context) (map[string]footprint, error) {
	leader, err := b.awaitLeader(ctx, b.sandbox.Managers()...)
	if err != nil {
		return nil, err
	}
	if err := b.rest(ctx); err != nil {
		return nil, err
	}
	all := map[string]footprint{}
	for _, m := range b.sandbox.Managers() {
		role := followerRole
		if m == leader {
			role = leaderRole
		}
		if all[role], err = footprintOf(ctx, m); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// idle is the share of one CPU below which a manager has nothing to do but renew the
// journal.
const idle = 0.05

// rest waits until the managers have nothing to do.
func (b *bench) rest(ctx context.Context) error {
	before, since := b.readCPU(), time.Now()
	return await(ctx, func(context.Context) error {
		if time.Since(since) < time.Second {
			return errors.New("the managers have work")
		}
		used, took := b.readCPU().since(before, 1), time.Since(since)
		before, since = b.readCPU(), time.Now()
		for _, m := range b.sandbox.Managers() {
			if used.perOp[m.Name()] > time.Duration(idle*float64(took)) {
				return fmt.Errorf("%s is at work", m.Name())
			}
		}
		return nil
	})
}

// takeOvers kills the leader again and again.
func (b *bench) takeOvers(ctx context.Context, o options, s stock) ([]figure, error) {
	var grants, fences []sample
	for round := range o.rounds {
		if err := b.rest(ctx); err != nil {
			return nil, err
		}
		c, err := b.newCollection(ctx, alloc)
		if err != nil {
			return nil, err
		}
		grant, fence, err := c.takeOver(ctx, s)
		if err != nil {
			return nil, err
		}
		progress("round %d/%d, %s: first grant %.0f ms after the kill, serving %.0f ms after the fence, %d creates failed, others %.0f %%",
			round+1, o.rounds, s, ms(grant.p50), ms(fence.p50), grant.failed, 100*grant.cpu.others)
		grants, fences = append(grants, grant), append(fences, fence)
		if err := c.remove(ctx); err != nil {
			return nil, err
		}
	}
	return []figure{outageFigure(takeOverClients, grants), outageFigure(takeOverClients, fences)}, nil
}

// takeOver kills the leader under load, and starts it again.
func (c *collection) takeOver(ctx context.Context, s stock) (grant, fence sample, err error) {
	leader, err := c.awaitLeader(ctx, c.sandbox.Managers()...)
	if err != nil {
		return grant, fence, err
	}
	load := c.startLoad(ctx, takeOverClients)
	if _, err := load.awaitAnswers(ctx, 5*takeOverClients, time.Time{}); err != nil {
		return grant, fence, err
	}
	before, killed := c.readCPU(), time.Now()
	if err := leader.Kill(); err != nil {
		return grant, fence, err
	}
	first, err := load.awaitAnswers(ctx, 5*takeOverClients, killed)
	if err != nil {
		return grant, fence, err
	}
	used := usage{others: c.readCPU().since(before, 1).others}
	load.stop()
	grant = sample{name: s.killToGrant(), p50: first.Sub(killed), cpu: used}
	for _, call := range load.wait() {
		if call.err != nil {
			grant.failed++
		}
	}
	successor, err := c.awaitLeader(ctx, c.followers(leader)...)
	if err != nil {
		return grant, fence, err
	}
	took, err := lastTakeOver(successor)
	if err != nil {
		return grant, fence, err
	}
	return grant, sample{name: s.fenceToServing(), p50: took, cpu: used}, revive(ctx, leader)
}

// lastTakeOver reads from a manager's log how long it took from the fence until it
// served.
func lastTakeOver(m *sandbox.Manager) (took time.Duration, err error) {
	log, err := os.Open(m.LogPath())
	if err != nil {
		return 0, err
	}
	defer log.Close()
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		var line struct{ Msg, Took string }
		if json.Unmarshal(lines.Bytes(), &line) == nil && line.Msg == "Leading" {
			if took, err = time.ParseDuration(line.Took); err != nil {
				return 0, err
			}
		}
	}
	if took == 0 {
		return 0, fmt.Errorf("%s does not say that it holds the journal", m.Name())
	}
	return took, lines.Err()
}
