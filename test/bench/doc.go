// Command bench measures what a synchronous answer costs. It runs a sandbox with one manager and creates objects there by the same
// means, one kind after the other:
//
//	plain CR         an IPAllocation under another API group, which nobody answers
//	CR, two webhooks the same behind a mutating and a validating webhook that do nothing: the baseline of every ratio
//	Service          whose clusterIP the API server's own allocator gives
//	IPAllocation     which comes back with its address
//	ProxyVIP         the same, of the second API
//
// Every round measures every variant once for each number of clients, in an order that rotates, so that a machine that slows down
// slows all of them. Ratios are taken within a round; what is printed is the median over the rounds. A run starts in a namespace of its
// own (and for IPAllocations a pool) with connections warm, and when nothing of the one before is under way any more.
//
// What comes next has sandboxes of its own: several replicas in place of one, and a follower in front of the holder; the journal's holder
// ended, killed and stopped under load; and the holder killed, and memory read, with 1,000 to 100,000 allocations stored in 1, 10 or 1,000
// pools. Those allocations are copies of one that the managers have made, written into etcd: it is checked that the managers then find
// nothing to write to them, and that their pools count them.
//
// The last part measures the allocator alone, in this process: no API server, no journal.
//
// In the table and in the JSON file, a list of figures (see type figure):
//
//   - "create": from the call to its answer.
//   - "create, statuses written": the same creates, their rate counted until the last object was Ready. The time is that from the
//     last answer until then, its median and largest over the rounds.
//   - "CR, two webhooks create and status", and "create, another object and status": with no allocator, the client itself writes what one has to
//     write, for an IPAllocation or for a claim that gets an IPAddress: what this machine leaves room for. "IPAddressClaim, two webhooks" is the same
//     with copies of Cluster API's CRDs, which serve each object in three versions.
//   - "CR, two webhooks and journal": the mutating one writes a Lease for all that wait, and gives an address that is always the same. What follows
//     the create is again the client's. It is no strict bound: the writes of the Lease could be fewer.
//   - "create and delete": until the object is gone, one after the other. The baseline is the same loop behind the two webhooks.
//   - "status lag": creates at a steady rate, whether answered or not, and the time from each answer until Ready is stored.
//   - "IPClaim, IPAddressClaim to its answer, IPAddress, status": claims in one pool, five times as many as -n says, in a sandbox of their own,
//     and the time from the beginning of each create. Per second is until the last was there, × is the rate of the last fifth over that of the first.
//   - "through a follower": the only replica behind the Service passes every call on.
//   - "longest gap between answers": to creates, while the holder is gone; the median and the largest over the rounds. Creates that failed
//     are counted.
//   - "kill of the holder to first grant": until a create is answered that began after the kill.
//   - "fence to serving": as the new holder logs it, the write of the fence included.
//   - "memory": what a manager has with the allocations beyond what it has without, for each of them: live heap after a collection,
//     resident when that has settled, and the most that was resident since its start.
//   - "ProxyIPPool of …": the create of a pool of that size; creates of ten times as many ProxyVIPs of it as -n says, in a sandbox of its own;
//     and one LIST of the pool and of all of them. Memory is what the manager has then beyond what it had with the pool alone.
//   - "core": the median call. Calls are timed one by one, so each has some 50 ns of the clock in it.
//
// CPU figures are milliseconds per object of each process, work after the answer included. Others is the share of the machine that
// programs outside the sandbox took meanwhile: where it is not small, run again. Both need /proc. "apiserver KB" is what the API server allocated
// for each object: it does not depend on how fast the machine is just now, and is the same within a few percent from run to run.
//
// A figure beyond its limit fails nothing.
package main
