package allocator

import (
	"math/bits"
	"math/rand/v2"
)

// Policy picks one of the free runs of a pool that have room: BestFit,
// Sequential or Random.
type Policy interface {
	// choose returns n addresses of one run, false when none has that many.
	choose(p *Pool, n number) (span, bool)
}

type order uint8

const (
	// BestFit takes the head of the smallest run that has room, of the lowest
	// among equals: large runs stay whole.
	BestFit order = iota
	// Sequential takes the lowest addresses that have room.
	Sequential
)

func (o order) choose(p *Pool, n number) (span, bool) {
	run := p.runs.get(p.fitting(head(number{}, n)))
	if run == nil {
		return span{}, false
	}
	if o == Sequential {
		return head(p.lowest(*run, n), n), true
	}
	return head(run.first, n), true
}

// lowest is the lowest address with room for n; run is the shortest run that has
// it. Two searches take turns, and the first to end has the answer. One goes
// through the pieces in address order and looks at the gap in front of each: fast
// where room is near the start. The other goes from size to size of run, the
// first of a size being its lowest: fast where sizes are few, as in a pool filled
// from the start.
func (p *Pool) lowest(run span, n number) number {
	lowest, steps := run.first, 0
	for _, sp := range p.usable {
		for gap, free := range p.space.gaps(sp) {
			if free && !gap.size().less(n) {
				return gap.first
			}
			if steps++; steps%16 != 0 { // a size takes as long as some pieces
				continue
			}
			longer := p.runs.get(p.fitting(head(number{}, run.size().next())))
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

// head is the n addresses from first.
func head(first, n number) span { return span{first, first.plus(n).prev()} }

// Random takes addresses at random, each possible place as likely as any other
// while the pool has room, so that an address does not come back soon after its
// release. The same source in the same state gives the same answers; a nil
// source is Sequential.
func Random(source *rand.Rand) Policy {
	if source == nil {
		return Sequential
	}
	return random{source}
}

type random struct{ *rand.Rand }

// tries bounds how often Random looks for room at a random place before it
// looks for a random run that has room.
const tries = 32

func (r random) choose(p *Pool, n number) (span, bool) {
	if p.largest().less(n) {
		return span{}, false
	}
	for range tries {
		rest := p.usableFrom(r.below(p.total))
		if rest.size().less(n) {
			continue
		}
		sp := head(rest.first, n)
		if part, holder := p.space.leading(sp); part == sp && holder == 0 {
			return sp, true
		}
	}
	fitting := p.fitting(head(number{}, n))
	run := p.runs.get(p.runs.skip(fitting, r.IntN(p.runs.count-p.runs.rank(fitting))))
	places := run.size().minus(n).next()
	return head(run.first.plus(r.below(places)), n), true
}

// usableFrom is the usable span of the n-th usable address (0 to total-1),
// without what lies in front of that address.
func (p *Pool) usableFrom(n number) span {
	i := 0
	for ; !n.less(p.usable[i].size()); i++ {
		n = n.minus(p.usable[i].size())
	}
	return span{p.usable[i].first.plus(n), p.usable[i].last}
}

// below is a random number under n, which is not 0.
func (r random) below(n number) number {
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
