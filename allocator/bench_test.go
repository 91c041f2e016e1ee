package allocator

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"
)

// scene is a pool and what is held in it when the clock starts.
type scene struct {
	pool string
	hold func(s *Space, pool Range) int // returns how many ranges it held
}

var scenes = map[string]scene{
	"empty /24":                      {"10.0.0.0/24", func(*Space, Range) int { return 0 }},
	"half full fragmented /16":       {"10.40.0.0/16", holdScattered(32768)},
	"million held in a /8":           {"10.0.0.0/8", holdScattered(8 << 20)},
	"million, every other of a /11":  {"10.0.0.0/11", holdEvery(2, 1)},
	"million, every 16th of a /8":    {"10.0.0.0/8", holdEvery(16, 1)},
	"million blocks of 8 in a /8":    {"10.0.0.0/8", holdEvery(16, 8)},
	"one /64 in a /48":               {"2001:db8::/48", func(s *Space, _ Range) int { s.Hold(mustParse("2001:db8:0:7::/64"), 1); return 1 }},
	"million at random in a /64":     {"2001:db8::/64", holdRandom(1 << 20)},
	"million among a thousand pools": {"10.0.0.0/8", holdAmongPools(1000)},
}

// holdScattered holds runs of 1 to 15 addresses of one holder each, in random
// places, until so many addresses are held: 8 in the middle.
func holdScattered(addresses int64) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		source, n := rand.New(rand.NewPCG(4, 4)), 0
		for held := int64(0); held < addresses; {
			first := numberOf(pool.First).plus(number{lo: source.Uint64N(uint64(pool.Size() - 15))})
			r := head(first, number{lo: 1 + source.Uint64N(15)}).asRange()
			if s.leadingHolder(r) == 0 {
				n++
				s.Hold(r, Holder(n))
				held += r.Size()
			}
		}
		return n
	}
}

func (s *Space) leadingHolder(r Range) Holder {
	for held := range s.HeldIn(r) {
		return held.Holder
	}
	return 0
}

// holdEvery holds size addresses at every multiple of step.
func holdEvery(step, size uint64) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		n := 0
		for i := uint64(0); i < uint64(pool.Size()); i += step {
			n++
			s.Hold(head(numberOf(pool.First).plus(number{lo: i}), number{lo: size}).asRange(), Holder(n))
		}
		return n
	}
}

func holdRandom(count int) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		source := rand.New(rand.NewPCG(5, 5))
		for i := range count {
			first := numberOf(pool.First).plus(number{lo: source.Uint64()})
			s.Hold(span{first, first}.asRange(), Holder(i+1))
		}
		return count
	}
}

func holdAmongPools(pools int) func(*Space, Range) int {
	return func(s *Space, pool Range) int {
		for i := range pools {
			first := numberOf(mustParse("11.0.0.0").First).plus(number{lo: uint64(i) << 8})
			s.SetPool(fmt.Sprint(i), []Range{head(first, number{lo: 256}).asRange()}, []Range{head(first, number{lo: 1}).asRange()})
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

// BenchmarkAllocateRelease replaces the oldest of 64 ranges by a new one of 1 to
// 15 addresses: one allocation and one release per operation. p50 and p99 are
// those of the pair.
func BenchmarkAllocateRelease(b *testing.B) {
	for _, name := range inOrder(scenes) {
		b.Run(name, func(b *testing.B) {
			s, p, _ := scenes[name].set()
			churn(b, s, p, BestFit, 15)
		})
	}
}

func BenchmarkPolicies(b *testing.B) {
	for _, name := range []string{"half full fragmented /16", "million held in a /8"} {
		s, p, _ := scenes[name].set()
		source := rand.New(rand.NewPCG(6, 6))
		for policy, value := range map[string]Policy{"best fit": BestFit, "sequential": Sequential, "random": Random(source)} {
			b.Run(name+"/"+policy, func(b *testing.B) { churn(b, s, p, value, 1) })
		}
	}
}

func churn(b *testing.B, s *Space, p *Pool, policy Policy, largest int64) {
	const me = Holder(1) << 40
	var ring [64]Range
	source := rand.New(rand.NewPCG(7, 7))
	i := 0
	replace := func() {
		at := i % len(ring)
		s.Release(ring[at], me+Holder(at))
		// The whole ring fits into an empty /24.
		n := 1 + source.Int64N(min(largest, p.largest().int64(), 3+p.total.int64()/1024))
		r, err := p.Allocate(n, policy, me+Holder(at))
		if err != nil {
			b.Fatal(err)
		}
		ring[at] = r
		i++
	}
	for range ring {
		replace()
	}
	times := make([]time.Duration, 0, 1<<20)
	b.ReportAllocs()
	for b.Loop() {
		start := time.Now()
		replace()
		if len(times) < cap(times) {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
	b.ReportMetric(float64(times[len(times)*99/100]), "p99-ns")
	for at, r := range ring {
		s.Release(r, me+Holder(at))
	}
}

// BenchmarkExact asks for a free single address by name and gives it back.
func BenchmarkExact(b *testing.B) {
	for _, name := range inOrder(scenes) {
		b.Run(name, func(b *testing.B) {
			s, p, n := scenes[name].set()
			r, err := p.Preview(1, BestFit)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := p.Exact(r, Holder(n+1)); err != nil {
					b.Fatal(err)
				}
				s.Release(r, Holder(n+1))
			}
		})
	}
}

func BenchmarkStats(b *testing.B) {
	for _, name := range inOrder(scenes) {
		b.Run(name, func(b *testing.B) {
			_, p, _ := scenes[name].set()
			b.ReportAllocs()
			for b.Loop() {
				if s := p.Stats(); s.Total != s.Allocated+s.Available && s.Available < 1<<62 {
					b.Fatal(s)
				}
			}
		})
	}
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
				held := time.Now()
				s.SetPool("pool", []Range{mustParse(scenes[name].pool)}, nil)
				hold, set = hold+held.Sub(start), set+time.Since(held)
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
