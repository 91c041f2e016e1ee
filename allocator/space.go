package allocator

import (
	"fmt"
	"iter"
)

// Holder stands for whoever has an address. The core gives it no meaning; 0 is
// nobody.
type Holder uint64

// Held is a range and who holds all of it.
type Held struct {
	Range
	Holder
}

func (h Held) String() string { return fmt.Sprintf("%s (holder %d)", h.Range, h.Holder) }

// Space is the addresses of one routing domain and who holds which. Its pools
// are windows onto it: an address held through one is held in all that show it.
//
// A Space and its pools are one value for concurrency: calls on them must not
// overlap.
type Space struct {
	pieces  list[piece]      // all that is held, in address order
	pools   map[string]*Pool // name -> pool
	panes   []pane           // every usable span of every pool, by first address
	blocks  []span           // what each pool blocks, by first and last address
	blocked []span           // the union of blocks
}

// piece is a span and its one holder. Pieces do not overlap, and two that are
// adjacent have different holders: who holds what has one representation.
type piece struct {
	span
	holder Holder
}

// NewSpace returns a space where nobody holds anything.
func NewSpace() *Space {
	return &Space{pools: map[string]*Pool{}}
}

// Idle reports whether nobody holds anything and no pool shows the space: a new
// one would be the same.
func (s *Space) Idle() bool { return s.pieces.count == 0 && len(s.pools) == 0 }

// Hold gives h every address of r that nobody holds, in a pool or not, blocked
// or not, and returns the parts of r that others hold, in address order. This is
// for what is stored already; what is new comes from Allocate and Exact. Holder
// 0 takes nothing. The cost grows with the pieces held inside r.
func (s *Space) Hold(r Range, h Holder) []Held {
	var others []Held
	for part, holder := range s.parts(r) {
		switch holder {
		case h:
		case 0:
			s.take(part, h)
		default:
			others = append(others, Held{part.asRange(), holder})
		}
	}
	return others
}

// Exact gives h all of r, in a pool or not, or nothing. Errors, in this order:
// ErrNobody; a *BlockedError; a *HeldError for the first part of r that somebody,
// h included, has.
func (s *Space) Exact(r Range, h Holder) error {
	if h == 0 {
		return ErrNobody
	}
	if err := s.CheckExact(r); err != nil {
		return err
	}
	s.give(r, h)
	return nil
}

// CheckExact is the error that Exact would return to any holder, and takes
// nothing.
func (s *Space) CheckExact(r Range) error {
	for sp := range r.spans {
		if blocked, ok := s.blockedIn(sp); ok {
			return &BlockedError{Range: blocked}
		}
	}
	for held := range s.HeldIn(r) {
		return &HeldError{held.Range, held.Holder}
	}
	return nil
}

// give takes r, which nobody holds.
func (s *Space) give(r Range, h Holder) {
	for sp := range r.spans {
		s.take(sp, h)
	}
}

// Offering yields the pools that offer an address of r; one that has several
// ranges over r comes up for each of them.
func (s *Space) Offering(r Range) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		for sp := range r.spans {
			for pane := range s.panesOver(sp) {
				if !yield(pane.pool) {
					return
				}
			}
		}
	}
}

// Release frees what h holds inside r. The cost grows with the pieces held
// inside r.
func (s *Space) Release(r Range, h Holder) {
	for part, holder := range s.parts(r) {
		if holder == h && h != 0 {
			s.free(part)
		}
	}
}

// HeldIn yields what is held inside r in address order, clipped to r, adjacent
// addresses of one holder as one range. The space may change between two steps:
// what has not been reached yet is then seen as it has become.
func (s *Space) HeldIn(r Range) iter.Seq[Held] {
	return func(yield func(Held) bool) {
		for part, holder := range s.parts(r) {
			if holder != 0 && !yield(Held{part.asRange(), holder}) {
				return
			}
		}
	}
}

// parts cuts r, in address order, where its holder changes; free addresses have
// holder 0. Every step looks anew, so that the one before may change the space.
func (s *Space) parts(r Range) iter.Seq2[span, Holder] {
	return func(yield func(span, Holder) bool) {
		for sp := range r.spans {
			for more := true; more; {
				part, holder := s.leading(sp)
				if !yield(part, holder) {
					return
				}
				more = part.last != sp.last
				sp.first = part.last.next()
			}
		}
	}
}

// leading is the longest head of sp with one holder, or with none (0).
func (s *Space) leading(sp span) (span, Holder) {
	next := s.pieces.get(s.from(sp.first))
	switch {
	case next == nil || sp.last.less(next.first):
		return sp, 0
	case sp.first.less(next.first):
		return span{sp.first, next.first.prev()}, 0
	}
	return next.clip(sp), next.holder
}

// from is the first piece that ends at n or later.
func (s *Space) from(n number) place {
	return s.pieces.seek(func(p *piece) bool { return p.last.less(n) })
}

// gap is the free addresses between the piece in front of at and the one at it.
func (s *Space) gap(at place) span {
	gap := span{last: number{}.prev()}
	if p := s.pieces.ahead(at); p != nil {
		gap.first = p.last.next()
	}
	if p := s.pieces.get(at); p != nil {
		gap.last = p.first.prev()
	}
	return gap
}

// gaps yields the free span in front of every piece in sp, and the one at its
// end; false where there is none. The space must not change meanwhile.
func (s *Space) gaps(sp span) iter.Seq2[span, bool] {
	return func(yield func(span, bool) bool) {
		for at := s.from(sp.first); ; at = s.pieces.skip(at, 1) {
			next := s.pieces.get(at)
			if next == nil || sp.last.less(next.first) {
				yield(sp, true)
				return
			}
			if !yield(span{sp.first, next.first.prev()}, sp.first.less(next.first)) || !next.last.less(sp.last) {
				return
			}
			sp.first = next.last.next()
		}
	}
}

// take gives h the span sp, which nobody holds.
func (s *Space) take(sp span, h Holder) {
	at := s.from(sp.first)
	gap := s.gap(at)
	for pane := range s.panesOver(sp) {
		pane.pool.taken(gap.clip(pane.span), sp.clip(pane.span))
	}

	left, right := s.pieces.ahead(at), s.pieces.get(at)
	joinsLeft := left != nil && left.holder == h && left.last.followedBy(sp.first)
	joinsRight := right != nil && right.holder == h && sp.last.followedBy(right.first)
	switch {
	case joinsLeft && joinsRight:
		left.last = right.last
		s.pieces.remove(at)
	case joinsLeft:
		left.last = sp.last
	case joinsRight:
		right.first = sp.first
	default:
		s.pieces.insert(at, piece{sp, h})
	}
}

// free takes sp from the one piece it lies in.
func (s *Space) free(sp span) {
	at := s.from(sp.first)
	p := s.pieces.get(at)
	switch head, tail := p.first == sp.first, p.last == sp.last; {
	case head && tail:
		s.pieces.remove(at)
	case head:
		p.first = sp.last.next()
	case tail:
		p.last = sp.first.prev()
	default:
		rest := piece{span{p.first, sp.first.prev()}, p.holder}
		p.first = sp.last.next()
		s.pieces.insert(at, rest)
	}

	gap := s.gap(s.from(sp.first))
	for pane := range s.panesOver(sp) {
		pane.pool.freed(gap.clip(pane.span), sp.clip(pane.span))
	}
}
