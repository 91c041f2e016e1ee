package allocator

import (
	"fmt"
	"iter"
)

// OwnerID identifies the owner of an address. This package gives the number no meaning; 0
// is no owner.
type OwnerID uint64

// Owned is a range and the owner of all of it.
type Owned struct {
	Range
	OwnerID
}

func (h Owned) String() string { return fmt.Sprintf("%s (owner %d)", h.Range, h.OwnerID) }

// Space is the addresses of one routing domain and their owners. Its pools are windows
// onto the space: an address that is allocated through one pool is owned in every pool
// that offers the address.
//
// A Space and its pools are one value for concurrency: calls on them must not overlap.
type Space struct {
	pieces  list[piece]      // all owned addresses, in address order
	pools   map[string]*Pool // name -> pool
	panes   []pane           // every usable span of every pool, by first address
	blocks  []span           // blocked spans of each pool, by first and last address
	blocked []span           // the union of blocks
}

// piece is a span and its owner. Pieces do not overlap, and two adjacent pieces have
// different owners, so that equal ownership has equal pieces.
type piece struct {
	span
	owner OwnerID
}

// NewSpace returns a space without owners.
func NewSpace() *Space {
	return &Space{pools: map[string]*Pool{}}
}

// IsEmptyBut reports whether no address has an owner, and no pool but the pool with this
// name exists: such a space equals a new space with that pool.
func (s *Space) IsEmptyBut(pool string) bool {
	return s.pieces.count == 0 && (len(s.pools) == 0 || len(s.pools) == 1 && s.pools[pool] != nil)
}

// Assign makes h the owner of every address of r without an owner, in a pool or not,
// blocked or not, and returns the parts of r with other owners, in address order. Assign
// is for objects that are already stored; new ranges come from Allocate and
// AllocateExact. Owner 0 gets no addresses. The cost grows with the owned pieces inside
// r.
func (s *Space) Assign(r Range, h OwnerID) []Owned {
	var others []Owned
	for part, owner := range s.eachPart(r) {
		switch owner {
		case h:
		case 0:
			s.takeSpan(part, h)
		default:
			others = append(others, Owned{part.asRange(), owner})
		}
	}
	return others
}

// AllocateExact makes h the owner of all of r, in a pool or not, or returns an error.
// Errors, in this order: ErrNoOwner; a *BlockedError; an *OwnedError for the first part
// of r with an owner, also if the owner is h.
func (s *Space) AllocateExact(r Range, h OwnerID) error {
	if h == 0 {
		return ErrNoOwner
	}
	if err := s.CheckExact(r); err != nil {
		return err
	}
	s.assignExact(r, h)
	return nil
}

// CheckExact returns the error that AllocateExact would return to any owner, and does not
// change the space.
func (s *Space) CheckExact(r Range) error {
	for sp := range r.eachSpan {
		if blocked, ok := s.blockedIn(sp); ok {
			return &BlockedError{Range: blocked}
		}
	}
	for owned := range s.OwnedIn(r) {
		return &OwnedError{owned.Range, owned.OwnerID}
	}
	return nil
}

// assignExact makes h the owner of r, which has no owner.
func (s *Space) assignExact(r Range, h OwnerID) {
	for sp := range r.eachSpan {
		s.takeSpan(sp, h)
	}
}

// PoolsOffering yields the pools that offer an address of r. A pool with several ranges
// over r is yielded once for each range.
func (s *Space) PoolsOffering(r Range) iter.Seq[*Pool] {
	return func(yield func(*Pool) bool) {
		for sp := range r.eachSpan {
			for pane := range s.panesOver(sp) {
				if !yield(pane.pool) {
					return
				}
			}
		}
	}
}

// Release frees the addresses of r that h owns. The cost grows with the owned pieces
// inside r.
func (s *Space) Release(r Range, h OwnerID) {
	for part, owner := range s.eachPart(r) {
		if owner == h && h != 0 {
			s.freeSpan(part)
		}
	}
}

// OwnedIn yields the owned parts of r in address order, clipped to r, adjacent addresses
// of one owner as one range. If the space changes between two steps, later steps yield
// the changed owners.
func (s *Space) OwnedIn(r Range) iter.Seq[Owned] {
	return func(yield func(Owned) bool) {
		for part, owner := range s.eachPart(r) {
			if owner != 0 && !yield(Owned{part.asRange(), owner}) {
				return
			}
		}
	}
}

// eachPart yields the parts of r, in address order, each with one owner; free addresses
// have owner 0. Each step reads the space again, so the loop may change the space.
func (s *Space) eachPart(r Range) iter.Seq2[span, OwnerID] {
	return func(yield func(span, OwnerID) bool) {
		for sp := range r.eachSpan {
			for more := true; more; {
				part, owner := s.leadingPart(sp)
				if !yield(part, owner) {
					return
				}
				more = part.last != sp.last
				sp.first = part.last.next()
			}
		}
	}
}

// leadingPart returns the longest head of sp with one owner, or without an owner (0).
func (s *Space) leadingPart(sp span) (span, OwnerID) {
	next := s.pieces.itemAt(s.firstPieceFrom(sp.first))
	switch {
	case next == nil || sp.last.less(next.first):
		return sp, 0
	case sp.first.less(next.first):
		return span{sp.first, next.first.prev()}, 0
	}
	return next.clip(sp), next.owner
}

// firstPieceFrom returns the first piece that ends at n or later.
func (s *Space) firstPieceFrom(n number) place {
	return s.pieces.findPlace(func(p *piece) bool { return p.last.less(n) })
}

// gapBefore returns the free addresses between the piece before a place and the piece at
// the place.
func (s *Space) gapBefore(at place) span {
	gap := span{last: number{}.prev()}
	if p := s.pieces.itemBefore(at); p != nil {
		gap.first = p.last.next()
	}
	if p := s.pieces.itemAt(at); p != nil {
		gap.last = p.first.prev()
	}
	return gap
}

// eachGap yields the free span before every piece in sp, and the free span at the end of
// sp; false for an empty span. The loop must not change the space.
func (s *Space) eachGap(sp span) iter.Seq2[span, bool] {
	return func(yield func(span, bool) bool) {
		for at := s.firstPieceFrom(sp.first); ; at = s.pieces.placeAfter(at, 1) {
			next := s.pieces.itemAt(at)
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

// takeSpan makes h the owner of sp, which has no owner.
func (s *Space) takeSpan(sp span, h OwnerID) {
	at := s.firstPieceFrom(sp.first)
	gap := s.gapBefore(at)
	for pane := range s.panesOver(sp) {
		pane.pool.recordTaken(gap.clip(pane.span), sp.clip(pane.span))
	}

	left, right := s.pieces.itemBefore(at), s.pieces.itemAt(at)
	joinsLeft := left != nil && left.owner == h && left.last.followedBy(sp.first)
	joinsRight := right != nil && right.owner == h && sp.last.followedBy(right.first)
	switch {
	case joinsLeft && joinsRight:
		left.last = right.last
		s.pieces.removeAt(at)
	case joinsLeft:
		left.last = sp.last
	case joinsRight:
		right.first = sp.first
	default:
		s.pieces.insertAt(at, piece{sp, h})
	}
}

// freeSpan removes the owner of sp, which lies in one piece.
func (s *Space) freeSpan(sp span) {
	at := s.firstPieceFrom(sp.first)
	p := s.pieces.itemAt(at)
	switch head, tail := p.first == sp.first, p.last == sp.last; {
	case head && tail:
		s.pieces.removeAt(at)
	case head:
		p.first = sp.last.next()
	case tail:
		p.last = sp.first.prev()
	default:
		rest := piece{span{p.first, sp.first.prev()}, p.owner}
		p.first = sp.last.next()
		s.pieces.insertAt(at, rest)
	}

	gap := s.gapBefore(s.firstPieceFrom(sp.first))
	for pane := range s.panesOver(sp) {
		pane.pool.recordFreed(gap.clip(pane.span), sp.clip(pane.span))
	}
}
