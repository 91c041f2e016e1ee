package state

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// recordCooldowns records the cooldowns of the pool, as the pool's reconciler does,
// observes the event of the record, and returns the number of recorded ranges.
func (s *testState) recordCooldowns() int {
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.ReuseDelay, p.Recorded = time.Hour, s.RangesToRecord(modelPool)
	for i, c := range p.Recorded {
		if !c.Until.IsZero() {
			p.Recorded[i].Until = c.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)
		}
	}
	s.ObservePool(s.now, p)
	return len(p.Recorded)
}

func TestCooldown_IsRecordedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*testState)
		want   int
	}{
		"create that was granted twice": {func(s *testState) {
			s.mustGrant(Request{Claim: key("a")})
			g := s.mustGrant(Request{Claim: key("a")})
			s.observeStored("a", g.Ranges[0].String(), g.Token)
			s.observeDeleted("a")
		}, 1},
		"loser of a conflict": {func(s *testState) {
			s.observeStored("winner", "10.0.0.3", journal.Token{}, ready)
			s.observeStored("loser", "10.0.0.3", journal.Token{}, flagged)
			s.observeDeleted("loser")
		}, 1},
		"loser, then winner of a conflict": {func(s *testState) {
			s.observeStored("winner", "10.0.0.3", journal.Token{}, ready)
			s.observeStored("loser", "10.0.0.3", journal.Token{}, flagged)
			s.observeDeleted("loser")
			s.observeDeleted("winner")
		}, 1},
		"loser that is being deleted": {func(s *testState) {
			s.observeStored("winner", "10.0.0.3", journal.Token{}, ready)
			s.observeStored("loser", "10.0.0.3", journal.Token{}, flagged, func(c *Claim) { c.Deleting = true })
			s.BeginCooldown(s.now, "loser")
		}, 1},
		"range taken by a claim stored without admission": {func(s *testState) {
			s.observeStored("a", "10.0.0.3", journal.Token{})
			s.observeDeleted("a")
			s.observeStored("b", "10.0.0.3", journal.Token{}, ready)
		}, 1},
		"dual-stack claim": {func(s *testState) {
			s.observeStored("a", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Ranges = append(c.Ranges, mustRange("10.0.0.5")) })
			s.observeDeleted("a")
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.recordCooldowns()
			tt.change(s)
			s.recordCooldowns()
			holdings := s.holdings.number()
			for range 5 {
				s.now = s.now.Add(time.Second)
				if n := s.recordCooldowns(); n != tt.want || s.holdings.number() != holdings {
					t.Fatalf("%d cooldowns recorded of %d holdings, want %d of %d", n, s.holdings.number(), tt.want, holdings)
				}
			}
			s.now = s.now.Add(2 * time.Hour)
			if s.Tick(s.now); s.recordCooldowns() != 0 {
				t.Errorf("in cooldown after the end of the reuse delay: %+v", s.RangesToRecord(modelPool))
			}
		})
	}
}

// The record of a release is written while its claim is still stored; the claim is
// deleted 3 s later.
func TestCooldown_LastsAsLongAsRecorded(t *testing.T) {
	for name, tt := range map[string]struct{ since, cooldown time.Duration }{
		"record of the claim":        {0, time.Hour},
		"record of an earlier owner": {-time.Minute, time.Hour + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.recordCooldowns()
			deleting := func(c *Claim) { c.Created, c.Deleting = s.now, true }
			s.observeStored("a", "10.0.0.3", journal.Token{}, ready, deleting)
			p := s.nextPool("10.0.0.0-10.0.0.9")
			p.ReuseDelay, p.Recorded = time.Hour, []RecordedRange{{Range: mustRange("10.0.0.3"), Since: s.now.Add(tt.since), Until: s.now.Add(tt.since + time.Hour)}}
			s.ObservePool(s.now, p)
			want := s.now.Add(tt.cooldown)
			s.now = s.now.Add(3 * time.Second)
			s.observeDeleted("a")
			if got := s.RangesToRecord(modelPool); len(got) != 1 || !got[0].Until.Equal(want) {
				t.Errorf("recorded %+v, want a cooldown until %s", got, want)
			}
		})
	}
}

func TestExhaustedPool_NamesTheEndOfTheFirstCooldown(t *testing.T) {
	s := newTestState(t)
	s.recordCooldowns()
	s.observeStored("a", "10.0.0.0", journal.Token{})
	s.observeStored("b", "10.0.0.1", journal.Token{})
	s.observeStored("keeps", "10.0.0.2-10.0.0.9", journal.Token{})
	two := []RangeRequest{{Count: 2}}
	expect := func(want time.Time) {
		t.Helper()
		s.Tick(s.now)
		_, granted := s.requestGrant(Request{Claim: key("c"), Ranges: two})
		_, previewed := s.Preview(Request{Claim: key("c"), Pool: modelPool, Ranges: two})
		for _, err := range []error{granted, previewed} {
			if full := (*PoolError)(nil); !errors.As(err, &full) || !errors.Is(err, allocator.ErrExhausted) || !full.Until.Equal(want) {
				t.Errorf("got %v, want the first address free at %s", err, want)
			}
		}
	}
	expect(time.Time{})
	s.observeDeleted("a")
	expect(time.Time{}) // one address is too few
	first := s.now.Add(time.Hour)
	s.now = s.now.Add(time.Minute)
	s.observeDeleted("b")
	expect(first)
	s.now = first
	expect(first.Add(time.Minute))
	s.observeStored("unadmitted", "10.0.0.1", journal.Token{}) // no cooldown ends for the second address
	expect(time.Time{})
}

// A client or the API server may repeat an update whose ranges were granted already.
func TestGrant_OfOwnedRangesNeedsNoCommit(t *testing.T) {
	s := newTestState(t)
	s.observeStored("vip", "10.0.0.3", journal.Token{})
	version := s.claims.find("vip").ResourceVersion
	exact := []RangeRequest{{Exact: mustRange("10.0.0.3")}}
	g, err := s.requestGrant(Request{Claim: key("vip"), UID: "vip", Ranges: exact})
	if err != nil || len(g.Ranges) > 0 || len(s.commit().Entries) > 0 {
		t.Errorf("granted %v, %v; the journal has %d entries, want none", g.Ranges, err, s.grants.number())
	}
	if err := s.CheckGrant(Claim{Key: key("vip"), Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.3")}, Token: g.Token}, "vip", version); err != nil {
		t.Error(err)
	}
	// The newer version may have given the range up.
	if _, err := s.Grant(s.now, Request{Claim: key("vip"), UID: "vip", Version: version + 1, Pool: modelPool, Ranges: exact}); !errors.Is(err, ErrBehind) {
		t.Errorf("version that is not observed yet: %v", err)
	}
	if err := s.CheckGrant(Claim{Key: key("vip"), Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.3")}, Token: g.Token}, "vip", version+1); !errors.Is(err, ErrBehind) {
		t.Errorf("version that is not observed yet: %v", err)
	}
}

func TestTakeOver_IgnoresEntriesWithoutRanges(t *testing.T) {
	s := newTestState(t)
	s.StepDown()
	s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: []journal.Entry{{Token: journal.Token{9}, Resource: modelClaims, Namespace: "ns", StoredName: "vip", UID: "vip"}}}})
	s.StartGranting(s.now)
	if r := s.commit(); len(r.Entries) > 0 {
		t.Errorf("the entry is still in the journal: %+v", r.Entries)
	}
}

func TestWithdrawGrant_Twice(t *testing.T) {
	s := newTestState(t)
	g, err := s.Grant(s.now, Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	s.StepDown()
	s.TakeOver(journal.Revision{})
	s.StartGranting(s.now)
	if s.WithdrawGrant(g); s.grants.awaitCommit() != 0 {
		t.Errorf("%d grants wait for a commit", s.grants.awaitCommit())
	}
}

// A new leader cannot know the cooldowns of a deleted pool, so this replica must not
// apply them either.
func TestCooldown_EndsWithItsPool(t *testing.T) {
	for name, release := range map[string]func(s *testState){
		"claim deleted":       func(s *testState) { s.observeDeleted("a") },
		"claim being deleted": func(s *testState) { s.BeginCooldown(s.now, "a"); s.recordCooldowns() },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.recordCooldowns()
			s.observeStored("a", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Deleting = true })
			if release(s); s.cooldowns.isEmpty(modelPool) {
				t.Fatal("no range is in cooldown")
			}
			s.RemovePool(modelPool, s.version)
			p := s.nextPool("10.0.0.0-10.0.0.9")
			p.ReuseDelay, p.ResourceVersion = 2*time.Hour, s.version+1
			s.ObservePool(s.now, p)
			if recorded := s.RangesToRecord(modelPool); len(recorded) > 0 {
				t.Errorf("cooldown of the deleted pool: %+v", recorded)
			}
			if s.claims.find("a") == nil {
				s.mustGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3"), Count: 1}}})
				return
			}
			s.observeDeleted("a")
			if recorded := s.RangesToRecord(modelPool); len(recorded) != 1 || !recorded[0].Until.Equal(s.now.Add(2*time.Hour)) {
				t.Errorf("recorded %+v, want a cooldown with the reuse delay of the new pool", recorded)
			}
		})
	}
}

func TestAddReadPool_IgnoresADeletedPool(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	s.ObservePool(s.now, p)
	s.RemovePool(modelPool, p.ResourceVersion+1) // after the live read
	if s.AddReadPool(s.now, p); s.HasObserved(modelPool, 0) {
		t.Error("the pool is added, and no event will remove the pool")
	}
	p.ResourceVersion += 2
	if s.AddReadPool(s.now, p); !s.HasObserved(modelPool, 0) {
		t.Error("a new pool of the same name is not added")
	}
}

// A pool that was deleted before the informers listed has no event at all.
func TestAddReadPool_WithoutAnEventIsRemoved(t *testing.T) {
	s := newTestState(t)
	read := s.nextPool("10.9.0.0-10.9.0.9")
	read.Key.Name, read.ResourceVersion = "ghost", s.access.applied[modelPools]+2
	s.AddReadPool(s.now, read)
	request := Request{Claim: key("a"), Pool: read.Key, Ranges: []RangeRequest{{Count: 1}}}
	for _, step := range []struct {
		after   time.Duration
		applied uint64
		known   bool
	}{
		{2 * unconfirmedPoolLife, read.ResourceVersion - 1, true}, // the event of the pool may follow
		{0, read.ResourceVersion + 1, true},                       // the event may be in the same list as the applied one
		{unconfirmedPoolLife - time.Second, read.ResourceVersion + 2, true},
		{time.Second, read.ResourceVersion + 2, false},
	} {
		s.now = s.now.Add(step.after)
		s.RecordApplied(modelPools, step.applied)
		s.Tick(s.now)
		if _, err := s.Preview(request); (err == nil) != step.known {
			t.Errorf("with events up to %d, the pool of version %d: %v", step.applied, read.ResourceVersion, err)
		}
	}
}

// The claim's label is ignored if a known pool determines the routing domain.
func TestRoutingDomain_OfAClaimIsThatOfItsPool(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.RoutingDomain = "x"
	s.ObservePool(s.now, p)
	label := func(c *Claim) { c.RoutingDomain = "y" }
	addressObject := addressObjectOf("a")

	g := s.mustGrant(Request{Claim: key("a")})
	entries, address := s.commit().Entries, g.Ranges[0].String()
	s.observeStored("a", address, g.Token, label)
	s.observeStored("a", address, g.Token, label, ready)
	s.observeStored("s", address, journal.Token{}, label, addressObject)
	s.observeStored("s", address, journal.Token{}, label, addressObject, ready)
	s.StepDown()
	s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: entries}})
	s.StartGranting(s.now)
	if s.grants.number() > 0 {
		t.Errorf("%d grants inherited, want none: the claim was observed", s.grants.number())
	}
	s.observeDeleted("a")
	if g, err := s.requestGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Exact: mustRange(address)}}}); err == nil {
		t.Errorf("b is granted %[2]v, but the address object owns %[1]s", address, g.Ranges)
	}
	s.observeDeleted("s")
	if free := s.available(); free != 10 {
		t.Errorf("%d free", free)
	}
}

func TestRoutingDomain_OfThePoolAppliesToAddressObjects(t *testing.T) {
	s := newTestState(t)
	s.RemovePool(modelPool, s.version)
	s.observeStored("a", "10.0.0.3", journal.Token{}, ready)
	s.observeStored("s", "10.0.0.3", journal.Token{}, ready, addressObjectOf("a"))
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.RoutingDomain = "x"
	s.ObservePool(s.now, p)
	s.observeDeleted("a")
	if g, err := s.requestGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Errorf("b is granted %v, but the address object owns 10.0.0.3", g.Ranges)
	}
	if s.observeDeleted("s"); s.available() != 10 {
		t.Errorf("%d free", s.available())
	}
}

// A claim that waits for room needs the end of another cooldown. A claim whose own
// cooldown has the last place, or is recorded, waits for nothing.
func TestCooldownsFull_NotForAClaimWithAPlace(t *testing.T) {
	s := newTestState(t)
	observe := func(cooldowns int) {
		p := s.nextPool("10.0.0.0-10.0.63.255")
		p.ReuseDelay = time.Hour
		for i := range cooldowns {
			r := mustRange(fmt.Sprintf("10.0.%d.%d", i>>8, i&255))
			p.Recorded = append(p.Recorded, RecordedRange{Range: r, Since: s.now, Until: s.now.Add(time.Hour)})
		}
		s.ObservePool(s.now, p)
	}
	expect := func(when string, want map[string]bool) {
		t.Helper()
		for uid, full := range want {
			if got := s.CooldownsFull(modelPool, uid); got != full {
				t.Errorf("%s: the cooldowns are full for claim %s: %t, want %t", when, uid, got, full)
			}
		}
	}
	deleting := func(c *Claim) { c.Deleting = true }
	observe(maxCooldowns - 1)
	s.observeStored("last", "10.0.60.1", journal.Token{}, deleting)
	s.observeStored("next", "10.0.60.2", journal.Token{}, deleting)
	s.observeStored("without addresses", "10.9.0.1", journal.Token{}, deleting) // deferred: the pool does not offer the address
	expect("with room for one cooldown", map[string]bool{"last": false, "next": false, "not stored": false})
	if s.BeginCooldown(s.now, "last") == 0 {
		t.Fatal("the cooldown of the last claim did not begin")
	}
	expect("after the last place is taken", map[string]bool{"last": false, "next": true, "without addresses": false, "not stored": true})

	// The claims of this leader, whose cooldowns an earlier leader began and the pool has
	// recorded.
	s = newTestState(t)
	s.observeStored("recorded", "10.0.0.1", journal.Token{}, deleting, func(c *Claim) { c.Created = s.now.Add(-time.Minute) })
	s.observeStored("next", "10.0.60.2", journal.Token{}, deleting)
	observe(maxCooldowns + 1)
	expect("after a change of the leader", map[string]bool{"recorded": false, "next": true})
}

// A new leader, which has observed the record of a claim that is still stored, keeps the
// record in the next list: the finalizer of the claim is removed since the record exists,
// and only the record shows the cooldown to a leader that starts after the claim is gone.
func TestRangesToRecord_KeepsTheRecordOfAStoredClaim(t *testing.T) {
	s := newTestState(t)
	deleting := func(c *Claim) { c.Deleting, c.Created = true, s.now.Add(-time.Minute) }
	s.observeStored("a", "10.0.0.1", journal.Token{}, deleting)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.ReuseDelay = time.Hour
	p.Recorded = []RecordedRange{{Range: mustRange("10.0.0.1"), Since: s.now, Until: s.now.Add(time.Hour)}}
	s.ObservePool(s.now, p)
	if wait := s.BeginCooldown(s.now, "a"); wait != 0 {
		t.Fatalf("the finalizer waits %s although the cooldown is recorded", wait)
	}
	if list := s.RangesToRecord(modelPool); len(list) != 1 || list[0].Range != p.Recorded[0].Range {
		t.Errorf("the next list is %v, want %v", list, p.Recorded)
	}
}

// The move of a claim and its pool: the pool is gone first, then the claim, then the
// address object. Nothing keeps the range then.
func TestMoved_WithoutPool(t *testing.T) {
	s := newTestState(t)
	s.observeStored("claim", "10.0.0.1", journal.Token{})
	moved := func(c *Claim) { c.MarkedMoved = true }
	s.observeStored("claim", "10.0.0.1", journal.Token{}, moved)
	s.observeStored("object", "10.0.0.1", journal.Token{}, moved, func(c *Claim) { c.OwnerClaim = s.claims.find("claim").Key })
	s.RemovePool(modelPool, 0)
	s.RemoveClaim(s.now, s.claims.find("claim").Claim, 0)
	s.RemoveClaim(s.now, s.claims.find("object").Claim, 0)
	if !isFree(s.State, mustRange("10.0.0.1")) {
		t.Error("the range is kept for a claim whose pool is gone")
	}
}
