package state

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

var (
	malPool = Key{Resource: modelPools, Namespace: "mal", Name: "mp"}
	prodVIP = Key{Resource: modelPools, Namespace: "vict", Name: "prod"}
	malKey  = Key{Resource: modelClaims, Namespace: "mal", Name: "c"}
	victKey = Key{Resource: modelClaims, Namespace: "vict", Name: "web"}
)

func poolIn(k Key, routingDomain string, version uint64) Pool {
	return Pool{Key: k, RoutingDomain: routingDomain, ResourceVersion: version, Policy: allocator.BestFit, Window: []allocator.Range{mustRange("10.219.0.1-10.219.0.9")}}
}

// recordedIn records the routing domain of a claim's addresses.
func recordedIn(routingDomain string) func(*Claim) {
	return func(c *Claim) { c.RoutingDomain, c.RoutingDomainGranted = routingDomain, true }
}

func of(k, pool Key) func(*Claim) { return func(c *Claim) { c.Key, c.Pool = k, pool } }

// observeEach observes the stored objects in one order, as a new leader does, and
// commits.
func observeEach(t *testing.T, events ...func(*testState)) *testState {
	t.Helper()
	s := newTestState(t)
	for _, observe := range events {
		observe(s)
	}
	s.commit()
	return s
}

// Each order of events gives the same owners: a new leader computes them from the stored
// objects alone.
func eachOrder(t *testing.T, events []func(*testState), check func(t *testing.T, s *testState)) {
	t.Helper()
	var permute func(done, left []func(*testState))
	permute = func(done, left []func(*testState)) {
		if len(left) == 0 {
			check(t, observeEach(t, done...))
		}
		for i := range left {
			permute(append(slices.Clone(done), left[i]), slices.Concat(left[:i], left[i+1:]))
		}
	}
	permute(nil, events)
}

func (s *testState) requireOwner(t *testing.T, routingDomain, address string, want Key) {
	t.Helper()
	owner := s.OwnerOf(routingDomain, mustRange(address).First)
	if owner == nil || owner.Owner != want {
		t.Errorf("%s in %q is owned by %v, want %v", address, routingDomain, owner, want)
	}
}

func TestDomain_OwnerStaysWhenItsPoolIsMadeAnewInAnother(t *testing.T) {
	s := newTestState(t)
	s.ObservePool(s.now, poolIn(malPool, "mallory", 100))
	s.observeStored("mal", "10.219.0.5", journal.Token{1}, of(malKey, malPool), recordedIn("mallory"), ready)
	s.ObservePool(s.now, poolIn(prodVIP, "prod", 101))
	s.observeStored("vict", "10.219.0.5", journal.Token{2}, of(victKey, prodVIP), recordedIn("prod"), ready)
	s.RemovePool(malPool, 102)
	s.ObservePool(s.now, poolIn(malPool, "prod", 103))
	s.commit()
	s.expectOwnership("mal", "confirmed")
	s.expectOwnership("vict", "confirmed")
	s.requireOwner(t, "mallory", "10.219.0.5", malKey)
	s.requireOwner(t, "prod", "10.219.0.5", victKey)
}

func TestDomain_NewLeaderComputesTheSameOwners(t *testing.T) {
	eachOrder(t, []func(*testState){
		func(s *testState) { s.ObservePool(s.now, poolIn(malPool, "prod", 100)) },
		func(s *testState) { s.ObservePool(s.now, poolIn(prodVIP, "prod", 101)) },
		func(s *testState) {
			s.State.ObserveClaim(s.now, Claim{Key: malKey, UID: "mal", Pool: malPool, ResourceVersion: 5, Created: modelStart, RoutingDomain: "mallory", RoutingDomainGranted: true,
				Ranges: []allocator.Range{mustRange("10.219.0.5")}, Token: journal.Token{1}, Ready: true})
		},
		func(s *testState) {
			s.observeStored("vict", "10.219.0.5", journal.Token{2}, of(victKey, prodVIP), recordedIn("prod"), ready)
		},
	}, func(t *testing.T, s *testState) {
		t.Helper()
		s.expectOwnership("mal", "confirmed")
		s.expectOwnership("vict", "confirmed")
		s.requireOwner(t, "mallory", "10.219.0.5", malKey)
	})
}

// A claim of an earlier version records no routing domain. If its pool is made anew in
// another routing domain, it is weaker than every owner there.
func TestDomain_ClaimThatEntersIsWeakerThanEachOwner(t *testing.T) {
	for name, owner := range map[string]func(*Claim){
		"Ready":            ready,
		"without a grant":  func(c *Claim) { c.Token = journal.Token{} },
		"without a record": func(c *Claim) { c.RoutingDomainGranted = false },
		"an address object": func(c *Claim) {
			c.OwnerClaim, c.Ready, c.Flagged = Key{Resource: modelOthers, Namespace: "vict", Name: "web"}, true, true
		},
	} {
		t.Run(name, func(t *testing.T) {
			eachOrder(t, []func(*testState){
				func(s *testState) { s.ObservePool(s.now, poolIn(malPool, "prod", 100)) },
				func(s *testState) { s.ObservePool(s.now, poolIn(prodVIP, "prod", 101)) },
				func(s *testState) {
					s.State.ObserveClaim(s.now, Claim{Key: malKey, UID: "mal", Pool: malPool, ResourceVersion: 5, Created: modelStart.AddDate(-1, 0, 0), RoutingDomain: "mallory",
						Ranges: []allocator.Range{mustRange("10.219.0.5")}, Token: journal.Token{1}, Ready: true})
				},
				func(s *testState) {
					s.observeStored("vict", "10.219.0.5", journal.Token{2}, of(victKey, prodVIP), recordedIn("prod"), owner)
				},
			}, func(t *testing.T, s *testState) {
				t.Helper()
				if st := s.OwnershipOf("mal"); st.Conflict == nil {
					t.Errorf("the claim that entered has no conflict: %+v", st)
				}
				if st := s.OwnershipOf("vict"); st.Conflict != nil || st.RoutingDomain != "prod" {
					t.Errorf("the owner has %+v", st)
				}
			})
		})
	}
}

func TestDomain_ChangedRecordChangesNoOwner(t *testing.T) {
	for name, change := range map[string]func(*Claim){
		"another record": recordedIn("prod"),
		"no record":      func(c *Claim) { c.RoutingDomain, c.RoutingDomainGranted = "", false },
		"another label":  func(c *Claim) { c.RoutingDomain, c.RoutingDomainGranted = "prod", false },
		"another pool":   func(c *Claim) { c.Pool = prodVIP },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.ObservePool(s.now, poolIn(malPool, "mallory", 100))
			s.ObservePool(s.now, poolIn(prodVIP, "prod", 101))
			s.observeStored("mal", "10.219.0.5", journal.Token{1}, of(malKey, malPool), recordedIn("mallory"), ready)
			s.observeStored("mal", "10.219.0.5", journal.Token{1}, of(malKey, malPool), recordedIn("mallory"), ready, change)
			s.commit()
			s.expectOwnership("mal", "confirmed")
			if st := s.OwnershipOf("mal"); st.RoutingDomain != "mallory" {
				t.Errorf("the claim owns its address in %q", st.RoutingDomain)
			}
			if owner := s.OwnerOf("prod", mustRange("10.219.0.5").First); owner != nil {
				t.Errorf("%v owns the address in prod", owner.Owner)
			}
		})
	}
}

// The grant decides about the routing domain of a claim whose record was changed before
// the claim was observed.
func TestDomain_OpenGrantDecidesAboutAChangedRecord(t *testing.T) {
	for name, follower := range map[string]bool{"leader": false, "next leader": true} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}}})
			entries := s.BeginCommit().Entries
			s.CommitLanded(s.now)
			if follower {
				s.StepDown()
			}
			s.observeStored("a", "10.0.0.1", g.Token, recordedIn("prod"))
			if follower {
				s.TakeOver(journal.Revision{Snapshot: journal.Snapshot{Entries: entries}})
				s.StartGranting(s.now)
			}
			s.commit()
			s.expectOwnership("a", "confirmed")
			if st := s.OwnershipOf("a"); st.RoutingDomain != "" {
				t.Errorf("the claim owns its address in %q", st.RoutingDomain)
			}
			if owner := s.OwnerOf("prod", mustRange("10.0.0.1").First); owner != nil {
				t.Errorf("%v owns the address in prod", owner.Owner)
			}
		})
	}
}

func TestDomain_ValidationDeniesAnotherRecord(t *testing.T) {
	s := newTestState(t)
	g := s.mustGrant(Request{Claim: key("a"), Ranges: []RangeRequest{{Exact: mustRange("10.0.0.1")}}})
	c := Claim{Key: key("a"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token, RoutingDomainGranted: true}
	if err := s.CheckGrant(c, "", 0); err != nil {
		t.Error(err)
	}
	if c.RoutingDomain = "prod"; !errors.Is(s.CheckGrant(c, "", 0), ErrForged) {
		t.Error("a grant is approved in another routing domain")
	}
	if c.RoutingDomain, c.RoutingDomainGranted = "", false; s.CheckGrant(c, "", 0) != nil {
		t.Error("an answer of an earlier version, without a record, is not approved")
	}
}

func TestDomain_PoolThatStrandsOwnersIsDenied(t *testing.T) {
	s := newTestState(t)
	s.ObservePool(s.now, poolIn(malPool, "mallory", 100))
	s.ObservePool(s.now, poolIn(prodVIP, "prod", 101))
	s.observeStored("mal", "10.219.0.5", journal.Token{1}, of(malKey, malPool), recordedIn("mallory"), ready)
	if stranded := s.FindStrandedOwner(poolIn(malPool, "prod", 0)); stranded != nil {
		t.Errorf("the address is free in prod: %v", stranded)
	}
	s.observeStored("vict", "10.219.0.5", journal.Token{2}, of(victKey, prodVIP), recordedIn("prod"), ready)
	s.RemovePool(malPool, 102)
	for routingDomain, denied := range map[string]bool{"prod": true, "mallory": false, "": false} {
		stranded := s.FindStrandedOwner(poolIn(malPool, routingDomain, 0))
		if (stranded != nil) != denied {
			t.Errorf("in %q: %v", routingDomain, stranded)
		}
		if stranded == nil {
			continue
		}
		text := stranded.SeenFrom("mal")
		for _, part := range []string{`pool mal/mp cannot be in routing domain "prod"`, "10.219.0.5 is owned by claims/c", `"mallory"`, "in another namespace", "delete"} {
			if !strings.Contains(text, part) {
				t.Errorf("%q lacks %q", text, part)
			}
		}
	}
	s.commit()
}

// The address of a claim was changed while the webhooks were not installed: the claim
// keeps nothing that its pool does not offer, and gets its address back.
func TestAltered_ClaimOwnsNothingThatItsPoolDoesNotOffer(t *testing.T) {
	const given, changed = "10.0.0.1", "10.99.0.1"
	object := func(s *testState) {
		s.version++
		s.State.ObserveClaim(s.now, Claim{Key: Key{Resource: modelAddresses, Namespace: "ns", Name: "o"}, UID: "o", ResourceVersion: s.version, Created: s.now, Pool: modelPool,
			OwnerClaim: key("a"), RoutingDomainGranted: true, Ranges: []allocator.Range{mustRange(given)}, Ready: true, Flagged: true})
	}
	stored := func(address string, more ...func(*Claim)) func(*testState) {
		return func(s *testState) {
			s.observeStored("a", address, journal.Token{1}, append(more, ready, recordedIn(""), func(c *Claim) { c.AllocatedEarlier = true })...)
		}
	}
	altered := func(c *Claim) { c.Altered = true }
	for name, events := range map[string][]func(*testState){
		"observed":                      {stored(given), object, stored(changed)},
		"by a new leader":               {stored(changed), object},
		"by a new leader, object first": {object, stored(changed)},
		"with a status, observed":       {stored(given), stored(changed, altered)},
		"with a status":                 {stored(changed, altered)},
		"with a status, pool last": {func(s *testState) { s.RemovePool(modelPool, 0) }, stored(changed, altered), func(s *testState) {
			s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9"))
		}},
		"by a new leader, pool last": {func(s *testState) { s.RemovePool(modelPool, 0) }, stored(changed), object, func(s *testState) {
			s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := observeEach(t, events...)
			if st := s.OwnershipOf("a"); st.Deferred == nil {
				t.Fatalf("the claim owns %s: %+v", changed, st)
			}
			if owner := s.OwnerOf("", mustRange(changed).First); owner != nil {
				t.Errorf("%s is owned by %v", changed, owner)
			}
			stored(given)(s)
			s.commit()
			s.expectOwnership("a", "confirmed")
			s.requireOwner(t, "", given, key("a"))
		})
	}
}
