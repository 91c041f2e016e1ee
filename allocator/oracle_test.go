package allocator

import (
	"cmp"
	"slices"
)

// universe is how many addresses the oracle knows: few enough for an array.
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

// oracle answers like a Space with its pools, slowly and from one array.
type oracle struct {
	base   number
	border int // the first index of another family than the one before, else universe
	owner  [universe]OwnerID
	pools  map[string]*oraclePool
}

type oraclePool struct {
	window, blocked []stretch
	usable          [universe]bool
}

// stretch is first to last, as indices into the universe. A reversed one, and
// one over the border, is not a valid range.
type stretch struct{ first, last int }

func newOracle(base string) *oracle {
	o := &oracle{base: numberOf(mustParse(base).First), border: universe, pools: map[string]*oraclePool{}}
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

// stretches cuts st where key changes and at the border, and keeps the parts
// whose key is not 0.
func (o *oracle) stretches(st stretch, key func(i int) OwnerID) []stretch {
	var parts []stretch
	for i := st.first; i <= st.last; i++ {
		if key(i) == 0 {
			continue
		}
		if n := len(parts) - 1; n >= 0 && parts[n].last == i-1 && key(i-1) == key(i) && i != o.border {
			parts[n].last = i
		} else {
			parts = append(parts, stretch{i, i})
		}
	}
	return parts
}

func (o *oracle) ownedIn(st stretch) []Owned {
	var owned []Owned
	if o.valid(st) {
		for _, part := range o.stretches(st, func(i int) OwnerID { return o.owner[i] }) {
			owned = append(owned, Owned{o.asRange(part), o.owner[part.first]})
		}
	}
	return owned
}

func (o *oracle) hold(st stretch, h OwnerID) []Owned {
	others := slices.DeleteFunc(o.ownedIn(st), func(owned Owned) bool { return owned.OwnerID == h })
	for i := st.first; o.valid(st) && i <= st.last; i++ {
		if o.owner[i] == 0 {
			o.owner[i] = h
		}
	}
	return others
}

func (o *oracle) release(st stretch, h OwnerID) {
	for i := st.first; o.valid(st) && i <= st.last; i++ {
		if o.owner[i] == h {
			o.owner[i] = 0
		}
	}
}

// setPools paints the usable addresses of every pool anew.
func (o *oracle) setPools(change func(pools map[string]*oraclePool)) {
	change(o.pools)
	for _, p := range o.pools {
		p.usable = [universe]bool{}
		p.paint(p.window, true)
		for _, q := range o.pools {
			p.paint(q.blocked, false)
		}
	}
}

func (p *oraclePool) paint(sts []stretch, usable bool) {
	for _, st := range sts {
		for i := st.first; i <= st.last; i++ {
			p.usable[i] = usable
		}
	}
}

// runs is the free runs of a pool in address order.
func (o *oracle) runs(p *oraclePool) []stretch {
	return o.stretches(stretch{0, universe - 1}, func(i int) OwnerID {
		if p.usable[i] && o.owner[i] == 0 {
			return 1
		}
		return 0
	})
}

func (o *oracle) stats(p *oraclePool) Stats {
	var s Stats
	for i := range universe {
		if p.usable[i] {
			s.Total++
			if o.owner[i] != 0 {
				s.Allocated++
			}
		}
	}
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
