// Package webhooks contains the admission webhooks of pools and claims: a created claim
// is returned with its addresses.
//
//	register.go                    API groups, paths of the webhooks
//	owner.go                       what claims and address objects have in common
//	claim.go mutate.go validate.go generic path of all claims over claimAdapter
//	addressobject.go               generic path of all address objects
//	pool.go pool_delete.go         generic path of all pools over poolAdapter
//	ipallocation.go, ippool.go …   one adapter per kind
//	answer.go                      the answer of a mutating call, which other webhooks may not change
//	patch.go                       JSON patches: difference of the typed fields before and after a change
//
// Package review carries the calls, package server the connections, package certificates
// the certificate. This package has more than 1,500 lines because the adapters of all
// kinds share the unexported generic paths.
//
// # Mutation of a claim
//
// The allocation of a claim is its addresses, in the fields that its kind has for them,
// and the annotations butler.butlerlabs.dev/grant (the token) and
// butler.butlerlabs.dev/origin; of a ProxyVIP also butler.butlerlabs.dev/chosen, if the
// allocator chose one of two addresses.
//
//	request                                         outcome
//	create with free addresses                      patch with addresses, token, origin and finalizer
//	create that the pool cannot serve               denied; a Metal3 or Cluster API claim that names no address, and an IPAllocation of a paused pool, are stored
//	                                                without addresses, and served later
//	create whose pool is missing                    stored without a grant, with a warning; the claim gets its addresses, also exact ones, when the pool exists
//	update of a claim with addresses                absent fields of the allocation are restored from the stored object, on any replica
//	update of a claim whose request was not met     as a create, if the request changes
//	update of a claim without addresses             as a create
//	update of a claim that is being deleted          allowed without a change
//
// Static rules are checked first, so an invalid object costs no grant. Fields that a user
// wrote are never changed; absent fields are filled, by the functions of allocator/kinds
// that the reconcilers use too. The annotations of the allocation are the exception: a
// token in a create proves nothing and is replaced. A dry run reserves nothing and
// succeeds exactly when the real call would.
//
// A denial that a newer version of the pool could change (dependsOnPool), such as "pool
// missing" or "exhausted", is confirmed by one live read of the pool.
//
// # Validation of a claim
//
// The validating webhook denies an object whose addresses and token are not those of an
// open grant, an object that differs in another field from the answer of the mutating
// call (answer.go), and changes of a stored allocation. If the create was answered from a
// standby grant, the call waits for the proof that the replica still leads, which began
// with the mutating call. A claim that is being deleted, or that clusterctl has marked as
// moved to another cluster, may give up addresses, and may not add any.
//
// # Address objects
//
// A created address object owns its address for its claim, also an address that the pool
// does not offer. The object is denied if another claim owns the address.
//
// # Pools
//
// A created pool gets its finalizer from the mutating webhook, so that the pool is kept
// from its first owner on. The validating webhooks deny faults of a pool, changes that
// exclude an owned address, and the deletion of a NetworkPool or ProxyIPPool with owners.
// The deletion of an IPPool is accepted, as in Metal3: its finalizer keeps the pool until
// its owners are gone.
//
// # Concurrency
//
// Register is called once. The webhooks are safe for concurrent use; package review
// bounds the number of calls.
package webhooks
