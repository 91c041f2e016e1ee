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
// # Lists and not a bitmap
//
// A bitmap has a bit per address of a pool. BenchmarkBitmap compares the lists with a
// bitmap that returns the same ranges (words of 64 bits, summaries to find runs and their
// lengths, an owner per address). The table has the time of one release and one
// allocation of 1 address, or of 1 to 8, and the heap of the pool, also without owners:
//
//	                       lists                       bitmap
//	              1  1 to 8                1  1 to 8               bits
//	             ns      ns       KB      ns      ns       KB       KB
//	/24
//	full        362       -     17.5     116       -      2.4      0.4
//	half full   319     395      6.0     120     211      2.4      0.4
//	fragmented  294     446      1.8     160     249      2.4      0.4
//	blocks      294     452      1.9     112     235      2.4      0.4
//	/16
//	full        688       -    2,613     133       -      521      9.1
//	half full   444     634    1,309     116     304      265      9.1
//	fragmented  575     832      418   1,046     530      521      9.1
//	blocks      564     863      316     114     555      521      9.1
//	/8
//	full        976       -  664,939     295       -  133,314    2,242
//	half full   600     825  332,491     171     418   67,778    2,242
//	fragmented  924   1,249  107,218     759     538  133,314    2,242
//	blocks      851   1,291   79,253     119     573  133,314    2,242
//
// In the states full and half full, each address has an owner of its own. In the state
// fragmented, half of the addresses are owned: 1 to 15 at random places by one owner
// each. In the state blocks, 8 of every 16 have one owner. The figures are medians of
// three runs, on two CPUs (AMD EPYC) under other load, with Go 1.26.8, of
//
//	go test ./allocator -run '^$' -bench BenchmarkBitmap -count 3
//
// The bitmap is up to seven times faster, with one exception, and takes a fifth of the
// memory of a large pool where each address has an owner of its own. Where owners have
// several addresses, the lists are smaller. The core has lists for these reasons:
//
//   - Lists have no limit of size. The bits of an IPv6 /64 are 2 EiB: a bitmap would be a
//     second structure, for small pools only, with the same invariants.
//   - Pools overlap in any way. A bitmap needs bits and summaries per pool, or searches
//     the owned addresses of the space through the window of each pool. The lists of a
//     pool have its free runs only.
//   - Neither time nor memory decides anything. An allocation waits for a write or a
//     read of the journal, which takes milliseconds, and the manager keeps 3.3 KB of heap
//     per claim (make bench, row memory), of which the lists take 40 to 150 bytes.
//
// # Concurrency
//
// Two goroutines must not use a Space and its pools at once. Every other type in this
// package is a plain value.
package allocator
