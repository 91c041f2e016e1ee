package plan_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// world simulates four tenants on two pools that are too small for them, in steps of one
// second. The MetalLB of a tenant applies changes late. Decisions are carried out as by a
// session, but late, and the simulated session sometimes loses its memory.
type world struct {
	t         *testing.T
	rng       *rand.Rand
	now       time.Time
	timing    plan.Timing
	space     *allocator.Space
	pools     map[string]*allocator.Pool
	lastOwner allocator.OwnerID
	tenants   []*simulated
	changes   int // of allocations, MetalLB pools and idle times
}

type simulated struct {
	plan.Tenant
	policy   plan.Policy
	blocks   map[string]*plan.Block
	owners   map[string]allocator.OwnerID
	lastUsed map[string]time.Time // block -> last second in which a Service had an address of the block

	services     map[string]*balanced
	created      int
	pool         []allocator.Range // IPAddressPool as stored
	applied      []allocator.Range // IPAddressPool as applied by MetalLB, up to 3 s later
	stored       time.Time
	missingSince map[string]time.Time // memory of the session
	broken       bool                 // MetalLB no longer assigns addresses
}

type balanced struct {
	since time.Time
	addr  netip.Addr
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: noon, space: allocator.NewSpace(), pools: map[string]*allocator.Pool{},
		timing: plan.Timing{PendingAfter: time.Second, HeadroomAfter: 30 * time.Second, ShrinkAfter: 2 * time.Minute, Settle: 5 * time.Second},
	}
	w.pools["a"] = w.space.SetPool("a", []allocator.Range{rangeOf(t, "10.40.0.0/27")}, nil)
	w.pools["b"] = w.space.SetPool("b", []allocator.Range{rangeOf(t, "10.41.0.0/29")}, nil)
	for i := range 4 {
		p := policy(t, `{mode: ipam, poolRefs: [{name: b, priority: 1}, {name: a}], loadBalancer: {allocationMode: elastic}, quotaPerTenant: {maxLoadBalancerIPs: 14}}`)
		p.Increment = int32(1 + w.rng.IntN(3))
		s := &simulated{
			Tenant: plan.Tenant{Namespace: "team", Name: fmt.Sprint("t", i), UID: fmt.Sprint(i), Ingress: i > 0}, policy: p,
			blocks: map[string]*plan.Block{}, owners: map[string]allocator.OwnerID{}, lastUsed: map[string]time.Time{},
			services: map[string]*balanced{}, missingSince: map[string]time.Time{},
		}
		w.tenants = append(w.tenants, s)
		if i > 0 {
			if ok, _ := w.create(s, plan.InitialName(s.Tenant, v1alpha1.TypeLoadBalancer, s.taken), plan.Candidate{Pool: "a", Count: p.InitialSize}, false); !ok {
				t.Fatal("no initial block")
			}
		}
	}
	return w
}

func (s *simulated) taken(name string) bool { return s.blocks[name] != nil }

func (s *simulated) sorted() (blocks []plan.Block) {
	for _, name := range slices.Sorted(maps.Keys(s.blocks)) {
		blocks = append(blocks, *s.blocks[name])
	}
	return blocks
}

// used returns how many addresses of a block Services have.
func (s *simulated) used(b *plan.Block) (n int) {
	for _, service := range s.services {
		if b.Range.Contains(service.addr) {
			n++
		}
	}
	return n
}

func (s *simulated) freeInGrowthBlocks() (n int) {
	for _, b := range s.blocks {
		if b.Growth {
			n += int(b.Range.Size()) - s.used(b)
		}
	}
	return n
}

func (w *world) create(s *simulated, name string, c plan.Candidate, growth bool) (bool, error) {
	w.lastOwner++
	r, err := w.pools[c.Pool].Allocate(int64(c.Count), allocator.BestFit, w.lastOwner)
	if errors.Is(err, allocator.ErrExhausted) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.changes++
	s.blocks[name] = &plan.Block{Name: name, Pool: c.Pool, Kind: v1alpha1.TypeLoadBalancer, Growth: growth, Range: r, Ready: true, Replaceable: true}
	s.owners[name], s.lastUsed[name] = w.lastOwner, w.now
	return true, nil
}

// addService creates a Service.
func (s *simulated) addService(now time.Time) {
	s.created++
	s.services[fmt.Sprint(s.created)] = &balanced{since: now}
}

// changeServices creates and deletes Services at random.
func (w *world) changeServices(s *simulated) {
	for range w.rng.IntN(3) {
		if w.rng.IntN(40) == 0 && len(s.services) < 20 {
			s.addService(w.now)
		}
		if w.rng.IntN(30+200/(1+len(s.services))) == 0 && len(s.services) > 0 {
			names := slices.Sorted(maps.Keys(s.services))
			delete(s.services, names[w.rng.IntN(len(names))])
		}
	}
	if w.rng.IntN(600) == 0 {
		clear(s.services)
	}
	for burst := w.rng.IntN(300) / 299 * 5; burst > 0; burst-- {
		s.addService(w.now)
	}
}

// runMetalLB applies a configuration up to three seconds after it was stored, less than
// Timing.Settle. A Service loses an address that has left the pool.
func (w *world) runMetalLB(s *simulated) {
	if w.now.Sub(s.stored) >= 3*time.Second || w.rng.IntN(2) == 0 {
		s.applied = s.pool
	}
	inPool := func(a netip.Addr) bool {
		return slices.ContainsFunc(s.applied, func(r allocator.Range) bool { return r.Contains(a) })
	}
	used := map[netip.Addr]bool{}
	for _, b := range s.services {
		if b.addr.IsValid() && !inPool(b.addr) {
			b.addr, b.since = netip.Addr{}, w.now
		}
		used[b.addr] = true
	}
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		b := s.services[name]
		if b.addr.IsValid() || s.broken || w.rng.IntN(4) == 0 {
			continue
		}
		for _, r := range s.applied {
			for a := range r.Addresses() {
				if !used[a] && !b.addr.IsValid() {
					b.addr, used[a] = a, true
				}
			}
		}
	}
	for name, block := range s.blocks {
		for a := range used {
			if a.IsValid() && block.Range.Contains(a) {
				s.lastUsed[name] = w.now
			}
		}
	}
}

// runSession makes one decision and carries it out.
func (w *world) runSession(s *simulated) {
	if w.rng.IntN(200) == 0 {
		clear(s.missingSince) // restart
	}
	for name, b := range s.blocks {
		switch in := slices.Contains(s.pool, b.Range); {
		case in:
			delete(s.missingSince, name)
		case s.missingSince[name].IsZero():
			s.missingSince[name] = w.now
		}
	}
	v := plan.View{InPool: s.pool, MissingSince: s.missingSince}
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		k := balancer(name)
		b := s.services[name]
		if b.addr.IsValid() {
			k.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: b.addr.String()}}
		}
		v.Services = append(v.Services, plan.ServiceOf(k, ipv4, b.since, false))
	}
	decision := plan.Decide(s.Tenant, s.policy, s.sorted(), v, w.timing, w.now)

	for _, name := range decision.BecameIdle {
		s.blocks[name].IdleSince = w.now
		w.changes++
	}
	for _, name := range decision.BecameUsed {
		s.blocks[name].IdleSince = time.Time{}
		w.changes++
	}
	for _, name := range decision.Release {
		w.release(s, name)
	}
	if !slices.Equal(decision.Offered, s.pool) {
		s.pool, s.stored = decision.Offered, w.now
		w.changes++
	}
	if waits, free := plan.CountServices(v.Services).Waiting, s.freeInGrowthBlocks(); decision.Need > 0 && int(decision.Need)+free > waits {
		w.t.Fatalf("%s: %s needs %d addresses for %d Services and has %d free growth addresses", w.now, s.Name, decision.Need, waits, free)
	}
	_, err := plan.AllocateParts(s.policy.Pools, decision.Need, decision.Want, func(c plan.Candidate) (bool, error) {
		return w.create(s, plan.GrowthName(s.Tenant, s.taken), c, true)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) release(s *simulated, name string) {
	b := s.blocks[name]
	if idle := w.now.Sub(s.lastUsed[name]); idle < w.timing.ShrinkAfter {
		w.t.Fatalf("%s: %s of %s is released after it was unused for %s", w.now, name, s.Name, idle)
	}
	if slices.ContainsFunc(s.applied, b.Range.Overlaps) {
		w.t.Fatalf("%s: %s of %s is released while MetalLB offers the addresses", w.now, name, s.Name)
	}
	w.space.Release(b.Range, s.owners[name])
	delete(s.blocks, name)
	delete(s.missingSince, name)
	w.changes++
}

// step advances the simulation by one second.
func (w *world) step(load bool) {
	w.now = w.now.Add(time.Second)
	for _, s := range w.tenants {
		if load {
			w.changeServices(s)
		}
		w.runMetalLB(s)
		if w.rng.IntN(4) > 0 {
			w.runSession(s)
		}
		var owned int64
		for _, b := range s.blocks {
			owned += b.Range.Size()
		}
		if owned > int64(s.policy.MaxLoadBalancers) {
			w.t.Fatalf("%s: %s has %d addresses, its quota is %d", w.now, s.Name, owned, s.policy.MaxLoadBalancers)
		}
	}
}

func TestSimulation_ReachesFixedPoint(t *testing.T) {
	var grown, denied, exhausted int
	for seed := range uint64(4) {
		w := newWorld(t, seed)
		for range 15 * 60 {
			w.step(true)
		}
		grown += w.changes
		w.tenants[seed%2].broken = true
		for range 3 {
			w.tenants[seed%2].addService(w.now)
		}
		for range 4 * 60 { // idle times end, MetalLB pools shrink, and Services move
			w.step(false)
		}
		w.changes = 0
		for range 8 * 60 { // four times ShrinkAfter
			w.step(false)
		}
		if w.changes > 0 {
			t.Fatalf("seed %d: %d changes although no Service changes", seed, w.changes)
		}
		for _, s := range w.tenants {
			if s.broken {
				continue // its Services cannot be served
			}
			var free, owned, waits int64
			for _, b := range s.blocks {
				n := s.used(b)
				owned += b.Range.Size()
				free += b.Range.Size() - int64(n)
				if b.Growth && n == 0 {
					t.Errorf("seed %d: %s has the unused block %s", seed, s.Name, b.Name)
				}
			}
			for _, service := range s.services {
				if !service.addr.IsValid() {
					waits++
				}
			}
			var room int64
			for _, p := range w.pools {
				room += p.Stats().Available
			}
			switch {
			case waits == 0:
			case free > 0:
				t.Errorf("seed %d: %d Services of %s wait, %d addresses are free", seed, waits, s.Name, free)
			case owned == int64(s.policy.MaxLoadBalancers):
				denied++
			case room == 0:
				exhausted++
			default:
				t.Errorf("seed %d: %d Services of %s wait, although its quota and the pools have room (%d)", seed, waits, s.Name, room)
			}
		}
	}
	if grown == 0 || denied == 0 || exhausted == 0 {
		t.Errorf("the load covers too little: %d changes, %d tenants at their quota, %d without room", grown, denied, exhausted)
	}
	t.Logf("%d changes under load, %d tenants at their quota, %d without room", grown, denied, exhausted)
}
