package state

import (
	"cmp"
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// resolveConflict gives each address of h to the strongest holding that names the
// address.
func (s *State) resolveConflict(h *holding) {
	domain := s.domain(h.routingDomain)
	group := map[*holding]struct{}{h: {}}
	for _, r := range h.ranges {
		for owned := range domain.core.OwnedIn(r) {
			group[s.holdings.find(owned.OwnerID)] = struct{}{}
		}
	}
	for o := range domain.contested {
		if o.overlapsAny(h.ranges) {
			group[o] = struct{}{}
		}
	}
	for o := range group {
		for _, r := range o.ranges {
			domain.core.Release(r, o.id)
		}
	}
	for _, o := range slices.SortedFunc(maps.Keys(group), s.compareStrength) {
		clash := false
		for _, r := range o.ranges {
			clash = len(domain.core.Assign(r, o.id)) > 0 || clash
		}
		s.setContested(domain, o, clash)
		s.markChanged(o)
	}
}

// setContested records whether h lacks some of its addresses. A holding that owns all its
// addresses again is confirmed by the next commit.
func (s *State) setContested(domain *domain, h *holding, contested bool) {
	if h.contested && !contested {
		if h.claim != nil {
			h.claim.journaled = false
		}
		s.requireConfirmation(h)
	}
	h.contested = contested
	if contested {
		domain.contested[h] = struct{}{}
	} else {
		delete(domain.contested, h)
	}
}

// requireConfirmation makes the next commit, or the next read of the journal, confirm the
// holding's claim. In a follower, the claim is confirmed by the first commit of a later
// term.
func (s *State) requireConfirmation(h *holding) {
	if h.claim == nil {
		return
	}
	h.claim.boundAt = s.proofs.now()
	if s.leadership.mayGrant() {
		s.proofs.awaitClaim(h.claim)
		if h.claim.journaled {
			s.commitQueue.requestRead()
		} else {
			s.commitQueue.request()
		}
	}
}

// RequireConfirmation makes the next commit confirm the owner with this UID.
func (s *State) RequireConfirmation(uid string) {
	if c := s.claims.find(uid); c != nil && c.holding != nil {
		s.requireConfirmation(c.holding)
	}
}

// reevaluateConflicts resolves the conflicts of h again, after its strength has changed.
func (s *State) reevaluateConflicts(h *holding) {
	domain := s.domain(h.routingDomain)
	if len(domain.contested) > 0 {
		s.resolveConflict(h)
	}
	s.markChanged(h)
}

// compareStrength orders two holdings that name an address, the stronger first. The
// stronger holding keeps the address:
//
//	6  claim stored as Ready
//	5  claim whose grant this process has known as open (hadGrant), or open grant
//	4  claim without a grant
//	3  claim stored as Ready, in a routing domain that it does not name (entered)
//	2  claim without a grant, in a routing domain that it does not name
//	1  cooldown, moved range
//	0  withheld
//
// Holdings of equal strength are ordered: claim before grant, then a claim whose pool is
// in the routing domain of its addresses, or that has no pool, then a claim whose API is
// served, then a claim with a token (its create was answered with the addresses, by an
// earlier leader), then the older claim, then the smaller UID. Holdings without claims
// are ordered by age of the holding.
func (s *State) compareStrength(a, o *holding) int {
	if c := cmp.Compare(o.strength(), a.strength()); c != 0 {
		return c
	}
	if c := cmp.Compare(boolToInt(o.claim != nil), boolToInt(a.claim != nil)); c != 0 {
		return c
	}
	if a.claim != nil {
		if c := cmp.Compare(boolToInt(s.hasPool(o.claim)), boolToInt(s.hasPool(a.claim))); c != 0 {
			return c
		}
		if c := cmp.Compare(boolToInt(a.claim.unserved), boolToInt(o.claim.unserved)); c != 0 {
			return c
		}
		if c := cmp.Compare(boolToInt(a.claim.Token.IsZero()), boolToInt(o.claim.Token.IsZero())); c != 0 {
			return c
		}
		if c := a.claim.Created.Compare(o.claim.Created); c != 0 {
			return c
		}
		if c := cmp.Compare(a.claim.UID, o.claim.UID); c != 0 {
			return c
		}
	}
	return cmp.Compare(a.id, o.id)
}

// hasPool reports whether the pool of an owner is in the routing domain of its addresses,
// or the owner names no pool.
func (s *State) hasPool(c *claim) bool { return c.Pool == Key{} || s.poolOf(c) != nil }

// strength returns the row of compareStrength's table.
func (h *holding) strength() int {
	switch h.state() {
	case stateBound:
		switch {
		case h.entered():
			return 2 + boolToInt(h.claim.ready())
		case h.claim.ready():
			return 6
		case h.claim.hadGrant || len(h.grants) > 0:
			return 5
		default:
			return 4
		}
	case stateReserved, stateInherited:
		return 5
	case stateWithheld:
		return 0
	default:
		return 1
	}
}

// entered reports whether a claim has come into the routing domain of its holding by its
// pool alone: no grant is known, the claim records no routing domain, and its label names
// another one. A pool that is made anew in another routing domain brings such a claim
// along.
func (h *holding) entered() bool {
	return h.claim.RoutingDomain != h.routingDomain && !h.claim.RoutingDomainGranted && !h.claim.hadGrant && len(h.grants) == 0
}

// hasRivals reports whether a contested holding besides h names some of h's addresses.
func (s *State) hasRivals(h *holding) bool {
	for o := range s.domain(h.routingDomain).contested {
		if o != h && o.overlapsAny(h.ranges) {
			return true
		}
	}
	return false
}

// firstConflict describes the owner of the first address of h that h does not own; nil if
// h owns all its addresses.
func (s *State) firstConflict(h *holding) *OwnedError {
	for _, r := range h.ranges {
		for owned := range s.domain(h.routingDomain).core.OwnedIn(r) {
			if owned.OwnerID != h.id {
				return s.ownedError(owned)
			}
		}
	}
	return nil
}

// ownedError describes the owner of an address.
func (s *State) ownedError(owned allocator.Owned) *OwnedError {
	e := &OwnedError{Range: owned.Range}
	h := s.holdings.find(owned.OwnerID)
	if h == nil {
		return e
	}
	e.Pool, e.RoutingDomain = h.pool, h.routingDomain
	switch h.state() {
	case stateBound:
		e.Owner = h.claim.Key
	case stateWithheld:
		e.Owner, e.Withheld, e.Until = h.key, true, s.expiryOf(h)
	case stateReserved, stateInherited:
		e.Owner, e.Promised = h.key, h.grants[0].StoredName == ""
	case stateMoved:
		e.Owner, e.Moved = h.key, true
	default:
		e.Until = s.recordClock.toRecord(h.freeAt)
	}
	return e
}

// cannotBecomeReady reports whether no write can mark a claim Ready any more: its API is
// switched off, and the writes of earlier leaders have ended.
func (s *State) cannotBecomeReady(c *claim) bool {
	return c.unserved && s.leadership.haveEarlierWritesEnded() && !c.ready()
}

// recheckUnserved reports as changed the owners that have a rival of an API that is
// switched off, when the writes of earlier leaders have ended: such an owner becomes
// Ready only then.
func (s *State) recheckUnserved() {
	for _, domain := range s.domains {
		for h := range domain.contested {
			if h.claim == nil || !h.claim.unserved {
				continue
			}
			for _, r := range h.ranges {
				for owned := range domain.core.OwnedIn(r) {
					s.markChanged(s.holdings.find(owned.OwnerID))
				}
			}
		}
	}
}
