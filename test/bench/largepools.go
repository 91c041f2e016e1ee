package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

const (
	// perLargePool is how many ProxyVIPs a large pool gets, in multiples of -n.
	perLargePool = 10
	fillClients  = 16
)

// largePool is a pool whose size should cost nothing.
type largePool struct{ cidr, family, gives string }

var largePools = []largePool{
	{"10.0.0.0/8", "ipv4", `"address":"10.`},
	{"fd00::/64", "ipv6", `"ipv6Address":"fd00:`},
}

func (p largePool) name(of string) string { return fmt.Sprintf("ProxyIPPool of %s: %s", p.cidr, of) }

// What is measured of a large pool.
const (
	poolCreate = "create"
	poolFill   = "ProxyVIP create"
	poolList   = "list of pool and ProxyVIPs"
	poolMemory = "memory of the manager"
)

// proxyPool is a ProxyIPPool that assigns automatically.
func proxyPool(cidr string) *novaedgev1.ProxyIPPool {
	return &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: poolName}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{cidr}, AutoAssign: true}}
}

// measureLargePools measures pools that are far larger than what is owned of them.
func measureLargePools(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, p := range largePools {
		matches := false
		for _, of := range []string{poolCreate, poolFill, poolList, poolMemory} {
			matches = matches || o.only.MatchString(p.name(of))
		}
		if !matches {
			continue
		}
		measured, err := onSandbox(ctx, 1, func(b *bench) ([]figure, error) { return b.fill(ctx, p, perLargePool*o.n) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.cidr, err)
		}
		figures = append(figures, measured...)
	}
	return figures, nil
}

// fill creates a pool and n ProxyVIPs of it, and lists them.
func (b *bench) fill(ctx context.Context, p largePool, n int) ([]figure, error) {
	of := vip
	of.gives = p.gives
	of.spec = fmt.Sprintf(`{"poolRef":{"name":%q},"addressFamily":%q,"mode":"BGP","ports":[80]}`, poolName, p.family)
	c := &collection{bench: b, subject: of}
	figureFor := func(name string, clients int, calls []time.Duration, all time.Duration) figure {
		return figureOf(clients, []sample{sampleOf(p.name(name), calls, all)}, nil)
	}
	// An API server that was started just now has its first caller of a kind wait for
	// whole seconds.
	if err := b.setup.Create(ctx, proxyPool(p.cidr), client.DryRunAll); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := b.setup.Create(ctx, proxyPool(p.cidr)); err != nil {
		return nil, err
	}
	created := figureFor(poolCreate, 1, []time.Duration{time.Since(began)}, time.Since(began))
	manager := b.sandbox.Managers()[0]
	empty, err := footprintOf(ctx, manager)
	if err != nil {
		return nil, err
	}
	bodies := c.bodies("vip", n)
	began = time.Now()
	calls, err := timed(fillClients, n, 0, func(i int) error { return c.create(ctx, bodies[i]) })
	if err != nil {
		return nil, err
	}
	filled := figureFor(poolFill, fillClients, calls, time.Since(began))
	progress("%s: %d ProxyVIPs after %.1f s", p.cidr, n, time.Since(began).Seconds())
	if err := c.awaitReady(ctx, n); err != nil {
		return nil, err
	}
	if err := await(ctx, func(ctx context.Context) error { return b.listed(ctx, n) }); err != nil {
		return nil, err
	}
	full, err := footprintOf(ctx, manager)
	if err != nil {
		return nil, err
	}
	began = time.Now()
	if err := b.listed(ctx, n); err != nil {
		return nil, err
	}
	listed := figureFor(poolList, 1, []time.Duration{time.Since(began)}, time.Since(began))
	progress("%s: empty %+v, full %+v", p.cidr, empty, full)
	each := func(is, was int64) float64 { return float64(is-was) / float64(n) }
	memory := figure{table: memoryTable, Name: p.name(poolMemory), N: n,
		HeapBytes: each(full.heap, empty.heap), ResidentBytes: each(full.resident, empty.resident), PeakBytes: each(full.peak, empty.resident)}
	return []figure{created, filled, listed, memory}, nil
}

// listed reads the pool and all of its ProxyVIPs, and says whether they are as many.
func (b *bench) listed(ctx context.Context, n int) error {
	var pools novaedgev1.ProxyIPPoolList
	var vips novaedgev1.ProxyVIPList
	if err := b.setup.List(ctx, &pools); err != nil {
		return err
	}
	if err := b.setup.List(ctx, &vips); err != nil {
		return err
	}
	if len(pools.Items) != 1 || len(vips.Items) != n || pools.Items[0].Status.Allocated != int64(n) {
		return fmt.Errorf("%d pools, %d ProxyVIPs, want 1 and %d which the pool counts", len(pools.Items), len(vips.Items), n)
	}
	return nil
}
