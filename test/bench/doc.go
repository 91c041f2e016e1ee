// Command bench measures the cost of synchronous allocation. It runs a sandbox with one
// manager, and creates objects of several kinds, one kind after the other, with the same
// client code:
//
//	plain CR         an IPAllocation of another API group, without webhooks
//	CR, two webhooks the same behind a mutating and a validating webhook that do nothing: the baseline of every ratio
//	Service          gets its clusterIP from the API server's own allocator
//	IPAllocation     returns with its address
//	ProxyVIP         returns with its address
//
// Every round measures every kind once for each number of clients. The order rotates, so
// that a slow phase of the machine slows all kinds equally. Ratios are computed within a
// round; the printed value is the median over the rounds. Each run uses a new namespace
// (and a new pool for IPAllocations) and open connections, and begins when all work of
// the previous run is finished.
//
// Further measurements use sandboxes of their own: several replicas instead of one; a
// follower in front of the leader; the leader terminated, killed and stopped under load;
// and a killed leader, and the memory of managers, with 1,000 to 100,000 allocations
// stored in 1, 10 or 1,000 pools. These allocations are copies of an allocation that the
// managers have made, written directly into etcd: bench checks that the managers then
// write nothing to them, and that the pools count them.
//
// The last part measures the allocator alone, in this process, without API server and
// journal.
//
// The rows of the table, and of the JSON file, which is a list of figures (see type
// figure):
//
//   - "create": time from the call to its response.
//   - "create, 30 ms apart": one client pauses 30 ms after each create, as people and
//     controllers do. The allocator has no other create to share a write with.
//   - "create, statuses written": the same creates; their rate is counted until the last
//     object is Ready. The time is that from the last response until then, as its median
//     and its maximum over the rounds.
//   - "CR, two webhooks create and status" and "create, another object and status": no
//     allocator; the client itself writes what an allocator has to write, for an
//     IPAllocation or for a claim that gets an IPAddress. This is the bound of the
//     machine. "IPAddressClaim, two webhooks" is the same with copies of Cluster API's
//     CRDs, which serve each object in three versions.
//   - "CR, two webhooks and journal": the mutating webhook writes one Lease for all
//     waiting creates, and returns a constant address. The client writes the status. The
//     bound is not strict: fewer writes of the Lease are possible.
//   - "create and delete": one create and delete after the other, each until the object
//     is gone. The baseline is the same loop behind the two webhooks.
//   - "status lag": creates at a constant rate, which do not wait for responses; time
//     from each response until Ready is stored.
//   - "IPClaim, IPAddressClaim to its response, IPAddress, status": five times as many
//     claims as -n in one pool, in a sandbox of their own; time from the beginning of
//     each create until each of the three. The rate counts until the last is stored; × is
//     the rate of the last fifth divided by that of the first.
//   - "ip-address-manager", "in-cluster provider" (-peers): Metal3's and Cluster API's
//     allocators, each alone in a sandbox with the same control plane, as administrator,
//     without their webhooks. "IPClaim, IPAddressClaim until its address is known": time
//     from the beginning of the create until the response or, for a peer, until the
//     claim's status or its IPAddress is stored, whichever is first; the client then
//     creates its next claim. "until its IPAddress exists": until the address object is
//     stored. Rates count until the last claim. "as shipped": default flags. "limits
//     lifted": without the rate limit of the client; for the in-cluster provider, which
//     has no flag for it, with another line in main.go. That provider always reconciles
//     one claim at a time. Slow runs have fewer claims. "5000 in the pool": these claims
//     exist before, in the first round only; those of a peer are copies of one claim,
//     written into etcd. A row "against" a peer is this allocator's; × is its value
//     divided by that of the row above, in the same round. There are at most 3 rounds.
//     The column manager has the CPU of the peer.
//   - "through a follower": the only replica behind the Service forwards every call to
//     the leader.
//   - "longest gap between responses": longest time without a response to a create while
//     the leader is gone, as the median and the maximum over the rounds. Failed creates
//     are counted.
//   - "kill of the leader to first grant": time from the kill until the response to a
//     create that began after the kill.
//   - "fence to serving": time that the new leader logs for its take-over, including the
//     write of the fence.
//   - "memory": memory of a manager with the allocations minus its memory without them,
//     per allocation: live heap after a garbage collection, settled resident memory, and
//     maximum resident memory since the start.
//   - "ProxyIPPool of …": create of a pool of that size; creates of ten times as many
//     ProxyVIPs of this pool as -n, in a sandbox of their own; and one LIST of the pool
//     and of all these ProxyVIPs. Memory is the memory of the manager at the end minus
//     its memory with only the pool.
//   - "core": time of the median call. Calls are timed one by one, so each time contains
//     about 50 ns for reading the clock.
//
// CPU values are milliseconds per object and process, including work after the response.
// "others" is the share of the machine that programs outside the sandbox used: repeat the
// run if the share is large. Both need /proc. "the three" is the sum of API server, etcd
// and manager.
//
// "apiserver KB" is memory that the API server allocated per object, and "API writes" are
// requests per object that changed a stored object, the create included (counter
// apiserver_request_total, without dry runs and reviews). Both do not depend on the speed
// of the machine; the memory differs by a few percent between runs.
//
// Without -all and -only, bench measures the creates of each kind and the core; with
// -peers, also the peers.
//
// A value beyond its limit is marked and fails nothing.
package main
