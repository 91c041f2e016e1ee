package allocator

import (
	"math"
	"math/big"
	"slices"
)

// Pool is a window onto a Space: see Space for concurrency.
type Pool struct {
	space   *Space
	window  []Range // as declared, in address order
	blocked []Range // as declared, in address order
	usable  []span  // window minus all blocks of the space; no two are adjacent
	total   number  // addresses of usable, modulo 2^128
	free    number  // addresses of runs, modulo 2^128
	// runs is the maximal free spans inside usable, by size and then first address.
	runs list[span]
}

// Stats counts the addresses of a pool. Counts saturate at MaxInt64.
type Stats struct {
	Total       int64 // addresses of the window that are not blocked in the space
	Allocated   int64 // of Total, owned through any pool
	Available   int64 // Total - Allocated
	LargestFree int64 // the longest run of free addresses
	FreeRuns    int   // number of such runs
	// Fragmentation is the percentage of Available outside the longest run,
	// rounded up (to 57 bits of precision); 0 when nothing is free.
	Fragmentation int32
	// Exact has the numbers as float64, which may exceed an int64.
	Exact Amounts
}

// Amounts are the numbers of Stats.
type Amounts struct {
	Total, Allocated, Available, LargestFree float64

	allocated, available, largest number
}

func newAmounts(allocated, available, largest number) Amounts {
	return Amounts{
		allocated.float64() + available.float64(), allocated.float64(), available.float64(), largest.float64(),
		allocated, available, largest,
	}
}

// Decimals returns the numbers in decimal digits, without loss.
func (a Amounts) Decimals() (total, allocated, available, largest string) {
	sum := new(big.Int).Add(a.allocated.big(), a.available.big()) // a pool can have 2^128 addresses, one more than the largest number
	return sum.String(), a.allocated.big().String(), a.available.big().String(), a.largest.big().String()
}

// Utilization returns the allocated share of the addresses, 0 to 1. A pool without
// addresses is full: nothing can be allocated.
func (s Stats) Utilization() float64 {
	if s.Exact.Total == 0 {
		return 1
	}
	return s.Exact.Allocated / s.Exact.Total
}

// Percent returns Utilization in percent, rounded to the nearest integer: messages, the
// plugin and the console show this number.
func (s Stats) Percent() int { return int(math.RoundToEven(100 * s.Utilization())) }

// Allocate makes h the owner of a run of n addresses that policy chooses (nil: BestFit).
// The run may span two adjacent ranges of the window, never a gap, and is not aligned.
// Errors: ErrCount, ErrNoOwner, *ExhaustedError.
func (p *Pool) Allocate(n int64, policy Policy, h OwnerID) (Range, error) {
	if h == 0 {
		return Range{}, ErrNoOwner
	}
	sp, err := p.findRun(n, policy)
	if err != nil {
		return Range{}, err
	}
	p.space.takeSpan(sp, h)
	return sp.asRange(), nil
}

// Preview returns what Allocate would return to any owner, and does not change the pool.
// With Random it uses up random numbers.
func (p *Pool) Preview(n int64, policy Policy) (Range, error) {
	sp, err := p.findRun(n, policy)
	if err != nil {
		return Range{}, err
	}
	return sp.asRange(), nil
}

func (p *Pool) findRun(n int64, policy Policy) (span, error) {
	if n < 1 {
		return span{}, ErrCount
	}
	if policy == nil {
		policy = BestFit
	}
	sp, ok := policy.chooseRun(p, number{lo: uint64(n)})
	if !ok {
		return span{}, &ExhaustedError{Requested: n, Available: p.availableNumber().int64(), Largest: p.largestNumber().int64(), Total: p.Stats().Total}
	}
	return sp, nil
}

// AllocateExact makes h the owner of all of r, or returns an error. Errors, in this
// order: ErrNoOwner; an *OutsideError unless r lies in one declared range; a
// *BlockedError; an *OwnedError for the first part of r with an owner, also if the owner
// is h.
func (p *Pool) AllocateExact(r Range, h OwnerID) error {
	if h == 0 {
		return ErrNoOwner
	}
	if err := p.CheckExact(r); err != nil {
		return err
	}
	p.space.assignExact(r, h)
	return nil
}

// CheckExact returns the error that AllocateExact would return to any owner, and does not
// change the pool.
func (p *Pool) CheckExact(r Range) error {
	if !slices.ContainsFunc(p.window, func(w Range) bool { return w.Covers(r) }) {
		return &OutsideError{Range: r, Window: p.Window()}
	}
	return p.space.CheckExact(r)
}

// Window returns the declared ranges, in address order.
func (p *Pool) Window() []Range { return slices.Clone(p.window) }

// Stats returns the numbers of the pool; the cost does not depend on its size.
func (p *Pool) Stats() Stats {
	owned, free, largest := p.total.minus(p.free), p.availableNumber(), p.largestNumber()
	return Stats{
		Total:         addSaturating(owned.int64(), free.int64()),
		Allocated:     owned.int64(),
		Available:     free.int64(),
		LargestFree:   largest.int64(),
		FreeRuns:      p.runs.count,
		Fragmentation: p.fragmentationPercent(),
		Exact:         newAmounts(owned, free, largest),
	}
}

// Available returns the number of free addresses, as Stats does.
func (p *Pool) Available() int64 { return p.availableNumber().int64() }

// Free lists the free runs, in address order. The cost grows with their number.
func (p *Pool) Free() []Range {
	runs := make([]span, 0, p.runs.count)
	for at := (place{}); ; at = p.runs.placeAfter(at, 1) {
		run := p.runs.itemAt(at)
		if run == nil {
			break
		}
		runs = append(runs, *run)
	}
	slices.SortFunc(runs, span.compare)
	return asRanges(runs)
}

// CountOffered counts the addresses of disjoint ranges that are in the window and not
// blocked in the space, with an owner or without. The count saturates at MaxInt64.
func (p *Pool) CountOffered(ranges ...Range) (n int64) {
	for _, r := range ranges {
		for sp := range r.eachSpan {
			at, _ := slices.BinarySearchFunc(p.usable, sp.first, func(u span, first number) int { return u.last.compare(first) })
			for _, u := range p.usable[at:] {
				if sp.last.less(u.first) {
					break
				}
				n = addSaturating(n, sp.clip(u).size().int64())
			}
		}
	}
	return n
}

// availableNumber returns the number of free addresses. Both families together have 2^128
// addresses: the number wraps to 0 and is reported as 2^128-1.
func (p *Pool) availableNumber() number {
	if p.free == (number{}) && p.runs.count > 0 {
		return p.free.prev()
	}
	return p.free
}

func (p *Pool) largestNumber() number {
	if run := p.runs.lastItem(); run != nil {
		return run.size()
	}
	return number{}
}

func (p *Pool) fragmentationPercent() int32 {
	if p.runs.count < 2 {
		return 0
	}
	// 100 times 57 bits fit into 64. Only IPv6 has more.
	free := p.availableNumber()
	drop := max(0, free.bitLen()-57)
	return 100 - int32(100*p.largestNumber().shifted(drop).lo/free.shifted(drop).lo)
}

// recordTaken and recordFreed follow a change of the space: the free run around part, a
// span of the pool, loses part, or now contains part.
//
//	run   |---------------|
//	part      |-----|
//	sides |--|       |----|   either may be empty
func (p *Pool) recordTaken(run, part span) {
	p.removeRun(run)
	if run.first.less(part.first) {
		p.addRun(span{run.first, part.first.prev()})
	}
	if part.last.less(run.last) {
		p.addRun(span{part.last.next(), run.last})
	}
	p.free = p.free.minus(part.size())
}

func (p *Pool) recordFreed(run, part span) {
	if run.first.less(part.first) {
		p.removeRun(span{run.first, part.first.prev()})
	}
	if part.last.less(run.last) {
		p.removeRun(span{part.last.next(), run.last})
	}
	p.addRun(run)
	p.free = p.free.plus(part.size())
}

func (p *Pool) addRun(run span)    { p.runs.insertAt(p.firstFitting(run), run) }
func (p *Pool) removeRun(run span) { p.runs.removeAt(p.firstFitting(run)) }

// firstFitting returns the first run that is longer than sp, or as long and not lower.
func (p *Pool) firstFitting(sp span) place {
	return p.runs.findPlace(func(run *span) bool { return bySize(*run, sp) < 0 })
}

func bySize(a, b span) int {
	if c := a.last.minus(a.first).compare(b.last.minus(b.first)); c != 0 {
		return c
	}
	return a.first.compare(b.first)
}

// rebuildRuns finds the free runs of a pool whose usable spans have changed.
func (p *Pool) rebuildRuns(usable []span) {
	p.usable, p.total, p.free = usable, number{}, number{}
	var runs []span
	for _, sp := range usable {
		p.total = p.total.plus(sp.size())
		for run, free := range p.space.eachGap(sp) {
			if free {
				p.free = p.free.plus(run.size())
				runs = append(runs, run)
			}
		}
	}
	slices.SortFunc(runs, bySize)
	p.runs.replaceAll(runs)
}
