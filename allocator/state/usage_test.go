package state

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// checkUsage verifies that the granted and the free addresses of each pool are those of
// the segments in these states.
func (s *State) checkUsage() error {
	for k, p := range s.pools.byKey {
		var granted, free []allocator.Range
		for _, g := range s.Segments(p.RoutingDomain, allocator.Subtract(p.Window, s.blockedIn(p.RoutingDomain))) {
			if g.State == SegmentGranted {
				granted = append(granted, g.Range)
			}
			if g.State == SegmentFree {
				free = append(free, g.Range)
			}
		}
		u, _ := s.Usage(k)
		if want := allocator.Total(granted); u.Granted != want || u.Granted > u.Allocated {
			return fmt.Errorf("pool %s: %d of %d allocated addresses are granted, the segments have %d", k, u.Granted, u.Allocated, want)
		}
		if got, _ := s.FreeIn(k); !slices.Equal(got, allocator.Union(free)) || allocator.Total(got) != u.Available {
			return fmt.Errorf("pool %s: %v are free, the segments have %v, and the usage %d addresses", k, got, free, u.Available)
		}
	}
	return nil
}

// Usage counts the granted addresses until the claim is observed or the grant ends, and
// reports the pool as changed each time.
func TestUsage_CountsGrantedAddresses(t *testing.T) {
	s := newTestState(t)
	expect := func(granted, available int64) {
		t.Helper()
		if u, _ := s.Usage(modelPool); u.Granted != granted || u.Available != available {
			t.Errorf("%d granted, %d available, want %d and %d", u.Granted, u.Available, granted, available)
		}
		if changed := s.TakeChanged(); !slices.Contains(changed, modelPool) {
			t.Errorf("the pool is not reported as changed: %v", changed)
		}
	}
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Count: 3}}})
	expect(3, 7)
	s.observeStored("a", g.Ranges[0].String(), g.Token)
	expect(0, 7)
	s.mustGrant(Request{Claim: key("fails"), Ranges: []RangeRequest{{Count: 2}}})
	expect(2, 5)
	for open := range s.grants.all() {
		s.endGrant(open)
	}
	expect(0, 7)

	// A moved range that is granted to its returning claim stays allocated when the grant
	// ends.
	s.observeStored("a", g.Ranges[0].String(), g.Token, markedMoved)
	s.observeDeleted("a")
	s.DecideMoved(s.now, "a", true)
	s.TakeChanged()
	s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: g.Ranges[0]}}})
	s.TakeChanged()
	if u, _ := s.Usage(modelPool); u.Granted != 3 {
		t.Errorf("%d granted, want 3", u.Granted)
	}
	for open := range s.grants.all() {
		s.endGrant(open)
	}
	expect(0, 7)
}

// The denial of a full pool counts the addresses that are promised to creates in
// progress, and has the time from which the first may be free again.
func TestExhausted_CountsPromisedAddresses(t *testing.T) {
	s := newTestState(t)
	expect := func(want string) {
		t.Helper()
		_, err := s.requestGrant(Request{Claim: key("more"), Ranges: []RangeRequest{{Count: 1}}})
		if in := (*PoolError)(nil); !errors.As(err, &in) || in.Error() != want {
			t.Errorf("denied with\n\t%v\nwant\n\t%s", err, want)
		}
	}
	const full = "pool exhausted: pool ns/pool: 1 address requested, 0 free, largest free block 0: release some or enlarge the pool"
	s.observeStored("stored", "10.0.0.0-10.0.0.6", journal.Token{})
	for i := range int64(2) {
		if _, err := s.Grant(s.now, Request{Claim: key(fmt.Sprint(i)), Pool: modelPool, Ranges: []RangeRequest{{Count: 1 + i}}}); err != nil {
			t.Fatal(err)
		}
	}
	expect(full + ", or wait: 3 addresses are promised to creates in progress, and those of failed creates are free again soon")
	s.commit()
	expect(full + ", or wait: 3 addresses are promised to creates in progress, and those of failed creates are free again from " +
		s.now.Add(DefaultGrantLife).UTC().Format(time.RFC3339) + " on")
	for g := range s.grants.all() {
		s.endGrant(g)
	}
	s.observeStored("rest", "10.0.0.7-10.0.0.9", journal.Token{})
	expect(full)
}

func TestUsage_CountsGrantedAddressesOfPoolsThatShareThem(t *testing.T) {
	s := newTestState(t)
	other := Pool{Key: Key{Resource: modelPools, Namespace: "ns", Name: "other"}, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.2-10.0.0.20")}, Blocked: []allocator.Range{mustRange("10.0.0.20")}}
	s.ObservePool(s.now, other)
	s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1-10.0.0.4")}}})
	for pool, want := range map[Key]int64{modelPool: 4, other.Key: 3} {
		if u, _ := s.Usage(pool); u.Granted != want || u.Allocated != want {
			t.Errorf("%s: %d granted of %d allocated, want %d", pool, u.Granted, u.Allocated, want)
		}
	}
}
