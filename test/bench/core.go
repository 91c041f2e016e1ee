package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// scene is a pool and what is owned in it: runs of 1 to 15 IPv4 addresses in random
// places, each with its own owner.
type scene struct {
	name  string
	pool  netip.Prefix
	owned int // addresses
}

var scenes = []scene{
	{"empty /24", netip.MustParsePrefix("10.0.0.0/24"), 0},
	{"/16 half full and fragmented", netip.MustParsePrefix("10.40.0.0/16"), 1 << 15},
	{"/8 with a million ranges", netip.MustParsePrefix("10.0.0.0/8"), 1 << 23},
}

const (
	longestRun = 15
	// turnover is how many ranges come and go.
	turnover = 64
	// newcomer is the first owner number above all owners of a scene.
	newcomer = allocator.OwnerID(1) << 40
	// timesKept bounds the calls whose time is kept.
	timesKept = 1 << 20
	// rebuilds is how often a space is filled from nothing.
	rebuilds = 3
)

// measureCore measures the allocator alone.
func measureCore(ctx context.Context, o options) ([]figure, error) {
	var figures []figure
	for _, sc := range scenes {
		wanted := func(call string) bool { return o.only.MatchString(sc.title(call)) }
		if !slices.ContainsFunc([]string{"allocate", "release", "exact range", "statistics", "rebuild"}, wanted) {
			continue
		}
		progress("core: %s", sc.name)
		ranges := sc.ranges()
		space, pool, rebuilt := sc.rebuild(ranges)
		for _, measure := range []func(*allocator.Space, *allocator.Pool) ([]figure, error){sc.turnOver, sc.exact, sc.statistics} {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			measured, err := measure(space, pool)
			if err != nil {
				return nil, fmt.Errorf("core, %s: %w", sc.name, err)
			}
			figures = append(figures, measured...)
		}
		if len(ranges) > 0 {
			figures = append(figures, rebuilt)
		}
	}
	return slices.DeleteFunc(figures, func(f figure) bool { return !o.only.MatchString(f.Name) }), nil
}

func (sc scene) title(call string) string { return "core " + call + ", " + sc.name }

// ranges is what is owned, in no order.
func (sc scene) ranges() []allocator.Range {
	source := rand.New(rand.NewPCG(4, 4))
	first, size := binary.BigEndian.Uint32(sc.pool.Addr().AsSlice()), 1<<(32-sc.pool.Bits())
	address := func(offset int) netip.Addr {
		var b [4]byte
		binary.BigEndian.PutUint32(b[:], first+uint32(offset))
		return netip.AddrFrom4(b)
	}
	taken := make([]bool, size)
	var ranges []allocator.Range
	for owned := 0; owned < sc.owned; {
		at, n := source.IntN(size-longestRun), 1+source.IntN(longestRun)
		run := taken[at : at+n]
		if slices.Contains(run, true) {
			continue
		}
		for i := range run {
			run[i] = true
		}
		ranges = append(ranges, allocator.Range{First: address(at), Last: address(at + n - 1)})
		owned += n
	}
	return ranges
}

// rebuild holds everything, then sets the pool, as after a restart. It is done several
// times over; the last space stays.
func (sc scene) rebuild(ranges []allocator.Range) (*allocator.Space, *allocator.Pool, figure) {
	var space *allocator.Space
	var times []time.Duration
	var grown uint64
	for range rebuilds {
		space = allocator.NewSpace() // drops the one before
		before := heap()
		start := time.Now()
		for i, r := range ranges {
			space.Assign(r, allocator.OwnerID(i+1))
		}
		space.SetPool(poolName, []allocator.Range{allocator.RangeOfPrefix(sc.pool)}, nil)
		times = append(times, time.Since(start))
		grown = heap() - before
	}
	f := sc.figure("rebuild", times)
	f.BytesPerRange = float64(grown) / float64(max(1, len(ranges)))
	return space, space.SetPool(poolName, []allocator.Range{allocator.RangeOfPrefix(sc.pool)}, nil), f
}

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// turnOver replaces the oldest of some ranges by a new one, again and again.
func (sc scene) turnOver(space *allocator.Space, pool *allocator.Pool) ([]figure, error) {
	var owned [turnover]allocator.Range
	source := rand.New(rand.NewPCG(7, 7))
	// All of them fit into an empty /24.
	longest := min(longestRun, 3+pool.Stats().Total/1024)
	i := 0
	replace := func() (released, allocated time.Duration, err error) {
		at := i % turnover
		i++
		count := 1 + source.Int64N(longest)
		start := time.Now()
		space.Release(owned[at], newcomer+allocator.OwnerID(at))
		middle := time.Now()
		owned[at], err = pool.Allocate(count, allocator.BestFit, newcomer+allocator.OwnerID(at))
		return middle.Sub(start), time.Since(middle), err
	}
	for range turnover {
		if _, _, err := replace(); err != nil {
			return nil, err
		}
	}
	release, allocate, allocs, err := repeat(replace)
	for at, r := range owned {
		space.Release(r, newcomer+allocator.OwnerID(at))
	}
	return []figure{sc.allocating("allocate", allocate, allocs), sc.allocating("release", release, allocs)}, err
}

// exact takes one free address by name and gives it back.
func (sc scene) exact(space *allocator.Space, pool *allocator.Pool) ([]figure, error) {
	r, err := pool.Preview(1, allocator.BestFit)
	if err != nil {
		return nil, err
	}
	exact, _, allocs, err := repeat(func() (taken, released time.Duration, err error) {
		start := time.Now()
		err = pool.AllocateExact(r, newcomer)
		middle := time.Now()
		space.Release(r, newcomer)
		return middle.Sub(start), time.Since(middle), err
	})
	return []figure{sc.allocating("exact range", exact, allocs)}, err
}

func (sc scene) statistics(_ *allocator.Space, pool *allocator.Pool) ([]figure, error) {
	stats, _, allocs, err := repeat(func() (read, _ time.Duration, err error) {
		start := time.Now()
		s := pool.Stats()
		read = time.Since(start)
		if s.Total != s.Allocated+s.Available {
			err = fmt.Errorf("statistics contradict themselves: %+v", s)
		}
		return read, 0, err
	})
	return []figure{sc.allocating("statistics", stats, allocs)}, err
}

// repeat takes a step about a second long and returns the times of its two parts, and the
// heap allocations of one step.
func repeat(step func() (first, second time.Duration, err error)) (first, second []time.Duration, allocs int64, err error) {
	result := testing.Benchmark(func(b *testing.B) {
		first, second = make([]time.Duration, 0, timesKept), make([]time.Duration, 0, timesKept)
		for b.Loop() {
			x, y, failed := step()
			if failed != nil {
				err = failed
				b.FailNow()
			}
			if len(first) < timesKept {
				first, second = append(first, x), append(second, y)
			}
		}
	})
	return first, second, result.AllocsPerOp(), err
}

func (sc scene) allocating(call string, times []time.Duration, allocs int64) figure {
	f := sc.figure(call, times)
	f.AllocsPerOp = &allocs
	return f
}

func (sc scene) figure(call string, times []time.Duration) figure {
	if len(times) == 0 { // the step failed
		return figure{}
	}
	return figure{table: coreTable, Name: sc.title(call), N: len(times), P50: ms(quantile(times, 0.50)), P99: ms(quantile(times, 0.99))}
}
