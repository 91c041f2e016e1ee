package allocator

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"net/netip"
)

// number is an address as an unsigned 128-bit integer. The IPv4 address a.b.c.d is the
// number of ::ffff:a.b.c.d, which no IPv6 range may contain, so both families have one
// order and no number means two addresses. A number also counts addresses.
type number struct{ hi, lo uint64 }

var (
	firstIPv4 = number{0, 0xffff_0000_0000}
	lastIPv4  = number{0, 0xffff_ffff_ffff}
)

func numberOf(a netip.Addr) number {
	b := a.As16()
	return number{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (n number) addr() netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], n.hi)
	binary.BigEndian.PutUint64(b[8:], n.lo)
	return netip.AddrFrom16(b).Unmap()
}

func (n number) less(m number) bool {
	return n.hi < m.hi || n.hi == m.hi && n.lo < m.lo
}

func (n number) compare(m number) int {
	switch {
	case n.less(m):
		return -1
	case m.less(n):
		return 1
	}
	return 0
}

// plus and minus wrap around at 2^128.
func (n number) plus(m number) number {
	lo, carry := bits.Add64(n.lo, m.lo, 0)
	hi, _ := bits.Add64(n.hi, m.hi, carry)
	return number{hi, lo}
}

func (n number) minus(m number) number {
	lo, borrow := bits.Sub64(n.lo, m.lo, 0)
	hi, _ := bits.Sub64(n.hi, m.hi, borrow)
	return number{hi, lo}
}

func (n number) next() number { return n.plus(number{0, 1}) }
func (n number) prev() number { return n.minus(number{0, 1}) }

// int64 returns n, or MaxInt64 if n is larger.
func (n number) int64() int64 {
	if n.hi != 0 || n.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(n.lo)
}

func (n number) float64() float64 { return float64(n.hi)*(1<<64) + float64(n.lo) }

func (n number) big() *big.Int {
	high := new(big.Int).Lsh(new(big.Int).SetUint64(n.hi), 64)
	return high.Add(high, new(big.Int).SetUint64(n.lo))
}

func (n number) bitLen() int {
	if n.hi != 0 {
		return 64 + bits.Len64(n.hi)
	}
	return bits.Len64(n.lo)
}

// shifted returns n without its lowest k bits (0 to 127).
func (n number) shifted(k int) number {
	if k >= 64 {
		return number{0, n.hi >> (k - 64)}
	}
	return number{n.hi >> k, n.hi<<(64-k) | n.lo>>k}
}

// followedBy reports whether m is the next address of n's family.
func (n number) followedBy(m number) bool {
	return n.less(m) && n.next() == m && m != firstIPv4 && n != lastIPv4
}
