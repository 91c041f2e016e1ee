package state

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Ownership describes the ranges that a stored claim owns.
type Ownership struct {
	Observed  bool // the claim has been observed
	Allocated bool // the claim owns a range
	// Confirmed: only a confirmed claim may be marked Ready. A claim is confirmed if all
	// of these hold:
	//
	//   - the claim owns all its ranges
	//   - a commit of this term began after the claim was bound, and has landed; if the
	//     journal contained the claim's grant, a consistent read is enough
	//   - each rival is stored as flagged, so that no older write can mark the rival
	//     Ready; or the API of the rival is switched off, and the writes of earlier
	//     leaders have ended, so that no write can mark the rival Ready
	Confirmed     bool
	RoutingDomain string // routing domain of the claim's addresses
	Granted       bool   // this process has known an open grant of the claim's ranges; false proves nothing after a take-over
	// Deferred is why the claim does not own the ranges that it names: a *NoPoolError,
	// *FaultyPoolError or *PoolError; nil if the claim is not deferred.
	Deferred error
	// Conflict is set if the claim does not own some of its addresses, and describes the
	// owner of the first.
	Conflict *OwnedError
}

// OwnershipOf returns the ownership of the claim with this UID, in its observed version.
func (s *State) OwnershipOf(uid string) Ownership {
	c := s.claims.find(uid)
	if c == nil {
		return Ownership{}
	}
	h := c.holding
	if h == nil && c.deferredFor != (Key{}) {
		return Ownership{Observed: true, Deferred: s.checkUngranted(c)}
	}
	if h == nil {
		return Ownership{Observed: true}
	}
	st := Ownership{Observed: true, Allocated: true, RoutingDomain: h.routingDomain, Granted: c.hadGrant}
	if h.contested {
		st.Conflict = s.firstConflict(h)
		return st
	}
	st.Confirmed = s.leadership.mayGrant() && s.proofs.prove(c.boundAt, c.journaled)
	for o := range s.domain(h.routingDomain).contested {
		if o.claim != nil && !o.claim.Flagged && !s.cannotBecomeReady(o.claim) && o.overlapsAny(h.ranges) {
			st.Confirmed = false
		}
	}
	return st
}

// CheckGrant returns nil if the claim c, which is about to be stored, names only ranges
// that the stored claim owns in the routing domain of c already, and the ranges of an
// open grant with these properties:
//
//   - its token is the token of c
//   - it was granted to c
//   - it was granted through the pool of c, as far as the pool of the grant is known: an
//     earlier leader's grant has a routing domain only
//
// uid and version identify the stored claim; a create has "" and 0. CheckGrant returns
// ErrUnproven if the grant awaits a proof. For a create, CheckGrant also records the
// final name of the claim in the grant.
func (s *State) CheckGrant(c Claim, uid string, version uint64) error {
	if !s.leadership.mayGrant() {
		return ErrNotLeader
	}
	if s.isBehind(uid, version) {
		return ErrBehind
	}
	g, routingDomain := s.grants.find(c.Token), s.routingDomainOfUpdate(c, uid)
	fresh := slices.DeleteFunc(slices.Clone(c.Ranges), func(r allocator.Range) bool { return s.ownsRange(uid, routingDomain, r) })
	if len(fresh) == 0 {
		return nil
	}
	if g == nil {
		return ErrNoGrant
	}
	if g.state != grantCommitted || !g.isFor(c.Key, uid) || !slices.Equal(g.Ranges, fresh) || g.RoutingDomain != routingDomain || g.holding.pool != c.Pool && !g.holding.inherited {
		return ErrForged
	}
	// Validation comes after all mutations, so the name is final, and expireGrants can
	// read the object by name instead of listing all objects. A generated name (NameHash
	// 0) is not final: after a collision the API server generates another name for the
	// same request.
	if uid == "" && g.NameHash != 0 {
		g.finalName = c.Key.Name
	}
	if g.IsStandby() { // used by an earlier leader, which may not have led any more
		s.journalRoom.remove(&g.Entry)
		g.Resource, g.Namespace = c.Key.Resource, c.Key.Namespace
		s.journalRoom.add(&g.Entry)
		s.proofs.awaitGrant(g)
	}
	if g.unproven {
		return ErrUnproven
	}
	return nil
}

// OwnsAll reports whether a stored claim owns all ranges that it names.
func (s *State) OwnsAll(uid string, version uint64) (bool, error) {
	switch c := s.claims.find(uid); {
	case !s.leadership.mayGrant():
		return false, ErrNotLeader
	case s.isBehind(uid, version):
		return false, ErrBehind
	default:
		return c != nil && c.holding != nil && !c.holding.contested, nil
	}
}

// DomainOf returns the routing domain in which a stored claim or address object owns its
// ranges; false if it owns none.
func (s *State) DomainOf(uid string, version uint64) (routingDomain string, owns bool, err error) {
	c := s.claims.find(uid)
	switch {
	case !s.leadership.mayGrant():
		return "", false, ErrNotLeader
	case s.isBehind(uid, version):
		return "", false, ErrBehind
	case c == nil:
		return "", false, nil
	case c.holding != nil:
		return c.holding.routingDomain, true, nil
	}
	h := s.holdingOfOwnerClaim(c) // of an address object whose claim owns the range
	if h == nil {
		return "", false, nil
	}
	return h.routingDomain, true, nil
}

// isBehind reports whether a version of a stored claim has not been observed: the claim
// may have given up a range that the state still counts as owned.
func (s *State) isBehind(uid string, version uint64) bool {
	c := s.claims.find(uid)
	return version > 0 && (c == nil || c.ResourceVersion < version)
}

// ownsRange reports whether the claim with this UID owns a range of a routing domain,
// without a conflict.
func (s *State) ownsRange(uid, routingDomain string, r allocator.Range) bool {
	c := s.claims.find(uid)
	return c != nil && c.holding != nil && c.holding.routingDomain == routingDomain && !c.holding.contested && slices.Contains(c.holding.ranges, r)
}

// routingDomainOfUpdate returns the routing domain that a new version of the claim with
// this UID will have, the first that exists: (a) of its record; (b) of its known pool;
// (c) of the holding of the stored version, if the pool is the same; (d) of its label.
func (s *State) routingDomainOfUpdate(c Claim, uid string) string {
	if c.RoutingDomainGranted {
		return c.RoutingDomain
	}
	if p := s.pools.find(c.Pool); p != nil {
		return p.RoutingDomain
	}
	if stored := s.claims.find(uid); stored != nil && stored.holding != nil && stored.Pool == c.Pool {
		return stored.holding.routingDomain
	}
	return c.RoutingDomain
}

// contestedHoldingOf returns the holding of a stored claim that lost a conflict; nil if
// the claim lost no conflict. The claim may request again the addresses that it still
// owns.
func (s *State) contestedHoldingOf(uid string) *holding {
	if c := s.claims.find(uid); c != nil && c.holding != nil && c.holding.contested {
		return c.holding
	}
	return nil
}

// Usage is the usage of a pool.
type Usage struct {
	allocator.Stats
	Claims int // stored claims that own a range of it
	// Granted is the part of Allocated that is granted to claims that have not been
	// observed. The ranges of standby grants are free.
	Granted int64
}

// Usage returns the usage of a pool; false if the pool is not known.
func (s *State) Usage(k Key) (Usage, bool) {
	p := s.pools.find(k)
	if p == nil {
		return Usage{}, false
	}
	s.domain(p.RoutingDomain).blockAvoided()
	granted, _ := s.countGranted(p)
	return Usage{Stats: p.core.Stats(), Claims: s.claims.numberOfOwners(k), Granted: granted}, true
}

// FreeIn lists the blocks of free addresses of a pool, which Usage counts, in address
// order; false if the pool is not known. The cost grows with the number of blocks.
func (s *State) FreeIn(k Key) ([]allocator.Range, bool) {
	p := s.pools.find(k)
	if p == nil {
		return nil, false
	}
	s.domain(p.RoutingDomain).blockAvoided()
	return p.core.Free(), true
}

// countGranted counts the addresses of a pool that are granted, through this pool or a
// second pool, to claims that have not been observed. until is when the first of these
// grants expires, by the clock of recorded times; zero if no commit of these grants has
// landed. The cost grows with the number of open grants.
func (s *State) countGranted(p *pool) (n int64, until time.Time) {
	core := s.domain(p.RoutingDomain).core
	var granted []allocator.Range
	for g := range s.grants.all() {
		h := g.holding
		if h.routingDomain != p.RoutingDomain || h.grants[0] != g || h.claim != nil || g.withholds() { // a holding counts once
			continue
		}
		before := len(granted)
		for _, r := range h.ranges {
			for owned := range core.OwnedIn(r) {
				if owned.OwnerID == h.id {
					granted = append(granted, owned.Range)
				}
			}
		}
		if end := s.expiryOf(h); !end.IsZero() && (until.IsZero() || end.Before(until)) && p.core.CountOffered(granted[before:]...) > 0 {
			until = end
		}
	}
	return p.core.CountOffered(granted...), until
}

// createLanding is how long after the commit of its grant a create is expected to be
// stored. The API server stores an object within milliseconds of the last webhook call,
// and within seconds while etcd stalls. A grant that is older most likely belongs to a
// create that failed.
const createLanding = 5 * time.Second

// AwaitsCreate returns for how long the create of a claim with a range of the pool is
// still expected to be stored; zero for none. A grant of an earlier leader does not name
// its pool: the grant counts for every pool that offers one of its ranges. The cost grows
// with the number of open grants.
func (s *State) AwaitsCreate(now time.Time, pool Key) (wait time.Duration) {
	p := s.pools.find(pool)
	if p == nil {
		return 0
	}
	for g := range s.grants.all() {
		h := g.holding
		if g.withholds() || h.pool != pool && (!h.inherited || h.pool != (Key{}) || h.routingDomain != p.RoutingDomain || !h.overlapsAny(p.Window)) {
			continue
		}
		left := createLanding
		if g.state == grantCommitted {
			left -= now.Sub(g.lifeBegan)
		}
		wait = max(wait, left)
	}
	return wait
}

// Owned is a range and the stored claim that owns it.
type Owned struct {
	Range allocator.Range
	Owner Key
}

// OwnedIn lists the addresses of a pool that claims of the given resources own, through
// this pool or a second pool, in address order. The list has at most limit elements;
// total counts all.
func (s *State) OwnedIn(k Key, kinds []string, limit int) (list []Owned, total int64) {
	p := s.pools.find(k)
	if p == nil {
		return nil, 0
	}
	core := s.domain(p.RoutingDomain).core
	for _, r := range allocator.Union(p.Window) {
		for owned := range core.OwnedIn(r) {
			h := s.holdings.find(owned.OwnerID)
			if h.claim == nil || !slices.Contains(kinds, h.claim.owner().Resource) {
				continue
			}
			if total++; len(list) < limit {
				list = append(list, Owned{owned.Range, h.claim.owner()})
			}
		}
	}
	return list, total
}

// Unowned returns the addresses that no claim owns, or may come to own, in the routing
// domain of a pool.
func (s *State) Unowned(k Key, addresses []netip.Addr) []netip.Addr {
	p := s.pools.find(k)
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		for owned := range s.domain(p.RoutingDomain).core.OwnedIn(allocator.Range{First: a, Last: a}) {
			if s.holdings.find(owned.OwnerID).isInUse() {
				return true
			}
		}
		return false
	})
}

// OwnedThrough lists the ranges that stored claims own through a pool, inside the pool's
// ranges or not: first the ranges of claims, then the ranges of address objects, each
// part in address order. The cost grows with the number of these ranges.
func (s *State) OwnedThrough(pool Key) []Owned {
	var own, ofAddressObjects []Owned
	for c := range s.claims.ownersOf(pool) {
		list := &own
		if c.OwnerClaim != (Key{}) {
			list = &ofAddressObjects
		}
		for _, r := range c.holding.ranges {
			for owned := range s.domain(c.holding.routingDomain).core.OwnedIn(r) {
				if owned.OwnerID == c.holding.id {
					*list = append(*list, Owned{owned.Range, c.owner()})
				}
			}
		}
	}
	slices.SortFunc(own, compareAddresses)
	slices.SortFunc(ofAddressObjects, compareAddresses)
	return append(own, ofAddressObjects...)
}

// FindOwnerConflict describes the owner of an address that p would offer or block and
// that the owner got through a different pool; nil if p has no such conflict. Two cases
// are no conflict: a stored pool of the routing domain offers the address already; or p
// blocks the range and keeps it for the owner.
func (s *State) FindOwnerConflict(p Pool) *OwnedError {
	domain := s.domains[p.RoutingDomain]
	if domain == nil {
		return nil
	}
	var offered []allocator.Range
	for o := range s.pools.in(p.RoutingDomain) {
		offered = append(offered, o.Window...)
	}
	for _, part := range []struct {
		ranges []allocator.Range
		keeps  func(claim string) allocator.Range // nil if no range is kept for a claim
	}{{allocator.Subtract(p.Window, offered), nil}, {p.Blocked, p.KeptFor}} {
		for _, r := range part.ranges {
			for owned := range domain.core.OwnedIn(r) {
				h := s.holdings.find(owned.OwnerID)
				if h.isInUse() && (h.pool != p.Key || part.keeps != nil && part.keeps(h.ownerClaim().Name) != owned.Range) {
					return s.ownedError(owned)
				}
			}
		}
	}
	return nil
}

// FindStrandedOwner describes an owner of an address that would have an owner of the same
// pool in two routing domains: a stored claim that names p owns the address in another
// routing domain than p's, and in the routing domain of p the address has another owner.
// The result is nil if there is no such address. With such a pool two owners of an
// address would name one pool.
func (s *State) FindStrandedOwner(p Pool) (stranded *StrandedError) {
	domain := s.domains[p.RoutingDomain]
	if domain == nil {
		return nil
	}
	for c := range s.claims.ownersOf(p.Key) {
		if c.holding.routingDomain == p.RoutingDomain || stranded != nil && stranded.Owner.String() < c.owner().String() {
			continue
		}
		for _, r := range c.holding.ranges {
			for owned := range domain.core.OwnedIn(r) {
				if h := s.holdings.find(owned.OwnerID); h.isInUse() && h.ownerClaim() != c.owner() {
					stranded = &StrandedError{Pool: p.Key, PoolRoutingDomain: p.RoutingDomain, Range: owned.Range, Owner: c.owner(), RoutingDomain: c.holding.routingDomain, Other: h.ownerClaim()}
				}
			}
		}
	}
	return stranded
}

// compareAddresses orders owned ranges by their first address.
func compareAddresses(x, y Owned) int { return x.Range.First.Compare(y.Range.First) }

// Overlapping lists the pools of p's routing domain, without p, that offer addresses of
// p.
func (s *State) Overlapping(p Pool) []Key {
	var keys []Key
	isOffered := allocator.OverlapsAny(p.Window)
	for o := range s.pools.in(p.RoutingDomain) {
		if o.Key != p.Key && isOffered(o.Window) {
			keys = append(keys, o.Key)
		}
	}
	slices.SortFunc(keys, func(x, y Key) int { return cmp.Compare(x.coreName(), y.coreName()) })
	return keys
}

// Owner is a stored claim, or an address object, that owns a range of a pool.
type Owner struct {
	Key Key
	UID string
}

// StayingOwners lists the owners of a pool's ranges that are not being deleted, in no
// particular order. The cost grows with the number of the pool's owners.
func (s *State) StayingOwners(pool Key) (owners []Owner) {
	for c := range s.claims.ownersOf(pool) {
		if !c.Deleting {
			owners = append(owners, Owner{c.Key, c.UID})
		}
	}
	return owners
}

// IsStayingOwner reports whether the object with this UID is stored, owns a range, and is
// not being deleted.
func (s *State) IsStayingOwner(uid string) bool {
	c := s.claims.find(uid)
	return c != nil && c.holding != nil && !c.Deleting
}

// OwnerOf returns the owner of an address in a routing domain, or the claim whose open
// grant contains the address; nil for a free address.
func (s *State) OwnerOf(routingDomain string, a netip.Addr) (owner *OwnedError) {
	for owned := range s.domain(routingDomain).core.OwnedIn(allocator.Range{First: a, Last: a}) {
		if s.holdings.find(owned.OwnerID).isInUse() {
			owner = s.ownedError(owned)
		}
	}
	return owner
}
