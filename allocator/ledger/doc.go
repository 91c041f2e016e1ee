// Package ledger is the one truth about who holds which address: what stored claims hold, and what open grants may yet come to
// hold. Webhooks ask it for ranges; reconcilers tell it what they see and ask it what they may write.
//
// # What it promises
//
// A range leaves Grant only after a journal commit that holds it, under a token of its own. A range is free when no stored claim
// holds it and no grant on it is open. A grant stays open until a claim with its token is seen, or until a grant's whole life has
// passed since its last answer and a consistent read shows no claim with its token. One to a stored claim ends where the claim is seen as it is after
// a write that nothing older can follow: whoever holds the journal next has seen as much, and needs no line to know what the grant came to. What an
// earlier holder of the journal had granted is never granted again: it waits for its claim, or for its end.
//
// What is stored counts, however it got there: a claim that came in around the webhooks holds its range if it is free, where it carries a token, its
// status says that somebody gave it that, or its pool offers it, and no pool keeps it from everybody. Else it is barred, holds nothing, and has what it
// names as soon as its pool offers that: before anybody else is given of that pool, but not before its pool is there. Who may create claims could hold
// every address there is otherwise. Where two claims overlap, the one stored as Ready keeps the range, then the one whose token the journal holds, then
// the older, then the smaller UID. The other one keeps what nobody else has of its range, and is told whom it clashes with.
//
// A replica counts every kind of this release, whichever APIs are switched on: what is stored owns its addresses. One that serves all APIs that the
// leader does, and more, takes the journal from it at once: an API is switched on by replacing replicas one by one. What a replica cannot read, of a
// journal that claims there is some, stops it for the life of a grant at most; unread.go lists the cases.
//
// A refusal leaves only a holder that knows it still is one: by a commit that began a moment ago, or by one made for it. A process
// that was paused goes by what has changed since.
//
//	               Grant                 sight of token                 gone
//	free ──────────────────▶ granted ──────────────────▶ bound ──────────────────▶ free, or resting for the pool's reuse delay
//	                            │ life passed, and a consistent read shows nothing
//	                            └──────────────────▶ free
//
// An object may hold a range for a claim, as the IPAddresses of Metal3 and Cluster API do: while the claim holds the same range, the two are one
// holder, and the range is free when both are gone. Of a claim that went to another cluster the range is not free: it is alive there. Its pool
// records that, and only the claim gets it back. A claim that is gone and was marked as moved keeps its range until it is decided whether it was.
//
// A rest is recorded before the claim goes, which is made to wait for it: an IPAllocation for as long as it takes, others for some seconds. After that
// nothing else tells of it, and all replicas may end. That a claim went to another cluster is recorded when it is gone, as clusterctl waits for no
// finalizer, and so is the rest of one whose finalizer somebody took off. If a replica that started after the claim had gone takes the journal over
// before, the range is free. A record that was decided before the claim came back, and lands after it is gone once more, keeps the range until somebody
// takes the entry out.
//
// A recorded cooldown is converted when a process first observes the record, and measured by that process's monotonic clock from then on. It ends
// within the pool's reuse delay of the observation, so a record of a clock that was ahead cannot last; and where the process observed the deletion of the
// claim, not before deletion + reuse delay, so a record of a clock that was behind does not cut it short. Records are written and read by the API server's
// clock as far as that is known (Config.Skew): a replica with a wrong clock that starts later reads the same end.
//
// What a change of a pool takes away is held back from the moment that it is let through, in the journal, until the change is seen or cannot come any
// more. Whoever holds some of it keeps that, and is followed by nobody.
//
// # Parts
//
// book is the state machine: no clock, no I/O, no locks; the same calls in the same order give the same answers. Ledger is the
// shell around it: one mutex, one goroutine that follows, fences and commits to the journal, and one that ends grants. The model
// check drives the book through random schedules of several replicas.
//
// Ledger is safe for concurrent use. Observing a claim takes microseconds, and never waits for the API server.
package ledger
