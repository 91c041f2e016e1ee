// Package ledger decides which claim owns which address, grants free ranges, and elects
// the replica that may grant. Webhooks request ranges from the ledger; reconcilers report
// stored objects to the ledger and query what they may write.
//
// # Guarantees
//
//   - Grant returns a range after a journal commit that contains the range, under a token
//     of its own. The commit may be older than the request: the journal contains standby
//     grants for the next creates. CheckGrant returns nil for such a grant only after a
//     commit or a read of the journal that began after the request has proven that this
//     replica still leads.
//   - A range is free if no stored claim owns it, no open grant contains it, and it is
//     neither in cooldown, nor moved, nor withheld (see package state).
//   - Before a replica returns a denial, a commit proves that it leads: a commit that
//     began at most two seconds before, or a new commit. Without this rule a replica that
//     was suspended could deny by an old state.
//   - A replica counts (treats as owners) the stored objects of every API of this
//     release, also of an API that is switched off. A replica that serves all APIs of the
//     leader and more takes the journal over at once, so an API is switched on by
//     replacing replicas one by one.
//   - If the journal lists objects of a resource that a replica cannot read, the replica
//     waits before it leads, for at most the life of a grant (DefaultGrantLife, two
//     minutes; see readaccess.go). A replica never leads while objects of a resource that
//     its release does not know are stored.
//   - The cooldown of a released claim is recorded in the pool before the claim's
//     finalizer is removed: an IPAllocation waits without a limit, other claims some
//     seconds. Written only after the claim is gone are the record of a moved claim,
//     since clusterctl does not wait for finalizers, and the cooldown of a flagged
//     IPAllocation or of a claim whose finalizer a person removed. If a replica that
//     started after the deletion takes over before such a record is written, the range is
//     free.
//
// # Structure
//
// One mutex guards a state.State. Goroutines of a Ledger:
//
//	Run                follows the journal, takes it over, commits (leadership.go, committer.go)
//	proveUntilDone     proves by reads of the journal that this replica leads (proof.go); only on the leader
//	expireEverySecond  ends grants whose life has passed (expiry.go); only on the leader
//	requeueAll         reports all objects as changed after a take-over; only on the leader
//	tickEverySecond    ends cooldowns
//
// A Ledger is safe for concurrent use. Observing a claim takes microseconds and never
// waits for the API server.
package ledger
