package state

import (
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// checkUngranted returns why a claim does not own the ranges that it names without a
// grant; nil if the claim may own them. One of these conditions is enough:
//
//   - the status of the claim records an earlier allocation of the ranges (Ready,
//     AllocatedEarlier)
//   - the claim carries a grant token, unless the ranges differ from those that the
//     allocator recorded (tokenSpent, isAltered). While the pool of the claim is missing
//     or has a fault, the token counts all the same, as the ranges may be from a later
//     grant
//   - the claim has no pool, or is an address object
//   - the pool of the claim offers the ranges, and no pool of the routing domain blocks
//     them
//
// Otherwise every user with the right to create claims could take the addresses of all
// pools, and of pools created later.
func (s *State) checkUngranted(c *claim) error {
	altered := c.tokenSpent || c.altered
	switch {
	case c.hadGrant, c.Pool == Key{}, c.OwnerClaim != Key{}:
		return nil
	case !altered && ((c.Ready || c.AllocatedEarlier) && !c.unverified || !c.Token.IsZero()):
		return nil
	}
	if p := s.pools.find(c.Pool); altered && !c.Token.IsZero() && (p == nil || p.Fault != "") {
		return nil
	}
	return s.checkOfferedTo(c, nil)
}

// admitDeferred evaluates deferred claims of a pool again, after the pool or its
// surroundings have changed: all claims, or only the claim with the given key. A claim
// that stays deferred is reported as changed too, as the reason may differ.
func (s *State) admitDeferred(pool, only Key) {
	for _, c := range s.claims.deferredFor(pool) {
		if only == (Key{}) || only == c.Key {
			s.changed[c.Key] = struct{}{}
			s.claims.resume(c)
			s.bindClaim(c)
		}
	}
}

// admitAllDeferred evaluates the deferred claims of all pools again, after a pool has
// changed the ranges that it blocks.
func (s *State) admitAllDeferred() {
	for _, pool := range s.claims.poolsAwaited() {
		s.admitDeferred(pool, Key{})
	}
}

// checkOfferedTo returns why a claim may not own the ranges that it names without a
// grant: its pool does not offer them, or a pool of the routing domain blocks them, or
// they are in use beside the claims. Two kinds of ranges are allowed nevertheless, unless
// another pool blocks them: the range that the claim's own pool keeps for the claim's
// name, and the ranges listed in kept.
func (s *State) checkOfferedTo(c *claim, kept []allocator.Range) error {
	p := s.pools.find(c.Pool)
	switch {
	case c.Pool != (Key{}) && p == nil:
		return &NoPoolError{Pool: c.Pool}
	case p != nil && p.RoutingDomain != s.routingDomainOf(c):
		return &OtherDomainError{Pool: c.Pool, PoolRoutingDomain: p.RoutingDomain, RoutingDomain: s.routingDomainOf(c)}
	case p != nil && p.Fault != "":
		return &FaultyPoolError{Pool: c.Pool, Fault: p.Fault}
	case p != nil && p.KeptFor != nil:
		kept = append(slices.Clone(kept), p.KeptFor(c.Key.Name))
	}
	for _, r := range c.Ranges {
		if p != nil && !slices.ContainsFunc(p.Window, func(o allocator.Range) bool { return o.Covers(r) }) {
			return p.outsideError(&allocator.OutsideError{Range: r, Window: p.Window})
		}
		isKept, besides := slices.Contains(kept, r), (*pool)(nil)
		if isKept {
			besides = p
		}
		if by, blocked := s.pools.blocking(s.routingDomainOf(c), r, besides); by != nil {
			return by.blockedError(c.Pool, blocked)
		}
		if !isKept {
			if used := s.avoidedIn(s.routingDomainOf(c), r); used != nil {
				return &PoolError{Pool: c.Pool, Err: used}
			}
		}
	}
	return nil
}

// CheckOffered is checkOfferedTo for the claim with this UID; nil if the claim is not
// stored.
func (s *State) CheckOffered(uid string, kept []allocator.Range) error {
	if c := s.claims.find(uid); c != nil {
		return s.checkOfferedTo(c, kept)
	}
	return nil
}
