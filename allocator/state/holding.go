package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// addHolding creates a holding for the ranges, without assigning the addresses. Standby
// grants of the addresses are given up.
func (s *State) addHolding(key, poolKey Key, routingDomain string, ranges ...allocator.Range) *holding {
	h := s.holdings.add(key, poolKey, routingDomain, ranges)
	s.standby.drop(routingDomain, ranges)
	return h
}

// assignAddresses makes h the owner of its addresses. If further holdings own some of the
// addresses, the conflict is resolved.
func (s *State) assignAddresses(h *holding) {
	domain := s.domain(h.routingDomain)
	clash := false
	for _, r := range h.ranges {
		clash = len(domain.core.Assign(r, h.id)) > 0 || clash
	}
	if clash {
		s.resolveConflict(h)
	}
	s.markChanged(h)
}

// freeHolding removes a holding, and gives its addresses to the contested holdings that
// name them.
func (s *State) freeHolding(h *holding) {
	domain := s.domain(h.routingDomain)
	for _, r := range h.ranges {
		domain.core.Release(r, h.id)
		if h.contested { // the owners of its addresses waited until h was flagged
			for owned := range domain.core.OwnedIn(r) {
				s.markChanged(s.holdings.find(owned.OwnerID))
			}
		}
	}
	s.markChanged(h)
	s.holdings.remove(h)
	s.moves.decided(h)
	s.cooldowns.unlist(h)
	delete(domain.contested, h)
	var rivals []*holding
	for o := range domain.contested {
		if o.overlapsAny(h.ranges) {
			rivals = append(rivals, o)
		}
	}
	slices.SortFunc(rivals, s.compareStrength)
	for _, o := range rivals {
		s.resolveConflict(o)
	}
}

// freeIfUnused removes a holding that has neither a claim nor an open grant, and is
// neither in cooldown nor moved.
func (s *State) freeIfUnused(h *holding) {
	if h.state() == stateUnused {
		s.freeHolding(h)
	}
}

// holdingState names what makes a holding's ranges unavailable.
type holdingState int

// The states of a holding and the functions that enter each state. A holding without a
// state is freed (freeIfUnused).
//
//	state           meaning for the ranges                              entered by
//	stateReserved   granted; the object has not been observed           reserveRanges
//	stateInherited  granted by an earlier leader                        inheritGrant
//	stateBound      owned by a stored claim or address object           bindClaim, passHolding
//	stateCooldown   released, and not allocated again before freeAt     detachClaim, DecideMoved, applyRecordedCooldown
//	stateMoved      owned by a claim in another cluster, or may be      awaitMoveDecision, keepMoved
//	stateWithheld   removed from a pool by an update not observed yet   UpdatePool
const (
	stateUnused holdingState = iota
	stateReserved
	stateInherited
	stateBound
	stateCooldown
	stateMoved
	stateWithheld
)

// state derives the state from the fields: the first matching case applies. A bound
// holding may have further grants and a recorded cooldown. A moved range that is granted
// to its returning claim counts as reserved, and as moved again if that grant ends.
func (h *holding) state() holdingState {
	switch {
	case h.claim != nil:
		return stateBound
	case len(h.grants) > 0 && h.grants[0].withholds():
		return stateWithheld
	case len(h.grants) > 0 && h.inherited:
		return stateInherited
	case len(h.grants) > 0:
		return stateReserved
	case h.isMoved():
		return stateMoved
	case !h.freeAt.IsZero():
		return stateCooldown
	default:
		return stateUnused
	}
}

// holding is a set of ranges that is not free. The fields determine the state, see
// holding.state.
type holding struct {
	id               allocator.OwnerID
	key              Key // claim, without a name while the API server has yet to generate the name; for withheld ranges the pool whose update removes the ranges
	pool             Key
	routingDomain    string
	ranges           []allocator.Range
	claim            *claim
	grants           []*OpenGrant
	requestUID       string    // admission request of an unnamed claim
	releasedAt       time.Time // begin of the cooldown; zero if not known
	freeAt           time.Time // end of the cooldown; noEnd if moved; zero if neither in cooldown nor moved
	inherited        bool      // granted by an earlier leader and not bound since: pool and claim are not known, so the range is not granted again
	contested        bool      // further holdings own some of the addresses. Invariant: h.contested == h is in domain.contested
	journaledUntil   uint64    // first commit of this term without the entry of the grant that ended last; 0 if no grant has ended in this term
	listedSince      uint64    // see Moved
	ignoreListsUntil uint64    // see Moved
	movedUID         string    // UID of the object that was moved with the range
	clusters         []string  // Clusters that the moved object named
}

// overlapsAny reports whether h has an address of the ranges.
func (h *holding) overlapsAny(ranges []allocator.Range) bool {
	for _, r := range h.ranges {
		if slices.ContainsFunc(ranges, r.Overlaps) {
			return true
		}
	}
	return false
}

// ownerClaim returns the claim that owns the holding, or may come to own it.
func (h *holding) ownerClaim() Key {
	if h.claim != nil {
		return h.claim.owner()
	}
	return h.key
}

// isInUse reports whether a claim owns the holding's addresses or may come to own them.
func (h *holding) isInUse() bool {
	return h.claim != nil || len(h.grants) > 0 && !h.grants[0].withholds()
}

// mayBelongTo reports whether the holding is of the pool. The pool of an inherited grant
// is not known: the grant may belong to each pool of the routing domain that offers its
// ranges.
func (h *holding) mayBelongTo(p *pool, isOffered func([]allocator.Range) bool) bool {
	return h.pool == p.Key || h.inherited && h.claim == nil && h.routingDomain == p.RoutingDomain && isOffered(h.ranges)
}

// markChanged reports as changed every object whose ownership or usage depends on h: the
// claim and the pool of h, and each pool that offers some of the addresses. It is called
// after each change of isInUse, on which the avoided addresses depend.
func (s *State) markChanged(h *holding) {
	if h.claim != nil {
		s.changed[h.claim.Key] = struct{}{}
	}
	if h.pool.Name != "" {
		s.changed[h.pool] = struct{}{}
	}
	for _, r := range h.ranges {
		s.updateAvoided(h.routingDomain, r)
		for p := range s.domain(h.routingDomain).core.PoolsOffering(r) {
			s.changed[s.pools.ofWindow(p)] = struct{}{}
		}
	}
}

// detachClaim separates a claim from its holding. An address object of the claim with
// equal ranges takes the holding over. Without an address object:
//
//	cooldownEnd                        the holding
//	noEnd                              waits for DecideMoved
//	after h.freeAt                     is in cooldown until cooldownEnd
//	zero, or not after h.freeAt        stays in the cooldown that began or was recorded earlier, until h.freeAt
//	zero, without a freeAt or a grant  is freed
func (s *State) detachClaim(c *claim, now, cooldownEnd time.Time) {
	if s.passHolding(c) {
		return
	}
	s.removeEntryOf(c)
	h := c.holding
	s.claims.removeOwner(c)
	h.claim, c.holding = nil, nil
	switch {
	case cooldownEnd.Equal(noEnd):
		s.awaitMoveDecision(h, c)
	case cooldownEnd.After(h.freeAt):
		h.releasedAt, h.freeAt = now, cooldownEnd
	}
	if !h.freeAt.IsZero() {
		s.cooldowns.list(h)
	}
	s.markChanged(h)
	if s.freeIfUnused(h); s.holdings.has(h) {
		s.reevaluateConflicts(h)
	}
}
