package state

import (
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// addressObjectOf makes an object an address object of a claim.
func addressObjectOf(name string) func(*Claim) { return func(c *Claim) { c.OwnerClaim = key(name) } }

func markedMoved(c *Claim) { c.MarkedMoved = true }

func TestAddressObject_AndItsClaimAreOneOwner(t *testing.T) {
	for name, order := range map[string][]string{"claim first": {"web", "address"}, "address first": {"address", "web"}} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			for _, object := range order {
				if object == "web" {
					s.observeStored("web", "10.0.0.3", journal.Token{})
				} else {
					s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
				}
			}
			s.commit()
			if st := s.OwnershipOf("web"); !st.Confirmed || s.available() != 9 {
				t.Fatalf("ownership %+v, %d free", st, s.available())
			}
			for i, object := range order {
				s.observeDeleted(object)
				if want := int64(9 + i); s.available() != want {
					t.Errorf("without %s: %d free, want %d", object, s.available(), want)
				}
			}
		})
	}
}

func TestAddressObject_ClaimGetsTheRangeKeptForIt(t *testing.T) {
	s := newTestState(t)
	s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	if g := s.mustGrant(Request{Claim: key("other")}); g.Ranges[0] == mustRange("10.0.0.3") {
		t.Error("another claim is granted the range")
	}
	g := s.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
	s.observeStored("web", "10.0.0.3", g.Token)
	s.commit()
	if st := s.OwnershipOf("web"); !st.Confirmed {
		t.Errorf("ownership %+v", st)
	}
	s.observeDeleted("address")
	if _, err := s.requestGrant(Request{Claim: key("thief"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Error("the claim lost its range with its address object")
	}
}

func TestMoved_RangeIsNotAllocatedHere(t *testing.T) {
	s := newTestState(t)
	s.observeStored("web", "10.0.0.3", journal.Token{})
	s.observeStored("web", "", journal.Token{}, markedMoved) // clusterctl removes the annotations
	s.observeDeleted("web")
	s.now = s.now.Add(1000 * time.Hour)
	s.Tick(s.now)
	if got, undecided := s.RangesToRecord(modelPool), s.UndecidedMoves(); s.available() != 9 || len(got) != 0 || len(undecided) != 1 {
		t.Fatalf("before the decision: %d free, recorded: %+v, undecided: %+v", s.available(), got, undecided)
	}
	s.DecideMoved(s.now, s.UndecidedMoves()[0].UID, true)
	if got := s.RangesToRecord(modelPool); s.available() != 9 || len(got) != 1 || got[0].Claim != key("web") || !got[0].Until.IsZero() || len(s.UndecidedMoves()) != 0 {
		t.Fatalf("%d free, recorded: %+v", s.available(), got)
	}

	// The pool records the range, and a replica that starts later keeps the range.
	fresh := newTestState(t)
	recorded := fresh.nextPool("10.0.0.0-10.0.0.9")
	recorded.Recorded = s.RangesToRecord(modelPool)
	fresh.ObservePool(fresh.now, recorded)
	if fresh.available() != 9 {
		t.Fatalf("after a restart: %d free", fresh.available())
	}
	if _, err := fresh.requestGrant(Request{Claim: key("thief"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Error("another claim is granted the range")
	}
	g := fresh.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
	fresh.observeStored("web", "10.0.0.3", g.Token, func(c *Claim) { c.UID = "web-2" })
	if got := fresh.RangesToRecord(modelPool); len(got) != 0 {
		t.Errorf("returned, and still recorded: %+v", got)
	}
	fresh.observeDeleted("web-2")
	if fresh.available() != 10 {
		t.Errorf("returned and released: %d free", fresh.available())
	}

	// Only a user who removes the entry from a list that contained the entry frees the
	// range.
	recorded.MovedListRevision = 100
	s.ObservePool(s.now, recorded)
	for i, tc := range []struct {
		name   string
		listed uint64
		shows  bool
		free   int64
	}{
		{"no list", 0, false, 9},
		{"an older list", 99, false, 9},
		{"a list with the entry", 110, true, 9},
		{"no list again", 0, false, 9},
		{"entry removed", 110, false, 10},
	} {
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.ResourceVersion, p.MovedListRevision = recorded.ResourceVersion+100+uint64(i), tc.listed
		if tc.shows {
			p.Recorded = recorded.Recorded
		}
		s.ObservePool(s.now, p)
		if s.available() != tc.free {
			t.Errorf("%s: %d free, want %d", tc.name, s.available(), tc.free)
		}
	}
}

// A follower observes the deletion of a marked address object after the range was granted
// to another claim, which is Ready: when it begins to lead, it records no move.
func TestMoved_OfALateAddressObjectIsNotRecorded(t *testing.T) {
	for name, tc := range map[string]struct {
		record, nextReady bool
		moved             int
	}{
		"range granted again":      {false, true, 0},
		"another claim, not Ready": {false, false, 1},
		"recorded by a leader":     {true, true, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.StepDown()
			ofClaim := func(c *Claim) { c.OwnerClaim = key("web") }
			s.observeStored("object", "10.0.0.3", journal.Token{}, ofClaim, markedMoved)
			s.observeDeleted("object")
			s.DecideMoved(s.now, "object", true)
			if tc.record {
				s.SetMovedRecord(MovedRecord{Pool: modelPool, UID: s.pools.find(modelPool).UID, Parts: []MovedRecordPart{{
					Name: "part", Moved: []Moved{{Range: mustRange("10.0.0.3"), Claim: key("web"), MovedUID: "object"}},
				}}})
			}
			s.observeStored("next", "10.0.0.3", journal.Token{1}, func(c *Claim) { c.Ready = tc.nextReady })
			s.TakeOver(journal.Revision{})
			s.StartGranting(s.now)
			if got := s.RangesToRecord(modelPool); len(got) != tc.moved {
				t.Errorf("recorded: %+v", got)
			}
			if c := s.OwnershipOf("next").Conflict; c != nil {
				t.Errorf("the other claim lost its address: %v", c)
			}
		})
	}
}

// The record of a pool has room for all moved ranges, and survives the loss of the pool's
// annotations.
func TestMovedRecord(t *testing.T) {
	moved := Moved{Range: mustRange("10.0.0.3"), Claim: key("web"), MovedUID: "web"}
	record := func(m Moved) []MovedRecord {
		return []MovedRecord{{Pool: modelPool, UID: "of-pool", Parts: []MovedRecordPart{{Name: "part", Version: "1", Moved: []Moved{m}}}}}
	}
	pool := func(s *testState, listed uint64, shows bool) Pool {
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.UID, p.MovedListRevision = "of-pool", listed
		if shows {
			p.Recorded = []RecordedRange{{Range: moved.Range, Claim: moved.Claim, MovedUID: moved.MovedUID}}
		}
		return p
	}
	shown := func(revision uint64) Moved { m := moved; m.ListedSince = revision; return m }
	hidden := func(revision uint64) Moved { m := moved; m.IgnoreListsUntil = revision; return m }
	for name, tc := range map[string]struct {
		stored Moved
		listed uint64
		shows  bool
		free   int64
	}{
		"never listed, no list":          {moved, 0, false, 9},
		"never listed, a list":           {moved, 50, false, 9},
		"listed, no list":                {shown(40), 0, false, 9},
		"listed, an older list":          {shown(40), 39, false, 9},
		"listed, still listed":           {shown(40), 50, true, 9},
		"listed, entry removed":          {shown(40), 40, false, 10},
		"listed, the list emptied":       {shown(40), EmptiedList, false, 10},
		"without room, the list emptied": {hidden(40), EmptiedList, false, 9},
		"without room":                   {hidden(40), 40, false, 9},
		"room again, not observed":       {hidden(40), 50, false, 9},
	} {
		for order, apply := range map[string]func(*testState, Pool){
			"pool first": func(s *testState, p Pool) { s.ObservePool(s.now, p); s.SetMovedRecords(record(tc.stored)) },
			"record first": func(s *testState, p Pool) {
				s.RemovePool(modelPool, 0)
				s.SetMovedRecords(record(tc.stored))
				s.ObservePool(s.now, p)
			},
		} {
			s := newTestState(t)
			apply(s, pool(s, tc.listed, tc.shows))
			if s.available() != tc.free {
				t.Errorf("%s, %s: %d free, want %d", name, order, s.available(), tc.free)
			}
		}
	}

	t.Run("another pool of the same name", func(t *testing.T) {
		s := newTestState(t)
		p := pool(s, 0, false)
		p.UID = "another"
		s.ObservePool(s.now, p)
		s.SetMovedRecords(record(moved))
		if s.available() != 10 {
			t.Errorf("%d free", s.available())
		}
	})
	t.Run("listed before it was omitted", func(t *testing.T) { // the event of the list is late
		s := newTestState(t)
		s.ObservePool(s.now, pool(s, 0, false))
		s.SetMovedRecords(record(hidden(40)))
		s.ObservePool(s.now, pool(s, 30, true))
		s.ObservePool(s.now, pool(s, 40, false))
		if s.available() != 9 {
			t.Errorf("%d free", s.available())
		}
		s.ObservePool(s.now, pool(s, 50, true))
		s.ObservePool(s.now, pool(s, 50, false))
		if s.available() != 10 {
			t.Errorf("listed again and removed: %d free", s.available())
		}
	})
	t.Run("left out after a list that was not observed", func(t *testing.T) {
		for name, tc := range map[string]struct {
			stored Moved
			listed uint64
			may    bool
		}{
			"no list is observed":             {hidden(40), 0, true},
			"a later list is observed":        {hidden(40), 50, true},
			"a person emptied the list":       {hidden(40), EmptiedList, true},
			"the list shows the range":        {shown(40), 40, true},
			"the record covers the last list": {hidden(40), 40, false},
		} {
			s := newTestState(t)
			p := pool(s, tc.listed, false)
			s.ObservePool(s.now, p)
			if got := s.MayBeListed(modelPool, p.ResourceVersion, tc.stored); got != tc.may {
				t.Errorf("%s: may be listed: %t", name, got)
			}
			if !s.MayBeListed(modelPool, p.ResourceVersion+1, tc.stored) {
				t.Errorf("%s: not listed in a version that is not observed", name)
			}
		}
	})
	t.Run("owned by a claim", func(t *testing.T) {
		s := newTestState(t)
		s.ObservePool(s.now, pool(s, 0, false))
		s.observeStored("db", "10.0.0.3", journal.Token{})
		s.SetMovedRecords(record(moved))
		s.observeDeleted("db")
		if list, _, _ := s.MovedOf(modelPool, "of-pool"); s.available() != 10 || len(list) != 0 {
			t.Errorf("%d free, moved: %+v", s.available(), list)
		}
	})
}

func TestAddressObject_OwnsTheRangeOfAMovedClaim(t *testing.T) {
	s := newTestState(t)
	s.observeStored("web", "10.0.0.3", journal.Token{})
	s.observeStored("web", "", journal.Token{}, markedMoved)
	s.observeDeleted("web")
	s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	s.observeDeleted("address")
	if s.available() != 9 {
		t.Errorf("%d free, but the moved claim owns its range", s.available())
	}
	s.observeStored("address again", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	s.observeStored("web again", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Key = key("web") })
	s.commit()
	if st := s.OwnershipOf("web again"); !st.Confirmed {
		t.Errorf("returned after its address object: %+v", st)
	}
	s.observeDeleted("address again")
	s.observeDeleted("web again")
	if s.available() != 10 {
		t.Errorf("returned and released: %d free", s.available())
	}
}

func TestOrderedPool_IsUsedUpRangeByRange(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.8-10.0.0.9")
	p.Window, p.Ordered, p.Policy = append(p.Window, mustRange("10.0.0.1-10.0.0.2"), mustRange("2001:db8::1-2001:db8::2")), true, allocator.Sequential
	s.ObservePool(s.now, p)
	for i, want := range []string{"10.0.0.8", "10.0.0.9", "10.0.0.1", "10.0.0.2"} {
		g := s.mustGrant(Request{Claim: key(want)})
		s.observeStored(want, want, g.Token)
		if g.Ranges[0] != mustRange(want) {
			t.Errorf("%d: got %s, want %s", i, g.Ranges[0], want)
		}
	}
}

func TestBlockedRange_IsAllocatedToItsClaimOnly(t *testing.T) {
	s := newTestState(t)
	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.3"))
	exact := []RangeRequest{{Exact: mustRange("10.0.0.3")}}
	if _, err := s.requestGrant(Request{Claim: key("other"), Ranges: exact}); err == nil {
		t.Error("another claim is granted the range")
	}
	g := s.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3"), IgnorePoolBlocks: true}}})
	s.observeStored("web", "10.0.0.3", g.Token)
	if _, err := s.requestGrant(Request{Claim: key("twin"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3"), IgnorePoolBlocks: true}}}); err == nil {
		t.Error("two claims are granted the range")
	}
}

func TestOwnedThrough(t *testing.T) {
	s := newTestState(t)
	other := Key{Resource: modelPools, Namespace: "elsewhere", Name: "pool"}
	s.version++
	s.ObservePool(s.now, Pool{Key: other, ResourceVersion: s.version, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}})
	s.observeStored("web", "10.0.0.3", journal.Token{})
	s.observeStored("twin", "10.0.0.3", journal.Token{}) // the loser: owns nothing
	s.observeStored("db", "10.0.0.1", journal.Token{})
	s.observeStored("theirs", "10.0.0.2", journal.Token{}, func(c *Claim) { c.Key.Namespace, c.Pool = "elsewhere", other })
	s.observeStored("outside", "10.9.0.1", journal.Token{}, ready)
	s.observeStored("for-web", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	s.observeStored("router", "10.0.0.0", journal.Token{}, addressObjectOf("gateway"))
	want := []Owned{{mustRange("10.0.0.1"), key("db")}, {mustRange("10.0.0.3"), key("web")}, {mustRange("10.9.0.1"), key("outside")}, {mustRange("10.0.0.0"), key("gateway")}}
	if owned := s.OwnedThrough(modelPool); !slices.Equal(owned, want) {
		t.Errorf("owned through the pool: %v, want claims first, then address objects: %v", owned, want)
	}
	if owned := s.OwnedThrough(other); len(owned) != 1 || owned[0].Range != mustRange("10.0.0.2") {
		t.Errorf("owned through the other pool: %v", owned)
	}
}

func TestLandingWindow_OfAnEarlierLeader(t *testing.T) {
	s := newTestState(t)
	s.observeStored("known", "10.0.0.3", journal.Token{})
	s.observeStored("waiting", "", journal.Token{})
	g := s.mustGrant(Request{Claim: key("inherited")})
	snapshot := s.commit()
	s.StepDown()
	s.TakeOver(journal.Revision{Snapshot: snapshot})
	s.StartGranting(s.now)
	s.commit()
	s.observeStored("later", "10.0.0.4", journal.Token{})
	s.observeStored("inherited", g.Ranges[0].String(), g.Token) // the earlier leader may have confirmed it by a read of the journal
	s.now = s.now.Add(30 * time.Second)
	for name, want := range map[string]time.Duration{"known": s.limits.GrantLife - 30*time.Second, "inherited": s.limits.GrantLife - 30*time.Second, "later": 0, "waiting": 0, "never": 0} {
		if got := s.LandingWindow(s.now, name, time.Time{}); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got := s.LandingWindow(s.now, name, s.now.Add(-time.Second)); got != s.limits.GrantLife-time.Second {
			t.Errorf("%s, written by this leader a second ago: %s", name, got)
		}
	}
	s.now = s.now.Add(s.limits.GrantLife)
	if got := s.LandingWindow(s.now, "known", time.Time{}); got != 0 {
		t.Errorf("after the life of a grant: %s", got)
	}
}

func TestDeferredClaim_IsEvaluatedWhenItsPoolAppears(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	s.RemovePool(modelPool, s.version)
	s.observeStored("web", "10.0.0.3", journal.Token{})
	clear(s.changed)
	s.ObservePool(s.now, p)
	if _, reported := s.changed[key("web")]; !reported {
		t.Error("the claim is not reported as changed: its address object would never be created")
	}
}

// The pool's record of a moved range may be observed before the deletion of its claim:
// the range must stay recorded then.
func TestMoved_StaysRecordedUntilItsClaimReturns(t *testing.T) {
	for name, tc := range map[string]struct {
		movedUID string
		want     int
	}{
		"record of the claim":        {movedUID: "a", want: 1},
		"record of an earlier claim": {movedUID: "another", want: 0},
		"record without a UID":       {want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []string{"claim", "pool"} {
				s := newTestState(t)
				p := s.nextPool("10.0.0.0-10.0.0.9")
				p.Recorded = []RecordedRange{{Range: mustRange("10.0.0.4"), Claim: key("a"), MovedUID: tc.movedUID}}
				if first == "pool" {
					s.ObservePool(s.now, p)
				}
				s.observeStored("a", "10.0.0.4", journal.Token{}, ready)
				s.ObservePool(s.now, p)
				if got := s.RangesToRecord(modelPool); len(got) != tc.want || tc.want > 0 && got[0] != p.Recorded[0] {
					t.Errorf("%s observed first: recorded %v", first, got)
				}
				if s.observeDeleted("a"); s.available() != 10-int64(tc.want) {
					t.Errorf("%s observed first: %d free after the deletion of the claim", first, s.available())
				}
			}
		})
	}
}

func TestDecideMoved_OfClaimsThatWereNotMoved(t *testing.T) {
	marked := func(s *testState, clusters ...string) {
		s.observeStored("web", "10.0.0.3", journal.Token{})
		s.observeStored("web", "", journal.Token{}, markedMoved, func(c *Claim) { c.Clusters = clusters })
		s.observeDeleted("web")
	}
	uid := func(s *testState) string {
		undecided := s.UndecidedMoves()
		if len(undecided) != 1 || s.available() != 9 {
			t.Fatalf("%d free, undecided: %+v", s.available(), undecided)
		}
		return undecided[0].UID
	}
	t.Run("free", func(t *testing.T) {
		s := newTestState(t)
		marked(s)
		s.DecideMoved(s.now, uid(s), false)
		if s.available() != 10 || len(s.UndecidedMoves()) != 0 || len(s.RangesToRecord(modelPool)) != 0 {
			t.Errorf("%d free, undecided: %+v, recorded: %+v", s.available(), s.UndecidedMoves(), s.RangesToRecord(modelPool))
		}
	})
	t.Run("cooldown", func(t *testing.T) {
		s := newTestState(t)
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.ReuseDelay = time.Hour
		s.ObservePool(s.now, p)
		marked(s)
		s.DecideMoved(s.now, uid(s), false)
		if got := s.RangesToRecord(modelPool); s.available() != 9 || len(got) != 1 || !got[0].Until.Equal(s.now.Add(time.Hour)) {
			t.Errorf("%d free, recorded: %+v", s.available(), got)
		}
		s.now = s.now.Add(time.Hour)
		s.Tick(s.now)
		if s.available() != 10 {
			t.Errorf("after the delay: %d free", s.available())
		}
	})
	t.Run("address object that stays", func(t *testing.T) {
		s := newTestState(t)
		s.observeStored("web", "10.0.0.3", journal.Token{})
		s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
		s.observeStored("web", "", journal.Token{}, markedMoved)
		s.observeDeleted("web")
		s.DecideMoved(s.now, uid(s), false)
		if s.available() != 9 {
			t.Errorf("%d free while the object is stored", s.available())
		}
		s.observeDeleted("address")
		if s.available() != 10 {
			t.Errorf("%d free", s.available())
		}
	})
	t.Run("returned before the decision", func(t *testing.T) {
		s := newTestState(t)
		marked(s)
		g := s.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
		s.observeStored("web", "10.0.0.3", g.Token, func(c *Claim) { c.UID = "returned" })
		if len(s.UndecidedMoves()) != 0 || s.available() != 9 {
			t.Errorf("%d free, undecided: %+v", s.available(), s.UndecidedMoves())
		}
	})
	t.Run("the Cluster of the pool", func(t *testing.T) {
		s := newTestState(t)
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.Cluster = "of-pool"
		s.ObservePool(s.now, p)
		marked(s)
		if undecided := s.UndecidedMoves(); len(undecided) != 1 || !slices.Equal(undecided[0].Clusters, []string{"of-pool"}) {
			t.Errorf("undecided: %+v", undecided)
		}
		s = newTestState(t)
		s.ObservePool(s.now, p)
		marked(s, "own")
		if undecided := s.UndecidedMoves(); len(undecided) != 1 || !slices.Equal(undecided[0].Clusters, []string{"own"}) {
			t.Errorf("undecided: %+v", undecided)
		}
	})
}

// While the claim owns the range too, by its own holding, the move of the claim is the
// move to record. A replica that has not observed that move would take the claim for a
// claim that came back, and end the record.
func TestAddressObject_IsNotMovedBeforeItsClaim(t *testing.T) {
	first := newTestState(t)
	g := first.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
	s := newTestState(t)
	s.TakeOver(journal.Revision{Snapshot: first.commit()})
	s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	s.observeStored("web", "10.0.0.3", g.Token)
	s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"), markedMoved)
	s.observeDeleted("address")
	if undecided := s.UndecidedMoves(); len(undecided) != 0 || s.available() != 9 {
		t.Errorf("undecided: %+v, %d free", undecided, s.available())
	}
	s.observeStored("web", "", journal.Token{}, markedMoved)
	s.observeDeleted("web")
	if undecided := s.UndecidedMoves(); len(undecided) != 1 || undecided[0].UID != "web" || s.available() != 9 {
		t.Errorf("undecided: %+v, %d free", undecided, s.available())
	}
}

// Informers of two resources deliver events in any order: an address object that was
// stored after its claim, without a grant of its own since the claim was granted the
// range, may be observed first.
func TestAddressObject_ObservedBeforeTheClaimThatWasGrantedItsRange(t *testing.T) {
	withoutStatus := func(c *Claim) { c.Ready, c.Flagged = true, true } // see metal3.AddressClaimOf
	for name, tc := range map[string]struct {
		pool  Key // of the address object
		token func(Grant) journal.Token
		owns  bool
	}{
		"of the same pool":                   {modelPool, func(g Grant) journal.Token { return g.Token }, true},
		"of a claim that has lost its token": {modelPool, func(Grant) journal.Token { return journal.Token{} }, true},
		"of another pool":                    {Key{Resource: modelPool.Resource, Name: "another"}, func(g Grant) journal.Token { return g.Token }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			g := s.mustGrant(Request{Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}})
			s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"), withoutStatus, func(c *Claim) { c.Pool = tc.pool })
			s.observeStored("web", "10.0.0.3", tc.token(g))
			s.commit()
			if o := s.OwnershipOf("web"); o.Confirmed != tc.owns || (o.Conflict == nil) != tc.owns {
				t.Errorf("ownership %+v", o)
			}
			if !tc.owns {
				return
			}
			s.observeDeleted("web")
			if s.available() != 9 {
				t.Errorf("claim deleted: %d free, want 9: the address object owns an address", s.available())
			}
			s.observeDeleted("address")
			s.now = s.now.Add(DefaultGrantLife) // without its token, the grant lasts as long
			for _, g := range s.ExpiredGrants(s.now) {
				s.ExpireGrant(g)
			}
			if s.available() != 10 {
				t.Errorf("claim and address object deleted: %d free", s.available())
			}
		})
	}
}

// A leader that knows of the deletion of a claim creates no address object for it. So the
// release of a claim waits for the creates of the leaders before the first that knew, and
// not anew after each further change of the leader.
func TestReleaseWindow_IsNotProlongedByLaterLeaders(t *testing.T) {
	revision := func(term int64, applied uint64) journal.Revision {
		return journal.Revision{Term: term, Snapshot: journal.Snapshot{Applied: map[string]uint64{modelClaims: applied}}}
	}
	for name, tt := range map[string]struct {
		terms []uint64 // versions in the last revision of each term; a term lasts for 40 s
		want  time.Duration
	}{
		"deletion applied in the first term":                        {[]uint64{100, 100, 100}, 40 * time.Second},
		"deletion applied in the second term":                       {[]uint64{1, 100, 100}, 80 * time.Second},
		"deletion applied in the last term before":                  {[]uint64{1, 1, 100}, 120 * time.Second},
		"deletion applied by no earlier leader":                     {[]uint64{1, 1, 1}, 120 * time.Second},
		"many changes of the leader, and the wait is over":          {[]uint64{100, 100, 100, 100, 100}, 0},
		"many changes of the leader, each before the first applied": {[]uint64{1, 1, 1, 1, 1}, 120 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.StepDown()
			s.observeStored("a", "10.0.0.3", journal.Token{})
			s.observeStored("a", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Deleting = true })
			if s.claims.find("a").ResourceVersion > 100 {
				t.Fatal("the version of the deletion is too high for this test")
			}
			term := int64(1)
			for _, applied := range tt.terms {
				s.RecordRevision(s.now, revision(term, 1)) // the first revision of a term has the versions of the earlier term, or older
				s.now = s.now.Add(40 * time.Second)
				s.RecordRevision(s.now, revision(term, applied))
				term++
			}
			s.TakeOver(revision(term, 0))
			s.StartGranting(s.now)
			s.RecordRevision(s.now, revision(term, 0))
			if got := s.ReleaseWindow(s.now, "a", time.Time{}); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
			if got := s.ReleasesAwaited(s.now, modelPool); got != tt.want {
				t.Errorf("the pool waits for %s, want %s", got, tt.want)
			}
			if got := s.LandingWindow(s.now, "a", time.Time{}); got != s.limits.GrantLife {
				t.Errorf("a create: %s, want the whole window", got)
			}
		})
	}
}
