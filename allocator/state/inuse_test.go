package state

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"butlerlabs.dev/ipam/allocator"
)

var web = Key{Resource: "services", Namespace: "ingress", Name: "web"}

func at(texts ...string) (all []netip.Addr) {
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

// expectUsable checks the number of addresses that are not blocked, and of those that are
// free.
func (s *testState) expectUsable(total, available int64) {
	s.t.Helper()
	if u, _ := s.Usage(modelPool); u.Total != total || u.Available != available {
		s.t.Errorf("%d of %d addresses are free, want %d of %d", u.Available, u.Total, available, total)
	}
}

func TestInUse_AddressIsNotAllocated(t *testing.T) {
	s := newTestState(t)
	s.TakeChanged()
	s.SetInUse(web, at("10.0.0.3"))
	if !slices.Contains(s.TakeChanged(), modelPool) {
		t.Error("the pool is not reported as changed")
	}
	s.expectUsable(9, 9)
	if g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Count: 3}}}); g.Ranges[0] != mustRange("10.0.0.0-10.0.0.2") {
		t.Errorf("granted %v", g.Ranges)
	}
	if g := s.mustGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Count: 3}}}); g.Ranges[0] != mustRange("10.0.0.4-10.0.0.6") {
		t.Errorf("granted %v", g.Ranges)
	}
	_, err := s.requestGrant(Request{Claim: key("c"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
	if blocked := (*allocator.BlockedError)(nil); !errors.As(err, &blocked) || blocked.What != "is in use by services of the cluster" {
		t.Errorf("exact request: %v", err)
	}
	if _, err := s.Preview(Request{Claim: key("c"), Pool: modelPool, Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Error("a dry run of the exact request succeeds")
	}
	other := Key{Resource: "nodes", Name: "n"}
	s.SetInUse(other, at("10.0.0.3"))
	s.SetInUse(web, nil)
	s.expectUsable(9, 3)
	s.TakeChanged()
	s.SetInUse(other, at("10.0.0.8"))
	if !slices.Contains(s.TakeChanged(), modelPool) {
		t.Error("the pool is not reported as changed when an address is no longer in use")
	}
	s.expectUsable(9, 3)
	s.mustGrant(Request{Claim: key("c"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
}

// observePoolIn observes a pool in another routing domain than modelPool.
func (s *testState) observePoolIn(domain string) Pool {
	p := Pool{Key: Key{Resource: modelPools, Namespace: "ns", Name: "pool-" + domain}, ResourceVersion: 1, RoutingDomain: domain, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.1")}}
	s.ObservePool(s.now, p)
	return p
}

// expectInUse checks whether an exact request for 10.0.0.0 is denied as in use, also as a
// dry run, and how many addresses of the pool are usable.
func (s *testState) expectInUse(pool Key, denied bool, usable int64) {
	s.t.Helper()
	q := Request{Claim: key("exact"), Pool: pool, Ranges: []RangeRequest{{Exact: mustRange("10.0.0.0")}}}
	_, err := s.Preview(q)
	if blocked := (*allocator.BlockedError)(nil); errors.As(err, &blocked) != denied || !denied && err != nil {
		s.t.Errorf("%s: an exact request for an address in use: %v, want it denied: %t", pool, err, denied)
	}
	if u, _ := s.Usage(pool); u.Total != usable {
		s.t.Errorf("%s: %d addresses are usable, want %d", pool, u.Total, usable)
	}
	if err := s.Check(); err != nil {
		s.t.Error(err)
	}
}

// The network of the cluster is the default routing domain if a pool is there. Without
// such a pool it may be each routing domain.
func TestInUse_RoutingDomainOfTheCluster(t *testing.T) {
	s := newTestState(t)
	s.SetInUse(web, at("10.0.0.0", "192.0.2.1"))
	red, blue := s.observePoolIn("red"), s.observePoolIn("blue")
	s.expectInUse(modelPool, true, 9)
	s.expectInUse(red.Key, false, 2)
	first := s.pools.find(modelPool).Pool
	s.TakeChanged()
	s.RemovePool(modelPool, 0)
	if changed := s.TakeChanged(); !slices.Contains(changed, red.Key) || !slices.Contains(changed, blue.Key) {
		t.Errorf("changed without a pool in the default routing domain: %v", changed)
	}
	s.expectInUse(red.Key, true, 1)
	s.expectInUse(blue.Key, true, 1)
	if freed := s.NarrowsInUse(first); !slices.Equal(freed, []string{"blue", "red"}) {
		t.Errorf("the first pool of the default routing domain narrows %v", freed)
	}
	if freed := s.NarrowsInUse(red); freed != nil {
		t.Errorf("a pool of another routing domain narrows %v", freed)
	}
	// A claim that was stored without admission gets its address with the narrower rule.
	s.observeStored("stored", "10.0.0.0", Grant{}.Token, func(c *Claim) { c.Pool = red.Key })
	if o := s.OwnershipOf("stored"); o.Deferred == nil {
		t.Errorf("ownership %+v, want deferred", o)
	}
	s.ObservePool(s.now, first)
	if freed := s.NarrowsInUse(first); freed != nil {
		t.Errorf("a later version of the pool narrows %v", freed)
	}
	if o := s.OwnershipOf("stored"); !o.Allocated {
		t.Errorf("ownership %+v, want allocated", o)
	}
	s.expectInUse(blue.Key, false, 2)
	s.expectInUse(modelPool, true, 9)
	// A pool that changes its routing domain counts in the new one.
	moved := first
	moved.RoutingDomain, moved.ResourceVersion = "green", first.ResourceVersion+1
	s.ObservePool(s.now, moved)
	s.expectInUse(blue.Key, true, 1)
	s.expectInUse(modelPool, true, 9)
	s.RemovePool(modelPool, 0)
	s.RemovePool(blue.Key, 0)
	s.Tick(s.now)
	if s.domains["blue"] != nil || s.domains["green"] != nil {
		t.Error("a routing domain without pools and owners stays")
	}
	later := s.observePoolIn("blue")
	s.expectInUse(later.Key, true, 1)
}

// A configured routing domain is that of the cluster, whatever pools exist.
func TestInUse_ConfiguredRoutingDomain(t *testing.T) {
	for _, tc := range []struct {
		domain           string
		inDefault, inRed bool
		usable           int64 // addresses of red
	}{{"red", false, true, 1}, {"", true, false, 2}, {"green", false, false, 2}} {
		s := newTestState(t)
		s.SetClusterDomain(tc.domain)
		s.SetInUse(web, at("10.0.0.0"))
		red := s.observePoolIn("red")
		s.RemovePool(modelPool, 0)
		s.expectInUse(red.Key, tc.inRed, tc.usable)
		p := firstPool()
		p.Window = []allocator.Range{modelRange}
		if freed := s.NarrowsInUse(p); freed != nil {
			t.Errorf("configured %q: a pool narrows %v", tc.domain, freed)
		}
		s.ObservePool(s.now, p)
		s.expectInUse(modelPool, tc.inDefault, 10-int64(boolToInt(tc.inDefault)))
		s.expectInUse(red.Key, tc.inRed, tc.usable)
	}
}

// endGrants ends all open grants.
func (s *testState) endGrants() {
	for open := range s.grants.all() {
		s.endGrant(open)
	}
}

// An owner keeps its address, and its user is no second one. After the release the
// address is not allocated as long as it is in use.
func TestInUse_OwnerKeepsItsAddress(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Count: 2}}})
	s.SetInUse(web, at("10.0.0.1"))
	s.expectUsable(10, 8)
	s.observeStored("a", g.Ranges[0].String(), g.Token)
	s.expectUsable(10, 8)
	s.commit()
	if o := s.OwnershipOf("a"); o.Conflict != nil || !o.Confirmed {
		t.Errorf("ownership %+v", o)
	}
	s.observeDeleted("a")
	s.expectUsable(9, 9)
	if g := s.mustGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Count: 2}}}); g.Ranges[0] != mustRange("10.0.0.2-10.0.0.3") {
		t.Errorf("granted %v", g.Ranges)
	}
}

// A grant that ends without an object leaves the address to its user.
func TestInUse_EndedGrant(t *testing.T) {
	s := newTestState(t)
	s.mustGrant(Request{Claim: key("a")})
	s.SetInUse(web, at("10.0.0.0"))
	s.expectUsable(10, 9)
	s.endGrants()
	s.expectUsable(9, 9)
}

// A claim that is stored without admission owns no address in use, and gets the address
// when the user has gone.
func TestInUse_StoredWithoutAdmission(t *testing.T) {
	s := newTestState(t)
	s.SetInUse(web, at("10.0.0.4"))
	s.observeStored("a", "10.0.0.4", Grant{}.Token)
	if o := s.OwnershipOf("a"); o.Deferred == nil || o.Allocated {
		t.Errorf("ownership %+v, want deferred", o)
	}
	s.SetInUse(web, nil)
	if o := s.OwnershipOf("a"); o.Deferred != nil || !o.Allocated {
		t.Errorf("ownership %+v after the user has gone", o)
	}
	// An earlier allocation counts, as for reserved addresses.
	s.SetInUse(web, at("10.0.0.5"))
	s.observeStored("b", "10.0.0.5", Grant{}.Token, func(c *Claim) { c.AllocatedEarlier = true })
	if o := s.OwnershipOf("b"); !o.Allocated {
		t.Errorf("ownership %+v, want allocated", o)
	}
}

// The range that a pool keeps for the name of a claim is not avoided for that claim.
func TestInUse_KeptForAClaim(t *testing.T) {
	s := newTestState(t)
	kept := mustRange("10.0.0.4")
	p := s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.4")
	p.KeptFor = func(string) allocator.Range { return kept }
	s.ObservePool(s.now, p)
	s.SetInUse(Key{Resource: "machines.cluster.x-k8s.io", Namespace: "ns", Name: "m"}, at("10.0.0.4"))
	s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: kept, IgnorePoolBlocks: true}}})
	s.endGrants()
	s.observeStored("b", "10.0.0.4", Grant{}.Token)
	if o := s.OwnershipOf("b"); !o.Allocated {
		t.Errorf("ownership %+v, want allocated", o)
	}
}

// No standby grant is used for an address that came into use after the commit of the
// grant.
func TestInUse_StandbyGrant(t *testing.T) {
	s := newTestState(t)
	s.limits.StandbyGrants, s.limits.StandbyShare = 3, 1
	s.mustGrant(Request{Claim: key("a")})
	s.commit()
	s.SetInUse(web, at("10.0.0.1"))
	if g := s.mustGrant(Request{Claim: key("b")}); g.Ranges[0] != mustRange("10.0.0.2") {
		t.Errorf("granted %v", g.Ranges)
	}
}

// BenchmarkInUse observes 40,000 claims, half of them after and half of them before a
// Node has their address.
func BenchmarkInUse(b *testing.B) {
	const n = 40_000
	address := func(i int) string { return fmt.Sprintf("10.%d.%d.%d", i>>15, i>>7&255, i<<1&255) }
	for b.Loop() {
		s := &testState{now: modelStart, State: New([]string{modelClaims, modelPools}, Limits{}, nil)}
		s.ObservePool(s.now, s.nextPool("10.0.0.0/15"))
		for i := range n / 2 {
			s.SetInUse(Key{Resource: "nodes", Name: fmt.Sprint(i)}, at(address(i)))
		}
		s.Usage(modelPool)
		for i := range n {
			s.observeStored(fmt.Sprint(i), address(i), Grant{}.Token, func(c *Claim) { c.AllocatedEarlier = true })
		}
		for i := n / 2; i < n; i++ {
			s.SetInUse(Key{Resource: "nodes", Name: fmt.Sprint(i)}, at(address(i)))
		}
		if u, _ := s.Usage(modelPool); u.Total != 1<<17 || u.Allocated != n {
			b.Fatalf("usage %+v", u)
		}
	}
}
