// Package allocator records the owner of each address, and finds free ranges.
//
// A create passes the packages in this order:
//
//	webhooks          admission request -> object, rules, patch
//	allocator/kinds   object -> request for ranges; ranges -> fields of the object (one subpackage per API)
//	allocator/ledger  mutex, leadership, waiting for the journal
//	allocator/state   which claim owns which range; grants
//	allocator         free ranges
//	allocator/journal grants in a Lease, before the response leaves
//	reconcilers/feed  the stored object -> ledger.ObserveClaim, which makes the claim the owner of the granted range
//
// A [Space] is the addresses of one routing domain. A [Pool] is a window onto a space:
// the ranges offered by an administrator, without the ranges blocked by any pool of the
// space (reserved ranges, gateways). Pools may overlap in any way; an address has at most
// one owner ([OwnerID]) in its space, through whichever pool it was allocated.
//
// # Guarantees
//
//   - A range is allocated whole, from free addresses inside one pool, or not at all.
//     IPv4 and IPv6 are treated alike, from one address to whole families.
//   - The same calls in the same order give the same results; [Random] draws from a
//     source of the caller. The package has no clock, log or global state.
//   - No argument makes the package panic. An invalid [Range] has no addresses: it is
//     never owned, offered or blocked, and a request for it returns an [OutsideError].
//   - Memory grows with the number of owned ranges and the fragmentation of the free
//     addresses, not with the size of a pool. An owned IPv6 /64 costs as much as a single
//     address.
//
// # Data structures
//
// Owned addresses are a list of pieces in address order, one piece for every longest run
// of one owner. Every pool keeps the free runs of its usable addresses by size and then
// address. By this order the pool finds the best fit, the lowest run with room, the
// longest run and the number of runs:
//
//	owned    |--a--|     |-b-||--a--|           |c|
//	pool         |-----------------------------------|
//	runs            |---|            |----------| |--|
//
// Allocating or freeing a span changes the run around the span in each pool that offers
// the span: a few binary searches per pool. Pieces and runs are stored in blocks of plain
// values (see list): an owned range beside a free run takes about 100 bytes, 150 if
// ranges arrive in the worst order.
//
// # Concurrency
//
// Two goroutines must not use a Space and its pools at once. Every other type in this
// package is a plain value.
package allocator
