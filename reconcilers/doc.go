// Package reconcilers is the asynchronous part of the manager: stored objects are applied
// to the ledger, and the state of the ledger is written to stored objects. The webhooks
// allocate before an object is stored; the reconcilers confirm, mirror and record the
// allocation, and allocate for claims that are stored without addresses.
//
//	informers ──▶ feed.Feed ──▶ ledger ──▶ feed.Changes ──▶ claims.Reconciler   status, conflict, adoption, release
//	                                                    ├─▶ claims.Waiting      ranges for claims that are stored without addresses
//	                                                    └─▶ pools.Reconciler    counters, conditions, records of releases
//
// This package wires the parts of each API together, and has one file with the adapter of
// each claim kind. Subpackages:
//
//	addressobjects   creates and deletes the address objects of claims of Metal3 and Cluster API
//	claims, pools    generic reconcilers of claims and of pools; pools has one file for each pool kind
//	feed             informers to ledger, ledger to queues
//	clusters         pauses of Clusters, and moves between clusters
//	flow, write      spacing of attempts; writes, and errors of writes
//	events           events, bounded for each pool
//	apiserver        connections to the API server, the wait for it at startup, its clock
//	informers        informers that continue as soon as the API server responds again
//	movedrecords     moved records, in ConfigMaps
//	inuse            addresses of Nodes, Machines and Services, which are not allocated
//	services         ProxyVIPs for Services
//	tenants          addresses of tenant clusters
//
// # Guarantees
//
//   - Only the leader writes. After a change of the leader every object is reconciled.
//   - A write carries the resourceVersion on which the decision to write is based. A
//     decision on an older version is never stored, and the event of the newer version
//     requeues the object.
//   - An object in the intended state is not written. An allocation gets one write
//     between create and release.
//   - A claim becomes Ready after a commit of the present term has confirmed its ranges.
//     In a conflict, the losing claim is flagged before the winning claim becomes Ready.
//   - A range is free when its claim and address object are gone, and the cooldown is
//     over. The pool has the release record of an allocation before the finalizer of the
//     allocation is removed (exceptions: ipAllocations.Release); the cooldown list of the
//     pool has the cooldowns without a release record (pools/cooldown.go).
//   - Status writes for which no client waits are spaced, so that the API server works
//     for creates in between. The first write after a quiet time is not delayed.
//   - Every write leaves a state from which the next write follows, so that a process may
//     end between two writes.
//
// # Release
//
// The release of a claim is all that follows a client's request to delete the claim.
// Package state (Cooldown) defines release records and cooldown list, and when the
// cooldown of each kind begins. Steps, and the reconciler that takes each step:
//
//	kind               claims.Reconciler                pools.Reconciler                             claims.Reconciler
//	IPAllocation       phase Released, releasedAt       release record, then finalizer removed
//	IPClaim,           address objects deleted,         cooldown list                                finalizer removed, at the latest
//	IPAddressClaim     then cooldown begins                                                          some seconds after the begin
//	ProxyVIP           no step: a ProxyVIP has no finalizer, and a ProxyIPPool has no reuse delay
//
// Terms:
//
//   - deletion requested: the claim has a deletionTimestamp. The claim owns its
//     addresses.
//   - released: phase Released of an IPAllocation. The allocation owns its addresses, and
//     its finalizer stays until the pool has the release record. Claims of further kinds
//     have no such state.
//   - gone: the informer has reported the delete event of the claim to the ledger. The
//     addresses are in cooldown, or free without a reuse delay.
//   - free: the cooldown is over. The addresses can be allocated again.
//
// # Denied and slow writes
//
// A policy, quota or foreign webhook may deny or delay the writes of some objects. The
// status of such an object reports the cause. Attempts on an object are repeated after
// pauses that grow to 30 s; events do not shorten a pause, but a change of the object or
// of its pool permits an attempt at once (package flow). Pauses, messages and log lines
// are counted for each object. A repeated attempt takes one call: the informers, or the
// first attempt, have shown everything else. Waiting objects are reconciled in the order
// in which they came, namespaces in turns. Namespaces with slow objects leave some
// workers to the remaining namespaces, so that objects of these are not delayed
// (flow.Queue).
//
// # Concurrency
//
// One object is reconciled by one goroutine of its controller at a time, and only package
// pools writes the status of a pool, except for the infrastructure fields of a
// NetworkPool (package inuse).
package reconcilers
