package state

import (
	"fmt"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// commitQueue is what waits for a commit, or a read, of the journal, besides the grants
// that the commit contains.
//
// Invariant: a caller of NotifyOfNextCommit waits for the next commit, or for the commit
// in flight. It gets one outcome.
type commitQueue struct {
	urgent     bool           // a commit is due at once, see Pending.Commit
	lazy       bool           // see Pending.Confirm
	read       bool           // see Pending.Proof
	forNext    []chan<- error // callers that wait for the next commit
	forCurrent []chan<- error // callers that wait for the commit in flight
}

// requestNow makes a commit due at once.
func (q *commitQueue) requestNow() { q.urgent = true }

// request makes a commit due for which no response waits.
func (q *commitQueue) request() { q.lazy = true }

// requestRead makes a read due for which no response waits.
func (q *commitQueue) requestRead() { q.read = true }

// await sends the outcome of the next commit to a caller.
func (q *commitQueue) await(done chan<- error) { q.forNext = append(q.forNext, done) }

// commitBegins begins the commit that was due.
func (q *commitQueue) commitBegins() {
	q.urgent, q.lazy = false, false
	q.forNext, q.forCurrent = nil, append(q.forCurrent, q.forNext...)
}

// commitEnds sends the outcome of the commit in flight.
func (q *commitQueue) commitEnds(err error) {
	for _, done := range q.forCurrent {
		done <- err
	}
	q.forCurrent = nil
}

// readBegins begins the read that was due.
func (q *commitQueue) readBegins() { q.read = false }

// abandon ends all waiting: this replica commits and reads no more.
func (q *commitQueue) abandon(err error) {
	q.commitBegins()
	q.readBegins()
	q.commitEnds(err)
}

// pending returns what waits for the next commit or read.
func (q *commitQueue) pending() Pending {
	return Pending{Waiters: len(q.forNext), Confirm: q.lazy, Commit: q.urgent, Proof: q.read}
}

// check verifies that no caller waits for a commit that is not in flight.
func (q *commitQueue) check(inFlight bool) error {
	if len(q.forCurrent) > 0 && !inFlight {
		return fmt.Errorf("%d callers wait for a commit that is not in flight", len(q.forCurrent))
	}
	return nil
}

// Pending counts the grants and callers that wait for the next commit to the journal.
type Pending struct {
	Grants  int  // grants whose responses wait
	Waiters int  // calls of NotifyOfNextCommit
	Confirm bool // a commit would confirm an owner; no response waits for that commit
	// Commit: a commit is due at once, for which no response waits. Few standby grants
	// are left, or the entry of a claim that is being deleted is to be removed, or a read
	// that was to be a proof has failed.
	Commit bool
	Proofs int  // used standby grants that await a proof
	Proof  bool // a consistent read of the journal would confirm an owner; no response waits for that read
}

// Pending returns what waits for the next commit.
func (s *State) Pending() Pending {
	p := s.commitQueue.pending()
	p.Grants, p.Proofs = s.grants.awaitCommit(), s.proofs.grantsAwaited()
	return p
}

// BeginCommit returns the snapshot of the next commit to the journal.
func (s *State) BeginCommit() journal.Snapshot {
	s.proofs.commitBegins()
	s.commitQueue.commitBegins()
	s.planStandby()
	// The journal stops listing a resource that could not be read for a grant life
	// (readaccess.go). This leader keeps the ranges; a new leader may grant them again,
	// although the object may be stored.
	entries, withGrants := s.grants.commitBegins(s.access.hasExpired)
	r := journal.Snapshot{Quarantine: s.leadership.inQuarantine(), Entries: append(entries, s.standby.entries()...)}
	r.Applied, r.Unserved = s.access.listed(withGrants)
	return r
}

// CommitLanded records that the commit in flight is stored: the responses of its grants
// may leave.
func (s *State) CommitLanded(now time.Time) {
	s.proofs.commitLands()
	s.commitQueue.commitEnds(nil)
	s.grants.commitLands(now, s.endGrant)
	s.standby.commitLands()
	s.applyProofs(now)
}

// NotifyOfNextCommit sends the outcome of the next commit that begins to done, which must
// be buffered.
func (s *State) NotifyOfNextCommit(done chan<- error) error {
	if !s.leadership.mayGrant() {
		return ErrNotLeader
	}
	s.commitQueue.await(done)
	return nil
}
