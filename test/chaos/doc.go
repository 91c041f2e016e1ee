// Command chaos runs several managers under load while an adversary hurts them, and checks the whole history afterwards.
//
// Clients create allocations (by count, pinned, with generateName, by server-side apply, as a dry run), label, delete and create them
// anew in pools that overlap. The adversary kills, freezes and terminates managers and, with -faults all, freezes and kills the API server and
// etcd. Its deeds follow from the seed alone; what they meet does not, so a seed that fails is to be run several times.
//
// The history is taken out of etcd itself, every version of every object from the first revision on, so that what comes and goes while
// the API server is down is seen too. Each object carries the id of the call that made it. The history is broken when
//
//   - two objects held one address at a time, and both creates were answered with success
//   - two objects were Ready with one address at a time
//   - of two that overlap, one of them from a create that was not answered, neither is flagged or gone in the end
//   - an answer was never stored, or says another range than what is stored, or than was asked for; or a range changed
//   - a create that was refused, or a dry run, left an object; or one that failed left half of one
//   - a create that failed is not answered when it is repeated
//   - a dry run ends otherwise than the same call in earnest, made right after it in a pool that nobody else uses
//   - a create fails that the faults do not allow to fail (see leeway)
//   - the journal keeps grants when all is quiet, or a pool counts other addresses than its objects hold
//
// The last line of its output sums up; the exit code is 1 where the history is broken.
package main
