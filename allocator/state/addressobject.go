package state

import (
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// An address object owns a range for a claim (Claim.OwnerClaim). Claim and address object
// name a common pool: a claim with that name in a second pool is a different claim. Claim
// and address object share a holding, which belongs to the claim while the claim is
// stored, and to the address object afterwards:
//
//	claim           ├── stored ──┤
//	address object      ├─── stored ─────┤
//	the range is free                    ├──

// isAddressObjectOf reports whether the holding belongs to an address object of this
// claim, in this pool.
func (h *holding) isAddressObjectOf(claim, pool Key) bool {
	return h.claim != nil && h.claim.OwnerClaim == claim && h.pool == pool
}

// holdingOfOwnerClaim returns the holding of an address object's claim if the holding has
// exactly the ranges of the address object; nil if not.
func (s *State) holdingOfOwnerClaim(c *claim) *holding {
	if c.OwnerClaim == (Key{}) {
		return nil
	}
	for _, h := range s.holdings.of(c.OwnerClaim) {
		if h.claim != nil && h.claim.Key == c.OwnerClaim && h.pool == c.Pool && c.mayBeIn(h.routingDomain) && slices.Equal(h.ranges, c.Ranges) {
			return h
		}
	}
	return nil
}

// mayBeIn reports whether an address object may own addresses of its claim in a routing
// domain: an address object without a record of its routing domain is where its claim is.
func (c *claim) mayBeIn(routingDomain string) bool {
	return !c.RoutingDomainGranted || c.RoutingDomain == routingDomain
}

// ownedByOwnerClaim describes the claim of an address object that is to be created, if
// the claim owns the range of the address object already, in whichever routing domain;
// nil if not.
func (s *State) ownedByOwnerClaim(q Request) *OwnedError {
	if q.OwnerClaim == (Key{}) || len(q.Ranges) != 1 {
		return nil
	}
	for _, h := range s.holdings.of(q.OwnerClaim) {
		if h.claim != nil && h.claim.Key == q.OwnerClaim && h.pool == q.Pool && !h.contested && slices.Equal(h.ranges, []allocator.Range{q.Ranges[0].Exact}) {
			return &OwnedError{Range: q.Ranges[0].Exact, Owner: q.OwnerClaim, Pool: h.pool, RoutingDomain: h.routingDomain}
		}
	}
	return nil
}

// joinAddressObject moves the grants of a claim to the holding of its address object,
// which has equal ranges and was observed between the grant and the claim: events of two
// resources arrive in any order. With two holdings the claim would conflict with its own
// address object. As in findHoldingOf, the grant is found by token, or by name if the
// token was removed from the claim.
func (s *State) joinAddressObject(c *claim) {
	granted := slices.Clone(s.holdings.of(c.Key))
	if g := s.grants.find(c.Token); g != nil && g.isFor(c.Key, c.UID) {
		granted = append(granted, g.holding)
	}
	for _, from := range granted {
		if from.claim != nil || from.isMoved() || len(from.grants) == 0 {
			continue
		}
		for _, h := range s.holdings.of(c.Key) {
			if h.isAddressObjectOf(c.Key, c.Pool) && h.routingDomain == from.routingDomain && slices.Equal(h.ranges, from.ranges) {
				for _, g := range from.grants {
					g.holding = h
				}
				h.grants, from.grants = append(h.grants, from.grants...), nil
				s.freeIfUnused(from)
				break
			}
		}
	}
}

// endGrantOfCovered ends the grant of an address object whose claim owns the range
// already.
func (s *State) endGrantOfCovered(c *claim, h *holding) {
	if g := s.grants.find(c.Token); g != nil && g.isFor(c.Key, c.UID) {
		s.endGrant(g)
	}
	s.markChanged(h)
}

// passHolding gives the holding of a deleted claim to an address object of the claim with
// equal ranges, and returns whether the claim has an address object with those ranges.
func (s *State) passHolding(c *claim) bool {
	h := c.holding
	for _, object := range s.claims.objectsOf(c.Key) {
		if object.holding != nil || object.Pool != h.pool || !object.mayBeIn(h.routingDomain) || !slices.Equal(h.ranges, object.Ranges) {
			continue
		}
		s.claims.removeOwner(c)
		c.holding, h.claim, object.holding = nil, object, h
		s.cooldowns.moveTo(h, object.Pool)
		s.claims.addOwner(object)
		if p := s.pools.find(c.Pool); c.mayHaveMoved() && p != nil && p.RoutingDomain == h.routingDomain && !p.Deleting { // the range is kept for the claim, also when the address object is gone
			s.awaitMoveDecision(h, c)
		}
		s.reevaluateConflicts(h)
		return true
	}
	return false
}
