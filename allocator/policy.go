package allocator

import (
	"math/bits"
	"math/rand/v2"
)

// Policy chooses one of the free runs of a pool that are large enough: BestFit,
// Sequential or Random.
type Policy interface {
	// chooseRun returns n addresses of one run, false if no run is large enough.
	chooseRun(p *Pool, n number) (span, bool)
}

type order uint8

const (
	// BestFit takes the head of the smallest run that is large enough, the lowest of runs
	// of equal size: large runs stay whole.
	BestFit order = iota
	// Sequential takes the head of the lowest run that is large enough.
	Sequential
)

func (o order) chooseRun(p *Pool, n number) (span, bool) {
	run := p.runs.itemAt(p.firstFitting(headOf(number{}, n)))
	if run == nil {
		return span{}, false
	}
	if o == Sequential {
		return headOf(p.lowestRun(*run, n), n), true
	}
	return headOf(run.first, n), true
}

// lowestRun returns the lowest address with room for n; run is the shortest run with
// room. Two searches alternate, and the first to end has the result. The first search
// visits the pieces in address order and checks the gap before each piece: fast if there
// is room near the start. The second search visits the sizes of runs, since the first run
// of a size is the lowest run of that size: fast if there are few sizes, as in a pool
// filled from the start.
func (p *Pool) lowestRun(run span, n number) number {
	lowest, steps := run.first, 0
	for _, sp := range p.usable {
		for gap, free := range p.space.eachGap(sp) {
			if free && !gap.size().less(n) {
				return gap.first
			}
			if steps++; steps%16 != 0 { // a size takes as long as some pieces
				continue
			}
			longer := p.runs.itemAt(p.firstFitting(headOf(number{}, run.size().next())))
			if longer == nil {
				return lowest
			}
			if run = *longer; run.first.less(lowest) {
				lowest = run.first
			}
		}
	}
	return lowest
}

// headOf returns the n addresses from first.
func headOf(first, n number) span { return span{first, first.plus(n).prev()} }

// Random takes addresses at random, with equal probability for each possible place, so
// that a released address is not allocated again soon. A source in the same state gives
// the same results; a nil source means Sequential.
func Random(source *rand.Rand) Policy {
	if source == nil {
		return Sequential
	}
	return random{source}
}

type random struct{ *rand.Rand }

// tries bounds how often Random checks a random place before it takes a random run with
// room.
const tries = 32

func (r random) chooseRun(p *Pool, n number) (span, bool) {
	if p.largestNumber().less(n) {
		return span{}, false
	}
	for range tries {
		rest := p.usableFrom(r.numberBelow(p.total))
		if rest.size().less(n) {
			continue
		}
		sp := headOf(rest.first, n)
		if part, owner := p.space.leadingPart(sp); part == sp && owner == 0 {
			return sp, true
		}
	}
	fitting := p.firstFitting(headOf(number{}, n))
	run := p.runs.itemAt(p.runs.placeAfter(fitting, r.IntN(p.runs.count-p.runs.countBefore(fitting))))
	places := run.size().minus(n).next()
	return headOf(run.first.plus(r.numberBelow(places)), n), true
}

// usableFrom returns the usable span from the n-th usable address on (0 to total-1).
func (p *Pool) usableFrom(n number) span {
	i := 0
	for ; !n.less(p.usable[i].size()); i++ {
		n = n.minus(p.usable[i].size())
	}
	return span{p.usable[i].first.plus(n), p.usable[i].last}
}

// numberBelow returns a random number below n, which must not be 0.
func (r random) numberBelow(n number) number {
	for highest := n.prev(); ; {
		m := number{lo: r.Uint64()}
		if highest.hi == 0 {
			m.lo &= 1<<bits.Len64(highest.lo) - 1
		} else {
			m.hi = r.Uint64() & (1<<bits.Len64(highest.hi) - 1)
		}
		if !highest.less(m) {
			return m
		}
	}
}
