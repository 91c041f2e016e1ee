package state

import (
	"cmp"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// coreName returns the name of the pool in its routing domain.
func (k Key) coreName() string { return k.Resource + "/" + k.Namespace + "/" + k.Name }

// ObservePool applies the event of a pool.
func (s *State) ObservePool(now time.Time, p Pool) { s.storePool(now, p, false) }

// AddReadPool applies a pool from a live read, ahead of its event. An unknown pool is
// ignored if later events have been applied: the pool may be gone.
func (s *State) AddReadPool(now time.Time, p Pool) {
	if s.pools.find(p.Key) != nil || !s.access.hasApplied(p.Key.Resource, p.ResourceVersion) {
		s.storePool(now, p, true)
	}
}

// unconfirmedPoolLife is how long a pool from a live read waits for its event once later
// events have been applied: the objects of a list are applied in no particular order.
const unconfirmedPoolLife = 10 * time.Second

// removeUnconfirmedPools removes pools that were read live and whose event did not
// arrive: such a pool was deleted before the informers listed.
func (s *State) removeUnconfirmedPools(now time.Time) {
	for p := range s.pools.all() {
		switch {
		case !p.readAhead, !s.access.hasApplied(p.Key.Resource, p.ResourceVersion):
			p.eventOverdueSince = time.Time{}
		case p.eventOverdueSince.IsZero():
			p.eventOverdueSince = now
		case now.Sub(p.eventOverdueSince) >= unconfirmedPoolLife:
			s.RemovePool(p.Key, 0)
		}
	}
}

// storePool applies a version of a pool: by its event, or ahead of its event. A version
// that is not newer than the known version is ignored. The event of the known version
// confirms a version that was read ahead, and marks the pool as changed: if the version
// is known from a read of the API server, a reconcile before the event has seen an older
// pool or none.
func (s *State) storePool(now time.Time, p Pool, ahead bool) {
	known, changedDomain, same, freedInUse := s.pools.find(p.Key), true, false, false
	var before Pool
	if known != nil {
		before = known.Pool
	}
	switch {
	case known == nil:
		known = s.pools.add(p.Key)
		s.access.objectStored(p.Key.Resource)
		freedInUse = s.countDefaultPools(p.RoutingDomain, 1)
	case p.ResourceVersion <= known.ResourceVersion:
		if ahead || p.ResourceVersion < known.ResourceVersion {
			return
		}
		s.changed[p.Key] = struct{}{}
		if known.readAhead {
			known.readAhead = false
			s.endWithholding(known)
		}
		return
	case known.RoutingDomain != p.RoutingDomain:
		s.pools.hide(known, s.domain(known.RoutingDomain).core)
		s.markBlockChanges(known.RoutingDomain, known.Blocked, nil)
		known.Blocked = nil
		s.countDefaultPools(known.RoutingDomain, -1)
		freedInUse = s.countDefaultPools(p.RoutingDomain, 1)
	default:
		changedDomain = false
		same = known.Ordered == p.Ordered && slices.Equal(known.Window, p.Window) && slices.Equal(known.Blocked, p.Blocked)
	}
	s.markBlockChanges(p.RoutingDomain, known.Blocked, p.Blocked)
	if p.ReuseDelay < known.ReuseDelay {
		s.shortenCooldowns(now, p)
	}
	wasFull := s.cooldownsFull(p.Key)
	known.Pool, known.readAhead = p, ahead
	if wasFull && !s.cooldownsFull(p.Key) {
		s.recheckReleasing(p.Key)
	}
	if before.UID != p.UID {
		s.applyMovedRecord(known)
	}
	s.freeUnlistedMoved(known, false)
	if known.Policy == nil {
		known.Policy = allocator.BestFit
	}
	if !same {
		s.pools.show(known, s.domain(p.RoutingDomain).core)
	}
	if changedDomain {
		s.markOwners(p.Key)
		s.moveOwnersToDomainOf(known)
		s.reevaluateOwners(p.Key)
	} else if !same {
		s.markOffers(known, before.Window)
	}
	if changedDomain || before.Fault != p.Fault {
		s.recheckUngranted(p.Key)
	}
	if before.RoutingDomain == p.RoutingDomain && slices.Equal(before.Blocked, p.Blocked) && !freedInUse {
		s.admitDeferred(p.Key, Key{})
	} else {
		s.admitAllDeferred()
	}
	if !ahead { // the next leader may know an older version, and needs the entries in the journal
		s.endWithholding(known)
	}
	s.applyRecordedRanges(now, known)
	s.changed[p.Key] = struct{}{}
}

// HasObserved reports whether this version of a pool, or a later version, is known.
func (s *State) HasObserved(k Key, resourceVersion uint64) bool {
	p := s.pools.find(k)
	return p != nil && p.ResourceVersion >= resourceVersion
}

// markBlockChanges reports as changed the pools whose usable addresses may differ because
// a pool blocks different ranges.
func (s *State) markBlockChanges(routingDomain string, before, after []allocator.Range) {
	if slices.Equal(before, after) {
		return
	}
	touch := allocator.OverlapsAny(slices.Concat(before, after))
	for p := range s.pools.in(routingDomain) {
		if touch(p.Window) {
			s.changed[p.Key] = struct{}{}
		}
	}
}

// RemovePool applies the delete event of a pool: the pool is gone. Owners keep their
// ranges; the pool's cooldowns end, and its moved ranges are freed, as release records,
// cooldown list and moved record are deleted with the pool. The event of a pool that a
// list of the API server lacked before marks the pool as changed too: a reconcile before
// the event has seen the pool.
func (s *State) RemovePool(k Key, resourceVersion uint64) {
	s.RecordApplied(k.Resource, resourceVersion)
	s.changed[k] = struct{}{}
	if p := s.pools.find(k); p != nil {
		s.markOwners(k)
		s.pools.remove(p, s.domain(p.RoutingDomain).core)
		s.countDefaultPools(p.RoutingDomain, -1)
		s.markBlockChanges(p.RoutingDomain, p.Blocked, nil)
		s.freeUnlistedMoved(p, true)
		s.endCooldowns(k)
		s.access.objectGone(k.Resource)
		s.reevaluateOwners(k)
		s.admitAllDeferred()
	}
}

// reevaluateOwners resolves the conflicts of a pool's owners again: their strength
// depends on the routing domain of the pool (compareStrength).
func (s *State) reevaluateOwners(pool Key) {
	var contested []*claim
	for c := range s.claims.ownersOf(pool) {
		if len(s.domain(c.holding.routingDomain).contested) > 0 {
			contested = append(contested, c)
		}
	}
	slices.SortFunc(contested, func(x, y *claim) int { return cmp.Compare(x.UID, y.UID) })
	for _, c := range contested {
		s.resolveConflict(c.holding)
	}
}

// recheckUngranted evaluates the owners of a pool again whose token counted because the
// pool was missing or had a fault (checkUngranted).
func (s *State) recheckUngranted(pool Key) {
	var altered []*claim
	for c := range s.claims.ownersOf(pool) {
		if (c.altered || c.tokenSpent) && s.checkUngranted(c) != nil {
			altered = append(altered, c)
		}
	}
	slices.SortFunc(altered, func(x, y *claim) int { return cmp.Compare(x.UID, y.UID) })
	for _, c := range altered {
		s.detachClaim(c, time.Time{}, time.Time{})
		s.bindClaim(c)
	}
}

// moveOwnersToDomainOf moves claims that record no routing domain, and were observed
// before their pool, into the pool's routing domain.
func (s *State) moveOwnersToDomainOf(p *pool) {
	for again := true; again; { // an address object may inherit the holding first
		again = false
		for _, c := range slices.Collect(s.claims.ownersOf(p.Key)) {
			if c.holding != nil && c.holding.routingDomain != p.RoutingDomain && !c.RoutingDomainGranted {
				s.detachClaim(c, time.Time{}, time.Time{})
				c.hadGrant = false // the grant was in the other routing domain
				s.bindClaim(c)
				again = true
			}
		}
	}
}
