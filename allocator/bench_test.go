package allocator

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// scene is a pool and what is owned in it when the clock starts.
type scene struct {
	pool string
	hold func(s *Space, pool Range) int // returns how many ranges it owned
}

var scenes = map[string]scene{
	"empty /24":                      {"10.0.0.0/24", func(*Space, Range) int { return 0 }},
	"half full fragmented /16":       {"10.40.0.0/16", holdScattered(32768)},
	"million owned in a /8":          {"10.0.0.0/8", holdScattered(8 << 20)},
	"million, every other of a /11":  {"10.0.0.0/11", holdEvery(2, 1)},
	"million side by side in a /8":   {"10.0.0.0/8", holdFirst(1 << 20)},
	"million blocks of 8 in a /8":    {"10.0.0.0/8", holdEvery(16, 8)},
	"one /64 in a /48":               {"2001:db8::/48", func(s *Space, _ Range) int { s.Assign(mustParse("2001:db8:0:7::/64"), 1); return 1 }},
	"million at random in a /64":     {"2001:db8::/64", holdRandom(1 << 20)},
	"million among a thousand pools": {"10.0.0.0/8", holdAmongPools(1000)},
}

// holdScattered holds runs of 1 to 15 addresses of one owner each, in random
// places, until so many addresses are owned: 8 in the middle.
func holdScattered(addresses int64) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		source, n := rand.New(rand.NewPCG(4, 4)), 0
		for owned := int64(0); owned < addresses; {
			first := numberOf(pool.First).plus(number{lo: source.Uint64N(uint64(pool.Size() - 15))})
			r := headOf(first, number{lo: 1 + source.Uint64N(15)}).asRange()
			if s.leadingOwner(r) == 0 {
				n++
				s.Assign(r, OwnerID(n))
				owned += r.Size()
			}
		}
		return n
	}
}

func (s *Space) leadingOwner(r Range) OwnerID {
	for owned := range s.OwnedIn(r) {
		return owned.OwnerID
	}
	return 0
}

// holdEvery holds size addresses at every multiple of step.
func holdEvery(step, size uint64) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		n := 0
		for i := uint64(0); i < uint64(pool.Size()); i += step {
			n++
			s.Assign(headOf(numberOf(pool.First).plus(number{lo: i}), number{lo: size}).asRange(), OwnerID(n))
		}
		return n
	}
}

func holdFirst(count int) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		for i := range count {
			first := numberOf(pool.First).plus(number{lo: uint64(i)})
			s.Assign(span{first, first}.asRange(), OwnerID(i+1))
		}
		return count
	}
}

func holdRandom(count int) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		source := rand.New(rand.NewPCG(5, 5))
		for i := range count {
			first := numberOf(pool.First).plus(number{lo: source.Uint64()})
			s.Assign(span{first, first}.asRange(), OwnerID(i+1))
		}
		return count
	}
}

func holdAmongPools(pools int) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		for i := range pools {
			first := numberOf(mustParse("11.0.0.0").First).plus(number{lo: uint64(i) << 8})
			s.SetPool(fmt.Sprint(i), []Range{headOf(first, number{lo: 256}).asRange()}, []Range{headOf(first, number{lo: 1}).asRange()})
		}
		return holdEvery(16, 1)(s, pool)
	}
}

func (sc scene) set() (*Space, *Pool, int) {
	s := NewSpace()
	n := sc.hold(s, mustParse(sc.pool))
	return s, s.SetPool("pool", []Range{mustParse(sc.pool)}, nil), n
}

func inOrder(m map[string]scene) []string {
	var names []string
	for name := range m {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// BenchmarkPool measures, in every scene, allocations that replace the oldest of
// 64 ranges of up to 15 addresses by a new one (one allocation and one release
// per operation, and the median of either), an exact single address taken and
// given back, and statistics.
func BenchmarkPool(b *testing.B) {
	for _, name := range inOrder(scenes) {
		s, p, _ := scenes[name].set()
		b.Run(name+"/best fit", func(b *testing.B) { churn(b, s, p, BestFit, 15) })
		b.Run(name+"/sequential", func(b *testing.B) { churn(b, s, p, Sequential, 1) })
		b.Run(name+"/random", func(b *testing.B) { churn(b, s, p, Random(rand.New(rand.NewPCG(6, 6))), 1) })
		b.Run(name+"/exact", func(b *testing.B) {
			r, err := p.Preview(1, BestFit)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.AllocateExact(r, me); err != nil {
					b.Fatal(err)
				}
				s.Release(r, me)
			}
		})
		b.Run(name+"/statistics", func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if s := p.Stats(); s.Available == 0 {
					b.Fatal(s)
				}
			}
		})
	}
}

// me holds nothing when the clock starts.
const me = OwnerID(1) << 40

func churn(b *testing.B, s *Space, p *Pool, policy Policy, largest int64) {
	var ring [64]Range
	source := rand.New(rand.NewPCG(7, 7))
	// The whole ring fits into an empty /24.
	largest = min(largest, p.largestNumber().int64(), 3+p.total.int64()/1024)
	allocating := make([]time.Duration, 0, 1<<20)
	releasing := make([]time.Duration, 0, 1<<20)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		at := i % len(ring)
		start := time.Now()
		s.Release(ring[at], me+OwnerID(at))
		released := time.Now()
		r, err := p.Allocate(1+source.Int64N(largest), policy, me+OwnerID(at))
		if i < cap(allocating) {
			releasing = append(releasing, released.Sub(start))
			allocating = append(allocating, time.Since(released))
		}
		if err != nil {
			b.Fatal(err)
		}
		ring[at] = r
		i++
	}
	b.ReportMetric(median(allocating), "allocate-p50-ns")
	b.ReportMetric(median(releasing), "release-p50-ns")
	for at, r := range ring {
		s.Release(r, me+OwnerID(at))
	}
}

func median(times []time.Duration) float64 {
	slices.Sort(times)
	return float64(times[len(times)/2])
}

// BenchmarkRebuild holds everything and then sets the pool, as after a restart.
// B/range is the heap that stays.
func BenchmarkRebuild(b *testing.B) {
	for _, name := range inOrder(scenes) {
		b.Run(name, func(b *testing.B) {
			var hold, set time.Duration
			var heap, ranges float64
			for b.Loop() {
				before := heapInUse()
				start := time.Now()
				s := NewSpace()
				n := scenes[name].hold(s, mustParse(scenes[name].pool))
				owned := time.Now()
				s.SetPool("pool", []Range{mustParse(scenes[name].pool)}, nil)
				hold, set = hold+owned.Sub(start), set+time.Since(owned)
				heap += float64(heapInUse() - before)
				ranges += float64(max(n, 1))
				runtime.KeepAlive(s)
			}
			b.ReportMetric(heap/ranges, "B/range")
			b.ReportMetric(hold.Seconds()*1000/float64(b.N), "hold-ms")
			b.ReportMetric(set.Seconds()*1000/float64(b.N), "set-ms")
		})
	}
}

func heapInUse() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
