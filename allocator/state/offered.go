package state

import (
	"fmt"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// NotOfferedError reports that the pool of a claim does not offer addresses that the
// claim owns. The claim stays the owner.
type NotOfferedError struct {
	Pool   Key
	Ranges []allocator.Range // owned and not offered; empty if the pool does not exist, or is in another routing domain
	// PoolRoutingDomain is the routing domain of the pool, and RoutingDomain that of the
	// addresses, if they differ; otherwise both are "".
	PoolRoutingDomain, RoutingDomain string
}

func (e *NotOfferedError) Error() string {
	switch {
	case e.PoolMissing():
		return fmt.Sprintf("pool %s does not exist", e.Pool)
	case len(e.Ranges) == 0:
		return fmt.Sprintf("pool %s is in routing domain %q, and the addresses are in routing domain %q", e.Pool, e.PoolRoutingDomain, e.RoutingDomain)
	}
	return fmt.Sprintf("pool %s does not offer %s", e.Pool, e.Ranges[0])
}

// PoolMissing reports whether the pool does not exist.
func (e *NotOfferedError) PoolMissing() bool {
	return len(e.Ranges) == 0 && e.PoolRoutingDomain == e.RoutingDomain
}

// FindNotOffered describes the addresses that the claim with this UID owns and that its
// pool does not offer. Reserved addresses count as offered. The result is nil in each of
// these cases:
//
//   - the claim owns no address, or shares one with a stronger claim
//   - the claim has no pool, or is an address object
//   - the pool breaks a rule: the pool offers nothing until it is corrected, and reports
//     that itself
//   - the pools cannot be read: the pool may exist
func (s *State) FindNotOffered(uid string) *NotOfferedError {
	c := s.claims.find(uid)
	if c == nil || c.holding == nil || c.holding.contested || c.Pool == (Key{}) || c.OwnerClaim != (Key{}) {
		return nil
	}
	p, e := s.pools.find(c.Pool), &NotOfferedError{Pool: c.Pool}
	switch {
	case p == nil && s.access.isDenied(c.Pool.Resource), p != nil && p.Fault != "":
		return nil
	case p == nil:
		return e
	case p.RoutingDomain != c.holding.routingDomain:
		e.PoolRoutingDomain, e.RoutingDomain = p.RoutingDomain, c.holding.routingDomain
		return e
	}
	isOffered := func(r allocator.Range) bool {
		return slices.ContainsFunc(p.Window, func(o allocator.Range) bool { return o.Covers(r) })
	}
	for _, r := range c.holding.ranges {
		if !isOffered(r) {
			e.Ranges = append(e.Ranges, allocator.Subtract([]allocator.Range{r}, p.Window)...) // nothing, if the range spans adjacent ranges of the pool
		}
	}
	if len(e.Ranges) == 0 {
		return nil
	}
	return e
}

// markOffers reports as changed the owners of a pool whose result of FindNotOffered may
// differ because the pool offered other addresses before.
func (s *State) markOffers(p *pool, before []allocator.Range) {
	changed := slices.Concat(allocator.Subtract(p.Window, before), allocator.Subtract(before, p.Window))
	for _, r := range changed {
		for owned := range s.domain(p.RoutingDomain).core.OwnedIn(r) {
			if c := s.holdings.find(owned.OwnerID).claim; c != nil && c.Pool == p.Key {
				s.changed[c.Key] = struct{}{}
			}
		}
	}
}

// markOwners reports all owners of a pool as changed.
func (s *State) markOwners(k Key) {
	for c := range s.claims.ownersOf(k) {
		s.changed[c.Key] = struct{}{}
	}
}
