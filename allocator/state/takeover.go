package state

import (
	"bytes"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// TakeOver makes the state a new leader's state: the entries of the journal become open
// grants, and are never granted again. The state grants only after StartGranting.
func (s *State) TakeOver(v journal.Revision) {
	s.dropGrants()
	s.proofs.beginTerm()
	s.commitQueue.request()
	s.leadership.takeOver(v.Quarantine)
	seen := s.claimsByToken(v.Entries)
	entries := slices.Clone(v.Entries)
	slices.SortFunc(entries, func(x, y journal.Entry) int { return bytes.Compare(x.Token[:], y.Token[:]) })
	var open []*OpenGrant
	for _, entry := range entries {
		g := &OpenGrant{Entry: entry.Clone(), state: grantCommitted}
		if c := seen[g.Token]; c != nil && g.isFulfilledBy(c) {
			s.correctDomain(c, g.RoutingDomain)
			c.hadGrant = true // observed already
		} else if len(g.Ranges) > 0 { // earlier versions of the manager wrote entries without ranges
			g.MarkInherited()
			open = append(open, g)
		}
	}
	for _, g := range open { // after all hadGrant are known, which decide conflicts
		s.inheritGrant(g)
	}
}

// correctDomain moves an owner into the routing domain of its grant: this replica has
// first observed the claim with another record.
func (s *State) correctDomain(c *claim, routingDomain string) {
	if c.RoutingDomain, c.RoutingDomainGranted = routingDomain, true; c.holding != nil && c.holding.routingDomain != routingDomain {
		s.detachClaim(c, time.Time{}, time.Time{})
		s.bindClaim(c)
	}
}

// claimsByToken returns the claims that own a range and carry the token of an entry:
// token -> claim.
func (s *State) claimsByToken(entries []journal.Entry) map[journal.Token]*claim {
	found := make(map[journal.Token]*claim, len(entries))
	for _, entry := range entries {
		found[entry.Token] = nil
	}
	for c := range s.claims.all() {
		if _, asked := found[c.Token]; asked && (c.holding != nil || s.holdingOfOwnerClaim(c) != nil) && !c.Token.IsZero() {
			found[c.Token] = c
		}
	}
	return found
}

// inheritGrant adds a grant of an earlier leader. A repeated create has several grants of
// one holding (repeatableHolding). These grants share one holding here too: an inherited
// holding of the same named claim, or the holding of the claim itself if the claim was
// observed before the take-over. A grant without a name gets a holding of its own, as its
// claim is not known.
func (s *State) inheritGrant(g *OpenGrant) {
	domain := s.domain(g.RoutingDomain)
	for owned := range domain.core.OwnedIn(g.Ranges[0]) { // all ranges of a holding have one owner: the first range is enough
		h := s.holdings.find(owned.OwnerID)
		if h.inherited && h.claim == nil && len(h.grants) > 0 && slices.Equal(h.ranges, g.Ranges) && h.grants[0].isForSameClaim(g) ||
			h.claim != nil && slices.Equal(h.ranges, g.Ranges) && g.isFor(h.claim.Key, h.claim.UID) && g.NameHash != 0 {
			g.holding = h
			s.indexGrant(g)
			return
		}
	}
	claim := g.StoredObject()
	if g.IsStandby() {
		claim = Key{} // not known
	}
	h := s.addHolding(claim, Key{}, g.RoutingDomain, g.Ranges...)
	h.inherited = true
	g.holding = h
	s.indexGrant(g)
	s.assignAddresses(h)
}

// isForSameClaim reports whether both grants are to the same named claim.
func (g *OpenGrant) isForSameClaim(other *OpenGrant) bool {
	return g.Resource == other.Resource && g.Namespace == other.Namespace && g.NameHash == other.NameHash && g.NameHash != 0 && g.UID == other.UID
}

// StartGranting lets the state grant. The life of inherited grants begins anew. Claims
// that may need a write are reported as changed: claims without a range now, claims with
// a range by the commit that confirms them.
func (s *State) StartGranting(now time.Time) {
	s.leadership.begin(now)
	s.endSupersededMoves()
	s.grants.beginLives(now)
	for c := range s.claims.all() {
		c.boundAt, c.journaled, c.inheritedGrant = moment{}, false, false
		if c.holding != nil {
			c.holding.journaledUntil = 0 // the first commit of the term, which is due already, has none of these entries
		}
		switch {
		case c.holding == nil:
			s.changed[c.Key] = struct{}{}
		case !c.ready() || c.Deleting || c.holding.contested:
			s.proofs.awaitClaim(c)
		}
	}
}

// StepDown makes the state a follower's state: it still observes objects, but its grants
// belong to the next leader.
func (s *State) StepDown() {
	s.leadership.end()
	s.proofs.dropClaims()
	s.dropGrants()
}

// dropGrants removes all open grants and fails their waiters.
func (s *State) dropGrants() {
	for g := range s.grants.all() {
		if g.waiter != nil {
			g.waiter <- &NotServingError{Reason: "another replica took the journal over"}
			g.waiter = nil
		}
		g.notifyProven(&NotServingError{Reason: "another replica took the journal over"})
		s.endGrant(g)
	}
	s.standby.end()
	s.commitQueue.abandon(&NotServingError{Reason: "another replica took the journal over"})
}

// StopGranting makes the state deny further requests. Queued grants still belong to the
// last commit.
func (s *State) StopGranting() { s.leadership.end() }
