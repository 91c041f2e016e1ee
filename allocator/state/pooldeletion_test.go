package state

import (
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// expectAwaited checks whether the pool waits for a create, and clears the changes
// reported so far.
func (s *testState) expectAwaitsCreate(when string, want bool) {
	s.t.Helper()
	if got := s.AwaitsCreate(s.now, modelPool); got > 0 != want {
		s.t.Errorf("%s: the pool waits for a create for %s, want a wait: %v", when, got, want)
	}
	clear(s.changed)
}

// expectPoolReported checks that the pool is reported as changed.
func (s *testState) expectPoolReported(when string) {
	s.t.Helper()
	if _, reported := s.changed[modelPool]; !reported {
		s.t.Errorf("%s: the pool is not reported as changed, so its deletion is not evaluated again", when)
	}
}

// A claim may be stored after the deletion of its pool has begun: its grant was the
// response to a create that the API server had not stored yet.
func TestPoolDeletion_WaitsForOpenGrants(t *testing.T) {
	deleting := func(s *testState) {
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.Deleting = true
		s.ObservePool(s.now, p)
	}
	t.Run("of this leader", func(t *testing.T) {
		s := newTestState(t)
		g := s.mustGrant(Request{Claim: key("a")})
		deleting(s)
		s.expectAwaitsCreate("while the create is not over", true)
		s.observeStored("a", g.Ranges[0].String(), g.Token)
		s.expectPoolReported("when the claim is stored")
		s.expectAwaitsCreate("when the claim is stored", false)
	})
	t.Run("that are withdrawn", func(t *testing.T) {
		s := newTestState(t)
		g := s.mustGrant(Request{Claim: key("a")})
		deleting(s)
		s.expectAwaitsCreate("while the create is not over", true)
		s.WithdrawGrant(s.grants.find(g.Token))
		s.expectPoolReported("when the grant has ended")
		s.expectAwaitsCreate("when the grant has ended", false)
	})
	t.Run("of a claim without a pool", func(t *testing.T) {
		s := newTestState(t)
		if _, err := s.Grant(s.now, Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.4")}}}); err != nil {
			t.Fatal(err)
		}
		s.commit()
		deleting(s)
		s.expectAwaitsCreate("while the create is not over", false)
	})
	t.Run("of a create that failed", func(t *testing.T) {
		s := newTestState(t)
		s.mustGrant(Request{Claim: key("a")})
		deleting(s)
		s.now = s.now.Add(createLanding - time.Millisecond)
		s.expectAwaitsCreate("while the create may be stored", true)
		s.now = s.now.Add(time.Millisecond)
		s.expectAwaitsCreate("long after the response", false)
	})
	t.Run("of an earlier leader", func(t *testing.T) {
		earlier := newTestState(t)
		g, err := earlier.Grant(earlier.now, Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}})
		if err != nil {
			t.Fatal(err)
		}
		s := newTestState(t)
		s.TakeOver(journal.Revision{Snapshot: earlier.commit()})
		s.StartGranting(s.now)
		deleting(s)
		s.expectAwaitsCreate("after the take-over", true)
		s.observeStored("a", g.Ranges[0].String(), g.Token)
		s.expectPoolReported("when the claim is stored")
		s.expectAwaitsCreate("when the claim is stored", false)
	})
}
