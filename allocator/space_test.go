package allocator

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
)

func newPool(s *Space, name string, texts ...string) *Pool {
	var window []Range
	for _, text := range texts {
		window = append(window, mustParse(text))
	}
	return s.SetPool(name, window, nil)
}

func TestSpace_AllocatesOnceThroughOverlappingPools(t *testing.T) {
	s := NewSpace()
	a, b := newPool(s, "a", "10.0.0.0/24"), newPool(s, "b", "10.0.0.128/25", "10.0.1.0/24")
	seen := map[Range]bool{}
	for full := 0; full < 2; {
		full = 0
		for i, p := range []*Pool{a, b} {
			r, err := p.Allocate(1, Sequential, OwnerID(1+i))
			if err != nil {
				full++
			} else if seen[r] {
				t.Fatalf("%v is given twice", r)
			}
			seen[r] = true
		}
	}
	delete(seen, Range{})
	if len(seen) != 512 {
		t.Errorf("%d of 512 addresses are given", len(seen))
	}
}

func TestSpace_BlockAppliesToEveryPoolUntilItsPoolIsRemoved(t *testing.T) {
	s := NewSpace()
	a := newPool(s, "a", "10.0.0.0/24")
	s.Assign(mustParse("10.0.0.1"), 1)
	s.SetPool("b", nil, []Range{mustParse("10.0.0.0/30"), mustParse("10.0.0.2/31")})
	s.SetPool("c", nil, []Range{mustParse("10.0.0.0/29")})

	var blocked *BlockedError
	if err := a.CheckExact(mustParse("10.0.0.3")); !errors.As(err, &blocked) || blocked.Range != mustParse("10.0.0.0/30") {
		t.Errorf("a reserved address is answered by %v", err)
	}
	if got := a.Stats(); got.Total != 248 || got.Allocated != 0 {
		t.Errorf("with reserved addresses %+v", got)
	}
	s.RemovePool("c")
	if got := a.Stats(); got.Total != 252 || got.Allocated != 0 {
		t.Errorf("with fewer reserved addresses %+v", got)
	}
	s.SetPool("b", nil, nil)
	if got := a.Stats(); got.Total != 256 || got.Allocated != 1 {
		t.Errorf("without reserved addresses %+v", got)
	}
	if owned := slices.Collect(s.OwnedIn(mustParse("10.0.0.0/24"))); len(owned) != 1 || owned[0] != (Owned{mustParse("10.0.0.1"), 1}) {
		t.Errorf("%v is owned", owned)
	}
}

// TestSpace_RebuildsOnlyChangedPools: a rebuild makes usable anew.
func TestSpace_RebuildsOnlyChangedPools(t *testing.T) {
	s := NewSpace()
	near, far := newPool(s, "near", "10.0.0.0/24"), newPool(s, "far", "10.0.1.0/24")
	built := map[*Pool]*span{near: &near.usable[0], far: &far.usable[0]}

	newPool(s, "near", "10.0.0.0/24")
	newPool(s, "other", "10.0.0.0/16")
	s.SetPool("blocks", nil, []Range{mustParse("10.0.2.0/24")})
	for p, usable := range built {
		if &p.usable[0] != usable {
			t.Errorf("pool %v is rebuilt without need", p.Window())
		}
	}
	s.SetPool("blocks", nil, []Range{mustParse("10.0.0.0/28")})
	if &near.usable[0] == built[near] || &far.usable[0] != built[far] {
		t.Error("a new block does not rebuild just the pool it lies in")
	}
}

func TestSpace_OwnersOutliveTheirPool(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "a", "10.0.0.0/24")
	r, err := p.Allocate(8, nil, 7)
	if err != nil {
		t.Fatal(err)
	}
	if newPool(s, "a", "10.0.0.128/25") != p {
		t.Error("a resized pool is another one")
	}
	if got := p.Stats(); got.Allocated != 0 || got.Total != 128 {
		t.Errorf("after shrinking %+v", got)
	}
	s.RemovePool("a")
	s.RemovePool("a")
	if s.pools["a"] != nil {
		t.Error("a removed pool is found")
	}
	if _, err := p.Allocate(1, nil, 8); !errors.Is(err, ErrExhausted) {
		t.Errorf("a removed pool answers %v", err)
	}
	if others := s.Assign(r, 9); len(others) != 1 || others[0] != (Owned{r, 7}) {
		t.Errorf("%v hold what was allocated", others)
	}
	if got := newPool(s, "a", "10.0.0.0/24").Stats(); got.Allocated != 8 {
		t.Errorf("after coming back %+v", got)
	}
}

func TestOwnedIn_ReleaseWhileListing(t *testing.T) {
	s := NewSpace()
	for i := range OwnerID(1000) {
		s.Assign(headOf(numberOf(mustParse("10.0.0.0").First).plus(number{lo: uint64(i)}), number{lo: 1}).asRange(), 1+i%3)
	}
	n := 0
	for owned := range s.OwnedIn(mustParse("10.0.0.0/8")) {
		s.Release(mustParse("10.0.0.0/8"), owned.OwnerID)
		n++
	}
	if n != 3 || s.pieces.count != 0 {
		t.Errorf("%d ranges listed, %d left", n, s.pieces.count)
	}
}

func TestSpace_IPv6LeavesIPv4Alone(t *testing.T) {
	s := NewSpace()
	all6, all4 := mustParse("::/0"), mustParse("0.0.0.0/0")
	six, four := newPool(s, "six", "::/0"), newPool(s, "four", "0.0.0.0/0")
	if err := six.AllocateExact(all6, 6); err != nil {
		t.Fatal(err)
	}
	if got := four.Stats(); got.Allocated != 0 || got.LargestFree != 1<<32 {
		t.Errorf("IPv4 after all of IPv6 is owned: %+v", got)
	}
	if err := four.AllocateExact(all4, 4); err != nil {
		t.Fatal(err)
	}
	s.Release(all6, 6)
	if got := slices.Collect(s.OwnedIn(all4)); len(got) != 1 || got[0] != (Owned{all4, 4}) {
		t.Errorf("IPv4 after IPv6 is released: %v", got)
	}
	if got := slices.Collect(s.OwnedIn(all6)); got != nil {
		t.Errorf("IPv6 after it is released: %v", got)
	}
}

// floats returns s without the numbers in Exact that are not floats.
func floats(s Stats) Stats {
	s.Exact = Amounts{Total: s.Exact.Total, Allocated: s.Exact.Allocated, Available: s.Exact.Available, LargestFree: s.Exact.LargestFree}
	return s
}

// Decimals is exact where float64 and int64 are not.
func TestAmounts_Decimals(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "p", "2001:db8::/64")
	s.Assign(mustParse("2001:db8::-2001:db8::88"), 1)
	total, allocated, available, largest := p.Stats().Exact.Decimals()
	if total != "18446744073709551616" || allocated != "137" || available != "18446744073709551479" || largest != available {
		t.Errorf("%s, %s, %s, %s", total, allocated, available, largest)
	}
	if got := DecimalOf(mustParse("2001:db8::/64"), mustParse("10.0.0.0/24")); got != "18446744073709551872" {
		t.Errorf("two ranges have %s", got)
	}
}

func TestStats_Saturate(t *testing.T) {
	s := NewSpace()
	all := newPool(s, "all", "::/0", "0.0.0.0/0")
	const most = math.MaxInt64
	const (
		ipv4 = 1 << 32
		ipv6 = 1 << 128
	)
	want := Stats{Total: most, Available: most, LargestFree: most, FreeRuns: 3, Exact: Amounts{Total: ipv6, Available: ipv6, LargestFree: ipv6}}
	if got := floats(all.Stats()); got != want {
		t.Errorf("everything has %+v, want %+v", got, want)
	}
	s.Assign(mustParse("::/0"), 1)
	want = Stats{Total: most, Allocated: most, Available: ipv4, LargestFree: ipv4, FreeRuns: 1, Exact: Amounts{Total: ipv6, Allocated: ipv6, Available: ipv4, LargestFree: ipv4}}
	if got := floats(all.Stats()); got != want {
		t.Errorf("everything without IPv6 has %+v, want %+v", got, want)
	}

	if got := newPool(s, "some", "::/48").Stats(); got.Utilization() != 1 {
		t.Errorf("utilization of what is owned is %v", got.Utilization())
	}
	s.Release(mustParse("::/0"), 1)
	s.Assign(mustParse("2001:db8::/64"), 1)
	if got := newPool(s, "some", "2001:db8::/48").Stats(); got.Allocated != most || got.Total != most || got.Utilization() != 1.0/(1<<16) {
		t.Errorf("a /64 of a /48 is %v of it: %+v", got.Utilization(), got)
	}
	s.Assign(mustParse("::/0"), 1)

	half := newPool(s, "half", "2001:db8::/64", "2001:db8:1::/64")
	s.Release(mustParse("::/0"), 1)
	s.Assign(mustParse("2001:db8::/65"), 1)
	if got := half.Stats(); got.Fragmentation != 34 || got.Available != most {
		t.Errorf("a third of 2^65 addresses outside the longest run is %+v", got)
	}
	if _, err := half.Allocate(most, nil, 1); err != nil {
		t.Error(err)
	}
}

func TestSpace_LargeIPv6BlockIsOnePiece(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "2001:db8::/48")
	if err := p.AllocateExact(mustParse("2001:db8:0:7::/64"), 1); err != nil {
		t.Fatal(err)
	}
	if s.pieces.count != 1 || p.runs.count != 2 {
		t.Errorf("%d pieces and %d runs", s.pieces.count, p.runs.count)
	}
	if err := p.CheckExact(mustParse("2001:db8:0:7::1")); !errors.As(err, new(*OwnedError)) {
		t.Errorf("an address in the block is answered by %v", err)
	}
	if r, err := p.Allocate(1, nil, 2); err != nil || r != mustParse("2001:db8::") {
		t.Errorf("the best fit is %v, %v", r, err)
	}
}

func TestSpace_OwnerZeroOwnsNothing(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "10.0.0.0/24")
	_, allocateErr := p.Allocate(1, nil, 0)
	for what, err := range map[string]error{"allocate": allocateErr, "exact": p.AllocateExact(mustParse("10.0.0.1"), 0)} {
		if err != ErrNoOwner {
			t.Errorf("%s for owner 0 answers %v", what, err)
		}
	}
	s.Assign(mustParse("10.0.0.0/28"), 0)
	s.Release(mustParse("10.0.0.0/28"), 0)
	if s.pieces.count != 0 || p.Stats().Available != 256 {
		t.Error("owner 0 holds something")
	}
}

func TestRandom_SpreadsOverThePool(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "10.0.0.0/25", "10.0.0.128/26", "10.0.0.224/27")
	s.Assign(mustParse("10.0.0.32/27"), 1)
	policy := Random(rand.New(rand.NewPCG(8, 8)))
	times := map[Range]int{}
	const draws = 50000
	for range draws {
		r, err := p.Preview(1, policy)
		if err != nil {
			t.Fatal(err)
		}
		times[r]++
	}
	free := 128 + 64 + 32 - 32
	if len(times) != free {
		t.Errorf("%d of %d free addresses are drawn", len(times), free)
	}
	for r, n := range times {
		if mean := draws / free; n < mean/2 || n > mean*2 {
			t.Errorf("%v is drawn %d times, the mean is %d", r, n, mean)
		}
	}
}

func TestRandom_FindsTheLastRun(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "2001:db8::/48")
	s.Assign(mustParse("2001:db8::-2001:db8::7fff"), 1)
	s.Assign(mustParse("2001:db8::800a-2001:db8:0:ffff:ffff:ffff:ffff:ffff"), 2)
	policy := Random(rand.New(rand.NewPCG(9, 9)))
	for i := range 3 { // of ten addresses three pairs can be had, however they lie
		if r, err := p.Allocate(2, policy, 3); err != nil || !mustParse("2001:db8::8000-2001:db8::8009").Covers(r) {
			t.Errorf("draw %d is %v, %v", i, r, err)
		}
	}
}

func TestRandom_WithoutSourceIsSequential(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "10.0.0.0/24", "10.0.1.0/28")
	s.Assign(mustParse("10.0.0.0"), 1)
	if r, err := p.Preview(8, Random(nil)); err != nil || r != mustParse("10.0.0.1-10.0.0.8") {
		t.Errorf("the answer is %v, %v", r, err)
	}
}

func TestErrors_NameNumbersAndRemedy(t *testing.T) {
	s := NewSpace()
	p := s.SetPool("pool", []Range{mustParse("10.0.0.0/29"), mustParse("10.0.0.8/29")}, []Range{mustParse("10.0.0.1")})
	s.Assign(mustParse("10.0.0.4-10.0.0.5"), 42)
	_, exhausted := p.Allocate(20, nil, 1)
	_, count := p.Preview(0, nil)
	_, nobody := p.Allocate(1, nil, 0)
	for want, err := range map[string]error{
		"20 addresses requested, 13 free, largest free block 10: ask for fewer, release some or enlarge the pool":             exhausted,
		"10.0.1.0-10.0.1.7 is outside the pool: it must lie inside one of 10.0.0.0-10.0.0.7, 10.0.0.8-10.0.0.15":              p.CheckExact(mustParse("10.0.1.0/29")),
		"10.0.0.7-10.0.0.8 spans more than one range (10.0.0.0-10.0.0.7, 10.0.0.8-10.0.0.15): it must lie inside one of them": p.CheckExact(mustParse("10.0.0.7-10.0.0.8")),
		"10.0.0.1 is reserved: choose a range outside it":                                                                     p.CheckExact(mustParse("10.0.0.0/29")),
		"10.0.0.4-10.0.0.5 is already owned by owner 42: choose another range or release it first":                            p.CheckExact(mustParse("10.0.0.2-10.0.0.7")),
		"10.0.0.1 is outside the pool, which offers no addresses":                                                             s.SetPool("empty", nil, nil).CheckExact(mustParse("10.0.0.1")),
		"the number of addresses must be at least 1":                                                                          count,
		"owner 0 is no owner and can own nothing":                                                                             nobody,
	} {
		if err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
}

func TestErrors_BoundTheNamedRanges(t *testing.T) {
	var window []Range
	for i := range 10_000 {
		window = append(window, mustParse(fmt.Sprintf("10.0.%d.%d", i/128, i%128*2)))
	}
	err := NewSpace().SetPool("pool", window, nil).CheckExact(mustParse("10.0.0.1"))
	want := "10.0.0.1 is outside the pool: it must lie inside one of 10.0.0.0, 10.0.0.2, 10.0.0.4, 10.0.0.6, 10.0.0.8, 10.0.0.10, 10.0.0.12, 10.0.0.14 and 9992 more"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

func TestSpace_SteadyStateAllocatesNoMemory(t *testing.T) {
	s := NewSpace()
	p := newPool(s, "pool", "10.0.0.0/16")
	for i := uint64(0); i < 1<<16; i += 3 {
		s.Assign(headOf(p.usable[0].first.plus(number{lo: i}), number{lo: 1}).asRange(), OwnerID(1+i))
	}

	give := func(n int64, policy Policy) {
		r, err := p.Allocate(n, policy, me)
		if err != nil {
			t.Fatal(err)
		}
		s.Release(r, me)
	}
	exact, err := p.Preview(2, BestFit)
	if err != nil {
		t.Fatal(err)
	}
	random := Random(rand.New(rand.NewPCG(10, 10)))
	for name, call := range map[string]func(){
		"best fit":   func() { give(2, BestFit) },
		"sequential": func() { give(1, Sequential) },
		"random":     func() { give(1, random) },
		"exact": func() {
			if err := p.AllocateExact(exact, me); err != nil {
				t.Fatal(err)
			}
			s.Release(exact, me)
		},
		"statistics": func() { _ = p.Stats() },
	} {
		if n := testing.AllocsPerRun(1000, call); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

// TestSpace_MemoryOfAnOwnedRange holds single addresses in several orders, each
// with a free run beside it: the most a range can cost. Half of them go again.
func TestSpace_MemoryOfAnOwnedRange(t *testing.T) {
	const ranges = 100_000
	for name, index := range map[string]func(i int) int{
		"ascending":  func(i int) int { return i },
		"descending": func(i int) int { return ranges - i },
		"scattered":  func(i int) int { return i * 48271 % 100003 },
		"outwards":   func(i int) int { return ranges + i*(1-2*(i%2)) },
		"inwards":    func(i int) int { return ranges + (ranges-i)*(1-2*(i%2)) },
	} {
		before := heapInUse()
		s := NewSpace()
		p := newPool(s, "pool", "10.0.0.0/8")
		at := func(i int) Range {
			return headOf(p.usable[0].first.plus(number{lo: uint64(2 * index(i))}), number{lo: 1}).asRange()
		}
		measure := func(when string, owned int64) {
			each := float64(heapInUse()-before) / float64(owned)
			t.Logf("%s, %s: %.0f bytes for each range", name, when, each)
			if each > 150 || p.Stats().Allocated != owned {
				t.Errorf("%s, %s: %.0f bytes for each of %d ranges", name, when, each, p.Stats().Allocated)
			}
		}
		for i := range ranges {
			s.Assign(at(i), OwnerID(1+i))
		}
		measure("full", ranges)
		left := int64(ranges)
		for i := range ranges {
			if i*7919%10 < 5 {
				s.Release(at(i), OwnerID(1+i))
				left--
			}
		}
		measure("half", left)
		runtime.KeepAlive(s)
	}
}
