package state

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// testState is a State with a clock and a journal whose commits always land.
type testState struct {
	*State
	t       *testing.T
	now     time.Time
	version uint64
}

// testStates counts the states of all tests: no two states generate equal tokens.
var testStates atomic.Uint64

// newTestState returns a granting State with a pool of ten addresses. Check runs at the
// end of the test.
func newTestState(t *testing.T) *testState {
	n := testStates.Add(1) << 32
	s := &testState{t: t, now: modelStart, State: New([]string{modelClaims, modelPools}, Limits{GrantLife: DefaultGrantLife, JournalBytes: 20 * usualEntryBytes}, func() journal.Token {
		n++
		var t journal.Token
		binary.BigEndian.PutUint64(t[:], n)
		return t
	})}
	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9"))
	s.TakeOver(journal.Revision{})
	s.StartGranting(s.now)
	t.Cleanup(func() {
		if err := errors.Join(s.Check(), s.checkUsage(), s.checkSegments()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// nextPool returns the next version of the pool.
func (s *testState) nextPool(window string, blocked ...string) Pool {
	s.version++
	p := Pool{Key: modelPool, ResourceVersion: s.version, Policy: allocator.BestFit, Window: []allocator.Range{mustRange(window)}}
	for _, b := range blocked {
		p.Blocked = append(p.Blocked, mustRange(b))
	}
	return p
}

func mustRange(s string) allocator.Range {
	r, err := allocator.ParseRange(s)
	if err != nil {
		panic(err)
	}
	return r
}

func key(name string) Key { return Key{Resource: modelClaims, Namespace: "ns", Name: name} }

// requestGrant requests a grant and commits the journal.
func (s *testState) requestGrant(q Request) (Grant, error) {
	s.t.Helper()
	q.Pool = modelPool
	if c := s.claims.find(q.UID); c != nil {
		q.Version = c.ResourceVersion
	}
	if q.Ranges == nil {
		q.Ranges = []RangeRequest{{Count: 1}}
	}
	g, err := s.Grant(s.now, q)
	if err != nil {
		return Grant{}, err
	}
	s.commit()
	return Grant{Ranges: g.Ranges, Token: g.Token}, nil
}

func (s *testState) mustGrant(q Request) Grant {
	s.t.Helper()
	g, err := s.requestGrant(q)
	if err != nil {
		s.t.Fatal(err)
	}
	return g
}

func (s *testState) commit() journal.Snapshot {
	r := s.BeginCommit()
	s.CommitLanded(s.now)
	return r
}

// observeStored observes a stored claim. The UID is the name; claims stored earlier are
// older.
func (s *testState) observeStored(name, ranges string, t journal.Token, more ...func(*Claim)) {
	s.version++
	c := Claim{Key: key(name), UID: name, ResourceVersion: s.version, Created: s.now.Add(time.Duration(s.version) * time.Second), Pool: modelPool, Token: t}
	if ranges != "" {
		c.Ranges = []allocator.Range{mustRange(ranges)}
	}
	for _, m := range more {
		m(&c)
	}
	s.RecordApplied(modelClaims, s.version)
	s.State.ObserveClaim(s.now, c)
}

func (s *testState) observeDeleted(name string) {
	s.version++
	s.RemoveClaim(s.now, Claim{Key: key(name), UID: name}, s.version)
}

func ready(c *Claim)   { c.Ready = true }
func flagged(c *Claim) { c.Flagged = true }

func (s *testState) available() int64 {
	u, _ := s.Usage(modelPool)
	return u.Available
}

// expectOwnership checks the ownership of a claim: confirmed, unconfirmed, or in conflict
// with another claim.
func (s *testState) expectOwnership(name, want string) {
	s.t.Helper()
	st := s.OwnershipOf(name)
	got := "unconfirmed"
	switch {
	case st.Conflict != nil:
		got = "in conflict with " + st.Conflict.Owner.Name
	case st.Confirmed:
		got = "confirmed"
	}
	if got != want {
		s.t.Errorf("%s %s, want: %s", name, got, want)
	}
}

func TestOwnership_IsConfirmedByACommitBegunAfterBinding(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a")})
	s.BeginCommit()
	s.observeStored("a", g.Ranges[0].String(), g.Token)
	s.CommitLanded(s.now)
	s.expectOwnership("a", "unconfirmed")
	if r := s.commit(); len(r.Entries) != 0 {
		t.Errorf("the grant is still in the journal: %v", r.Entries)
	}
	s.expectOwnership("a", "confirmed")
}

func TestGrant_RepeatedForANameHasANewToken(t *testing.T) {
	s := newTestState(t)
	first := s.mustGrant(Request{Claim: key("a")})
	second := s.mustGrant(Request{Claim: key("a")})
	if first.Ranges[0] != second.Ranges[0] || first.Token == second.Token {
		t.Errorf("%v, then %v", first, second)
	}
	s.observeStored("a", first.Ranges[0].String(), first.Token)
	s.observeDeleted("a")
	if s.available() != 9 {
		t.Errorf("%d free while the object of the second response may still be stored", s.available())
	}
	s.now = s.now.Add(DefaultGrantLife)
	for _, g := range s.ExpiredGrants(s.now) {
		s.ExpireGrant(g)
	}
	if s.available() != 10 {
		t.Errorf("%d free in the end", s.available())
	}
}

// A claim that waited for its pool may be granted ranges twice, if the first write meets
// a newer version of the claim.
func TestGrant_SecondToAStoredClaimEndsTheFirst(t *testing.T) {
	s := newTestState(t)
	s.observeStored("a", "", journal.Token{})
	first := s.mustGrant(Request{Claim: key("a"), UID: "a"})
	second := s.mustGrant(Request{Claim: key("a"), UID: "a"})
	if !slices.Equal(first.Ranges, second.Ranges) || first.Token == second.Token {
		t.Errorf("%v, then %v", first, second)
	}
	s.observeStored("a", second.Ranges[0].String(), second.Token)
	if r := s.commit(); len(r.Entries) != 0 {
		t.Errorf("still in the journal: %v", r.Entries)
	}
	if s.observeDeleted("a"); s.available() != 10 {
		t.Errorf("%d free after the deletion of the claim", s.available())
	}
}

// A claim removes a range and requests the range again before either update is observed:
// the range that the state counts as owned may soon be free.
func TestGrant_ToANewerVersionWaitsForItsObservation(t *testing.T) {
	s := newTestState(t)
	s.observeStored("a", "10.0.0.1", journal.Token{})
	more := func(over uint64) (*OpenGrant, error) {
		q := Request{Claim: key("a"), UID: "a", Version: over, Pool: modelPool, Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}, {Exact: mustRange("10.0.0.2")}}}
		if _, err := s.Preview(q); err != nil {
			return nil, err
		}
		g, err := s.Grant(s.now, q)
		s.commit()
		return g, err
	}
	first, err := more(s.version)
	if err != nil {
		t.Fatal(err)
	}
	both := func(c *Claim) { c.Ranges = append(c.Ranges, mustRange("10.0.0.2")) }
	if s.observeStored("a", "10.0.0.1", first.Token, both); s.grants.number() != 0 || s.available() != 8 {
		t.Errorf("%d grants open, %d addresses free", s.grants.number(), s.available())
	}
	if _, err := more(s.version + 1); !errors.Is(err, ErrBehind) {
		t.Errorf("version that is not observed yet: %v", err)
	}
	if s.observeStored("a", "10.0.0.1", first.Token); s.available() != 9 {
		t.Errorf("%d addresses free", s.available())
	}
	second, err := more(s.version)
	if err != nil || !slices.Equal(second.Ranges, []allocator.Range{mustRange("10.0.0.2")}) {
		t.Fatalf("%+v, %v", second, err)
	}
	if s.observeStored("a", "10.0.0.1", second.Token, both); s.grants.number() != 0 || s.available() != 8 {
		t.Errorf("%d grants open, %d addresses free", s.grants.number(), s.available())
	}
}

func TestGrant_RepeatedForAnUnnamedClaim(t *testing.T) {
	s := newTestState(t)
	first := s.mustGrant(Request{Claim: key(""), RequestUID: "call"})
	again := s.mustGrant(Request{Claim: key(""), RequestUID: "call"})
	other := s.mustGrant(Request{Claim: key(""), RequestUID: "other"})
	if first.Ranges[0] != again.Ranges[0] || first.Token == again.Token || other.Ranges[0] == first.Ranges[0] {
		t.Errorf("%v, %v, %v", first, again, other)
	}
}

func TestWithdrawGrant_FreesItsRange(t *testing.T) {
	s := newTestState(t)
	for name, when := range map[string]func(*OpenGrant){
		"before the commit": func(g *OpenGrant) { s.WithdrawGrant(g); s.commit() },
		"during the commit": func(g *OpenGrant) { s.BeginCommit(); s.WithdrawGrant(g); s.CommitLanded(s.now) },
		"after the commit":  func(g *OpenGrant) { s.commit(); s.WithdrawGrant(g) },
	} {
		g, err := s.Grant(s.now, Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 4}}})
		if err != nil {
			t.Fatal(err)
		}
		when(g)
		if s.available() != 10 || s.grants.number() != 0 || s.grants.awaitCommit() != 0 {
			t.Errorf("%s: %d free, %d entries, %d queued", name, s.available(), s.grants.number(), s.grants.awaitCommit())
		}
	}
}

// Namespaces whose creates fail leave room for every other namespace, and so do
// cluster-scoped objects and updates of pools.
func TestLimits_NamespacesLeaveRoomForOthers(t *testing.T) {
	s := newTestState(t)
	s.limits.JournalBytes = 1 << 15
	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.255.255"))
	create := func(namespace string, i int) error {
		_, err := s.requestGrant(Request{Claim: Key{Resource: modelClaims, Namespace: namespace, Name: fmt.Sprint(i)}})
		return err
	}
	fill := func(namespace string) (n int, full *NotServingError) {
		for ; full == nil; n++ {
			if err := create(namespace, n); err != nil && !errors.As(err, &full) {
				t.Fatal(err)
			}
		}
		return n - 1, full
	}
	for i, namespace := range []string{"a", "", "b", "c", "d"} {
		n, full := fill(namespace)
		if !full.NoOtherReplica || !full.JournalFull || !strings.Contains(full.Reason, "share of the journal") {
			t.Errorf("namespace %q: %v", namespace, full)
		}
		if least := 250 >> i; n < least {
			t.Errorf("namespace %q gets %d grants, want %d", namespace, n, least)
		}
	}
	pool := Pool{Key: Key{Resource: modelPools, Namespace: "pools", Name: "p"}, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.1.0.0/16")}}
	s.ObservePool(s.now, pool)
	updates, full := 0, (*NotServingError)(nil)
	for ; full == nil && updates < 500; updates++ { // none is stored
		update := pool
		update.Window = []allocator.Range{mustRange(fmt.Sprintf("10.1.0.0-10.1.%d.%d", 255-updates/200, 255-updates%200))}
		if _, err := s.UpdatePool(update); err != nil && !errors.As(err, &full) {
			t.Fatal(err)
		}
	}
	if updates < 10 || full == nil {
		t.Errorf("%d updates, then %v", updates, full)
	}
	if n, _ := fill("sixth"); n < 30 {
		t.Errorf("a sixth namespace gets %d grants, want 30", n)
	}
	for i := range 40 {
		if n, _ := fill(fmt.Sprint("later-", i)); n == 0 {
			t.Errorf("the %dth namespace gets no grant", 7+i)
		}
	}
	if err := create("last", 0); err != nil {
		t.Errorf("a namespace without open grants: %v", err)
	}
	shares := s.JournalShares(3)
	if len(shares) != 3 || shares[0].Namespace != "a" || shares[1].Namespace != "" || shares[0].Grants < 250 || shares[0].Part < 0.24 || shares[0].Part > 0.25 {
		t.Errorf("largest shares %+v", shares)
	}
}

// One update of a pool that removes too many ranges for a share can never be admitted:
// the message names the remedy.
func TestLimits_OfOneUpdate(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	for i := range 200 {
		p.Window = append(p.Window, mustRange(fmt.Sprintf("10.0.%d.0", 1+i)))
	}
	s.ObservePool(s.now, p)
	_, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.9"))
	if full := (*NotServingError)(nil); !errors.As(err, &full) || !strings.Contains(full.Reason, "remove them in several updates") {
		t.Error(err)
	}
}

// The standby grants of an earlier leader count in no namespace, nor among the
// cluster-scoped objects: a leader that was killed costs none of them its share.
func TestLimits_InheritedStandbyGrantsAreNoNamespaces(t *testing.T) {
	s := newTestState(t)
	s.limits.JournalBytes = 30 * usualEntryBytes
	var entries []journal.Entry
	for i := range byte(8) {
		entries = append(entries, journal.Entry{Token: journal.Token{1, i}, Ranges: []allocator.Range{mustRange(fmt.Sprintf("10.9.0.%d", i))}})
	}
	s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: entries}})
	s.StartGranting(s.now)
	for i := range 2 {
		if _, err := s.requestGrant(Request{Claim: Key{Resource: modelClaims, Name: fmt.Sprint(i)}}); err != nil {
			t.Error(err)
		}
	}
	if shares := s.JournalShares(5); len(shares) != 1 || shares[0].Grants != 2 {
		t.Errorf("%+v", shares)
	}
}

// Claims without a pool name their routing domain themselves, possibly a different domain
// each.
func TestLimits_CountRoutingDomains(t *testing.T) {
	s := newTestState(t)
	s.limits.JournalBytes = journal.MaxEncoded - 4000
	long := func(i int) string { return fmt.Sprintf("%063d", i) }
	fill := func(request func(i int) Request) (grants []*OpenGrant) {
		for i := range journal.MaxEncoded {
			g, err := s.Grant(s.now, request(i))
			if full := (*NotServingError)(nil); errors.As(err, &full) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			grants = append(grants, g)
		}
		return grants
	}
	exact := []RangeRequest{{Exact: mustRange("10.0.0.1")}}
	grants := fill(func(i int) Request {
		return Request{Claim: Key{Resource: modelClaims, Name: fmt.Sprint(i)}, RoutingDomain: long(i), Ranges: exact}
	})
	share := len(grants)
	for i := range 80 { // until the journal is nearly full
		grants = append(grants, fill(func(j int) Request {
			claim := Key{Resource: modelClaims, Namespace: long(i), Name: fmt.Sprint(j)}
			return Request{Claim: claim, RoutingDomain: long(i), Ranges: []RangeRequest{{Exact: mustRange(fmt.Sprintf("10.1.%d.%d", j/256, j%256))}}}
		})...)
	}
	size := len(s.BeginCommit().Encode())
	if size > journal.MaxEncoded || size < (journal.MaxEncoded-4000)*8/10 {
		t.Errorf("%d and %d grants take %d bytes of %d", share, len(grants)-share, size, journal.MaxEncoded)
	}
	s.CommitLanded(s.now)
	for _, g := range grants {
		s.endGrant(g)
	}
	if _, err := s.Preview(Request{RoutingDomain: "another", Ranges: exact}); err != nil {
		t.Error(err)
	}
	s.Tick(s.now)
	if err := s.journalRoom.check(nil); err != nil || len(s.domains) != 1 {
		t.Errorf("after all grants ended: %v, %d routing domains", err, len(s.domains))
	}
}

func TestConflict_ReadyClaimKeepsItsRange(t *testing.T) {
	s := newTestState(t)
	s.observeStored("old", "10.0.0.0-10.0.0.3", journal.Token{})
	s.observeStored("young", "10.0.0.2-10.0.0.5", journal.Token{}, ready)
	s.commit()
	s.expectOwnership("old", "in conflict with young")
	s.expectOwnership("young", "unconfirmed")
	s.observeStored("old", "10.0.0.0-10.0.0.3", journal.Token{}, flagged)
	s.expectOwnership("young", "confirmed")
	if s.available() != 4 {
		t.Errorf("%d free: the loser keeps the addresses without a conflict", s.available())
	}
	s.observeDeleted("young")
	s.commit()
	s.expectOwnership("old", "confirmed")
	if s.available() != 6 {
		t.Errorf("%d free", s.available())
	}
}

func TestConflict_ReadyClaimGetsNoUngrantedRange(t *testing.T) {
	oldest := func(c *Claim) { c.Created = modelStart }
	east := Key{Resource: modelPools, Namespace: "ns", Name: "east"}
	for name, change := range map[string]func(*Claim){
		"by another address": func(*Claim) {},
		"by another pool":    func(c *Claim) { c.Pool, c.Token = east, journal.Token{1} }, // without another token the claim stays in its routing domain
		"by another label":   func(c *Claim) { c.Pool, c.RoutingDomain, c.Token = Key{}, "east", journal.Token{1} },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.ObservePool(s.now, Pool{Key: east, RoutingDomain: "east", ResourceVersion: 1, Policy: allocator.BestFit, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}})
			g := s.mustGrant(Request{Claim: key("changed"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}}})
			s.observeStored("changed", "10.0.0.1", g.Token, oldest, ready)
			other := "10.0.0.2"
			inEast := func(*Claim) {}
			if name != "by another address" {
				other, inEast = "10.0.0.1", func(c *Claim) { c.Pool, c.RoutingDomain = east, "east" }
			}
			s.observeStored("other", other, journal.Token{}, ready, inEast)
			s.commit()
			s.expectOwnership("changed", "confirmed")
			for range 2 { // a later write changes nothing
				s.observeStored("changed", other, g.Token, oldest, ready, change)
				s.expectOwnership("changed", "in conflict with other")
			}
			s.observeStored("changed", other, g.Token, oldest, change, flagged)
			s.expectOwnership("other", "confirmed")
			s.observeDeleted("other")
			s.commit()
			s.observeStored("changed", other, g.Token, oldest, ready, change)
			s.expectOwnership("changed", "confirmed")
		})
	}
}

func TestConflict_OlderClaimKeepsTheRangeInEachOrderOfEvents(t *testing.T) {
	for name, order := range map[string][]string{"older first": {"a", "b"}, "younger first": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			for _, n := range order {
				created := modelStart
				if n == "b" {
					created = created.Add(time.Second)
				}
				s.observeStored(n, "10.0.0.1", journal.Token{}, func(c *Claim) { c.Created = created })
			}
			s.expectOwnership("b", "in conflict with a")
		})
	}
}

func TestConflict_LateClaimLosesToTheGrantedClaim(t *testing.T) {
	s := newTestState(t)
	late := s.mustGrant(Request{Claim: key("late")})
	s.now = s.now.Add(DefaultGrantLife)
	for _, g := range s.ExpiredGrants(s.now) {
		s.ExpireGrant(g)
	}
	g := s.mustGrant(Request{Claim: key("next")})
	if g.Ranges[0] != late.Ranges[0] {
		t.Fatalf("%v, then %v", late, g)
	}
	s.observeStored("late", late.Ranges[0].String(), late.Token, func(c *Claim) { c.Created = modelStart.Add(-time.Hour) })
	s.expectOwnership("late", "in conflict with next")
	s.observeStored("next", g.Ranges[0].String(), g.Token)
	s.commit()
	s.expectOwnership("late", "in conflict with next")
	s.expectOwnership("next", "unconfirmed")
	if _, err := s.requestGrant(Request{Claim: key("next")}); err != nil {
		t.Errorf("second request of next: %v", err)
	}
	s.observeStored("late", late.Ranges[0].String(), late.Token, flagged)
	s.expectOwnership("next", "confirmed")
}

func TestObserveClaim_LateOnAFreeRangeIsAdopted(t *testing.T) {
	s := newTestState(t)
	s.observeStored("late", "10.0.0.7", journal.Token{1})
	s.commit()
	s.expectOwnership("late", "confirmed")
	if s.available() != 9 {
		t.Errorf("%d free", s.available())
	}
}

func TestTakeOver_InheritedGrantIsNotGrantedAgain(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a")})
	record := s.commit()
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: record})
	successor.StartGranting(successor.now)
	successor.holdings.lastID = 100
	successor.newToken = func() journal.Token { return journal.Token{99} }
	again, err := successor.requestGrant(Request{Claim: key("a")})
	if err != nil || again.Ranges[0] == g.Ranges[0] {
		t.Errorf("got %v, %v after %v", again, err, g)
	}
	if err := successor.CheckGrant(Claim{Key: key("a"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0); err != nil {
		t.Errorf("the claim of the inherited grant is denied: %v", err)
	}
	successor.observeStored("a", g.Ranges[0].String(), g.Token)
	successor.commit()
	successor.expectOwnership("a", "confirmed")
}

// A repeated create has two grants. The grant of the stored object has left the journal;
// the new leader observes the object after the take-over.
func TestTakeOver_ClaimOfARepeatedCreate(t *testing.T) {
	s := newTestState(t)
	s.mustGrant(Request{Claim: key("a")})
	g := s.mustGrant(Request{Claim: key("a")})
	s.observeStored("a", g.Ranges[0].String(), g.Token)
	record := s.commit()
	if len(record.Entries) != 1 {
		t.Fatalf("the journal has %d grants, want the first one of the repeated create", len(record.Entries))
	}
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: record})
	successor.observeStored("a", g.Ranges[0].String(), g.Token)
	successor.StartGranting(successor.now)
	successor.commit()
	successor.expectOwnership("a", "confirmed")
	successor.observeStored("b", g.Ranges[0].String(), journal.Token{98}) // of another name: the grant is not its own
	successor.expectOwnership("b", "in conflict with a")
}

// A claim that was stored without admission is older than a claim whose create was
// answered. The new leader knows no grant of either.
func TestTakeOver_AnsweredCreateKeepsItsRange(t *testing.T) {
	s := newTestState(t)
	s.TakeOver(journal.Revision{})
	s.observeStored("older", "10.0.0.1", journal.Token{})
	s.observeStored("answered", "10.0.0.1", journal.Token{97})
	s.StartGranting(s.now)
	s.commit()
	s.expectOwnership("answered", "unconfirmed") // until the older claim is flagged
	s.expectOwnership("older", "in conflict with answered")
}

// The same of a create without a name: when its object is stored, no further grant of the
// admission request can be.
func TestGrant_RepeatedWithoutANameEndsWithItsObject(t *testing.T) {
	s := newTestState(t)
	unnamed := Request{Claim: key(""), RequestUID: "request"}
	first, g := s.mustGrant(unnamed), s.mustGrant(unnamed)
	if first.Ranges[0] != g.Ranges[0] {
		t.Fatalf("the repeated call got %v after %v", g.Ranges, first.Ranges)
	}
	s.observeStored("a-x7k2p", g.Ranges[0].String(), g.Token)
	if record := s.commit(); len(record.Entries) != 0 {
		t.Errorf("the journal still has %v", record.Entries)
	}
	s.expectOwnership("a-x7k2p", "confirmed")
}

// A claim that was granted by an earlier leader is moved to another cluster, and comes
// back.
func TestMoved_ClaimOfAnInheritedGrantComesBack(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a")})
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: s.commit()})
	successor.StartGranting(successor.now)
	successor.observeStored("a", g.Ranges[0].String(), g.Token, markedMoved)
	successor.observeDeleted("a")
	successor.DecideMoved(successor.now, "a", true)
	again, err := successor.requestGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: g.Ranges[0]}}})
	if err != nil || again.Ranges[0] != g.Ranges[0] {
		t.Errorf("the returning claim got %v: %v, want %v", again.Ranges, err, g.Ranges)
	}
}

func TestTakeOver_ExpiredGrantReportsItsPoolAsChanged(t *testing.T) {
	s := newTestState(t)
	s.mustGrant(Request{Claim: key("a")})
	record := s.commit()
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: record})
	successor.StartGranting(successor.now)
	successor.now = successor.now.Add(DefaultGrantLife)
	clear(successor.changed)
	for _, g := range successor.ExpiredGrants(successor.now) {
		successor.ExpireGrant(g)
	}
	if successor.available() != 10 {
		t.Fatalf("%d free, want all", successor.available())
	}
	if _, reported := successor.changed[modelPool]; !reported {
		t.Error("the pool is not reported as changed: its status keeps counting the addresses, and waiting claims are not retried")
	}
}

func TestCheckGrant_AcceptsOnlyGrantedRanges(t *testing.T) {
	s := newTestState(t)
	sameDomain, otherDomain := s.nextPool("10.0.0.0-10.0.0.9"), s.nextPool("10.0.0.0-10.0.0.9")
	sameDomain.Key.Name, otherDomain.Key.Name, otherDomain.RoutingDomain = "same-domain", "other-domain", "other"
	s.ObservePool(s.now, sameDomain)
	s.ObservePool(s.now, otherDomain)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Count: 2}}})
	other := s.mustGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Count: 2}}})
	for name, tt := range map[string]struct {
		change func(*Claim)
		want   error
	}{
		"as granted":             {func(*Claim) {}, nil},
		"another name":           {func(c *Claim) { c.Key = key("c") }, ErrForged},
		"another range":          {func(c *Claim) { c.Ranges = other.Ranges }, ErrForged},
		"another's token":        {func(c *Claim) { c.Token = other.Token }, ErrForged},
		"no token":               {func(c *Claim) { c.Token = journal.Token{} }, ErrForged},
		"another resource":       {func(c *Claim) { c.Key.Resource = modelPools }, ErrForged},
		"another pool":           {func(c *Claim) { c.Pool = sameDomain.Key }, ErrForged},
		"another routing domain": {func(c *Claim) { c.Pool = otherDomain.Key }, ErrForged},
		"a pool that is gone":    {func(c *Claim) { c.Pool.Name = "gone" }, ErrForged},
		"no pool":                {func(c *Claim) { c.Pool = Key{} }, ErrForged},
	} {
		c := Claim{Key: key("a"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}
		tt.change(&c)
		if err := s.CheckGrant(c, "", 0); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

// A stored claim owns its addresses in one routing domain. With a pool of another routing
// domain the claim needs a grant there.
func TestCheckGrant_OfAnotherRoutingDomain(t *testing.T) {
	s := newTestState(t)
	there := s.nextPool("10.0.0.0-10.0.0.9")
	there.Key.Name, there.RoutingDomain = "there", "other"
	s.ObservePool(s.now, there)
	one := mustRange("10.0.0.3")
	s.observeStored("a", one.String(), journal.Token{}, ready)
	updated := Claim{Key: key("a"), Pool: there.Key, Ranges: []allocator.Range{one}}
	if err := s.CheckGrant(updated, "a", 0); !errors.Is(err, ErrNoGrant) {
		t.Errorf("without a grant: %v, want %v", err, ErrNoGrant)
	}
	request := Request{Claim: key("a"), UID: "a", Pool: there.Key, Ranges: []RangeRequest{{Exact: one}}}
	g, err := s.Grant(s.now, request)
	if err != nil || !slices.Equal(g.Ranges, updated.Ranges) || g.RoutingDomain != there.RoutingDomain {
		t.Fatalf("granted %+v, %v; want %s of the other routing domain", g, err, one)
	}
	s.commit()
	updated.Token = g.Token
	if err := s.CheckGrant(updated, "a", 0); err != nil {
		t.Errorf("with the grant: %v", err)
	}
	s.observeStored("owner", "10.0.0.4", journal.Token{}, ready, func(c *Claim) { c.Pool = there.Key })
	s.observeStored("b", "10.0.0.4", journal.Token{}, ready)
	request.Claim, request.UID, request.Ranges = key("b"), "b", []RangeRequest{{Exact: mustRange("10.0.0.4")}}
	if _, err := s.Grant(s.now, request); !errors.As(err, new(*OwnedError)) {
		t.Errorf("of an address that is owned there: %v, want OwnedError", err)
	}
}

func TestTakeChanged_PoolsWhoseBlockedRangesEnd(t *testing.T) {
	blocking := func(s *testState, routingDomain string) Pool {
		p := s.nextPool("10.0.0.100-10.0.0.109", "10.0.0.5")
		p.Key.Name, p.RoutingDomain = "other", routingDomain
		return p
	}
	for name, change := range map[string]func(*testState){
		"deleted":                         func(s *testState) { s.RemovePool(blocking(s, "").Key, s.version) },
		"moved to another routing domain": func(s *testState) { s.ObservePool(s.now, blocking(s, "east")) },
		"moved back": func(s *testState) {
			s.ObservePool(s.now, blocking(s, "east"))
			clear(s.changed)
			s.ObservePool(s.now, blocking(s, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.ObservePool(s.now, blocking(s, ""))
			clear(s.changed)
			change(s)
			if _, reported := s.changed[modelPool]; !reported {
				t.Error("the pool that offers the address is not reported as changed")
			}
		})
	}
}

func TestUpdatePool_DeniesRemovalOfOwnedRanges(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.4-10.0.0.5")}}})
	for _, state := range []string{"granted", "stored"} {
		if state == "stored" {
			s.observeStored("a", g.Ranges[0].String(), g.Token)
		}
		for change, p := range map[string]Pool{
			"reserved over it":       s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.5"),
			"window shrunk below it": s.nextPool("10.0.0.0-10.0.0.4"),
		} {
			var inUse *InUseError
			if _, err := s.UpdatePool(p); !errors.As(err, &inUse) || inUse.Owner != key("a") {
				t.Errorf("%s, %s: %v", state, change, err)
			}
		}
	}
}

// Without the wait, nothing would show the cooldown from the end of the claim until the
// pool has the record.
func TestBeginCooldown_FinalizerWaitsForTheRecord(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.ReuseDelay = time.Hour
	s.ObservePool(s.now, p)
	storeDeleting := func(name, address string) {
		s.observeStored(name, address, s.mustGrant(Request{Claim: key(name), Ranges: []RangeRequest{{Exact: mustRange(address)}}}).Token)
		s.observeStored(name, address, journal.Token{}, func(c *Claim) { c.Deleting = true })
	}
	storeDeleting("a", "10.0.0.1")
	storeDeleting("b", "10.0.0.2")
	record := func(since time.Time) {
		p.ResourceVersion = s.nextPool("10.0.0.0").ResourceVersion
		p.Recorded = []RecordedRange{{Range: mustRange("10.0.0.1"), Since: since, Until: since.Add(p.ReuseDelay)}}
		s.ObservePool(s.now, p)
	}
	record(s.now.Add(-time.Minute))          // of an earlier cooldown
	within := recordWithin + 2*recordForEach // of a pool with two claims
	if wait := s.BeginCooldown(s.now, "a"); wait != within {
		t.Errorf("the finalizer waits for %s, want %s", wait, within)
	}
	if list := s.RangesToRecord(modelPool); len(list) != 1 || list[0].Range != mustRange("10.0.0.1") || !list[0].Until.Equal(s.now.Add(time.Hour)) {
		t.Errorf("recorded: %+v", list)
	}
	began := s.now
	s.Tick(s.now.Add(time.Second))
	s.now = s.now.Add(time.Second)
	if wait := s.BeginCooldown(s.now, "a"); wait != within-time.Second {
		t.Errorf("the finalizer waits for %s after a second", wait)
	}
	clear(s.changed)
	record(began)
	if _, reported := s.changed[key("a")]; !reported {
		t.Error("the claim is not reported as changed when its cooldown is recorded")
	}
	if wait := s.BeginCooldown(s.now, "a"); wait != 0 {
		t.Errorf("the cooldown is recorded, and the finalizer waits for %s", wait)
	}
	s.observeDeleted("a")
	if list := s.RangesToRecord(modelPool); len(list) != 1 || !list[0].Until.Equal(began.Add(time.Hour)) {
		t.Errorf("recorded: %+v, want the cooldown that began first", list)
	}
	s.BeginCooldown(s.now, "b") // the record of b cannot be written
	if wait := s.BeginCooldown(s.now.Add(within), "b"); wait != 0 {
		t.Errorf("the finalizer waits for %s more", wait)
	}
	storeDeleting("brief", "10.0.0.3")
	p.ResourceVersion, p.ReuseDelay = s.nextPool("10.0.0.0").ResourceVersion, time.Second
	s.ObservePool(s.now, p)
	if wait := s.BeginCooldown(s.now, "brief"); wait != time.Second {
		t.Errorf("the finalizer waits %s for the record of a cooldown of 1 s", wait)
	}
	p.ResourceVersion, p.ReuseDelay = s.nextPool("10.0.0.0").ResourceVersion, time.Hour
	s.ObservePool(s.now, p)
	s.observeDeleted("b")
	if _, err := s.requestGrant(Request{Claim: key("c"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.2")}}}); err == nil {
		t.Error("the range is not in cooldown")
	}
}

// Before the fault, the pool may have allocated from each of its ranges that can be read.
func TestUpdatePool_CorrectingAFaultKeepsOwnedRanges(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.8")}}})
	s.observeStored("a", "10.0.0.8", g.Token)
	s.observeStored("stray", "10.9.9.9", journal.Token{})
	faulty := s.nextPool("10.0.0.0")
	faulty.Window, faulty.Fault, faulty.Readable = nil, "spec.cidr: no", []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}
	s.ObservePool(s.now, faulty)
	var fault *FaultyPoolError
	if _, err := s.requestGrant(Request{Claim: key("b")}); !errors.As(err, &fault) || fault.Fault != faulty.Fault {
		t.Errorf("grant from a faulty pool: %v", err)
	}
	var inUse *InUseError
	if _, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.7")); !errors.As(err, &inUse) || inUse.Range != mustRange("10.0.0.8") || inUse.Owner != key("a") {
		t.Errorf("correction that removes an owned address: %v", err)
	}
	if _, err := s.UpdatePool(faulty); err != nil {
		t.Errorf("update with the same fault: %v", err)
	}
	corrected := s.nextPool("10.0.0.0-10.0.0.9")
	if _, err := s.UpdatePool(corrected); err != nil {
		t.Errorf("correction: %v", err)
	}
	s.ObservePool(s.now, corrected)
	s.mustGrant(Request{Claim: key("b")})
}

func TestUpdatePool_DeniesRemovalOfInheritedGrants(t *testing.T) {
	s := newTestState(t)
	s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.4-10.0.0.5")}}})
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: s.commit()})
	successor.StartGranting(successor.now)
	moved := successor.nextPool("10.0.0.0-10.0.0.9")
	moved.RoutingDomain = "elsewhere"
	for change, p := range map[string]Pool{
		"reserved over it":                successor.nextPool("10.0.0.0-10.0.0.9", "10.0.0.5"),
		"window shrunk below it":          successor.nextPool("10.0.0.0-10.0.0.4"),
		"moved to another routing domain": moved,
	} {
		var inUse *InUseError
		if _, err := successor.UpdatePool(p); !errors.As(err, &inUse) || inUse.Owner.Namespace != "ns" {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// A range that is owned when the update is admitted may be released before the update is
// observed.
func TestUpdatePool_WithholdsRangesReleasedMeanwhile(t *testing.T) {
	reserve := func(s *testState, reserved string) {
		p := s.nextPool("10.0.0.0-10.0.0.9", reserved)
		p.MayBlockOwned = true
		if g, err := s.UpdatePool(p); err != nil || g == nil {
			s.t.Errorf("pool update: %v, %v", g, err)
		}
	}
	for name, release := range map[string]func(*testState){
		"by a cooldown that ends": func(s *testState) {
			p := s.nextPool("10.0.0.0-10.0.0.9")
			p.Recorded = []RecordedRange{{Range: mustRange("10.0.0.4"), Until: s.now.Add(time.Minute)}}
			s.ObservePool(s.now, p)
			reserve(s, "10.0.0.4")
			s.Tick(s.now.Add(time.Minute))
		},
		"by a claim": func(s *testState) {
			s.observeStored("a", "10.0.0.4", journal.Token{}, ready)
			reserve(s, "10.0.0.4")
			s.commit()
			s.expectOwnership("a", "confirmed")
			s.observeDeleted("a")
		},
		"by an equal update, withdrawn": func(s *testState) {
			first, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.4"))
			if err != nil {
				s.t.Fatal(err)
			}
			reserve(s, "10.0.0.4")
			s.WithdrawGrant(first)
		},
		"by another update, withdrawn": func(s *testState) {
			first, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.3-10.0.0.5"))
			if err != nil {
				s.t.Fatal(err)
			}
			reserve(s, "10.0.0.4")
			s.WithdrawGrant(first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			release(s)
			if r := s.commit(); s.available() != 9 || len(r.Entries) != 1 {
				t.Errorf("%d free, %d entries in the journal, want 9 and one", s.available(), len(r.Entries))
			}
		})
	}
}

func TestUpdatePool_WithholdsRemovedRangesUntilObserved(t *testing.T) {
	s := newTestState(t)
	next := s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.3")
	g, err := s.UpdatePool(next)
	if err != nil || g == nil {
		t.Fatalf("%v, %v", g, err)
	}
	record := s.commit()
	if s.available() != 6 {
		t.Errorf("%d free after admission", s.available())
	}
	if g := s.mustGrant(Request{Claim: key("a")}); g.Ranges[0] != mustRange("10.0.0.4") {
		t.Errorf("granted %v", g)
	}
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: record})
	successor.StartGranting(successor.now)
	if successor.available() != 6 {
		t.Errorf("%d free on the next leader", successor.available())
	}
	s.ObservePool(s.now, next)
	if u, _ := s.Usage(modelPool); u.Total != 6 || u.Available != 5 || s.grants.number() != 1 {
		t.Errorf("after the update was observed: %+v, %d grants", u, s.grants.number())
	}
}

func TestUpdatePool_NotStoredFreesItsRanges(t *testing.T) {
	s := newTestState(t)
	if _, err := s.UpdatePool(s.nextPool("10.0.0.0-10.0.0.3")); err != nil {
		t.Fatal(err)
	}
	s.commit()
	s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9"))
	if s.available() != 4 {
		t.Errorf("%d free: an update of another field freed the withheld addresses", s.available())
	}
	s.now = s.now.Add(DefaultGrantLife)
	for _, g := range s.ExpiredGrants(s.now) {
		s.ExpireGrant(g)
	}
	if s.available() != 10 {
		t.Errorf("%d free in the end", s.available())
	}
}

func TestCooldown_LastsForTheReuseDelay(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.3")
	p.ReuseDelay = time.Minute
	s.ObservePool(s.now, p)
	s.observeStored("a", "10.0.0.0-10.0.0.1", journal.Token{})
	// The cooldown is recorded before the claim is deleted.
	p.ResourceVersion++
	s.version++
	p.Recorded = []RecordedRange{{Range: mustRange("10.0.0.0-10.0.0.1"), Until: s.now.Add(time.Minute)}}
	s.ObservePool(s.now, p)
	s.observeDeleted("a")
	if s.available() != 2 {
		t.Errorf("%d free during the cooldown", s.available())
	}
	var owned *OwnedError
	if _, err := s.requestGrant(Request{Claim: key("b"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.0")}}}); !errors.As(err, &owned) || owned.Until.IsZero() {
		t.Errorf("exact request of an address in cooldown: %v", err)
	}
	s.Tick(s.now.Add(59 * time.Second))
	if s.available() != 2 {
		t.Errorf("%d free a second too early", s.available())
	}
	s.Tick(s.now.Add(time.Minute))
	if s.available() != 4 {
		t.Errorf("%d free in the end", s.available())
	}
}

func TestCooldown_SurvivesARestart(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.3")
	p.ReuseDelay = time.Minute
	p.Recorded = []RecordedRange{
		{Range: mustRange("10.0.0.0-10.0.0.1"), Until: s.now.Add(time.Minute)},
		{Range: mustRange("10.0.0.3"), Until: s.now.Add(-time.Minute)},
	}
	s.ObservePool(s.now, p)
	if s.available() != 2 {
		t.Errorf("%d free", s.available())
	}
	s.Tick(s.now.Add(time.Minute))
	if s.available() != 4 {
		t.Errorf("%d free in the end", s.available())
	}
}

func TestCooldown_EndsEarlierWithAShorterReuseDelay(t *testing.T) {
	const short = 10 * time.Second
	delay := func(s *testState, delay time.Duration, recorded ...RecordedRange) {
		p := s.nextPool("10.0.0.0-10.0.0.9")
		p.ReuseDelay, p.Recorded = delay, recorded
		s.ObservePool(s.now, p)
	}
	free := func(what string, s *testState, after time.Duration, want int64) {
		t.Helper()
		s.now = s.now.Add(after)
		s.Tick(s.now)
		if got := s.available(); got != want {
			t.Errorf("%s: %d free after %s, want %d", what, got, after, want)
		}
	}
	s := newTestState(t)
	delay(s, time.Hour)
	s.observeStored("web", "10.0.0.1", journal.Token{})
	s.observeDeleted("web")
	free("an hour", s, 5*time.Second, 9)
	before := s.RangesToRecord(modelPool)
	delay(s, short, before...) // the recorded entries are unchanged
	free("shorter", s, 4*time.Second, 9)
	delay(s, time.Hour, before...) // a longer delay does not apply to a cooldown that has begun
	delay(s, short, before...)
	free("shorter again", s, time.Second, 10)

	fresh := newTestState(t) // a restart before it is recorded
	fresh.now = before[0].Since
	delay(fresh, short, before...)
	free("after a restart", fresh, short-time.Second, 9)
	free("after a restart", fresh, time.Second, 10)
}

func TestQuarantine_DeniesGrants(t *testing.T) {
	s := newTestState(t)
	s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Quarantine: true}})
	s.StartGranting(s.now)
	var wait *NotServingError
	if _, err := s.requestGrant(Request{Claim: key("a")}); !errors.As(err, &wait) {
		t.Errorf("granted: %v", err)
	}
	if _, err := s.Preview(Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}}); !errors.As(err, &wait) {
		t.Errorf("dry run: %v", err)
	}
	s.observeStored("other", "", journal.Token{})
	s.observeStored("web", "", journal.Token{}, func(c *Claim) { c.AllocatedEarlier = true })
	s.observeStored("address", "10.0.0.3", journal.Token{}, addressObjectOf("web"))
	s.observeStored("new", "", journal.Token{})
	s.observeStored("address-of-new", "10.0.0.5", journal.Token{}, addressObjectOf("new"))
	for name, q := range map[string]Request{
		"a free address to a stored claim":                  {Claim: key("web"), UID: "web", Ranges: []RangeRequest{{Exact: mustRange("10.0.0.4")}}},
		"any address to a stored claim":                     {Claim: key("other"), UID: "other"},
		"an address that the status does not record":        {Claim: key("new"), UID: "new", Ranges: []RangeRequest{{Exact: mustRange("10.0.0.5")}}},
		"the address of an address object to a create":      {Claim: key("web"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}},
		"the address of an address object to another claim": {Claim: key("other"), UID: "other", Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}},
	} {
		if _, err := s.requestGrant(q); !errors.As(err, &wait) {
			t.Errorf("granted %s: %v", name, err)
		}
	}
	own := Request{Claim: key("web"), UID: "web", Pool: modelPool, Ranges: []RangeRequest{{Exact: mustRange("10.0.0.3")}}}
	if p, err := s.Preview(own); err != nil || p.Ranges[0] != mustRange("10.0.0.3") {
		t.Errorf("the dry run of the address that the claim owns: %v, %v", p, err)
	}
	g := s.mustGrant(own)
	s.observeStored("web", "10.0.0.3", g.Token)
	if !s.commit().Quarantine {
		t.Error("the quarantine is missing in the next commit")
	}
	s.Tick(s.now.Add(DefaultGrantLife))
	if s.commit().Quarantine {
		t.Error("the quarantine never ends")
	}
	s.expectOwnership("web", "confirmed")
	s.mustGrant(Request{Claim: key("a")})
}

func TestPreview_MatchesGrant(t *testing.T) {
	s := newTestState(t)
	q := Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 3}}}
	dry, err := s.Preview(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.mustGrant(q); !slices.Equal(got.Ranges, dry.Ranges) {
		t.Errorf("dry run %v, create %v", dry, got)
	}
	if again, err := s.Preview(q); err != nil || !slices.Equal(again.Ranges, dry.Ranges) || s.grants.number() != 1 {
		t.Errorf("dry run for a name with a grant: %v, %v", again, err)
	}
}

func TestObservePool_AfterItsClaimsMovesTheirRoutingDomain(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	s.RemovePool(modelPool, s.version)
	s.observeStored("a", "10.0.0.1", journal.Token{}, func(c *Claim) { c.RoutingDomain = "elsewhere" })
	p.RoutingDomain = "blue"
	p.ResourceVersion = s.version + 1
	s.ObservePool(s.now, p)
	if u, _ := s.Usage(modelPool); u.Available != 9 || u.Claims != 1 {
		t.Errorf("%+v", u)
	}
	s.observeDeleted("a")
	if u, _ := s.Usage(modelPool); u.Available != 10 || u.Claims != 0 {
		t.Errorf("%+v", u)
	}
}

var dualStack = []RangeRequest{{Count: 1, Bits: 32}, {Count: 1, Bits: 128}}

func TestGrant_OfTwoFamiliesIsAllOrNone(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.2")
	if _, err := s.requestGrant(Request{Claim: key("none"), Ranges: dualStack}); !errors.As(err, new(*FamilyError)) {
		t.Fatalf("from a pool of one family: %v", err)
	}
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	s.ObservePool(s.now, p)
	both := s.mustGrant(Request{Claim: key("both"), Ranges: dualStack})
	if want := []allocator.Range{mustRange("10.0.0.0"), mustRange("2001:db8::1")}; !slices.Equal(both.Ranges, want) {
		t.Fatalf("got %v, want %v", both.Ranges, want)
	}
	single := s.mustGrant(Request{Claim: key("six"), Ranges: []RangeRequest{{Count: 1, Bits: 128}}})
	for name, g := range map[string]Grant{"both": both, "six": single} {
		s.observeStored(name, "", g.Token, func(c *Claim) { c.Ranges = g.Ranges })
	}
	if _, err := s.requestGrant(Request{Claim: key("late"), Ranges: dualStack}); !errors.Is(err, allocator.ErrExhausted) {
		t.Fatalf("without an IPv6 address left: %v", err)
	}
	if u, _ := s.Usage(modelPool); u.Allocated != 3 {
		t.Errorf("%d addresses are owned: a denied request left one behind", u.Allocated)
	}
	if _, err := s.requestGrant(Request{Claim: key("late"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}, {Exact: mustRange("2001:db8::1")}}}); !errors.As(err, new(*OwnedError)) {
		t.Fatalf("of an owned IPv6 address: %v", err)
	}
	if again := s.mustGrant(Request{Claim: key("both"), Ranges: dualStack}); !slices.Equal(again.Ranges, both.Ranges) || again.Token == both.Token {
		t.Errorf("repeated request: %v", again)
	}
	if err := s.CheckGrant(Claim{Key: key("both"), Pool: modelPool, Ranges: both.Ranges[:1], Token: both.Token}, "", 0); !errors.Is(err, ErrForged) {
		t.Errorf("half of a grant is accepted: %v", err)
	}
}

func TestTakeOver_GrantOfTwoFamilies(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.2")
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	s.ObservePool(s.now, p)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: dualStack})
	successor := newTestState(t)
	successor.TakeOver(journal.Revision{Snapshot: s.commit()})
	successor.ObservePool(successor.now, p)
	successor.StartGranting(successor.now)
	successor.holdings.lastID = 100
	successor.newToken = func() journal.Token { return journal.Token{99} }
	if again, err := successor.requestGrant(Request{Claim: key("b"), Ranges: dualStack}); err != nil || again.Ranges[0] == g.Ranges[0] || again.Ranges[1] == g.Ranges[1] {
		t.Errorf("%v, %v: the claim of the inherited grant may still be stored", again, err)
	}
	successor.observeStored("a", "", g.Token, func(c *Claim) { c.Ranges = g.Ranges })
	if st := successor.OwnershipOf("a"); st.Conflict != nil || !st.Allocated {
		t.Errorf("%+v", st)
	}
}

func TestManualPool_AllocatesRequestedAddresses(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.9")
	p.Manual = true
	s.ObservePool(s.now, p)
	if _, err := s.requestGrant(Request{Claim: key("a")}); !errors.As(err, new(*NotAutomaticError)) {
		t.Errorf("any: %v", err)
	}
	s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.4")}}})
}

func TestGrant_OfAnAddressWithoutAPool(t *testing.T) {
	s := newTestState(t)
	static := func(address string) Request {
		return Request{Claim: key("static-" + address), Ranges: []RangeRequest{{Exact: mustRange(address)}}}
	}
	for _, address := range []string{"10.0.0.0", "192.0.2.1"} {
		g, err := s.Grant(s.now, static(address))
		if err != nil {
			t.Fatal(err)
		}
		s.commit()
		if err := s.CheckGrant(Claim{Key: key("static-" + address), Ranges: g.Ranges, Token: g.Token}, "", 0); err != nil {
			t.Fatal(err)
		}
		if err := s.CheckGrant(Claim{Key: key("static-" + address), RoutingDomain: "other", Ranges: g.Ranges, Token: g.Token}, "", 0); !errors.Is(err, ErrForged) {
			t.Errorf("with the label of another routing domain: %v, want %v", err, ErrForged)
		}
		s.observeStored("static-"+address, address, g.Token, func(c *Claim) { c.Pool = Key{} })
	}
	if g := s.mustGrant(Request{Claim: key("a")}); g.Ranges[0] == mustRange("10.0.0.0") {
		t.Error("an address is granted twice")
	}
	owned := (*OwnedError)(nil)
	if _, err := s.Grant(s.now, Request{Claim: key("thief"), Ranges: []RangeRequest{{Exact: mustRange("192.0.2.1")}}}); !errors.As(err, &owned) || owned.Owner != key("static-192.0.2.1") {
		t.Errorf("%v", err)
	}
	if u, _ := s.Usage(modelPool); u.Claims != 0 {
		t.Errorf("%d claims of the pool, want none", u.Claims)
	}
}

func TestObserveClaim_WithoutItsPoolKeepsTheAddress(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a")})
	s.observeStored("a", g.Ranges[0].String(), g.Token)
	s.observeStored("a", g.Ranges[0].String(), g.Token, func(c *Claim) { c.Pool = Key{} })
	if u, _ := s.Usage(modelPool); u.Claims != 0 || u.Allocated != 1 {
		t.Errorf("%+v: want no claim of the pool, and the address owned", u)
	}
}

func TestObserveClaim_WithMoreRangesKeepsTheOld(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0-10.0.0.2")
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	s.ObservePool(s.now, p)
	ipv4, ipv6 := mustRange("10.0.0.1"), mustRange("2001:db8::1")
	s.observeStored("a", "10.0.0.1", journal.Token{}, ready)
	q := Request{Claim: key("a"), UID: "a", Ranges: []RangeRequest{{Exact: ipv4}, {Count: 1, Bits: 128}}}
	g := s.mustGrant(q)
	if !slices.Equal(g.Ranges, []allocator.Range{ipv6}) {
		t.Fatalf("granted %v, want %v in addition to the owned range", g.Ranges, ipv6)
	}
	if err := s.CheckGrant(Claim{Key: key("a"), Pool: modelPool, Ranges: []allocator.Range{ipv4, ipv6}, Token: g.Token}, "a", 0); err != nil {
		t.Error(err)
	}
	if err := s.CheckGrant(Claim{Key: key("a"), Pool: modelPool, Ranges: []allocator.Range{ipv4, ipv6}, Token: g.Token}, "", 0); !errors.Is(err, ErrForged) {
		t.Errorf("another object of the same name: %v", err)
	}
	s.observeStored("a", "", g.Token, func(c *Claim) { c.Ranges, c.Ready = []allocator.Range{ipv4, ipv6}, true })
	s.commit()
	s.expectOwnership("a", "confirmed")
	if u, _ := s.Usage(modelPool); u.Allocated != 2 || s.grants.number() != 0 {
		t.Errorf("%d addresses owned, %d grants open: want 2 and none", u.Allocated, s.grants.number())
	}

	// A claim that changes its address keeps the old one until the update is observed.
	moved := Request{Claim: key("a"), UID: "a", Ranges: []RangeRequest{{Exact: mustRange("10.0.0.2")}, {Exact: ipv6}}}
	s.mustGrant(moved)
	g = s.mustGrant(moved) // the call is repeated
	if u, _ := s.Usage(modelPool); u.Allocated != 3 {
		t.Errorf("%d addresses owned before the update is observed, want the old and the new one", u.Allocated)
	}
	s.observeStored("a", "", g.Token, func(c *Claim) { c.Ranges, c.Ready = []allocator.Range{mustRange("10.0.0.2"), ipv6}, true })
	if u, _ := s.Usage(modelPool); u.Allocated != 2 || s.grants.number() != 0 {
		t.Errorf("%d addresses owned, %d grants open: want 2 and none", u.Allocated, s.grants.number())
	}
}

// Between a grant and the commit that removes the grant, the claim may be updated and
// another replica may take the journal over.
func TestTakeOver_ClaimChangedSinceItsGrant(t *testing.T) {
	ipv4, ipv6 := mustRange("10.0.0.1"), mustRange("2001:db8::1")
	for name, tc := range map[string]struct {
		entry  journal.Entry
		stored []allocator.Range
	}{
		"removed a range of its create": {journal.Entry{Ranges: []allocator.Range{ipv4, ipv6}}, []allocator.Range{ipv4}},
		"received another range":        {journal.Entry{Ranges: []allocator.Range{ipv6}, StoredName: "a", UID: "a"}, []allocator.Range{ipv4, ipv6}},
		"received and removed a range":  {journal.Entry{Ranges: []allocator.Range{ipv6}, StoredName: "a", UID: "a"}, []allocator.Range{ipv4}},
	} {
		for order, first := range map[string]bool{"observed before the take-over": true, "observed after the take-over": false} {
			t.Run(name+", "+order, func(t *testing.T) {
				tc.entry.Token, tc.entry.Resource, tc.entry.Namespace, tc.entry.NameHash = journal.Token{7}, modelClaims, "ns", journal.HashName("a")
				s := newTestState(t)
				p := s.nextPool("10.0.0.0-10.0.0.2")
				p.Window = append(p.Window, ipv6)
				s.ObservePool(s.now, p)
				observe := func() { s.observeStored("a", "", tc.entry.Token, func(c *Claim) { c.Ranges = tc.stored }) }
				if s.StepDown(); first {
					observe()
				}
				s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: []journal.Entry{tc.entry}}})
				if s.StartGranting(s.now); !first {
					observe()
				}
				s.commit()
				s.expectOwnership("a", "confirmed")
				if u, _ := s.Usage(modelPool); u.Allocated != int64(len(tc.stored)) || s.grants.number() != 0 {
					t.Errorf("%d addresses owned, %d grants open: want %d and none", u.Allocated, s.grants.number(), len(tc.stored))
				}
			})
		}
	}
}

// A reconciler that reads a pool from its cache right after the live read may find no
// pool, or an older version: the informers deliver the event later, and the event must
// report the pool as changed again.
func TestAddReadPool_ConfirmedByItsEvent(t *testing.T) {
	s := newTestState(t)
	pool := s.nextPool("10.0.0.0-10.0.0.9")
	read, arrive := func() { s.AddReadPool(s.now, pool) }, func() { s.ObservePool(s.now, pool) }
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{{"the read", read, true}, {"another read", read, false}, {"its event", arrive, true}, {"a late read", read, false}, {"a repeated event", arrive, true}} {
		clear(s.changed)
		step.do()
		if _, got := s.changed[modelPool]; got != step.want {
			t.Errorf("%s reports the pool as changed: %v, want %v", step.what, got, step.want)
		}
	}
}

// A new leader waits until it has observed the events of the last leader. The new leader
// may not know a pool that the last leader had only read live.
func TestAddReadPool_KeepsJournalEntriesUntilItsEvent(t *testing.T) {
	s := newTestState(t)
	next := s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.3")
	if _, err := s.UpdatePool(next); err != nil {
		t.Fatal(err)
	}
	s.AddReadPool(s.now, next)
	if r := s.commit(); len(r.Entries) != 1 || s.available() != 6 {
		t.Errorf("%d entries in the journal, %d addresses free after the read", len(r.Entries), s.available())
	}
	s.ObservePool(s.now, next)
	if r := s.commit(); len(r.Entries) != 0 || s.available() != 6 {
		t.Errorf("%d entries in the journal, %d addresses free after its event", len(r.Entries), s.available())
	}
}

func TestFence_GrantEndsWhenTheFenceIsObserved(t *testing.T) {
	for name, observe := range map[string]func(*testState, Grant){
		"without the range": func(s *testState, _ Grant) { s.observeStored("a", "", journal.Token{}) },
		"with the range":    func(s *testState, g Grant) { s.observeStored("a", g.Ranges[0].String(), g.Token) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.observeStored("a", "", journal.Token{})
			g := s.mustGrant(Request{Claim: key("a"), UID: "a"})
			s.now = s.now.Add(DefaultGrantLife)
			for _, g := range s.ExpiredGrants(s.now) {
				s.RecordFence(s.now, g, s.version+1) // the version that observe observes
			}
			if due := s.ExpiredGrants(s.now); len(due) != 0 || len(s.commit().Entries) != 1 {
				t.Errorf("due before the fence is observed: %v", due)
			}
			successor := newTestState(t) // has not observed the claim since the fence, as the leader has not
			successor.TakeOver(journal.Revision{Snapshot: s.commit()})
			successor.StartGranting(successor.now)
			if o := successor.mustGrant(Request{Claim: key("b")}); o.Ranges[0] == g.Ranges[0] {
				t.Errorf("the next leader grants %v again", o.Ranges)
			}
			observe(s, g)
			for _, g := range s.ExpiredGrants(s.now) {
				s.ExpireGrant(g)
			}
			if r := s.commit(); len(r.Entries) != 0 {
				t.Errorf("in the journal after the fence was observed: %v", r.Entries)
			}
			if s.observeDeleted("a"); s.available() != 10 {
				t.Errorf("%d free after the deletion of the claim", s.available())
			}
		})
	}
}

func TestFence_GrantToADeletedClaimEndsWhenObserved(t *testing.T) {
	s := newTestState(t)
	s.observeStored("a", "", journal.Token{})
	s.mustGrant(Request{Claim: key("a"), UID: "a"})
	successor := newTestState(t) // a leader that has never observed the claim
	successor.TakeOver(journal.Revision{Snapshot: s.commit()})
	successor.StartGranting(successor.now)
	for _, tc := range []struct {
		what string
		*testState
		want int64
	}{{"leader", s, 9}, {"next leader", successor, 10}} {
		tc.now = tc.now.Add(DefaultGrantLife)
		for _, g := range tc.ExpiredGrants(tc.now) {
			tc.RecordFence(modelStart, g, 0)
		}
		if tc.available() != tc.want {
			t.Errorf("%s: %d free before the deletion is observed, want %d", tc.what, tc.available(), tc.want)
		}
	}
	if s.observeDeleted("a"); s.available() != 10 || s.grants.number() != 0 {
		t.Errorf("%d free, %d grants open after the deletion is observed", s.available(), s.grants.number())
	}
}

// The parts of a pool are identified by their range, not by their position.
func TestObservePool_UpdatesItsOrderedParts(t *testing.T) {
	s := newTestState(t)
	p := s.nextPool("10.0.0.0")
	p.Ordered, p.Policy = true, allocator.Sequential
	n := 0
	expectGrant := func(want string, window ...string) {
		t.Helper()
		p.ResourceVersion, p.Window = s.nextPool("10.0.0.0").ResourceVersion, nil
		for _, r := range window {
			p.Window = append(p.Window, mustRange(r))
		}
		s.ObservePool(s.now, p)
		n++
		name := fmt.Sprint("c", n)
		g := s.mustGrant(Request{Claim: key(name)})
		if g.Ranges[0] != mustRange(want) {
			t.Errorf("ranges %v: granted %s, want %s", window, g.Ranges[0], want)
		}
		s.observeStored(name, want, g.Token)
	}
	expectGrant("10.0.0.4", "10.0.0.4-10.0.0.7", "10.0.0.0-10.0.0.1")
	expectGrant("10.0.0.0", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7")
	expectGrant("10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7")
	expectGrant("10.0.0.1", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7", "10.0.0.9")
	expectGrant("10.0.0.2", "10.0.0.0-10.0.0.9")
	expectGrant("10.0.0.5", "10.0.0.4-10.0.0.7", "10.0.0.2-10.0.0.3")
	s.RemovePool(p.Key, 1<<40)
	if l := len(s.pools.byWindow); l > 0 {
		t.Errorf("%d parts of a deleted pool remain", l)
	}
}

// Each write of a pool's status is such an event: an IPPool may have tens of thousands of
// parts, and the ledger serves no request meanwhile.
func BenchmarkObservePool_ManyParts(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := New([]string{modelClaims, modelPools}, Limits{GrantLife: DefaultGrantLife}, nil)
			p := Pool{Key: modelPool, Ordered: true, Policy: allocator.Sequential}
			for i := range n {
				p.Window = append(p.Window, mustRange(fmt.Sprintf("11.%d.%d.%d", i>>14, i>>7&127, i&127<<1)))
			}
			all := p.Window
			for what, removed := range map[string]uint64{"unchanged": 1, "one part more or less": 2} {
				b.Run(what, func(b *testing.B) {
					for b.Loop() {
						p.ResourceVersion++
						p.Window = all[p.ResourceVersion%removed:]
						k.ObservePool(modelStart, p)
					}
				})
			}
		})
	}
}

// Two pools have equal parts, and one pool keeps each part for a claim.
func BenchmarkObservePool_ManyPins(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := New([]string{modelClaims, modelPools}, Limits{GrantLife: DefaultGrantLife}, nil)
			other := Pool{Key: Key{Resource: modelPools, Namespace: "ns", Name: "other"}, Ordered: true, ResourceVersion: 1, Policy: allocator.Sequential}
			for i := range n {
				other.Window = append(other.Window, mustRange(fmt.Sprintf("11.%d.%d.%d", i>>14, i>>7&127, i&127<<1)))
			}
			k.ObservePool(modelStart, other)
			p := other
			p.Key, p.MayBlockOwned, p.ResourceVersion = modelPool, true, 0
			for b.Loop() {
				p.ResourceVersion++
				p.Blocked = other.Window[p.ResourceVersion%2*uint64(n)/2:] // all, and half of them
				k.ObservePool(modelStart, p)
			}
		})
	}
}

// The claim of a grant was fenced, and etcd was restored to a backup from before the
// fence: the fenced version will never be observed.
func TestFence_IsRepeatedIfNotObserved(t *testing.T) {
	s := newTestState(t)
	s.observeStored("a", "", journal.Token{})
	s.mustGrant(Request{Claim: key("a"), UID: "a"})
	s.now = s.now.Add(DefaultGrantLife)
	due := s.ExpiredGrants(s.now)
	if len(due) != 1 {
		t.Fatalf("%d grants are due", len(due))
	}
	s.RecordFence(s.now, due[0], s.version+100)
	if again := s.ExpiredGrants(s.now.Add(DefaultGrantLife - time.Second)); len(again) != 0 {
		t.Error("the grant is due before one grant life has passed since the fence")
	}
	s.now = s.now.Add(DefaultGrantLife)
	if again := s.ExpiredGrants(s.now); len(again) != 1 || again[0].fenceVersion != 0 {
		t.Errorf("due: %+v, want the grant, to be fenced again", again)
	}
}

// The loser of a conflict may request the part of its range that has no second owner.
// While the response may not be stored, the loser keeps that part.
func TestConflict_LoserMayRequestItsPart(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "withdrawn": false} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.observeStored("winner", "10.0.0.0-10.0.0.1", journal.Token{}, ready)
			s.observeStored("loser", "10.0.0.1-10.0.0.4", journal.Token{}, flagged)
			request := func(r string) (Grant, error) {
				return s.requestGrant(Request{Claim: key("loser"), UID: "loser", Ranges: []RangeRequest{{Exact: mustRange(r)}}})
			}
			if _, err := request("10.0.0.1-10.0.0.4"); !errors.As(err, new(*OwnedError)) {
				t.Fatalf("the same range again: %v, want OwnedError", err)
			}
			if s.available() != 5 {
				t.Fatalf("%d addresses are free after the denial, want 5", s.available())
			}
			g, err := request("10.0.0.2-10.0.0.5")
			if err != nil {
				t.Fatal(err)
			}
			if s.available() != 4 {
				t.Errorf("%d addresses are free, want 4", s.available())
			}
			want := int64(5)
			if stored {
				s.observeStored("loser", "10.0.0.2-10.0.0.5", g.Token)
				want = 4
			} else {
				s.WithdrawGrant(s.grants.find(g.Token))
			}
			s.commit()
			if s.available() != want {
				t.Errorf("%d addresses are free at the end, want %d", s.available(), want)
			}
			if st := s.OwnershipOf("loser"); (st.Conflict == nil) != stored {
				t.Errorf("conflict of the loser: %v", st.Conflict)
			}
			if owns, err := s.OwnsAll("winner", 0); err != nil || !owns {
				t.Errorf("the winner owns all its ranges: %v, %v", owns, err)
			}
		})
	}
}
