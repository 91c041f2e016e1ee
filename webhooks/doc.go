// Package webhooks is the synchronous edge: it answers the API server while an object is being created or changed, so that the object
// which comes back from a create already holds its addresses.
//
// # What it promises
//
// A create that can be given a range leaves with a patch that holds it; one that cannot is refused in the same call, with a
// status that says what is wrong and what to do (statusOf has the table). Static rules come first: an invalid object costs no grant.
// What its author wrote is never rewritten, only what is absent is filled in; the annotations that carry the allocator's own
// answer are the exception, what a create brings in them proves nothing. A dry run reserves nothing and succeeds exactly when the
// real call would. The API server's record of who wrote which field (managedFields) is left out of a claim that is created and not applied.
//
// An update of a claim that has its range changes nothing: what the new object leaves out is put back from the stored one, by any
// replica, without the ledger. What is being deleted, or taken to another cluster, gets nothing any more, and may not write down as its own what it had
// not; what it gives up is its own affair.
//
// "The pool is missing", "outside of it" and "exhausted" are never answered from a cache alone: the pool is read from the API server once
// and the ledger asked again.
//
// Claims of Metal3 and of Cluster API that ask for any address are the exception: their clients expect them to be stored in any case, so they are,
// and the reconcilers give them one as soon as they can.
//
// # The way of a call
//
//	API server ──▶ edge: bounded body, deadline of the call, latency
//	                 ──▶ claims (one generic path, an adapter per kind) or pools ──▶ ledger
//	                 ◀── answer, refusal, or "cannot serve now" ──▶ the journal's holder, asked by this replica
//
// What does not need the journal is answered where it arrives. The rest a replica that does not hold it passes on, once, to the port of
// the one that does, and gives back its answer word for word. While nobody holds the journal the call waits, has it looked at every
// few milliseconds, and is answered by whoever takes it, this replica or another. A port that refuses connections is news too:
// its journal is taken over at once. That a call may be asked twice this way costs nothing but a grant that nobody uses.
//
// So are calls for an API that this replica is told not to serve, while it is being switched on: the holder serves it.
//
// A holder may live and be out of reach: it goes on writing the journal, and this replica has no answer of it for a second. Then the API server is
// sent to another replica, which may be the holder itself. So it is where this replica neither reaches the holder nor sees the journal, and
// where it holds the journal, could not write it for as long as others leave it alone, and does not learn within moments who holds it.
//
// A replica that stops answers "cannot serve now", an HTTP 503 with Retry-After, which has the API server repeat this same call over a
// new connection. A call whose time is over ends as one: where the API server has a second entry for it (see firstTry) with an HTTP
// error, else as a refusal with code 503 and retryAfterSeconds, which has the client repeat its create.
//
// # Concurrency
//
// Register is called once. Any number of calls run at the same time, within the bounds of places; what is kept between them is those bounds, and when
// calls end that were sent away to come again.
package webhooks
