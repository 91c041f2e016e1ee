package state

import (
	"cmp"
	"fmt"
	"slices"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Check verifies the invariants of the state, and returns the first violation. The cost
// grows with the number of holdings, claims and grants. The model check and the fuzzers
// call Check after each step, and a manager that is built for the chaos test calls it as
// often as its share of the time allows.
func (s *State) Check() error {
	for _, check := range []func() error{s.leadership.check, s.proofs.check, s.checkCommitQueue, s.checkAccess, s.pools.check, s.movedRecords.check, s.grants.check, s.checkGrants, s.checkStandby, s.holdings.check, s.checkHoldings, s.checkCooldowns, s.claims.check, s.checkClaims, s.checkAddresses, s.checkInUse} {
		if err := check(); err != nil {
			return fmt.Errorf("invariant: %w", err)
		}
	}
	return nil
}

func (s *State) checkCommitQueue() error {
	return s.commitQueue.check(s.proofs.isCommitInFlight())
}

func (s *State) checkAccess() error {
	stored := map[string]int{}
	for c := range s.claims.all() {
		stored[c.Key.Resource]++
	}
	for p := range s.pools.all() {
		stored[p.Key.Resource]++
	}
	return s.access.check(stored)
}

func (s *State) checkGrants() error {
	entries := make([]*journal.Entry, 0, s.grants.number())
	for g := range s.grants.all() {
		switch {
		case !s.holdings.has(g.holding):
			return fmt.Errorf("grant %s is of a holding that was freed", g.Token)
		case !slices.Contains(g.holding.grants, g):
			return fmt.Errorf("grant %s is not among those of its holding", g.Token)
		case !slices.Equal(g.Ranges, g.holding.ranges):
			return fmt.Errorf("grant %s of %v is on a holding of %v", g.Token, g.Ranges, g.holding.ranges)
		}
		entries = append(entries, &g.Entry)
	}
	return s.journalRoom.check(entries)
}

// checkStandby verifies the standby grants, and that their ranges are free.
func (s *State) checkStandby() error {
	if err := s.standby.check(s.proofs.isCommitInFlight()); err != nil {
		return err
	}
	return s.standby.all(func(routingDomain string, g *OpenGrant) error {
		if s.grants.isOpen(g) {
			return fmt.Errorf("standby grant %s is an open grant", g.Token)
		}
		for _, r := range g.Ranges {
			for owned := range s.domain(routingDomain).core.OwnedIn(r) {
				return fmt.Errorf("standby grant %s: %s is owned by %s", g.Token, owned.Range, s.holdings.find(owned.OwnerID).key)
			}
		}
		return nil
	})
}

// checkCooldowns verifies the cooldowns, and the moves that are not decided.
func (s *State) checkCooldowns() error {
	return cmp.Or(s.cooldowns.check(s.holdings.all()), s.moves.check(s.holdings.has))
}

func (s *State) checkHoldings() error {
	seen := map[journal.Token]allocator.OwnerID{}
	for h := range s.holdings.all() {
		name := fmt.Sprintf("holding %d of %s %v", h.id, h.key, h.ranges)
		switch {
		case h.state() == stateUnused:
			return fmt.Errorf("%s is in no state", name)
		case h.claim != nil && h.claim.holding != h:
			return fmt.Errorf("%s: its claim has another holding", name)
		}
		if _, contested := s.domain(h.routingDomain).contested[h]; contested != h.contested {
			return fmt.Errorf("%s: contested %t, indexed %t", name, h.contested, contested)
		}
		for _, g := range h.grants {
			if other, twice := seen[g.Token]; twice || !s.grants.isOpen(g) {
				return fmt.Errorf("%s: its grant %s is unknown, or also of holding %d", name, g.Token, other)
			}
			seen[g.Token] = h.id
		}
	}
	return nil
}

func (s *State) checkClaims() error {
	for c := range s.claims.all() {
		switch {
		case c.holding != nil && (c.holding.claim != c || !s.holdings.has(c.holding)):
			return fmt.Errorf("claim %s has a holding that is another's, or was freed", c.Key)
		case s.leadership.mayGrant() && c.boundAt.commits >= s.proofs.nextCommit():
			return fmt.Errorf("claim %s was bound at commit %d, before commit %d", c.Key, c.boundAt.commits, s.proofs.nextCommit())
		}
	}
	return nil
}

// checkAddresses verifies that a holding owns all its addresses unless it is contested,
// and that every owner is a holding.
func (s *State) checkAddresses() error {
	for h := range s.holdings.all() {
		core := s.domain(h.routingDomain).core
		for _, r := range h.ranges {
			var own []allocator.Range
			for owned := range core.OwnedIn(r) {
				if s.holdings.find(owned.OwnerID) == nil {
					return fmt.Errorf("%s is owned by %d, which is no holding", owned.Range, owned.OwnerID)
				}
				if owned.OwnerID == h.id {
					own = append(own, owned.Range)
				}
			}
			if complete := slices.Equal(own, []allocator.Range{r}); !complete && !h.contested {
				return fmt.Errorf("holding %d of %s owns %v of %s, and is not contested", h.id, h.key, own, r)
			}
		}
	}
	return nil
}
