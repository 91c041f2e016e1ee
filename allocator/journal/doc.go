// Package journal stores the write-ahead list of open grants on one Lease.
//
// A grant is ranges promised to one write whose object has not been observed: to an
// admission response, or to a write by a reconciler. The grant is committed to the
// journal before the response or the write is sent. So the next leader knows the open
// grants of a replica that died. The ranges that a pool update removes are stored in the
// same way until the update is observed. Standby grants, for creates that are expected,
// are committed without a claim.
//
// # Guarantees
//
// The revisions of the journal are totally ordered: each write is a compare-and-swap on
// the Lease's resourceVersion. The leader of a term (the Lease's leaseTransitions) writes
// all revisions of the term, and the take-over by the next leader is a compare-and-swap
// as well. So a take-over either finds a grant in the journal, or makes the commit of the
// grant fail. The argument uses no clock: a replica that was suspended while another
// replica took over finds out at its next commit, before it sends a response. A response
// with a standby grant needs no commit of its own; the validating webhook then waits for
// a read that shows the replica's own term (Session.ReadAlongside), or a commit.
//
//	term 7, replica a   ──[g1]──[g1 g2]──────────────[g1 g2 g3] ✗ conflict: a steps down, the response of g3 was never sent
//	term 8, replica b                  ╲──[g1 g2]──[g1 g2 g4]──▶
//
// A read settles a write without a reply. Every commit has a number, so the stored
// revision shows whether the write landed, may still land, or can never land (OutcomeOf).
//
// After etcd is restored from a backup, the stored journal is an earlier revision. A
// replica that has read a later revision may have observed objects that the backup does
// not contain, and a watch does not remove them from its memory. A take-over would not
// help: the session returns ErrEtcdRestored, and the process must end.
//
// # When leadership changes
//
// A follower takes the journal over in one of these cases:
//
//   - the journal does not exist, or has no leader since a person emptied it
//   - the leader handed the journal over
//   - the journal has not changed for the expiry
//   - the leader's address refuses connections
//   - the leader was an earlier process at this replica's address
//   - this replica serves all resources of the leader, and more
//
// A wrong decision is not dangerous: the compare-and-swap decides, and a replaced leader
// that still runs finds out at its next commit. While calls wait for a leader, a follower
// reads the journal as often as the calls ask (package review: every 25 ms), otherwise
// twice a second.
//
// # Bounds
//
// This package does not know pools, claims or free addresses (package state does). Its
// clock decides only when a follower tries to take over.
//
// One goroutine uses a Session, except for PollNow and ReportUnreachable. Revision,
// Snapshot, Entry and Token are values; Store implementations are safe for concurrent
// use.
package journal
