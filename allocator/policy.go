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
	at := seekRun(&p.lowest, head(number{}, n))
	run := p.lowest.get(at)
	if run == nil {
		return span{}, false
	}
	first := run.first
	for o == Sequential && run != nil {
		if run.first.less(first) {
			first = run.first
		}
		at = p.lowest.skip(at, 1)
		run = p.lowest.get(at)
	}
	return head(first, n), true
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
	fitting := seekRun(&p.runs, head(number{}, n))
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
