package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// ObserveClaim applies the event of a claim. A version that is not newer than the known
// version changes nothing. The event of the known version marks the claim as changed: if
// the version is known from a read of the API server, a reconcile before the event has
// seen an older claim or none.
func (s *State) ObserveClaim(now time.Time, c Claim) {
	known := s.claims.find(c.UID)
	if known == nil {
		known = s.claims.add(c, s.access.isSwitchedOff(c.Key.Resource))
		s.access.objectStored(c.Key.Resource)
	} else if c.ResourceVersion <= known.ResourceVersion {
		if c.ResourceVersion == known.ResourceVersion {
			s.changed[c.Key], s.changed[c.owner()] = struct{}{}, struct{}{}
		}
		return
	}
	before, wasReady := known.Claim, known.ready()
	if before.UID != "" && !before.Deleting && c.Deleting {
		known.deletingSince = now
		s.removeEntryOf(known)
	}
	if c.Deleting && known.deletionVersion == 0 {
		known.deletionVersion = c.ResourceVersion
	}
	s.claims.resume(known)
	if c.MarkedMoved && len(before.Ranges) > 0 {
		c.Ranges = before.Ranges // clusterctl removes the annotations of the objects that it deletes
	}
	s.keepDomain(known, &c)
	if !isSubset(c.Ranges, before.Ranges) || c.Token != before.Token {
		known.tokenSpent = len(before.Ranges) > 0 && c.Token == before.Token && !c.Token.IsZero()
	}
	known.Claim = c
	s.changed[c.Key], s.changed[c.owner()] = struct{}{}, struct{}{}

	h := known.holding
	if h != nil && (before.Pool != c.Pool || known.leavesDomain() || !slices.Equal(before.Ranges, c.Ranges)) {
		// Ranges that the claim does not name any more are freed, without a cooldown
		// (zero times). The claim keeps the remaining ranges: bindClaim below takes the
		// ranges back, also from a contested holding that got the ranges in between,
		// since that holding lost to the claim before. With further ranges the claim
		// counts as unverified until a grant is found, and its strength is compared anew.
		s.detachClaim(known, time.Time{}, time.Time{})
		if h.routingDomain != s.routingDomainOf(known) || !isSubset(c.Ranges, before.Ranges) {
			known.hadGrant, known.unverified = false, true // until a grant is found
		}
		h = nil
	}
	s.checkAltered(known)
	if !c.Ready {
		known.unverified = false
	}
	switch {
	case len(c.Ranges) == 0:
	case h == nil:
		s.bindClaim(known)
	default:
		s.endFulfilledGrants(h, known)
		if wasReady != known.ready() || before.Flagged != c.Flagged {
			s.reevaluateConflicts(h)
		}
	}
	if c.OwnerClaim != (Key{}) && (before.UID == "" || !slices.Equal(before.Ranges, c.Ranges)) {
		s.recheckAltered(c.OwnerClaim)
	}
}

// keepDomain corrects the routing domain that the observed version of a claim names, if
// the record of the claim was changed around the webhooks. A reconciler restores the
// record.
//
//	an open grant has the token of the claim         the routing domain of the grant
//	an owner names another domain, or none, and      that of its holding
//	has the token of the version before
func (s *State) keepDomain(known *claim, c *Claim) {
	if g := s.grants.find(c.Token); g != nil && g.isFulfilledBy(&claim{Claim: *c}) {
		c.RoutingDomain, c.RoutingDomainGranted = g.RoutingDomain, true
		return
	}
	h := known.holding
	if h == nil || c.Token != known.Token && !c.MarkedMoved {
		return
	}
	if known.RoutingDomainGranted || c.RoutingDomainGranted && s.pools.find(known.Pool) != nil { // a claim without the record is where its known pool is
		c.RoutingDomain, c.RoutingDomainGranted = h.routingDomain, true
	}
}

// leavesDomain reports whether the observed version of an owner names another routing
// domain than that of its holding: by another grant; or by its label, if the claim has no
// pool and no record of its routing domain.
func (c *claim) leavesDomain() bool {
	return (c.RoutingDomainGranted || c.Pool == Key{}) && c.RoutingDomain != c.holding.routingDomain
}

// isAltered reports whether a claim names other ranges than the allocator recorded for
// it: in its status (Altered), or in its address objects, of which its status names one.
// Then neither the status nor the token of the claim proves that it owns the ranges: they
// were changed while the webhooks were not installed. Only a claim that the allocator has
// answered has such a record (RoutingDomainGranted): the annotations of other claims are
// requests.
func (s *State) isAltered(c *claim) bool {
	if c.Altered || !c.RoutingDomainGranted || !c.AllocatedEarlier || c.OwnerClaim != (Key{}) {
		return c.Altered && c.RoutingDomainGranted
	}
	altered := false
	for _, object := range s.claims.objectsOf(c.Key) {
		switch {
		case object.Pool != c.Pool:
		case slices.Equal(object.Ranges, c.Ranges) && object.mayBeIn(c.RoutingDomain):
			return false
		default:
			altered = true
		}
	}
	return altered
}

// checkAltered updates claim.altered. The records of a claim that is altered no longer
// are of its addresses.
func (s *State) checkAltered(c *claim) {
	was := c.altered
	if c.altered = s.isAltered(c); was && !c.altered {
		c.unverified, c.tokenSpent = false, false
	}
}

// recheckAltered evaluates isAltered for the owners with this key, after an address
// object of the claim has changed.
func (s *State) recheckAltered(k Key) {
	for _, h := range slices.Clone(s.holdings.of(k)) {
		c := h.claim
		if c == nil || c.Key != k || s.isAltered(c) == c.altered {
			continue
		}
		if s.checkAltered(c); c.altered && !c.hadGrant {
			s.detachClaim(c, time.Time{}, time.Time{})
			s.bindClaim(c)
		} else {
			s.reevaluateConflicts(h)
		}
	}
}

// isSubset reports whether others contains each of the ranges.
func isSubset(ranges, others []allocator.Range) bool {
	return !slices.ContainsFunc(ranges, func(r allocator.Range) bool { return !slices.Contains(others, r) })
}

// routingDomainOf returns the routing domain of a claim's addresses, the first that
// exists: (a) of its holding; (b) of its record; (c) of its known pool; (d) of its label.
func (s *State) routingDomainOf(c *claim) string {
	if c.holding != nil {
		return c.holding.routingDomain
	}
	if p := s.pools.find(c.Pool); p != nil && !c.RoutingDomainGranted {
		return p.RoutingDomain
	}
	return c.RoutingDomain
}

// poolOf returns the pool of a claim with a holding; nil if the pool is not known, or is
// in another routing domain: then it has been made anew, and is not the pool from which
// the addresses are.
func (s *State) poolOf(c *claim) *pool {
	if p := s.pools.find(c.Pool); p != nil && p.RoutingDomain == c.holding.routingDomain {
		return p
	}
	return nil
}

// bindClaim gives a holding to a claim that is observed with its ranges for the first
// time. Outcomes, the first that applies:
//
//   - address object whose claim owns the range: no holding
//   - claim with an open grant or a moved range: the holding of the grant or of the moved
//     range
//   - claim that may not own its ranges without a grant (checkUngranted): deferred, no
//     holding
//   - otherwise: a new holding
func (s *State) bindClaim(c *claim) {
	if h := s.holdingOfOwnerClaim(c); h != nil {
		s.endGrantOfCovered(c, h)
		return
	}
	s.joinAddressObject(c)
	h := s.findHoldingOf(c)
	if h == nil {
		s.endSpentGrant(c)
		s.checkAltered(c)
		c.unverified = (c.unverified || c.altered) && !c.hadGrant
		if s.checkUngranted(c) != nil {
			s.claims.postpone(c)
			return
		}
		s.claims.addOwner(c)
		h = s.addHolding(c.owner(), c.Pool, s.routingDomainOf(c), c.Ranges...)
		h.claim, c.holding = c, h
		s.requireConfirmation(h)
		s.assignAddresses(h)
		if c.OwnerClaim != (Key{}) {
			s.admitDeferred(c.Pool, c.OwnerClaim)
		}
		return
	}
	s.claims.addOwner(c)
	if h.claim != nil { // the address object of this claim
		s.claims.removeOwner(h.claim)
		h.claim.holding = nil
	}
	// A claim with another UID than the moved object has come back from the other
	// cluster. The same UID is the moved object itself, which is not gone for this
	// replica yet: the range stays marked as moved.
	if h.isMoved() && c.OwnerClaim == (Key{}) && h.movedUID != c.UID {
		s.clearMoved(h)
	}
	c.inheritedGrant = h.inherited
	h.claim, h.inherited, c.holding, c.unverified = c, false, h, false
	s.cooldowns.moveTo(h, c.Pool)
	s.holdings.endRequest(h)
	s.holdings.moveTo(h, c.owner())
	s.endMovedOfReturned(c)
	g := s.grants.find(c.Token)
	c.journaled = g != nil && g.holding == h && g.state == grantCommitted
	c.hadGrant = s.endFulfilledGrants(h, c) || len(h.grants) > 0
	s.requireConfirmation(h)
	if h.contested || len(s.domain(h.routingDomain).contested) > 0 {
		s.resolveConflict(h)
	}
	s.markChanged(h)
}

// RemoveClaim applies the delete event of a claim: the claim is gone. The range is in
// cooldown for the pool's reuse delay, or until the end of the cooldown that has begun or
// that the pool has recorded. A claim that may have moved waits for DecideMoved. Without
// a pool or a reuse delay the range is free.
//
// resourceVersion is the version of the deletion; 0 if unknown. The event of a claim that
// a list of the API server lacked before marks the claim as changed: a reconcile before
// the event has seen the claim.
func (s *State) RemoveClaim(now time.Time, gone Claim, resourceVersion uint64) {
	s.RecordApplied(gone.Key.Resource, resourceVersion)
	c := s.claims.find(gone.UID)
	if c == nil {
		s.changed[gone.Key], s.changed[gone.owner()] = struct{}{}, struct{}{}
		return
	}
	s.claims.remove(c)
	s.access.objectGone(c.Key.Resource)
	s.changed[c.Key], s.changed[c.owner()] = struct{}{}, struct{}{}
	if c.OwnerClaim != (Key{}) {
		defer s.recheckOwnerClaim(c)
	}
	for _, h := range slices.Clone(s.holdings.of(c.Key)) {
		for _, g := range slices.Clone(h.grants) {
			if g.UID == gone.UID && g.state == grantCommitted { // no write to this object can be stored any more
				s.endGrant(g)
			}
		}
	}
	if c.holding == nil {
		return
	}
	var cooldownEnd time.Time
	switch p := s.poolOf(c); {
	case p == nil: // no reuse delay, and no moved record
	case c.mayHaveMoved() && !p.Deleting && s.holdingOfOwnerClaim(c) == nil:
		// The two further conditions: the moved record of a pool that is being deleted is
		// deleted with the pool (RemovePool); and if c is an address object whose claim
		// still owns the range, the claim stays the owner.
		cooldownEnd = noEnd
	case p.ReuseDelay > 0 && c.cooldownBegan.IsZero() && !c.cooldownRecorded:
		// A cooldown that has begun, or is recorded, does not begin again:
		// c.holding.freeAt has its end already.
		cooldownEnd = now.Add(p.ReuseDelay)
	}
	s.detachClaim(c, now, cooldownEnd)
}

// recheckOwnerClaim evaluates the claim of an address object again that is gone.
func (s *State) recheckOwnerClaim(object *claim) {
	s.recheckAltered(object.OwnerClaim)
	s.admitDeferred(object.Pool, object.OwnerClaim)
}

// ListedClaim is an element of a list of all stored claims of a resource.
type ListedClaim struct {
	UID             string
	ResourceVersion uint64
	Convert         func() Claim // called only if this version has not been observed
}

// ReplaceClaims observes a list of all claims of a resource. Claims that the list lacks
// are removed.
func (s *State) ReplaceClaims(now time.Time, resource string, all []ListedClaim) {
	listed := make(map[string]struct{}, len(all))
	for _, c := range all {
		listed[c.UID] = struct{}{}
	}
	for c := range s.claims.all() {
		if _, ok := listed[c.UID]; !ok && c.Key.Resource == resource {
			s.RemoveClaim(now, c.Claim, 0)
		}
	}
	for _, c := range all {
		s.RecordApplied(resource, c.ResourceVersion)
		if known := s.claims.find(c.UID); known == nil || known.ResourceVersion < c.ResourceVersion {
			s.ObserveClaim(now, c.Convert())
		}
	}
}

// ReplacePools observes a list of all pools of a resource. Pools that the list lacks are
// removed and returned, except pools from AddReadPool whose event is outstanding.
func (s *State) ReplacePools(now time.Time, resource string, all []Pool) (removed []Key) {
	listed := make(map[Key]struct{}, len(all))
	for _, p := range all {
		listed[p.Key] = struct{}{}
	}
	for p := range s.pools.all() {
		if _, ok := listed[p.Key]; !ok && p.Key.Resource == resource && !p.readAhead {
			s.RemovePool(p.Key, 0)
			removed = append(removed, p.Key)
		}
	}
	for _, p := range all {
		s.RecordApplied(resource, p.ResourceVersion)
		s.ObservePool(now, p)
	}
	return removed
}
