package allocator

import (
	"math/rand/v2"
	"testing"
	"time"
)

// bitmapScenes is pools of three sizes in four states:
//
//	full        every address has an owner of its own
//	half full   every address of the lower half has an owner of its own
//	fragmented  half of the addresses: 1 to 15 at random places, for one owner each
//	blocks      half of the addresses: 8 at every multiple of 16, for one owner each
var bitmapScenes = []struct {
	name string
	scene
}{
	{"24/full", scene{"10.0.0.0/24", holdEvery(1, 1)}},
	{"24/half full", scene{"10.0.0.0/24", holdFirst(1 << 7)}},
	{"24/fragmented", scene{"10.0.0.0/24", holdScattered(1 << 7)}},
	{"24/blocks", scene{"10.0.0.0/24", holdEvery(16, 8)}},
	{"16/full", scene{"10.0.0.0/16", holdEvery(1, 1)}},
	{"16/half full", scene{"10.0.0.0/16", holdFirst(1 << 15)}},
	{"16/fragmented", scene{"10.0.0.0/16", holdScattered(1 << 15)}},
	{"16/blocks", scene{"10.0.0.0/16", holdEvery(16, 8)}},
	{"8/full", scene{"10.0.0.0/8", holdEvery(1, 1)}},
	{"8/half full", scene{"10.0.0.0/8", holdFirst(1 << 23)}},
	{"8/fragmented", scene{"10.0.0.0/8", holdScattered(1 << 23)}},
	{"8/blocks", scene{"10.0.0.0/8", holdEvery(16, 8)}},
}

// contender allocates with the best fit.
type contender interface {
	Allocate(n int64, h OwnerID) (Range, error)
	Release(r Range, h OwnerID)
}

// listsPool is a Space with one Pool.
type listsPool struct {
	*Space
	pool *Pool
}

func (p listsPool) Allocate(n int64, h OwnerID) (Range, error) {
	return p.pool.Allocate(n, BestFit, h)
}

// BenchmarkBitmap compares the lists of a Pool with a bitmap: one release and one
// allocation per operation, of one address or of 1 to 8, and the heap of the pool. p50-ns
// is the median over batches of operations, which other processes disturb less than the
// mean. The table in doc.go has the results.
func BenchmarkBitmap(b *testing.B) {
	for _, sc := range bitmapScenes {
		b.Run(sc.name, func(b *testing.B) {
			heap := heapInUse()
			s, pool, _ := sc.set()
			lists := cost{bytes: heapInUse() - heap}

			heap = heapInUse()
			bitmap := newBitmapPool(mustParse(sc.pool))
			bits := heapInUse() - heap
			for owned := range s.OwnedIn(mustParse(sc.pool)) {
				bitmap.take(int(numberOf(owned.First).minus(bitmap.base).lo), int(owned.Size()), owned.OwnerID)
			}
			bitmapWithOwners := cost{bytes: heapInUse() - heap, withoutOwners: bits}

			stats := pool.Stats()
			b.Run("lists", func(b *testing.B) { replaceOldest(b, listsPool{s, pool}, sc.pool, stats, lists) })
			b.Run("bitmap", func(b *testing.B) { replaceOldest(b, bitmap, sc.pool, stats, bitmapWithOwners) })
		})
	}
}

// cost is the heap of a pool.
type cost struct{ bytes, withoutOwners uint64 }

// replaceOldest replaces the oldest of up to 64 ranges. In a full pool these are
// addresses all over the pool, of which one is free at a time.
func replaceOldest(b *testing.B, c contender, pool string, stats Stats, heap cost) {
	ring := make([]Range, min(64, stats.Total/32))
	full := stats.Available == 0
	for at := range ring {
		if full {
			i := uint64(int64(at) * stats.Total / int64(len(ring)))
			r := headOf(numberOf(mustParse(pool).First).plus(number{lo: i}), number{lo: 1}).asRange()
			c.Release(r, OwnerID(i+1))
			ring[at], _ = c.Allocate(1, me+OwnerID(at))
		}
	}
	run := func(b *testing.B, largest int64) {
		source := rand.New(rand.NewPCG(7, 7))
		const batch = 64
		var times []time.Duration
		start := time.Now()
		for i := 0; b.Loop(); i++ {
			at := i % len(ring)
			c.Release(ring[at], me+OwnerID(at))
			r, err := c.Allocate(1+source.Int64N(largest), me+OwnerID(at))
			if err != nil {
				b.Fatal(err)
			}
			ring[at] = r
			if i%batch == batch-1 {
				now := time.Now()
				times, start = append(times, now.Sub(start)), now
			}
		}
		if len(times) > 0 {
			b.ReportMetric(median(times)/batch, "p50-ns")
		}
		b.ReportMetric(float64(heap.bytes)/1024, "KB")
		if heap.withoutOwners > 0 {
			b.ReportMetric(float64(heap.withoutOwners)/1024, "KB-without-owners")
		}
	}
	b.Run("1", func(b *testing.B) { run(b, 1) })
	if !full {
		b.Run("1 to 8", func(b *testing.B) { run(b, 8) })
	}
	for at, r := range ring {
		c.Release(r, me+OwnerID(at))
	}
}
