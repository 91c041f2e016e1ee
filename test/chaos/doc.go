// Command chaos runs several managers under load, injects faults, and then checks the
// complete history of etcd.
//
// Clients create, label, delete and recreate IPAllocations (by count, pinned, with
// generateName, by server-side apply, as dry runs), ProxyVIPs (one or both families, with
// or without an exact address), IPClaims and IPAddressClaims, in pools that overlap. The
// flag -faults selects the faults:
//
//	managers   kill, freeze, terminate             a manager
//	           cut-apiserver, cut-peers, isolate   a manager loses its connections to the API server, to its peers, or both; by reset or silently
//	           lose-apiserver                      existing connections of a manager to the API server lose all data without a reset; new ones work
//	           latency                             5 to 300 ms between a manager and the API server, or between a manager and its peers
//	           clock                               the wall clock of a manager is set, by up to two hours
//	graceful   terminate
//	           rolling-restart                     all managers, one after the other, each when the previous manager serves again
//	all        all of the above, and
//	           freeze-apiserver, kill-apiserver, freeze-etcd, kill-etcd
//	           power-cut                           all processes are killed at the same time, and later started at the same time
//	           webhook-refuse, webhook-stall       another webhook denies every second create, or is slow, after the allocator has responded
//	           lose-pool                           a pool with owners is deleted and restored from a backup
//	           flood                               clients in five namespaces fill the journal with creates that a policy denies after the allocator has responded
//	           intrude                             claims with addresses of the load, in another routing domain, enter the domain of the load: their pools are
//	                                               made anew there, and their records forged
//
// If the selected faults affect only managers, and there are several managers, one
// manager is always spared: creates must then succeed, which requires a manager that can
// respond.
//
// The API server still reaches a manager that is cut off: the manager receives calls, and
// cannot call the API server or its peers. The start of each fault is logged on standard
// error. The sequence of faults depends on the seed alone, but the state that a fault
// meets does not: run a seed that fails several times.
//
// Clients also do the following:
//
//   - They move IPClaims to other clusters as clusterctl does, and back; replace the
//     IPPool without its annotations; and remove addresses from the IPPool's list of
//     moved addresses.
//   - They lose claims together with their address objects, with or without finalizers,
//     and restore both in any order.
//   - One client creates and deletes Services of type LoadBalancer, whose ProxyVIPs the
//     managers create. The client loses several Services, their ProxyVIPs or both, and
//     restores them in any order.
//
// lose-pool selects a NetworkPool, a ProxyIPPool, or an IPPool that lists no moved
// ranges. The finalizers of the pool are removed, exactly this version of the pool is
// deleted, and the pool is created again without UID and status. A create that the API
// server may have processed during this time may be stored without a range. All other
// rules apply unchanged.
//
// The history contains every version of every object from the first revision of etcd,
// read from etcd itself. So the history also contains objects that are created and
// deleted while the API server is down. Each object carries the ID of the call that
// created the object. The history is invalid if
//
//   - two objects owned one address at the same time, and both creates succeeded
//   - two objects with one address were Ready at the same time
//   - an object was flagged as in conflict, its create succeeded, and no other object of
//     the load had an address of it
//   - two objects overlap, the create of one of them got no response, and at the end
//     neither object is flagged or deleted
//   - an address that the IPPool lists as moved to another cluster was allocated to
//     another claim, and no client had removed the address from the list; or the address
//     is missing from the list at the end
//   - a returned object was never stored, or its range differs from the stored or from
//     the requested range; or a range changed
//   - a denied create or a dry run left an object, or a failed create left a part of an
//     object
//   - a failed create does not succeed when it is repeated
//   - a dry run has another result than the same create without dry run, sent directly
//     after the dry run in a pool without other clients
//   - a restored Service has other addresses than before
//   - a Service shows other addresses than its ProxyVIP has, or a ProxyVIP of a Service
//     remains without the Service
//   - a create failed that the faults do not permit to fail (see type leeway)
//   - at the end, after all work has finished, the journal contains grants, a pool counts
//     other addresses than its objects own, or an IPAddress has no claim
//
// The last line of the output is a summary. The exit code is 1 if the history is invalid.
package main
