package state

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// newStandbyState returns a granting State with standby grants, and a pool.
func newStandbyState(t *testing.T, window string) *testState {
	s := newTestState(t)
	s.limits.StandbyGrants, s.limits.StandbyShare = 64, 8
	s.limits.JournalBytes = 1 << 18
	s.ObservePool(s.now, s.nextPool(window))
	return s
}

// grantAny grants one address to a create, without a commit.
func (s *testState) grantAny(name string) *OpenGrant {
	s.t.Helper()
	g, err := s.Grant(s.now, Request{Claim: key(name), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}})
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *testState) standbyRanges() (all []string) {
	for _, g := range s.standby.ready[""] {
		all = append(all, g.Ranges[0].String())
	}
	return all
}

// A create that a standby grant covers needs no commit. It is approved after a read of
// the journal that began after its request.
func TestStandby_CreateIsGrantedFromTheJournal(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	first := s.grantAny("a")
	if !first.AwaitsCommit() {
		t.Fatal("the first create of an idle pool was granted without a commit")
	}
	snapshot := s.commit()
	earlier := s.BeginProof()
	g := s.grantAny("b")
	if g.AwaitsCommit() || g.Ranges[0].String() != "10.0.0.1" || !slices.ContainsFunc(snapshot.Entries, func(e journal.Entry) bool { return e.Token == g.Token && slices.Equal(e.Ranges, g.Ranges) }) {
		t.Fatalf("granted %v, token %s, awaits a commit: %t; journal %v", g.Ranges, g.Token, g.AwaitsCommit(), snapshot.Entries)
	}
	check := func() error {
		return s.CheckGrant(Claim{Key: key("b"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0)
	}
	if err := check(); err != ErrUnproven {
		t.Errorf("before a proof: %v", err)
	}
	s.ProofLanded(s.now, earlier)
	if err := check(); err != ErrUnproven {
		t.Errorf("after a read that began before the request: %v", err)
	}
	s.ProofLanded(s.now, s.BeginProof())
	if err := check(); err != nil {
		t.Errorf("after a read that began after the request: %v", err)
	}
	s.observeStored("b", "10.0.0.1", g.Token)
	s.expectOwnership("b", "unconfirmed")
	s.ProofLanded(s.now, s.BeginProof())
	s.expectOwnership("b", "confirmed")
}

// A commit proves what a read would prove. A claim without a grant in the journal needs a
// commit.
func TestStandby_CommitIsAProofToo(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("a")
	s.commit()
	s.BeginCommit()
	g := s.grantAny("b")
	s.CommitLanded(s.now)
	if err := s.CheckGrant(Claim{Key: key("b"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0); err != ErrUnproven {
		t.Errorf("after a commit that began before the request: %v", err)
	}
	s.ProofFailed()
	if !s.Pending().Commit {
		t.Error("no commit is due after a read that proves nothing")
	}
	s.commit()
	if err := s.CheckGrant(Claim{Key: key("b"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0); err != nil {
		t.Errorf("after a commit that began after the request: %v", err)
	}
	s.observeStored("unadmitted", "10.0.0.200", journal.Token{})
	s.ProofLanded(s.now, s.BeginProof())
	s.expectOwnership("unadmitted", "unconfirmed")
	s.commit()
	s.expectOwnership("unadmitted", "confirmed")
}

// A range in a commit in flight is granted with that commit.
func TestStandby_InFlight(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("a")
	s.BeginCommit()
	g := s.grantAny("b")
	if !g.AwaitsCommit() || s.grants.awaitCommit() > 0 {
		t.Errorf("awaits a commit: %t, %d grants queued", g.AwaitsCommit(), s.grants.awaitCommit())
	}
	s.CommitLanded(s.now)
	if g.AwaitsCommit() {
		t.Error("the grant still awaits a commit")
	}
}

// Standby ranges are free for every other request, which gives them up.
func TestStandby_RangesAreFree(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("a")
	s.commit()
	if free := s.available(); free != 255 || len(s.standbyRanges()) != minStandby {
		t.Fatalf("%d free, standby %v", free, s.standbyRanges())
	}
	exact := s.mustGrant(Request{Claim: key("exact"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}}})
	s.observeStored("unadmitted", "10.0.0.2", journal.Token{})
	if list := s.standbyRanges(); slices.Contains(list, "10.0.0.1") || slices.Contains(list, "10.0.0.2") {
		t.Errorf("standby %v", list)
	}
	if snapshot := s.commit(); slices.ContainsFunc(snapshot.Entries, func(e journal.Entry) bool { return e.Token != exact.Token && slices.Equal(e.Ranges, exact.Ranges) }) {
		t.Errorf("the journal has %s twice: %v", exact.Ranges, snapshot.Entries)
	}
	large := s.mustGrant(Request{Claim: key("large"), Ranges: []RangeRequest{{Count: 253}}})
	if large.Ranges[0].Size() != 253 || len(s.standbyRanges()) > 0 {
		t.Errorf("granted %v, standby %v", large.Ranges, s.standbyRanges())
	}
}

// A pool with few free addresses has few standby grants, and an idle pool none. A pool
// that was updated gives up those outside its new ranges.
func TestStandby_FewInSmallPoolsNoneInIdleOnes(t *testing.T) {
	for window, want := range map[string]int{"10.0.0.0-10.0.0.7": 0, "10.0.0.0-10.0.0.16": 2, "10.0.0.0-10.0.3.255": minStandby} {
		s := newStandbyState(t, window)
		s.grantAny("a")
		if s.commit(); len(s.standbyRanges()) != want {
			t.Errorf("%s: standby %v, want %d", window, s.standbyRanges(), want)
		}
		s.now = s.now.Add(demandLife)
		s.Tick(s.now)
		if s.commit(); len(s.standbyRanges()) != 0 {
			t.Errorf("%s: standby %v in an idle pool", window, s.standbyRanges())
		}
	}
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("a")
	s.commit()
	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.255", "10.0.0.1-10.0.0.4"))
	s.commit()
	if list := s.standbyRanges(); list[0] != "10.0.0.5" {
		t.Errorf("standby %v after an update that reserves 10.0.0.1-10.0.0.4", list)
	}
	paused := s.nextPool("10.0.0.0-10.0.0.255")
	paused.Paused = true
	s.ObservePool(s.now, paused)
	if s.commit(); len(s.standbyRanges()) > 0 {
		t.Errorf("standby %v in a paused pool", s.standbyRanges())
	}
}

// Without a recent demand of its own, a size gets no standby grants; a demand that runs
// out of standby grants gets more.
func TestStandby_FollowsTheDemand(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.255.255")
	s.grantAny("first")
	s.commit()
	for i := range 4 * minStandby {
		s.grantAny(fmt.Sprint("burst-", i))
	}
	s.commit()
	if n := len(s.standbyRanges()); n <= minStandby || n > s.limits.StandbyGrants {
		t.Errorf("%d standby grants after a burst", n)
	}
	for range 10 {
		s.now = s.now.Add(time.Second)
		s.grantAny(fmt.Sprint("rare-", s.now.Unix()))
		s.Tick(s.now)
		s.commit()
	}
	if n := len(s.standbyRanges()); n != minStandby {
		t.Errorf("%d standby grants at one create a second", n)
	}
}

// The next leader inherits every standby grant: it grants none of the ranges, and
// approves a create that was answered with one after a proof of its own, from which the
// life of the grant begins anew.
func TestStandby_Inherited(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("a")
	snapshot := s.commit()
	g := s.grantAny("b") // the former leader, which does not know that it was replaced

	successor := newStandbyState(t, "10.0.0.0-10.0.0.255")
	successor.TakeOver(journal.Revision{Snapshot: snapshot})
	successor.StartGranting(successor.now)
	if other := successor.grantAny("c"); slices.ContainsFunc(snapshot.Entries, func(e journal.Entry) bool { return slices.Equal(e.Ranges, other.Ranges) }) {
		t.Errorf("granted %v again", other.Ranges)
	}
	successor.commit()
	successor.now = successor.now.Add(DefaultGrantLife - time.Second)
	check := func() error {
		return successor.CheckGrant(Claim{Key: key("b"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0)
	}
	if err := check(); err != ErrUnproven {
		t.Errorf("before a proof: %v", err)
	}
	successor.ProofLanded(successor.now, successor.BeginProof())
	if err := check(); err != nil {
		t.Errorf("after a proof: %v", err)
	}
	successor.now = successor.now.Add(2 * time.Second)
	for _, due := range successor.ExpiredGrants(successor.now) {
		if due.Token == g.Token {
			t.Error("the approved grant expires although its create may still be stored")
		}
		successor.ExpireGrant(due)
	}
	successor.observeStored("b", g.Ranges[0].String(), g.Token)
	successor.commit()
	successor.expectOwnership("b", "confirmed")
	if free := successor.available(); free != 255 {
		t.Errorf("%d free after the other standby grants have expired, want 255", free)
	}
}

// The deletion of a claim makes a commit due at once if the journal still contains the
// entry of its grant, and only then.
func TestDeletion_RemovesTheEntry(t *testing.T) {
	s := newStandbyState(t, "10.0.0.0-10.0.0.255")
	s.grantAny("first")
	s.commit()
	bind := func(name string) (remove func(*Claim)) {
		g := s.grantAny(name)
		s.observeStored(name, g.Ranges[0].String(), g.Token)
		return func(c *Claim) { c.Deleting, c.Ranges, c.Token = true, g.Ranges, g.Token }
	}
	early, late := bind("early"), bind("late")
	s.observeStored("early", "", journal.Token{}, early)
	if !s.Pending().Commit {
		t.Error("no commit is due, and the journal contains the entry of a claim that is being deleted")
	}
	if snapshot := s.commit(); slices.ContainsFunc(snapshot.Entries, func(e journal.Entry) bool { return e.NameHash == journal.HashName("early") }) {
		t.Errorf("the entry is in the next commit: %v", snapshot.Entries)
	}
	s.observeStored("late", "", journal.Token{}, late)
	if s.Pending().Commit {
		t.Error("a commit is due for a claim whose entry has left")
	}

	earlier := bind("of an earlier term")
	s.StepDown()
	s.TakeOver(journal.Revision{})
	s.StartGranting(s.now)
	s.commit()
	s.observeStored("of an earlier term", "", journal.Token{}, earlier)
	if s.Pending().Commit {
		t.Error("a commit is due for a claim of an earlier term")
	}
}

// Standby grants change no answer: a State with standby grants and one without grant the
// same ranges in random sequences of creates, deletes, updates of the pool and failed
// creates.
func TestStandby_GrantsWhatThePolicyGives(t *testing.T) {
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 3))
		size := 1 + rng.IntN(40)
		if seed%2 == 0 {
			size = 200 + rng.IntN(400)
		}
		window := allocator.Range{First: mustRange("10.0.0.0").First}
		window.Last = window.First
		for range size - 1 {
			window.Last = window.Last.Next()
		}
		with, without := newStandbyState(t, window.String()), newStandbyState(t, window.String())
		without.limits.StandbyGrants = 0
		both := []*testState{with, without}
		owned := map[string]bool{}
		used := 0
		for step := range 300 {
			name := fmt.Sprint("n", step)
			switch n := rng.IntN(20); {
			case n < 13:
				count := []int64{1, 1, 1, 2, 4}[rng.IntN(5)]
				var ranges []string
				var tokens []journal.Token
				for _, s := range both {
					g, err := s.Grant(s.now, Request{Claim: key(name), Pool: modelPool, Ranges: []RangeRequest{{Count: count}}})
					if err != nil {
						ranges = append(ranges, err.Error())
						continue
					}
					if s == with && !g.AwaitsCommit() {
						used++
					}
					ranges, tokens = append(ranges, g.Ranges[0].String()), append(tokens, g.Token)
				}
				if ranges[0] != ranges[1] {
					t.Fatalf("seed %d step %d: %q with standby grants, %q without", seed, step, ranges[0], ranges[1])
				}
				if len(tokens) < 2 {
					continue
				}
				failed := rng.IntN(4) == 0
				for i, s := range both {
					s.commit()
					if failed {
						s.ExpireGrant(s.grants.find(tokens[i]))
					} else {
						s.observeStored(name, ranges[i], tokens[i])
					}
				}
				owned[name] = !failed
			case n < 18:
				for _, name := range slices.Sorted(maps.Keys(owned)) {
					if owned[name] && rng.IntN(4) == 0 {
						with.observeDeleted(name)
						without.observeDeleted(name)
						owned[name] = false
						break
					}
				}
			case n < 19:
				for _, s := range both {
					s.now = s.now.Add(time.Second)
					s.Tick(s.now)
				}
			default:
				for _, s := range both {
					s.commit()
				}
			}
		}
		if size >= 200 && used == 0 {
			t.Errorf("seed %d: no standby grant was used", seed)
		}
	}
}

// A pool of 1 to 64 addresses that is filled right after its leader died gives all its
// addresses, whatever standby grants the journal contains, also those of a large pool
// that overlaps the small pool. Without StandbyRoom, some pools do not.
func TestStandby_SmallPoolsFillToTheLastAddress(t *testing.T) {
	denied := map[int64]int{}
	for _, room := range []int64{128, 0} {
		for seed := range uint64(200) {
			rng := rand.New(rand.NewPCG(seed, 5))
			size := 1 + rng.IntN(64)
			small := Pool{Key: Key{Resource: modelPools, Namespace: "ns", Name: "small"}, ResourceVersion: 1, Policy: allocator.BestFit}
			small.Window = []allocator.Range{mustRange(fmt.Sprintf("10.0.0.0-10.0.0.%d", size-1))}
			start := func() *testState {
				s := newStandbyState(t, "10.0.0.0-10.0.7.255")
				s.limits.StandbyRoom, s.limits.StandbyShare = room, 16
				s.ObservePool(s.now, small)
				return s
			}
			leader := start()
			create := func(s *testState, pool Key, i int) (*OpenGrant, error) {
				g, err := s.Grant(s.now, Request{Claim: key(fmt.Sprint(pool.Name, i)), Pool: pool, Ranges: []RangeRequest{{Count: 1}}})
				if err == nil && (g.AwaitsCommit() || rng.IntN(3) == 0) {
					s.commit()
				}
				return g, err
			}
			first, owned := rng.IntN(size+1), map[string]*OpenGrant{}
			for i := range first {
				pool := small.Key
				if rng.IntN(3) == 0 {
					pool = modelPool
				}
				g, err := create(leader, pool, i)
				if err != nil {
					t.Fatal(err)
				}
				owned[fmt.Sprint(pool.Name, i)] = g
			}
			snapshot := leader.BeginCommit() // the leader dies before or after its last commit has landed
			next := start()
			next.TakeOver(journal.Revision{Snapshot: snapshot})
			for name, g := range owned {
				next.observeStored(name, g.Ranges[0].String(), g.Token)
			}
			next.StartGranting(next.now)
			left, _ := next.Usage(small.Key)
			for i := range left.Total - int64(countOwnedIn(small.Window[0], owned)) {
				if _, err := create(next, small.Key, 100+int(i)); err != nil {
					denied[room]++
					break
				}
			}
			leader.StepDown()
		}
	}
	if denied[128] > 0 || denied[0] == 0 {
		t.Errorf("pools that do not give all their addresses: %d, without StandbyRoom %d", denied[128], denied[0])
	}
}

// countOwnedIn counts the grants with a range inside a window.
func countOwnedIn(window allocator.Range, grants map[string]*OpenGrant) (n int) {
	for _, g := range grants {
		if window.Covers(g.Ranges[0]) {
			n++
		}
	}
	return n
}
