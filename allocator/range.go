package allocator

import (
	"errors"
	"fmt"
	"iter"
	"math"
	"net/netip"
	"strings"
)

// Range is the addresses from First to Last, both included: one family, no zones, no
// IPv4-mapped IPv6. The zero value is not valid; every function of this package treats an
// invalid range as a range without addresses.
//
// An IPv6 range may reach over ::ffff:0:0/96. The addresses of that network are IPv4 and
// do not belong to the range.
type Range struct{ First, Last netip.Addr }

// NewRange returns a range, or an error that names the value and the broken rule.
func NewRange(first, last netip.Addr) (Range, error) {
	for _, a := range [...]netip.Addr{first, last} {
		switch {
		case !a.IsValid():
			return Range{}, errors.New("a range needs a first and a last address, one of them is missing")
		case a.Zone() != "":
			return Range{}, fmt.Errorf("address %s has a zone, leave out %q", a, "%"+a.Zone())
		case a.Is4In6():
			return Range{}, fmt.Errorf("address %s is IPv4 written as IPv6, write %s", a, a.Unmap())
		}
	}
	if first.BitLen() != last.BitLen() {
		return Range{}, fmt.Errorf("range %s-%s mixes IPv4 and IPv6, use one family", first, last)
	}
	if last.Less(first) {
		return Range{}, fmt.Errorf("range %s-%s is reversed, write the lower address first", first, last)
	}
	return Range{first, last}, nil
}

// ParseRange parses "10.0.0.0/24" (host bits are dropped), "10.0.0.1-10.0.0.9" (with or
// without spaces around the dash) or "10.0.0.1", of either family. Its errors quote s.
func ParseRange(s string) (Range, error) {
	text := strings.TrimSpace(s)
	if _, err := netip.ParseAddr(text); err != nil && !strings.ContainsAny(text, "-/") {
		return Range{}, fmt.Errorf("%q is not an IP address", s)
	}
	r, err := parseRange(text)
	if err != nil {
		return Range{}, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

func parseRange(s string) (Range, error) {
	if strings.Contains(s, "/") {
		p, err := netip.ParsePrefix(s)
		if err != nil {
			return Range{}, errors.New("not a CIDR, write it like 10.0.0.0/24 or 2001:db8::/64")
		}
		if p.Addr().Is4In6() {
			return Range{}, fmt.Errorf("address %s is IPv4 written as IPv6, write %s", p.Addr(), p.Addr().Unmap())
		}
		return RangeOfPrefix(p), nil
	}
	first, last, dash := strings.Cut(s, "-")
	if !dash {
		last = first
	}
	a, err := parseAddr(first)
	if err != nil {
		return Range{}, err
	}
	b, err := parseAddr(last)
	if err != nil {
		return Range{}, err
	}
	return NewRange(a, b)
}

func parseAddr(s string) (netip.Addr, error) {
	s = strings.TrimSpace(s)
	a, err := netip.ParseAddr(s)
	if err != nil {
		return netip.Addr{}, fmt.Errorf("%q is not an IP address", s)
	}
	return a, nil
}

// RangeOfPrefix returns all addresses of p, its host bits dropped: invalid if p is
// invalid or IPv4-mapped.
func RangeOfPrefix(p netip.Prefix) Range {
	if !p.IsValid() || p.Addr().Is4In6() {
		return Range{}
	}
	first := p.Masked().Addr()
	b := first.AsSlice()
	for i := p.Bits(); i < first.BitLen(); i++ {
		b[i/8] |= 0x80 >> (i % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return Range{first, last}
}

// IsValid reports whether NewRange would accept r.
func (r Range) IsValid() bool {
	return r.First.IsValid() && r.First.BitLen() == r.Last.BitLen() && !r.Last.Less(r.First) &&
		r.First.Zone() == "" && r.Last.Zone() == "" && !r.First.Is4In6() && !r.Last.Is4In6()
}

// Size counts the addresses of r: 0 if r is invalid. It saturates at MaxInt64.
func (r Range) Size() int64 {
	total := int64(0)
	for sp := range r.eachSpan {
		total = addSaturating(total, sp.size().int64())
	}
	return total
}

// Contains reports whether a, without zone and not IPv4-mapped, is in r.
func (r Range) Contains(a netip.Addr) bool {
	return r.Covers(Range{a, a})
}

// At returns the address n places after First (0 is First), false if n is negative or r
// ends before it.
func (r Range) At(n int64) (netip.Addr, bool) {
	rest := number{lo: uint64(n)}
	for sp := range r.eachSpan {
		if n >= 0 && !sp.last.minus(sp.first).less(rest) {
			return sp.first.plus(rest).addr(), true
		}
		rest = rest.minus(sp.size())
	}
	return netip.Addr{}, false
}

// Covers reports whether every address of o is in r. It returns false if r or o is
// invalid.
func (r Range) Covers(o Range) bool {
	return r.IsValid() && o.IsValid() && r.First.BitLen() == o.First.BitLen() &&
		!o.First.Less(r.First) && !r.Last.Less(o.Last)
}

// Overlaps reports whether r and o, both valid, have an address in common.
func (r Range) Overlaps(o Range) bool {
	return r.IsValid() && o.IsValid() && r.First.BitLen() == o.First.BitLen() &&
		!o.Last.Less(r.First) && !r.Last.Less(o.First)
}

// Intersect returns the addresses that r and o, which overlap, have in common.
func (r Range) Intersect(o Range) Range {
	if r.First.Less(o.First) {
		r.First = o.First
	}
	if o.Last.Less(r.Last) {
		r.Last = o.Last
	}
	return r
}

// Prefix returns r as a CIDR, false if its size is no power of two or its first address
// no multiple of it.
func (r Range) Prefix() (netip.Prefix, bool) {
	if !r.IsValid() {
		return netip.Prefix{}, false
	}
	p, err := r.First.Prefix(r.First.BitLen() - r.hostBits())
	if err != nil || RangeOfPrefix(p) != r {
		return netip.Prefix{}, false
	}
	return p, true
}

// hostBits returns how many low bits differ between first and last.
func (r Range) hostBits() int {
	a, b := numberOf(r.First), numberOf(r.Last)
	return number{a.hi ^ b.hi, a.lo ^ b.lo}.bitLen()
}

// String returns "10.0.0.1-10.0.0.4", or "10.0.0.1" for a single address.
func (r Range) String() string {
	switch {
	case !r.IsValid():
		return "invalid range"
	case r.First == r.Last:
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Text returns the CIDR of r if r is a network ("10.0.0.0/29", "10.0.0.1/32"), otherwise
// "first-last".
func (r Range) Text() string {
	if p, ok := r.Prefix(); ok {
		return p.String()
	}
	return r.String()
}

// Addresses yields every address of r in order. Ranges can be long: check Size first, or
// stop.
func (r Range) Addresses() iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for sp := range r.eachSpan {
			for n := sp.first; ; n = n.next() {
				if !yield(n.addr()) {
					return
				}
				if n == sp.last {
					break
				}
			}
		}
	}
}

func (r Range) compare(o Range) int {
	return span{numberOf(r.First), numberOf(r.Last)}.compare(span{numberOf(o.First), numberOf(o.Last)})
}

// eachSpan yields the span of r; none if r is invalid, two if IPv4 lies inside r.
func (r Range) eachSpan(yield func(span) bool) {
	if !r.IsValid() {
		return
	}
	sp := span{numberOf(r.First), numberOf(r.Last)}
	if r.First.Is4() || lastIPv4.less(sp.first) || sp.last.less(firstIPv4) {
		yield(sp)
		return
	}
	_ = yield(span{sp.first, firstIPv4.prev()}) && yield(span{lastIPv4.next(), sp.last})
}

// addSaturating adds two counts, neither negative.
func addSaturating(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}
