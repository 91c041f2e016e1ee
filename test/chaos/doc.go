// Command chaos runs several managers under load while an adversary hurts them, and checks the whole history afterwards.
//
// Clients create allocations (by count, pinned, with generateName, by server-side apply, as a dry run), label, delete and create them
// anew in pools that overlap. The adversary kills, freezes and terminates managers and, with -faults all, freezes and kills the API server and
// etcd. Its deeds follow from the seed alone; what they meet does not, so a seed that fails is to be run several times.
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
