package allocator

import "slices"

// Pool is a window onto a Space. It lives in its space: see there for
// concurrency.
type Pool struct {
	space   *Space
	window  []Range // as declared, in address order
	blocked []Range // as declared, in address order
	usable  []span  // window minus all blocks of the space; no two are adjacent
	total   number  // addresses of usable, modulo 2^128
	free    number  // addresses of runs, modulo 2^128
	// runs is the maximal free spans inside usable, by size and then first
	// address.
	runs list[span]
}

// Stats counts the addresses of a pool. Counts saturate at MaxInt64.
type Stats struct {
	Total       int64 // the window without what is blocked in the space
	Allocated   int64 // of Total, held by anybody through any pool
	Available   int64 // Total - Allocated
	LargestFree int64 // the longest run of free addresses
	FreeRuns    int   // number of such runs
	// Fragmentation is the percentage of Available outside the longest run,
	// rounded up (to 57 bits of precision); 0 when nothing is free.
	Fragmentation int32
	// Exact holds what may be more than an int64 says, as near as a float64 comes.
	Exact Amounts
}

// Amounts are the numbers of Stats.
type Amounts struct{ Total, Allocated, Available, LargestFree float64 }

// Utilization is the share of the addresses that is allocated, 0 to 1. A pool
// without addresses is full: nothing can be allocated.
func (s Stats) Utilization() float64 {
	if s.Exact.Total == 0 {
		return 1
	}
	return s.Exact.Allocated / s.Exact.Total
}

// Allocate gives h a run of n addresses that policy picks (nil: BestFit). The
// run may reach over two adjacent ranges of the window, never over a gap, and
// is not aligned. The error is ErrCount, ErrNobody or an *ExhaustedError.
func (p *Pool) Allocate(n int64, policy Policy, h Holder) (Range, error) {
	if h == 0 {
		return Range{}, ErrNobody
	}
	sp, err := p.find(n, policy)
	if err != nil {
		return Range{}, err
	}
	p.space.take(sp, h)
	return sp.asRange(), nil
}

// Preview is what Allocate would answer to any holder, and takes nothing. With
// Random it uses up random numbers.
func (p *Pool) Preview(n int64, policy Policy) (Range, error) {
	sp, err := p.find(n, policy)
	if err != nil {
		return Range{}, err
	}
	return sp.asRange(), nil
}

func (p *Pool) find(n int64, policy Policy) (span, error) {
	if n < 1 {
		return span{}, ErrCount
	}
	if policy == nil {
		policy = BestFit
	}
	sp, ok := policy.choose(p, number{lo: uint64(n)})
	if !ok {
		return span{}, &ExhaustedError{Requested: n, Available: p.available().int64(), Largest: p.largest().int64(), Total: p.Stats().Total}
	}
	return sp, nil
}

// Exact gives h all of r or nothing. Errors, in this order: ErrNobody; an
// *OutsideError unless r lies in one declared range; a *BlockedError; a
// *HeldError for the first part of r that somebody, h included, has.
func (p *Pool) Exact(r Range, h Holder) error {
	if h == 0 {
		return ErrNobody
	}
	if err := p.CheckExact(r); err != nil {
		return err
	}
	p.space.give(r, h)
	return nil
}

// CheckExact is the error that Exact would return to any holder, and takes
// nothing.
func (p *Pool) CheckExact(r Range) error {
	if !slices.ContainsFunc(p.window, func(w Range) bool { return w.Covers(r) }) {
		return &OutsideError{Range: r, Window: p.Window()}
	}
	return p.space.CheckExact(r)
}

// Window is the ranges the pool declares, in address order.
func (p *Pool) Window() []Range { return slices.Clone(p.window) }

// Stats costs the same however large the pool is.
func (p *Pool) Stats() Stats {
	held, free, largest := p.total.minus(p.free), p.available(), p.largest()
	return Stats{
		Total:         addSaturating(held.int64(), free.int64()),
		Allocated:     held.int64(),
		Available:     free.int64(),
		LargestFree:   largest.int64(),
		FreeRuns:      p.runs.count,
		Fragmentation: p.fragmentation(),
		Exact:         Amounts{held.float64() + free.float64(), held.float64(), free.float64(), largest.float64()},
	}
}

// available is the number of free addresses. Those of both families together
// are 2^128, which wraps to 0: one fewer does as well.
func (p *Pool) available() number {
	if p.free == (number{}) && p.runs.count > 0 {
		return p.free.prev()
	}
	return p.free
}

func (p *Pool) largest() number {
	if run := p.runs.last(); run != nil {
		return run.size()
	}
	return number{}
}

func (p *Pool) fragmentation() int32 {
	if p.runs.count < 2 {
		return 0
	}
	// 100 times 57 bits fit into 64. Only IPv6 has more.
	free := p.available()
	drop := max(0, free.bitLen()-57)
	return 100 - int32(100*p.largest().shifted(drop).lo/free.shifted(drop).lo)
}

// taken and freed follow a change of the space: the free run around part, a
// span of the pool, loses part or has come to contain it.
//
//	run   |---------------|
//	part      |-----|
//	sides |--|       |----|   either may be empty
func (p *Pool) taken(run, part span) {
	p.removeRun(run)
	if run.first.less(part.first) {
		p.addRun(span{run.first, part.first.prev()})
	}
	if part.last.less(run.last) {
		p.addRun(span{part.last.next(), run.last})
	}
	p.free = p.free.minus(part.size())
}

func (p *Pool) freed(run, part span) {
	if run.first.less(part.first) {
		p.removeRun(span{run.first, part.first.prev()})
	}
	if part.last.less(run.last) {
		p.removeRun(span{part.last.next(), run.last})
	}
	p.addRun(run)
	p.free = p.free.plus(part.size())
}

func (p *Pool) addRun(run span)    { p.runs.insert(p.fitting(run), run) }
func (p *Pool) removeRun(run span) { p.runs.remove(p.fitting(run)) }

// fitting is the first run that is longer than sp, or as long and does not start
// lower.
func (p *Pool) fitting(sp span) place {
	return p.runs.seek(func(run *span) bool { return bySize(*run, sp) < 0 })
}

func bySize(a, b span) int {
	if c := a.last.minus(a.first).compare(b.last.minus(b.first)); c != 0 {
		return c
	}
	return a.first.compare(b.first)
}

// rebuild finds the free runs of a pool whose usable spans have changed.
func (p *Pool) rebuild(usable []span) {
	p.usable, p.total, p.free = usable, number{}, number{}
	var runs []span
	for _, sp := range usable {
		p.total = p.total.plus(sp.size())
		for run, free := range p.space.gaps(sp) {
			if free {
				p.free = p.free.plus(run.size())
				runs = append(runs, run)
			}
		}
	}
	slices.SortFunc(runs, bySize)
	p.runs.load(runs)
}
