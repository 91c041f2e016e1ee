package inventory

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

// Sign is the content of one square of a map. A square is one address or several
// consecutive addresses.
type Sign rune

const (
	SignFree         Sign = '·'
	SignNodes        Sign = 'N'
	SignLoadBalancer Sign = 'L'
	SignVIP          Sign = 'V'
	SignMachine      Sign = 'M'
	SignOther        Sign = 'o' // owned by an object hidden from the reader
	SignSeveral      Sign = 'x' // addresses with different signs, no address free
	SignPartly       Sign = '▒' // free addresses and addresses with other signs
	SignReserved     Sign = 'r'
	SignCooldown     Sign = '~'
	SignGranted      Sign = '?' // granted to a claim not yet observed, or withheld by an update of a pool
	SignMoved        Sign = 'm' // owned in another cluster
	SignConflict     Sign = '!'
	SignNotOffered   Sign = ' '
)

// Meanings lists the signs with their meaning, in the order of the legend.
var Meanings = []struct {
	Sign
	Meaning string
}{
	{SignFree, "free"}, {SignNodes, "nodes"}, {SignLoadBalancer, "load balancers"}, {SignVIP, "VIP"}, {SignMachine, "machine"}, {SignOther, "owned by others"}, {SignSeveral, "several"},
	{SignPartly, "partly free"}, {SignReserved, "reserved"}, {SignCooldown, "cooldown"}, {SignGranted, "granted"}, {SignMoved, "moved"}, {SignConflict, "conflict"},
	{SignNotOffered, "not offered"},
}

// ASCII returns the sign for a terminal without Unicode.
func (s Sign) ASCII() Sign {
	switch s {
	case SignFree:
		return '.'
	case SignPartly:
		return '+'
	}
	return s
}

// SignOf returns the sign of a segment.
func (i *Inventory) SignOf(g state.Segment) Sign {
	switch g.State {
	case state.SegmentFree:
		return SignFree
	case state.SegmentReserved:
		return SignReserved
	case state.SegmentCooldown:
		return SignCooldown
	case state.SegmentMoved:
		return SignMoved
	case state.SegmentOwned:
		if len(g.Rivals) > 0 {
			return SignConflict
		}
		return i.signOfOwner(g.Owner)
	}
	return SignGranted
}

func (i *Inventory) signOfOwner(k Key) Sign {
	if IsAnonymous(k) {
		return SignOther
	}
	c := i.claims[k]
	if c == nil {
		return SignMachine // an address object without its claim
	}
	switch c.Purpose {
	case PurposeNodes:
		return SignNodes
	case PurposeLoadBalancer:
		return SignLoadBalancer
	case PurposeVIP:
		return SignVIP
	}
	return SignMachine
}

// combine returns the sign of a square with addresses of sign a and addresses of sign b.
func (a Sign) combine(b Sign) Sign {
	switch {
	case a == b:
		return a
	case a == SignConflict || b == SignConflict:
		return SignConflict
	case a == SignNotOffered:
		return b
	case b == SignNotOffered:
		return a
	case a == SignFree || b == SignFree || a == SignPartly || b == SignPartly:
		return SignPartly
	}
	return SignSeveral
}

// Grid returns the squares of a network, each of 1<<shift addresses. Free addresses not
// offered by the pool are SignNotOffered. The cost grows with the number of squares and
// segments.
func (i *Inventory) Grid(p *Pool, network allocator.Range, shift int) []Sign {
	squares := make([]Sign, squareOf(network.First, network.Last, shift)+1)
	for n := range squares {
		squares[n] = SignNotOffered
	}
	draw := func(ranges []allocator.Range, offered bool) {
		for _, g := range i.Segments(p.Domain, ranges) {
			if g.State == state.SegmentFree && !offered {
				continue
			}
			sign := i.SignOf(g)
			for n := squareOf(network.First, g.Range.First, shift); n <= squareOf(network.First, g.Range.Last, shift); n++ {
				squares[n] = squares[n].combine(sign)
			}
		}
	}
	elsewhere := allocator.Subtract([]allocator.Range{network}, p.Ranges)
	draw(elsewhere, false)
	draw(allocator.Subtract([]allocator.Range{network}, elsewhere), true)
	return squares
}

// ShiftFor returns the least shift with which a range has at most 1<<most squares. A
// square has 1<<shift addresses.
func ShiftFor(r allocator.Range, most int) int {
	high, low := difference(r.Last, r.First)
	length := bits.Len64(low)
	if high > 0 {
		length = 64 + bits.Len64(high)
	}
	return max(0, length-most)
}

// SquareAt returns the first address of a square, see squareOf. Precondition: the address
// exists.
func SquareAt(first netip.Addr, square, shift int) netip.Addr {
	a := first.As16()
	low, high := uint64(square)<<shift, uint64(square)>>(64-shift)
	if shift >= 64 {
		low, high = 0, uint64(square)<<(shift-64)
	}
	low, carry := bits.Add64(binary.BigEndian.Uint64(a[8:]), low, 0)
	high, _ = bits.Add64(binary.BigEndian.Uint64(a[:8]), high, carry)
	binary.BigEndian.PutUint64(a[8:], low)
	binary.BigEndian.PutUint64(a[:8], high)
	if at := netip.AddrFrom16(a); first.Is4() {
		return at.Unmap()
	}
	return netip.AddrFrom16(a)
}

// difference returns a - b.
func difference(a, b netip.Addr) (high, low uint64) {
	x, y := a.As16(), b.As16()
	low, borrow := bits.Sub64(binary.BigEndian.Uint64(x[8:]), binary.BigEndian.Uint64(y[8:]), 0)
	high, _ = bits.Sub64(binary.BigEndian.Uint64(x[:8]), binary.BigEndian.Uint64(y[:8]), borrow)
	return high, low
}

// squareOf returns the index of the square that contains an address. The first square
// begins at first, and each square has 1<<shift addresses.
func squareOf(first, address netip.Addr, shift int) int {
	high, low := difference(address, first)
	if shift >= 64 {
		return int(high >> (shift - 64))
	}
	return int(high<<(64-shift) | low>>shift)
}

// Start returns the part of a network at which the map of a pool starts:
//
//   - the smallest network that contains the used addresses of the pool, if this smallest
//     network is inside the given network
//   - otherwise, or if the given network has no used address, the given network
//
// Used addresses are neither free nor reserved.
func (i *Inventory) Start(p *Pool, network allocator.Range) allocator.Range {
	var used []allocator.Range
	for _, g := range i.Segments(p.Domain, p.Ranges) {
		if g.State != state.SegmentFree && g.State != state.SegmentReserved && network.Overlaps(g.Range) {
			used = append(used, g.Range)
		}
	}
	if len(used) == 0 {
		return network
	}
	if start := Enclosing(used); network.Covers(start) {
		return start
	}
	return network
}

// Prefix lengths of the largest networks in which Networks joins ranges.
const (
	joinedBits4 = 8
	joinedBits6 = 32
)

// Networks lists the networks of the maps of a pool, in address order. Each network is
// the smallest network that contains its ranges. Each range is in one network:
//
//   - ranges of different families are in different networks
//   - ranges of one family are in different networks, if a network of both has a shorter
//     prefix than joinedBits4 or joinedBits6
func (p *Pool) Networks() (list []allocator.Range) {
	var joined allocator.Range // from the first to the last address of the last network
	for _, r := range p.Ranges {
		if n := len(list); n > 0 && joined.First.BitLen() == r.First.BitLen() {
			both := allocator.Range{First: joined.First, Last: r.Last}
			network := Enclosing([]allocator.Range{both})
			least := joinedBits4
			if r.First.Is6() {
				least = joinedBits6
			}
			if prefix, ok := network.Prefix(); ok && prefix.Bits() >= least {
				list[n-1], joined = network, both
				continue
			}
		}
		list, joined = append(list, Enclosing([]allocator.Range{r})), r
	}
	return list
}

// Enclosing returns the smallest network that contains every range of the same address
// family as ranges[0]. Precondition: ranges is not empty.
func Enclosing(ranges []allocator.Range) allocator.Range {
	first, last := ranges[0].First, ranges[0].Last
	for _, r := range ranges {
		if r.First.BitLen() != first.BitLen() {
			continue
		}
		if r.First.Less(first) {
			first = r.First
		}
		if last.Less(r.Last) {
			last = r.Last
		}
	}
	for length := first.BitLen(); length > 0; length-- {
		if network := allocator.RangeOfPrefix(netip.PrefixFrom(first, length)); network.Contains(last) {
			return network
		}
	}
	return allocator.RangeOfPrefix(netip.PrefixFrom(first, 0))
}
