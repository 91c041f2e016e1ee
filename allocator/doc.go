// Package allocator knows who holds which address, and finds room.
//
// A [Space] is the addresses of one routing domain. A [Pool] is a window onto
// it: the ranges an administrator offers, without what any pool of the space
// blocks (reserved ranges, gateways). Pools may overlap in any way; an address
// has at most one [Holder] in its space, through whichever pool it was given.
//
// # What it promises
//
//   - A range is given whole, from free addresses inside one pool, or not at
//     all. IPv4 and IPv6 are treated alike, from one address to whole families.
//   - The same calls in the same order give the same answers; [Random] draws
//     from the source its caller hands in. There is no clock, no log, no
//     global state.
//   - Nothing a caller passes makes it panic. A [Range] that is not valid has no
//     addresses: it is never held, offered or blocked, and asking for it is an
//     [OutsideError].
//   - Memory follows what is held and how the free addresses are scattered, not
//     the size of a pool. A held /64 of IPv6 costs what a single address costs.
//
// # How it is built
//
// What is held is a list of pieces in address order, one for every longest run
// of one holder. Every pool keeps the free runs of its usable addresses by size
// and then address, which answers best fit, the lowest run that has room, the
// longest run and their number:
//
//	held     |--a--|     |-b-||--a--|           |c|
//	pool         |-----------------------------------|
//	runs            |---|            |----------| |--|
//
// Giving or freeing a span changes the run around it in each pool that shows it:
// a few binary searches, whatever the number of pools. Pieces and runs live in
// blocks of plain values (see list): a held range with a free run beside it takes
// some 100 bytes, 150 if ranges come in the worst order.
//
// # Concurrency
//
// None: a Space and its pools must not be used by two goroutines at once.
// Everything else in this package is a plain value.
package allocator
