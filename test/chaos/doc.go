// Command chaos runs several managers under load while an adversary hurts them, and checks the whole history afterwards.
//
// Clients create allocations (by count, pinned, with generateName, by server-side apply, as a dry run), label, delete and create them
// anew in pools that overlap. What the adversary does meanwhile is up to -faults:
//
//	managers   kill, freeze, terminate
//	           cut-apiserver, cut-peers, isolate   one is cut off from the API server, its peers, or both; by reset or silently
//	           latency                             5 to 300 ms on its way to the API server, or to and from its peers
//	           clock                               its wall clock is set, by up to two hours
//	graceful   terminate
//	           rolling-restart                     all of them, one after the other, each when the one before serves again
//	all        those, and
//	           freeze-apiserver, kill-apiserver, freeze-etcd, kill-etcd
//	           webhook-refuse, webhook-stall       another webhook refuses every second create, or is slow, after the allocator has answered
//
// A manager that is cut off is still reached by the API server: it is asked, and can ask nobody. Each deed is told on standard error when it
// begins. Deeds follow from the seed alone; what they meet does not, so a seed that fails is to be run several times.
//
// A watch sees every stored object. The history is broken when
//
//   - two objects held one address at a time, and both creates were answered with success
//   - two objects were Ready with one address at a time
//   - an object that overlapped another, and whose create was not answered, was neither flagged nor gone in the end
//   - a create that was refused left an object, or an answer said another range than what is stored
//   - the journal keeps grants when all is quiet, or a pool counts other addresses than its objects hold
//
// The last line of its output sums up; the exit code is 1 where the history is broken.
//
// While the API server is down the watch is too: what came and went meanwhile is not seen.
package main
