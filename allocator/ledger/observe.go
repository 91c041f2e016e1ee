package ledger

import (
	"net/netip"
	"time"

	"butlerlabs.dev/ipam/allocator/state"
)

// ObserveClaim applies the next event of a claim.
func (l *Ledger) ObserveClaim(c Claim) {
	l.withState(func(s *state.State) {
		s.RecordApplied(c.Key.Resource, c.ResourceVersion)
		s.ObserveClaim(l.now(), c)
	})
}

// RemoveClaim applies the deletion of a claim. resourceVersion is the version of the
// deletion; 0 if unknown.
func (l *Ledger) RemoveClaim(gone Claim, resourceVersion uint64) {
	l.withState(func(s *state.State) { s.RemoveClaim(l.now(), gone, resourceVersion) })
}

// ReplaceClaims applies a list of all claims of a resource, and removes claims that are
// missing from the list.
func (l *Ledger) ReplaceClaims(resource string, all []ListedClaim) {
	l.withState(func(s *state.State) { s.ReplaceClaims(l.now(), resource, all) })
}

// ObservePool applies the next event of a pool.
func (l *Ledger) ObservePool(p Pool) {
	l.withState(func(s *state.State) {
		s.RecordApplied(p.Key.Resource, p.ResourceVersion)
		s.ObservePool(l.now(), p)
	})
}

// RemovePool applies the deletion of a pool. Every replica deletes the metric series of
// the pool: a follower may have led before.
func (l *Ledger) RemovePool(k Key, resourceVersion uint64) {
	l.withState(func(s *state.State) { s.RemovePool(k, resourceVersion) })
	l.cfg.Metrics.forgetPool(k)
}

// ReplacePools applies a list of all pools of a resource, and removes pools that are
// missing from the list. It keeps a missing pool that AddReadPool added and whose event
// is outstanding.
func (l *Ledger) ReplacePools(resource string, all []Pool) {
	var removed []Key
	l.withState(func(s *state.State) { removed = s.ReplacePools(l.now(), resource, all) })
	for _, k := range removed {
		l.cfg.Metrics.forgetPool(k)
	}
}

// AddReadPool applies a pool from a live read, ahead of its event.
func (l *Ledger) AddReadPool(p Pool) {
	l.withState(func(s *state.State) { s.AddReadPool(l.now(), p) })
}

// DecideMoved records whether the deleted claim with this UID, listed by UndecidedMoves,
// was moved to another cluster. A claim that was not moved is released like other deleted
// claims.
func (l *Ledger) DecideMoved(uid string, moved bool) {
	l.withState(func(s *state.State) { s.DecideMoved(l.now(), uid, moved) })
}

// SetInUse replaces the addresses of a user that is no claim: a Node, a Machine or a
// Service of the cluster. The ledger does not allocate the addresses in the routing
// domain of the cluster's network (ClusterDomain).
func (l *Ledger) SetInUse(user Key, addresses []netip.Addr) {
	l.withState(func(s *state.State) { s.SetInUse(user, addresses) })
}

// MovedRecordSaved records that a record of moved ranges was stored; a record without
// parts was deleted.
func (l *Ledger) MovedRecordSaved(r MovedRecord) {
	l.withState(func(s *state.State) { s.MovedRecordSaved(r) })
}

// SetMovedRecord applies the record of a pool as read.
func (l *Ledger) SetMovedRecord(r MovedRecord) {
	l.withState(func(s *state.State) { s.SetMovedRecord(r) })
}

// BeginCooldown begins the cooldown of the ranges of a claim that is being deleted, and
// returns for how long its finalizer has to stay: until its pool has recorded the
// cooldown. The claim is reported as changed when the record is stored.
func (l *Ledger) BeginCooldown(uid string) (wait time.Duration) {
	l.withState(func(s *state.State) { wait = s.BeginCooldown(l.now(), uid) })
	return wait
}
