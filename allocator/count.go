package allocator

import (
	"math"
	"slices"
)

// Vacancy is the free addresses of a pool, from which CountSets allocates. A *Vacancy
// identifies its pool.
type Vacancy struct {
	Domain string  // routing domain: vacancies of one domain may have addresses in common
	Free   []Range // addresses without an owner
	Policy Policy  // nil: BestFit
	// Waits: a request for addresses of the pool waits, or is denied for another reason
	// than room, and no other pool is tried.
	Waits bool
}

// Choice is a number of addresses that a range of a set requests from a pool.
type Choice struct {
	*Vacancy
	Size int64
}

// SetCount is the number of sets of ranges that fit into free addresses.
type SetCount struct {
	Sets int64
	// AtLeast: Sets is a lower bound. The count ended after maxCountedSets steps, or at
	// MaxInt64.
	AtLeast bool
	// Next lists the pools of the ranges of the next set, in the order of the ranges.
	// Next ends before the first range without room.
	Next []*Vacancy
	// WaitsFor is the pool with Waits that ended the count; nil if the count ended for
	// lack of room, or has AtLeast.
	WaitsFor *Vacancy
}

// maxCountedSets bounds the sets that CountSets allocates one by one.
const maxCountedSets = 50_000

// CountSets counts the sets of ranges that fit into the free addresses of pools. A set
// has a range of each list of choices, and its ranges are allocated in the order of the
// lists. Each range gets addresses from its first choice with room; a Size below 1 has no
// room. Empty sets fit without a limit.
//
// The cost grows with the number of free runs, not with the number of sets, unless pools
// have addresses in common.
func CountSets(set [][]Choice) (c SetCount) {
	counter := newSetCounter(set)
	for range maxCountedSets {
		if !counter.allocate(set, &c) {
			return c
		}
		if c.Sets = addSaturating(c.Sets+1, counter.repeat()); c.Sets == math.MaxInt64 {
			break
		}
	}
	c.AtLeast = true
	return c
}

// setCounter is the state of CountSets.
type setCounter struct {
	pools  map[*Vacancy]*Pool
	shared bool               // two pools of a routing domain have an address in common
	last   []taken            // the ranges of the last set
	heads  map[freeRun]number // the first free address of each free run of which addresses were taken
}

// taken is a range of a set, and the pool that it is from.
type taken struct {
	pool *Pool
	span
}

// freeRun identifies a free run of a pool, as it was at first, by its last address.
type freeRun struct {
	pool *Pool
	last number
}

func newSetCounter(set [][]Choice) *setCounter {
	c := &setCounter{pools: map[*Vacancy]*Pool{}, heads: map[freeRun]number{}}
	spaces := map[string]*Space{}
	free := map[string][]Range{} // of the pools of a domain
	for _, choice := range slices.Concat(set...) {
		v := choice.Vacancy
		if c.pools[v] != nil {
			continue
		}
		if spaces[v.Domain] == nil {
			spaces[v.Domain] = NewSpace()
		}
		c.shared = c.shared || OverlapsAny(free[v.Domain])(v.Free)
		free[v.Domain] = append(free[v.Domain], v.Free...)
		c.pools[v] = spaces[v.Domain].SetPool(string(rune(len(c.pools))), v.Free, nil)
	}
	return c
}

// allocate allocates a set, and records the pools of the first set in n.Next. If it
// returns false, n is complete.
func (c *setCounter) allocate(set [][]Choice, n *SetCount) bool {
	c.last = c.last[:0]
	for _, choices := range set {
		at := slices.IndexFunc(choices, func(choice Choice) bool {
			if choice.Waits {
				return true
			}
			pool := c.pools[choice.Vacancy]
			r, err := pool.Allocate(choice.Size, choice.Policy, 1)
			if err != nil {
				return false
			}
			for sp := range r.eachSpan {
				c.last = append(c.last, taken{pool, sp})
			}
			return true
		})
		switch {
		case at < 0:
			return false
		case choices[at].Waits:
			n.WaitsFor = choices[at].Vacancy
			return false
		case n.Sets == 0:
			n.Next = append(n.Next, choices[at].Vacancy)
		}
	}
	return true
}

// repeat allocates the last set again and again from the same free runs, and returns how
// often. BestFit and Sequential take the heads of runs, and a run that was chosen for a
// size is chosen again while it has room: only runs of which addresses were taken become
// shorter. The last set that a run has room for is left to allocate, because its end may
// be a better fit for another range.
//
// Pools that have addresses in common split each other's runs, and repeat allocates none.
func (c *setCounter) repeat() (times int64) {
	if c.shared {
		return 0
	}
	used := map[freeRun]int64{}
	for _, t := range c.last {
		at, _ := slices.BinarySearchFunc(t.pool.usable, t.first, func(u span, first number) int { return u.last.compare(first) })
		run := freeRun{t.pool, t.pool.usable[at].last}
		if head, begun := c.heads[run]; begun && head != t.first || !begun && t.pool.usable[at].first != t.first {
			c.shared = true // another policy
			return 0
		}
		c.heads[run] = t.last.next()
		used[run] += t.size().int64()
	}
	times = math.MaxInt64
	for run, n := range used {
		times = min(times, run.last.next().minus(c.heads[run]).int64()/n-1)
	}
	if times < 1 {
		return 0
	}
	for run, n := range used {
		sp := headOf(c.heads[run], number{lo: uint64(times * n)})
		run.pool.space.takeSpan(sp, 1)
		c.heads[run] = sp.last.next()
	}
	return times
}
