// Package journal keeps the write-ahead list of open grants on one Lease.
//
// A grant is a range promised in an admission answer whose object has not been seen yet. It is written here before the answer
// leaves, so that whoever comes after a replica that died knows what it had promised.
//
// # What it promises
//
// The versions of the journal are totally ordered, because each is a compare-and-swap on the Lease's resourceVersion. Each is
// written by the holder of one epoch (the Lease's leaseTransitions), and a new epoch is a compare-and-swap of the same kind. So a
// take-over either finds a grant in the journal, or makes the commit that was to hold it fail. No clock is part of this argument:
// a replica that slept through its own replacement finds out at its next commit, before any answer leaves.
//
//	epoch 7, replica a   ──[g1]──[g1 g2]──────────────[g1 g2 g3] ✗ conflict: a steps down, g3 was never answered
//	epoch 8, replica b                  ╲──[g1 g2]──[g1 g2 g4]──▶
//
// A write whose reply is lost is settled by reading: every commit has a number, so the version that is stored tells whether the
// attempt landed, may still land, or never will (see Settle).
//
// Where etcd is restored from a backup the journal is an earlier version again. A watch that was ahead of that says nothing of what is stored, so a
// replica that has seen a later version knows wrong objects, and no fence would help: its session says ErrSetBack, and the process is to end.
//
// # When it changes hands
//
// A follower takes the journal over when it was handed over, when it did not change for the expiry, when nobody listens at its holder's
// address, and when that address is its own: the holder was its former process. Each may be wrong and none is dangerous: the
// compare-and-swap decides, and a holder that lives on finds out at its next commit. While calls wait for a holder the journal is read
// every few milliseconds, else twice a second.
//
// # What it does not do
//
// It knows nothing of pools, claims or free addresses (package ledger does), and its clock only decides when a replica that sees
// no commits tries to take over.
//
// A Session belongs to one goroutine, but for Hurry and Refused. Version, Record, Line and Token are values; Store implementations
// are safe for concurrent use.
package journal
