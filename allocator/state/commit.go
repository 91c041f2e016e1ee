package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// BeginCommit returns the snapshot of the next commit to the journal.
func (s *State) BeginCommit() journal.Snapshot {
	s.proofs.commitBegins()
	s.lazyCommitDue, s.commitDue, s.queuedGrants = false, false, 0
	s.planStandby()
	s.waitersForNext, s.waitersForCurrent = nil, append(s.waitersForCurrent, s.waitersForNext...)
	r := journal.Snapshot{Quarantine: s.leadership.inQuarantine(), Applied: make(map[string]uint64, len(s.applied)), Entries: make([]journal.Entry, 0, len(s.grants))}
	withGrants := map[string]bool{} // resources with open grants
	for _, g := range s.grants {
		if s.readDenied[g.Resource].expired {
			// The journal stops listing a resource that could not be read for a grant
			// life (readaccess.go). This leader keeps the ranges; a new leader may grant
			// them again, although the object may be stored.
			continue
		}
		if g.state == grantQueued {
			g.state = grantInFlight
		}
		withGrants[g.Resource] = true
		r.Entries = append(r.Entries, g.Entry)
	}
	r.Entries = append(r.Entries, s.standbyEntries()...)
	for k, v := range s.applied {
		switch inUse := withGrants[k] || s.storedCount[k] > 0 && !s.readDenied[k].expired; { // objects of k are stored, or grants for k are open
		case inUse && s.unserved[k]:
			r.Unserved = append(r.Unserved, k)
		case s.unserved[k]: // a replica that serves k then serves more resources than the journal lists, and takes the journal over
			continue
		case !inUse:
			v = 0 // the next leader lists the resource from the API server if it may read it, and otherwise need not wait
		}
		r.Applied[k] = v
	}
	slices.Sort(r.Unserved)
	return r
}

// CommitLanded records that the commit in flight is stored: the responses of its grants
// may leave.
func (s *State) CommitLanded(now time.Time) {
	s.proofs.commitLands()
	s.notifyWaiters(nil)
	for _, g := range s.grants {
		if g.state == grantInFlight {
			g.state, g.lifeBegan = grantCommitted, now
			if g.waiter != nil {
				g.waiter <- nil
				g.waiter = nil
			}
			if g.withdrawn {
				s.endGrant(g)
			}
		}
	}
	for _, domain := range s.spaces {
		for _, g := range domain.standby {
			g.state = grantCommitted
		}
	}
	s.applyProofs(now)
}

// notifyWaiters sends the outcome of the commit in flight to the callers of
// NotifyOfNextCommit.
func (s *State) notifyWaiters(err error) {
	for _, done := range s.waitersForCurrent {
		done <- err
	}
	s.waitersForCurrent = nil
}

// NotifyOfNextCommit sends the outcome of the next commit that begins to done, which must
// be buffered.
func (s *State) NotifyOfNextCommit(done chan<- error) error {
	if !s.leadership.mayGrant() {
		return ErrNotLeader
	}
	s.waitersForNext = append(s.waitersForNext, done)
	return nil
}
