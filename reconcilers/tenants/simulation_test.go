package tenants_test

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
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// world is some tenants on two pools that are too small for all of them, with a MetalLB each that is a little slow, while time passes in
// steps of a second. Decisions are carried out as a controller would, but late, and sometimes it forgets what it kept in memory.
type world struct {
	t       *testing.T
	rng     *rand.Rand
	now     time.Time
	timing  tenants.Timing
	space   *allocator.Space
	pools   map[string]*allocator.Pool
	holder  allocator.Holder
	tenants []*simulated
	changes int // of allocations and pools of MetalLB, and clocks
}

type simulated struct {
	tenants.Tenant
	policy   tenants.Policy
	blocks   map[string]*tenants.Block
	holders  map[string]allocator.Holder
	lastUsed map[string]time.Time // block -> the last second in which a Service had an address of it

	services map[string]*balanced
	born     int
	pool     []allocator.Range // of MetalLB, as stored
	applied  []allocator.Range // as MetalLB works with it, some seconds later
	stored   time.Time
	gone     map[string]time.Time // the controller's memory
	broken   bool                 // its MetalLB gives nobody an address any more
}

type balanced struct {
	since time.Time
	addr  netip.Addr
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t: t, rng: rand.New(rand.NewPCG(seed, 1)), now: noon, space: allocator.NewSpace(), pools: map[string]*allocator.Pool{},
		timing: tenants.Timing{PendingAfter: time.Second, HeadroomAfter: 30 * time.Second, ShrinkAfter: 2 * time.Minute, Settle: 5 * time.Second},
	}
	w.pools["a"] = w.space.SetPool("a", []allocator.Range{rangeOf(t, "10.40.0.0/27")}, nil)
	w.pools["b"] = w.space.SetPool("b", []allocator.Range{rangeOf(t, "10.41.0.0/29")}, nil)
	for i := range 4 {
		p := policy(t, `{mode: ipam, poolRefs: [{name: b, priority: 1}, {name: a}], loadBalancer: {allocationMode: elastic}, quotaPerTenant: {maxLoadBalancerIPs: 14}}`)
		p.Increment = int32(1 + w.rng.IntN(3))
		s := &simulated{
			Tenant: tenants.Tenant{Namespace: "team", Name: fmt.Sprint("t", i), UID: fmt.Sprint(i), Ingress: i > 0}, policy: p,
			blocks: map[string]*tenants.Block{}, holders: map[string]allocator.Holder{}, lastUsed: map[string]time.Time{},
			services: map[string]*balanced{}, gone: map[string]time.Time{},
		}
		w.tenants = append(w.tenants, s)
		if i > 0 {
			if ok, _ := w.create(s, tenants.InitialName(s.Tenant, v1alpha1.TypeLoadBalancer, s.taken), tenants.Try{Pool: "a", Count: p.InitialSize}, false); !ok {
				t.Fatal("no first block")
			}
		}
	}
	return w
}

func (s *simulated) taken(name string) bool { return s.blocks[name] != nil }

func (s *simulated) sorted() (blocks []tenants.Block) {
	for _, name := range slices.Sorted(maps.Keys(s.blocks)) {
		blocks = append(blocks, *s.blocks[name])
	}
	return blocks
}

// used is how many addresses of a block Services have.
func (s *simulated) used(b *tenants.Block) (n int) {
	for _, service := range s.services {
		if b.Range.Contains(service.addr) {
			n++
		}
	}
	return n
}

func (s *simulated) freeOfAdded() (n int) {
	for _, b := range s.blocks {
		if b.Growth {
			n += int(b.Range.Size()) - s.used(b)
		}
	}
	return n
}

func (w *world) create(s *simulated, name string, try tenants.Try, growth bool) (bool, error) {
	w.holder++
	r, err := w.pools[try.Pool].Allocate(int64(try.Count), allocator.BestFit, w.holder)
	if errors.Is(err, allocator.ErrExhausted) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	w.changes++
	s.blocks[name] = &tenants.Block{Name: name, Pool: try.Pool, Kind: v1alpha1.TypeLoadBalancer, Growth: growth, Range: r, Ready: true, Replaceable: true}
	s.holders[name], s.lastUsed[name] = w.holder, w.now
	return true, nil
}

// bear makes a Service.
func (s *simulated) bear(now time.Time) {
	s.born++
	s.services[fmt.Sprint(s.born)] = &balanced{since: now}
}

// users lets Services come and go.
func (w *world) users(s *simulated) {
	for range w.rng.IntN(3) {
		if w.rng.IntN(40) == 0 && len(s.services) < 20 {
			s.bear(w.now)
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
		s.bear(w.now)
	}
}

// metallb takes a new configuration up to three seconds after it was stored; the settling time is longer. Who has an address that is gone loses it.
func (w *world) metallb(s *simulated) {
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

// control is one pass of a controller.
func (w *world) control(s *simulated) {
	if w.rng.IntN(200) == 0 {
		clear(s.gone) // it was restarted
	}
	for name, b := range s.blocks {
		switch in := slices.Contains(s.pool, b.Range); {
		case in:
			delete(s.gone, name)
		case s.gone[name].IsZero():
			s.gone[name] = w.now
		}
	}
	v := tenants.View{InPool: s.pool, GoneSince: s.gone}
	for _, name := range slices.Sorted(maps.Keys(s.services)) {
		k := balancer(name)
		b := s.services[name]
		if b.addr.IsValid() {
			k.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: b.addr.String()}}
		}
		v.Services = append(v.Services, tenants.ServiceOf(k, ipv4, b.since, false))
	}
	plan := tenants.Decide(s.Tenant, s.policy, s.sorted(), v, w.timing, w.now)

	for _, name := range plan.StartClock {
		s.blocks[name].IdleSince = w.now
		w.changes++
	}
	for _, name := range plan.StopClock {
		s.blocks[name].IdleSince = time.Time{}
		w.changes++
	}
	for _, name := range plan.Release {
		w.release(s, name)
	}
	if !slices.Equal(plan.Addresses, s.pool) {
		s.pool, s.stored = plan.Addresses, w.now
		w.changes++
	}
	if waits, free := tenants.InventoryOf(v.Services).Waiting, s.freeOfAdded(); plan.Need > 0 && int(plan.Need)+free > waits {
		w.t.Fatalf("%s: %s asks for %d addresses for %d Services and has %d left of those it was given", w.now, s.Name, plan.Need, waits, free)
	}
	_, err := tenants.Spread(s.policy.Pools, plan.Need, plan.Want, func(try tenants.Try) (bool, error) {
		return w.create(s, tenants.GrowthName(s.Tenant, s.taken), try, true)
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
		w.t.Fatalf("%s: %s of %s is released while MetalLB gives out its addresses", w.now, name, s.Name)
	}
	w.space.Release(b.Range, s.holders[name])
	delete(s.blocks, name)
	delete(s.gone, name)
	w.changes++
}

// step is one second.
func (w *world) step(load bool) {
	w.now = w.now.Add(time.Second)
	for _, s := range w.tenants {
		if load {
			w.users(s)
		}
		w.metallb(s)
		if w.rng.IntN(4) > 0 {
			w.control(s)
		}
		var held int64
		for _, b := range s.blocks {
			held += b.Range.Size()
		}
		if held > int64(s.policy.MaxLoadBalancers) {
			w.t.Fatalf("%s: %s has %d addresses, its quota is %d", w.now, s.Name, held, s.policy.MaxLoadBalancers)
		}
	}
}

func TestTenantsUnderLoadComeToRest(t *testing.T) {
	var grown, denied, exhausted int
	for seed := range uint64(4) {
		w := newWorld(t, seed)
		for range 15 * 60 {
			w.step(true)
		}
		grown += w.changes
		w.tenants[seed%2].broken = true
		for range 3 {
			w.tenants[seed%2].bear(w.now)
		}
		for range 4 * 60 { // clocks run out, pools are narrowed, and what that moved comes to rest
			w.step(false)
		}
		w.changes = 0
		for range 8 * 60 { // four times as long as a block may be idle
			w.step(false)
		}
		if w.changes > 0 {
			t.Fatalf("seed %d: %d changes although no Service changes", seed, w.changes)
		}
		for _, s := range w.tenants {
			if s.broken {
				continue // to come to rest is all that it can
			}
			var free, held, waits int64
			for _, b := range s.blocks {
				n := s.used(b)
				held += b.Range.Size()
				free += b.Range.Size() - int64(n)
				if b.Growth && n == 0 {
					t.Errorf("seed %d: %s has %s, which nobody uses", seed, s.Name, b.Name)
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
			case held == int64(s.policy.MaxLoadBalancers):
				denied++
			case room == 0:
				exhausted++
			default:
				t.Errorf("seed %d: %d Services of %s wait, although its quota and the pools have room (%d)", seed, waits, s.Name, room)
			}
		}
	}
	if grown == 0 || denied == 0 || exhausted == 0 {
		t.Errorf("too quiet to mean anything: %d changes, %d tenants at their quota, %d without room", grown, denied, exhausted)
	}
	t.Logf("%d changes under load, %d tenants at their quota, %d without room", grown, denied, exhausted)
}
