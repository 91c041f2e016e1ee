package allocator

import (
	"cmp"
	"math/bits"
	"slices"
)

// universe is how many addresses the oracle knows: few enough for a bitmap of four words.
const universe = 256

// bases is where the universe may start: in the middle of a family, at its
// edges, across the borders between IPv4 and IPv6.
var bases = []string{
	"10.0.0.128",
	"0.0.0.0",
	"255.255.255.0",
	"2001:db8::ff80",
	"::",
	"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ff00",
	"2001:db8::ffff:ffff:ffff:ff80",
	"::fffe:ffff:ff80", // the first 128 are IPv6, the rest IPv4
	"255.255.255.128",  // the first 128 are IPv4, the rest IPv6
}

// bitmap has a bit per address of the universe.
type bitmap [universe / 64]uint64

func (b bitmap) or(c bitmap) bitmap {
	for w := range b {
		b[w] |= c[w]
	}
	return b
}

func (b bitmap) and(c bitmap) bitmap {
	for w := range b {
		b[w] &= c[w]
	}
	return b
}

func (b bitmap) andNot(c bitmap) bitmap {
	for w := range b {
		b[w] &^= c[w]
	}
	return b
}

func (b bitmap) count() (n int64) {
	for _, w := range b {
		n += int64(bits.OnesCount64(w))
	}
	return n
}

// oracle answers like a Space with its pools, slowly and from bitmaps.
type oracle struct {
	base   number
	border int                // the first index of another family than the one before, else universe
	owned  map[OwnerID]bitmap // no two have a bit in common
	pools  map[string]*oraclePool
}

type oraclePool struct {
	window, blocked []stretch
	usable          bitmap
}

// stretch is first to last, as indices into the universe. A reversed one, and
// one over the border, is not a valid range.
type stretch struct{ first, last int }

func newOracle(base string) *oracle {
	o := &oracle{base: numberOf(mustParse(base).First), border: universe, owned: map[OwnerID]bitmap{}, pools: map[string]*oraclePool{}}
	for i := 1; i < universe; i++ {
		if o.addr(i).First.BitLen() != o.addr(i-1).First.BitLen() {
			o.border = i
		}
	}
	return o
}

func (o *oracle) addr(i int) Range { return o.asRange(stretch{i, i}) }

func (o *oracle) asRange(st stretch) Range {
	return Range{o.base.plus(number{lo: uint64(st.first)}).addr(), o.base.plus(number{lo: uint64(st.last)}).addr()}
}

func (o *oracle) asRanges(sts []stretch) []Range {
	var ranges []Range
	for _, st := range sts {
		ranges = append(ranges, o.asRange(st))
	}
	return ranges
}

func (o *oracle) valid(st stretch) bool {
	return st.first <= st.last && (st.last < o.border || st.first >= o.border)
}

func (st stretch) overlaps(u stretch) bool { return st.first <= u.last && u.first <= st.last }

func compareStretches(a, b stretch) int {
	return cmp.Or(cmp.Compare(a.first, b.first), cmp.Compare(a.last, b.last))
}

func (o *oracle) declared(sts []stretch) []stretch {
	sts = slices.DeleteFunc(slices.Clone(sts), func(st stretch) bool { return !o.valid(st) })
	slices.SortFunc(sts, compareStretches)
	return sts
}

// bits has the bits of the valid ones of sts.
func (o *oracle) bits(sts ...stretch) (b bitmap) {
	for _, st := range sts {
		for i := st.first; o.valid(st) && i <= st.last; i++ {
			b[i/64] |= 1 << (i % 64)
		}
	}
	return b
}

// stretches is the runs of set bits in order, cut at the border.
func (o *oracle) stretches(b bitmap) []stretch {
	var runs []stretch
	for i := 0; i < universe; i++ {
		rest := b[i/64] >> (i % 64)
		if rest == 0 {
			i |= 63
			continue
		}
		i += bits.TrailingZeros64(rest)
		if n := len(runs) - 1; n >= 0 && runs[n].last == i-1 && i != o.border {
			runs[n].last = i
		} else {
			runs = append(runs, stretch{i, i})
		}
	}
	return runs
}

func (o *oracle) taken() (b bitmap) {
	for _, owned := range o.owned {
		b = b.or(owned)
	}
	return b
}

func (o *oracle) ownedIn(st stretch) []Owned {
	var all []Owned
	for h, owned := range o.owned {
		for _, run := range o.stretches(owned.and(o.bits(st))) {
			all = append(all, Owned{o.asRange(run), h})
		}
	}
	slices.SortFunc(all, func(a, b Owned) int { return numberOf(a.First).compare(numberOf(b.First)) })
	return all
}

func (o *oracle) hold(st stretch, h OwnerID) []Owned {
	others := slices.DeleteFunc(o.ownedIn(st), func(owned Owned) bool { return owned.OwnerID == h })
	if h != 0 {
		o.owned[h] = o.owned[h].or(o.bits(st).andNot(o.taken()))
	}
	return others
}

func (o *oracle) release(st stretch, h OwnerID) {
	o.owned[h] = o.owned[h].andNot(o.bits(st))
}

// setPools finds the usable addresses of every pool anew.
func (o *oracle) setPools(change func(pools map[string]*oraclePool)) {
	change(o.pools)
	var blocked bitmap
	for _, p := range o.pools {
		blocked = blocked.or(o.bits(p.blocked...))
	}
	for _, p := range o.pools {
		p.usable = o.bits(p.window...).andNot(blocked)
	}
}

// runs is the free runs of a pool in address order.
func (o *oracle) runs(p *oraclePool) []stretch { return o.stretches(p.usable.andNot(o.taken())) }

func (o *oracle) stats(p *oraclePool) Stats {
	s := Stats{Total: p.usable.count(), Allocated: p.usable.and(o.taken()).count()}
	s.Available = s.Total - s.Allocated
	for _, run := range o.runs(p) {
		s.FreeRuns++
		s.LargestFree = max(s.LargestFree, int64(run.last-run.first+1))
	}
	if s.Available > 0 {
		s.Fragmentation = int32(100 - 100*s.LargestFree/s.Available)
	}
	s.Exact = newAmounts(number{lo: uint64(s.Allocated)}, number{lo: uint64(s.Available)}, number{lo: uint64(s.LargestFree)})
	return s
}

func (o *oracle) preview(p *oraclePool, n int64, policy Policy) (Range, error) {
	if n < 1 {
		return Range{}, ErrCount
	}
	fitting := slices.DeleteFunc(o.runs(p), func(run stretch) bool { return int64(run.last-run.first+1) < n })
	if len(fitting) == 0 {
		s := o.stats(p)
		return Range{}, &ExhaustedError{Requested: n, Available: s.Available, Largest: s.LargestFree, Total: s.Total}
	}
	if policy == BestFit {
		slices.SortStableFunc(fitting, func(a, b stretch) int { return cmp.Compare(a.last-a.first, b.last-b.first) })
	}
	first := fitting[0].first
	return o.asRange(stretch{first, first + int(n) - 1}), nil
}

func (o *oracle) checkExact(p *oraclePool, st stretch) error {
	if !o.valid(st) || !slices.ContainsFunc(p.window, func(w stretch) bool { return w.first <= st.first && st.last <= w.last }) {
		return &OutsideError{Range: o.asRange(st), Window: o.asRanges(p.window)}
	}
	var blocks []stretch
	for _, q := range o.pools {
		blocks = append(blocks, q.blocked...)
	}
	blocks = slices.DeleteFunc(blocks, func(b stretch) bool { return !b.overlaps(st) })
	if len(blocks) > 0 {
		return &BlockedError{Range: o.asRange(slices.MinFunc(blocks, compareStretches))}
	}
	if owned := o.ownedIn(st); len(owned) > 0 {
		return &OwnedError{owned[0].Range, owned[0].OwnerID}
	}
	return nil
}
