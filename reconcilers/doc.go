// Package reconcilers is the asynchronous side: it feeds the ledger with what is stored, and writes to stored objects what the
// ledger knows. The answer itself is given by the webhooks, before an object is stored; here it is confirmed, mirrored, recorded and,
// where nobody asked the webhooks, given.
//
//	informers ──▶ Feed ──▶ ledger ──▶ Changes ──▶ ipallocation   status, conflict, adoption, the first half of a release
//	                                          ├─▶ pending        ranges for claims that are stored without one
//	                                          └─▶ networkpool    counters, conditions, the other half of a release
//
// Claims of Metal3 and of Cluster API go the same way, and have an address object made for them before their status names it (address.go). They and
// their pools rest while their Cluster does.
// Beside these, package services makes ProxyVIPs for Services; they go the same way.
//
// # What it promises
//
// Only the holder of the journal writes: everything comes up again when a replica takes over. Every write carries the
// resourceVersion of what it was decided on, so what was decided on an older version never lands, and a version that was
// overtaken comes back by itself. Nothing is written that is there already; an allocation in its normal life gets one write
// before its release.
//
// An allocation is Ready only after the ledger has confirmed its range in the present term; the loser of a clash is flagged first.
// A range is freed when its object is gone, which the informer says and nobody else. A release of an allocation is recorded in its pool before
// the finalizer goes; what rests in no such record stands in an annotation of the pool (resting.go).
//
// What is written about a create that is answered already is gathered in turns, and between them the API server works for creates. The first after a
// quiet time is written at once.
//
// Somebody's policy, quota or webhook may refuse the writes of some objects, or keep them waiting. The object then says so, and is attempted again after
// growing pauses of its own, 30 s at most, whatever events come meanwhile (package flow); a change of the object, or of its pool, brings an attempt at
// once. Pauses, messages and log lines are counted per object. An attempt that is repeated takes one call: what it needs to know the informers, or the
// attempt before, have shown. A namespace whose objects take long has a few of the workers, so that those of others are not kept waiting too (fair.go).
//
// Every step leaves a state from which the next one follows, so a process may end anywhere.
//
// # Concurrency
//
// One object is handled by one goroutine of its controller at a time; one NetworkPool's status has this one writer. Feed and
// Changes are safe for concurrent use.
package reconcilers
