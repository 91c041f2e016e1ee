// Command chaos runs several managers under load while an adversary hurts them, and checks the whole history afterwards.
//
// Clients create allocations (by count, pinned, with generateName, by server-side apply, as a dry run) and ProxyVIPs (of one family or both,
// static or not), IPClaims and IPAddressClaims, label, delete and create them anew in pools that overlap. What the adversary does meanwhile is up to -faults:
//
//	managers   kill, freeze, terminate
//	           cut-apiserver, cut-peers, isolate   one is cut off from the API server, its peers, or both; by reset or silently
//	           lose-apiserver                      its connections to the API server lead nowhere, and nobody tells it; new ones do
//	           latency                             5 to 300 ms on its way to the API server, or to and from its peers
//	           clock                               its wall clock is set, by up to two hours
//	graceful   terminate
//	           rolling-restart                     all of them, one after the other, each when the one before serves again
//	all        those, and
//	           freeze-apiserver, kill-apiserver, freeze-etcd, kill-etcd
//	           power-cut                           everything is killed at once and, when power is back, started at once
//	           webhook-refuse, webhook-stall       another webhook refuses every second create, or is slow, after the allocator has answered
//
// Where only managers are hurt, one of several is always spared: creates are judged then, and somebody must be there to answer.
//
// A manager that is cut off is still reached by the API server: it is asked, and can ask nobody. Each deed is told on standard error when it
// begins. Deeds follow from the seed alone; what they meet does not, so a seed that fails is to be run several times.
//
// Clients also take IPClaims to other clusters as clusterctl does, bring them back, replace the IPPool without its annotations and take addresses out of its
// list; and they lose claims with their address objects, with or without finalizers, and restore them in any order.
//
// The history is taken out of etcd itself, every version of every object from the first revision on, so that what comes and goes while
// the API server is down is seen too. Each object carries the id of the call that made it. The history is broken when
//
//   - two objects held one address at a time, and both creates were answered with success
//   - two objects were Ready with one address at a time
//   - of two that overlap, one of them from a create that was not answered, neither is flagged or gone in the end
//   - an address that the IPPool listed as in another cluster was given to another claim, and no person had taken it out of the list; or the list
//     lacks it in the end
//   - an answer was never stored, or says another range than what is stored, or than was asked for; or a range changed
//   - a create that was refused, or a dry run, left an object; or one that failed left half of one
//   - a create that failed is not answered when it is repeated
//   - a dry run ends otherwise than the same call in earnest, made right after it in a pool that nobody else uses
//   - a create fails that the faults do not allow to fail (see leeway)
//   - the journal keeps grants when all is quiet, a pool counts other addresses than its objects hold, or an IPAddress has no claim
//
// The last line of its output sums up; the exit code is 1 where the history is broken.
package main
