package state

import (
	"bytes"
	"cmp"
	"slices"
	"time"
)

// ExpiredGrants lists the open grants whose life has passed, except grants whose object
// was fenced and has not been observed since.
func (s *State) ExpiredGrants(now time.Time) []*OpenGrant {
	var out []*OpenGrant
	for g := range s.grants.all() {
		if g.state != grantCommitted || now.Sub(g.lifeBegan) < s.limits.GrantLife || now.Before(g.fenceRetryAt) || !s.canExpire(g) {
			continue
		}
		if g.fenceVersion > 0 && now.Sub(g.fencedAt) >= s.limits.GrantLife { // etcd was restored: the fenced version will never be observed
			g.fenceVersion = 0
		}
		if s.hasObservedFence(g) {
			out = append(out, g)
		}
	}
	slices.SortFunc(out, func(x, y *OpenGrant) int {
		return cmp.Or(x.fenceRetryAt.Compare(y.fenceRetryAt), bytes.Compare(x.Token[:], y.Token[:]))
	})
	return out
}

// hasObservedFence reports whether the stored object of a grant has been observed at its
// fence or later. For a stored object, the last applied version of the resource does not
// prove that: the objects of a list are applied in no particular order.
func (s *State) hasObservedFence(g *OpenGrant) bool {
	c, p := s.claims.find(g.UID), s.pools.find(g.StoredObject())
	switch {
	case c != nil:
		return c.ResourceVersion >= g.fenceVersion
	case p != nil:
		return p.ResourceVersion >= g.fenceVersion && !p.readAhead
	default:
		return s.access.hasApplied(g.Resource, g.fenceVersion)
	}
}

// StoredObject returns the stored claim or pool to which the grant belongs; without a
// name for a grant to a create.
func (g *OpenGrant) StoredObject() Key {
	return Key{Resource: g.Resource, Namespace: g.Namespace, Name: g.StoredName}
}

// RecordFence records the fence of a stored object: the resourceVersion since which no
// earlier write can be stored; 0 if the object is gone. The grant ends when that version,
// or the deletion, has been observed: a new leader waits until it has observed as much as
// this leader, so the new leader knows the outcome of the grant.
func (s *State) RecordFence(now time.Time, g *OpenGrant, version uint64) {
	g.fenceVersion, g.fencedAt = version, now
	if version == 0 && s.claims.find(g.UID) == nil && s.pools.find(g.StoredObject()) == nil {
		s.ExpireGrant(g)
	}
}

// ExpireGrant ends a grant whose life has passed. In a follower it does nothing.
func (s *State) ExpireGrant(g *OpenGrant) {
	if s.leadership.mayGrant() {
		s.endGrant(g)
	}
}

// RecordCarriers records the stored claims that carry the token of an expired grant, by
// UID. The grant ends if all these claims have been observed.
func (s *State) RecordCarriers(g *OpenGrant, shown []string) {
	g.carriers = shown
	if s.allObserved(shown) {
		s.ExpireGrant(g)
	}
}

// allObserved reports whether all claims with these UIDs are known.
func (s *State) allObserved(uids []string) bool {
	return !slices.ContainsFunc(uids, func(uid string) bool { return s.claims.find(uid) == nil })
}

// Tick ends cooldowns and quarantine, in leaders and followers, and removes empty routing
// domains and pools whose event is overdue.
func (s *State) Tick(now time.Time) {
	if s.leadership.endQuarantine(now) {
		s.commitQueue.request()
	}
	if s.leadership.endEarlierWrites(now) {
		s.recheckUnserved()
	}
	s.standby.endIdle(now)
	s.cooldowns.forgetSums()
	for pool := range s.cooldowns.pools() {
		wasFull := s.cooldownsFull(pool)
		for h := range s.cooldowns.of(pool) {
			if !now.Before(h.freeAt) {
				s.endCooldown(h)
			}
		}
		if wasFull && !s.cooldownsFull(pool) {
			s.recheckReleasing(pool)
		}
		s.cooldowns.sumUp(pool)
	}
	s.removeUnconfirmedPools(now)
	for name, domain := range s.domains {
		if domain.isEmpty() {
			delete(s.domains, name)
			s.standby.dropDomain(name)
		}
	}
}

// canExpire reports whether a grant can end once its life has passed. Conditions, without
// which the range is kept:
//
//   - the API server lets this replica read the resource of the grant's object; every
//     resource, for a standby grant of an earlier leader
//   - for a stored claim, this replica serves the API: the claim is fenced first, which
//     only such a replica may do
func (s *State) canExpire(g *OpenGrant) bool {
	if g.IsStandby() && !s.access.isEachReadable() {
		return false
	}
	return !s.access.isDenied(g.Resource) && (!s.access.isSwitchedOff(g.Resource) || g.UID == "")
}

// ExpireObserved ends a grant that ExpiredGrants has returned, and returns true in each
// of these cases:
//
//   - the object of the grant was fenced
//   - claims with the grant's token were recorded, and all have been observed
//   - unreadable is set: the resource of the grant belongs to a later release
func (s *State) ExpireObserved(g *OpenGrant, unreadable bool) bool {
	ended := unreadable || g.fenceVersion > 0 || len(g.carriers) > 0 && s.allObserved(g.carriers)
	if ended {
		s.ExpireGrant(g)
	}
	return ended
}

// RetryFenceAt postpones the next fence of an object to the given time, after a failed
// fence. grants are all expired grants of the object.
func (s *State) RetryFenceAt(t time.Time, grants []*OpenGrant) {
	for _, g := range grants {
		g.fenceRetryAt = t
	}
}

// FinalName returns the name of the grant's claim if only an object of that name can
// carry the grant; "" if the name is not known.
func (g *OpenGrant) FinalName() string { return g.finalName }
