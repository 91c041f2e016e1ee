package ledger

import (
	"net/netip"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

// The queries of webhooks and reconcilers. They change nothing.

// Usage returns the usage of a pool; false if the pool is not known.
func (l *Ledger) Usage(pool Key) (u Usage, ok bool) {
	l.withState(func(s *state.State) { u, ok = s.Usage(pool) })
	return u, ok
}

// FreeIn lists the blocks of free addresses of a pool, in address order; false if the
// pool is not known. The cost grows with the number of blocks.
func (l *Ledger) FreeIn(pool Key) (free []allocator.Range, ok bool) {
	l.withState(func(s *state.State) { free, ok = s.FreeIn(pool) })
	return free, ok
}

// AwaitsCreate returns for how long the create of a claim with a range of the pool is
// still expected to be stored; zero for none. The cost grows with the number of open
// grants.
func (l *Ledger) AwaitsCreate(pool Key) (wait time.Duration) {
	l.withState(func(s *state.State) { wait = s.AwaitsCreate(l.now(), pool) })
	return wait
}

// StayingOwners lists the owners of a pool's ranges that are not being deleted, as far as
// observed, in no order. The cost grows with the number of all owners.
func (l *Ledger) StayingOwners(pool Key) (owners []Owner) {
	l.withState(func(s *state.State) { owners = s.StayingOwners(pool) })
	return owners
}

// FindNotOffered describes the addresses that the claim with this UID owns and that its
// pool does not offer; nil if there are none.
func (l *Ledger) FindNotOffered(uid string) (e *NotOfferedError) {
	l.withState(func(s *state.State) { e = s.FindNotOffered(uid) })
	return e
}

// IsStayingOwner reports whether the object with this UID is stored, owns a range, and is
// not being deleted, as far as observed.
func (l *Ledger) IsStayingOwner(uid string) (yes bool) {
	l.withState(func(s *state.State) { yes = s.IsStayingOwner(uid) })
	return yes
}

// OwnedIn lists the addresses of a pool that claims of the given resources own, through
// this pool or another, in address order and up to a limit, and returns the total number.
// The ranges of an address object are listed under its claim. The cost grows with the
// number of owned ranges.
func (l *Ledger) OwnedIn(pool Key, resources []string, limit int) (list []Owned, total int64) {
	l.withState(func(s *state.State) { list, total = s.OwnedIn(pool, resources, limit) })
	return list, total
}

// OwnedThrough lists the ranges that stored claims own through a pool, inside the pool's
// ranges or not: first the ranges of claims, then the ranges of address objects under
// their claims, each in address order. The cost grows with the number of the pool's
// owners.
func (l *Ledger) OwnedThrough(pool Key) (list []Owned) {
	l.withState(func(s *state.State) { list = s.OwnedThrough(pool) })
	return list
}

// Unowned returns the given addresses that no stored claim owns and no open grant
// contains, in the routing domain of a pool.
func (l *Ledger) Unowned(pool Key, addresses []netip.Addr) (list []netip.Addr) {
	l.withState(func(s *state.State) { list = s.Unowned(pool, addresses) })
	return list
}

// ClusterDomain returns the routing domain of the cluster's network: the configured one,
// or the default routing domain if a known pool is there. If neither is the case, known
// is false: nothing shows which one it is.
func (l *Ledger) ClusterDomain() (domain string, known bool) {
	l.withState(func(s *state.State) { domain, known = s.ClusterDomain() })
	return domain, known
}

// AvoidsInUse reports whether the addresses in use are not allocated in a routing domain:
// it is that of the cluster's network, or nothing shows which one is.
func (l *Ledger) AvoidsInUse(domain string) (avoids bool) {
	l.withState(func(s *state.State) { avoids = s.AvoidsInUse(domain) })
	return avoids
}

// NarrowsInUse lists the routing domains of pools in which the addresses in use may be
// allocated once a pool is stored, and not before: the pool is the first in the default
// routing domain.
func (l *Ledger) NarrowsInUse(p Pool) (freed []string) {
	l.withState(func(s *state.State) { freed = s.NarrowsInUse(p) })
	return freed
}

// OwnerOf returns the owner of an address in a routing domain, or the claim whose open
// grant contains the address; nil for a free address.
func (l *Ledger) OwnerOf(routingDomain string, a netip.Addr) (owner *OwnedError) {
	l.withState(func(s *state.State) { owner = s.OwnerOf(routingDomain, a) })
	return owner
}

// RangesToRecord lists the ranges that the pool should record: moved ranges, ranges in
// cooldown, and ranges whose cooldown has begun while the claim is still stored
// (BeginCooldown).
func (l *Ledger) RangesToRecord(pool Key) (list []RecordedRange) {
	l.withState(func(s *state.State) { list = s.RangesToRecord(pool) })
	return list
}

// MovedOf lists the moved ranges of a pool in address order, and their stored record.
// known is false if the pool with this UID is not known.
func (l *Ledger) MovedOf(pool Key, uid string) (list []Moved, stored MovedRecord, known bool) {
	l.withState(func(s *state.State) { list, stored, known = s.MovedOf(pool, uid) })
	return list, stored, known
}

// MayBeListed reports whether a stored cooldown list, up to this version of a pool, may
// show a moved range that the moved record does not declare as left out.
func (l *Ledger) MayBeListed(pool Key, version uint64, m Moved) (yes bool) {
	l.withState(func(s *state.State) { yes = s.MayBeListed(pool, version, m) })
	return yes
}

// CountMoved counts the moved ranges of a pool.
func (l *Ledger) CountMoved(pool Key) (n MovedCount) {
	l.withState(func(s *state.State) { n = s.CountMoved(pool) })
	return n
}

// UndecidedMoves lists the deleted objects that were marked as moved and for which
// DecideMoved has not been called.
func (l *Ledger) UndecidedMoves() (all []UndecidedMove) {
	l.withState(func(s *state.State) { all = s.UndecidedMoves() })
	return all
}

// ClustersOf returns the names of the Clusters of Cluster API to which a claim belongs,
// in the claim's namespace: the Clusters named by the claim, otherwise the Cluster of its
// pool.
func (l *Ledger) ClustersOf(c Claim) (names []string) {
	l.withState(func(s *state.State) { names = s.ClustersOf(c.Clusters, c.Pool) })
	return names
}

// CooldownsFull reports whether the release of the claim with this UID has to wait, since
// the cooldown list of the pool has no room for the cooldown of the claim. A claim whose
// cooldown has begun has a place in the list.
func (l *Ledger) CooldownsFull(pool Key, uid string) (full bool) {
	l.withState(func(s *state.State) { full = s.CooldownsFull(pool, uid) })
	return full
}

// HasPendingUpdate reports whether an admitted update of a pool has not been observed.
func (l *Ledger) HasPendingUpdate(pool Key) (yes bool) {
	l.withState(func(s *state.State) { yes = s.HasPendingUpdate(pool) })
	return yes
}

// HasObserved reports whether this version of a pool, or a later version, has been
// observed or read.
func (l *Ledger) HasObserved(pool Key, resourceVersion uint64) (yes bool) {
	l.withState(func(s *state.State) { yes = s.HasObserved(pool, resourceVersion) })
	return yes
}

// Overlapping lists the pools of p's routing domain whose windows overlap the window of
// p, in order of name.
func (l *Ledger) Overlapping(p Pool) (keys []Key) {
	l.withState(func(s *state.State) { keys = s.Overlapping(p) })
	return keys
}

// FindOwnerConflict returns an owner of an address that p would newly offer or block; nil
// without a conflict. Owners that got the address through p do not count, nor does the
// claim for which p blocks exactly this range.
func (l *Ledger) FindOwnerConflict(p Pool) (owner *OwnedError) {
	l.withState(func(s *state.State) { owner = s.FindOwnerConflict(p) })
	return owner
}

// FindStrandedOwner describes a stored claim that names p, and owns an address in another
// routing domain that has another owner in the routing domain of p; nil if there is no
// such claim.
func (l *Ledger) FindStrandedOwner(p Pool) (stranded *StrandedError) {
	l.withState(func(s *state.State) { stranded = s.FindStrandedOwner(p) })
	return stranded
}

// CheckOffered returns why the claim with this UID may not own the ranges in its fields
// without a grant: *NoPoolError, *FaultyPoolError or *PoolError; nil if the claim may.
// kept lists the ranges that its pool blocks for all other claims.
func (l *Ledger) CheckOffered(uid string, kept []allocator.Range) (err error) {
	l.withState(func(s *state.State) { err = s.CheckOffered(uid, kept) })
	return err
}
