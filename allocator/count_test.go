package allocator

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

// CountSets equals what pools allocate set by set, for pools with and without common
// addresses, and for every policy.
func TestCountSets_EqualsAllocation(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	at := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}) }
	repeated := 0
	for round := range 5000 {
		var pools []*Vacancy
		for n := range 1 + random.IntN(4) {
			v := &Vacancy{Domain: "one", Policy: []Policy{nil, BestFit, Sequential}[random.IntN(3)], Waits: random.IntN(20) == 0}
			from := 1000 * n // apart
			if random.IntN(5) == 0 {
				from = random.IntN(400) // shared
			}
			for range random.IntN(6) {
				size := 1 + random.IntN(150)
				v.Free = append(v.Free, Range{at(from), at(from + size - 1)})
				from += size + random.IntN(3) // some are adjacent
			}
			if random.IntN(4) == 0 {
				v.Domain = "two"
			}
			pools = append(pools, v)
		}
		var set [][]Choice
		for range 1 + random.IntN(3) {
			var choices []Choice
			for _, n := range random.Perm(len(pools))[:1+random.IntN(len(pools))] {
				choices = append(choices, Choice{pools[n], 1 + random.Int64N([]int64{4, 20, 60}[random.IntN(3)])})
			}
			set = append(set, choices)
		}
		got := CountSets(set)
		spaces, windows := map[string]*Space{"one": NewSpace(), "two": NewSpace()}, map[*Vacancy]*Pool{}
		for n, v := range pools {
			windows[v] = spaces[v.Domain].SetPool(fmt.Sprint(n), v.Free, nil)
		}
		want := SetCount{}
		for allocated := true; allocated; {
			for _, choices := range set {
				allocated = false
				for _, choice := range choices {
					if choice.Waits {
						want.WaitsFor = choice.Vacancy
						break
					}
					_, err := windows[choice.Vacancy].Allocate(choice.Size, choice.Policy, OwnerID(want.Sets+1))
					if allocated = err == nil; allocated {
						if want.Sets == 0 {
							want.Next = append(want.Next, choice.Vacancy)
						}
						break
					}
				}
				if !allocated {
					break
				}
			}
			if allocated {
				want.Sets++
			}
		}
		if got.Sets != want.Sets || got.AtLeast || got.WaitsFor != want.WaitsFor || !slices.Equal(got.Next, want.Next) {
			t.Fatalf("round %d: %+v, want %+v\nof %v", round, got, want, set)
		}
		if got.Sets > 20 {
			repeated++
		}
	}
	if repeated < 100 {
		t.Errorf("%d rounds with more than 20 sets", repeated)
	}
}

func TestCountSets(t *testing.T) {
	free := func(ranges ...string) *Vacancy {
		v := &Vacancy{}
		for _, text := range ranges {
			r, err := ParseRange(text)
			if err != nil {
				t.Fatal(err)
			}
			v.Free = append(v.Free, r)
		}
		return v
	}
	eight, six, all := free("10.0.0.0/8"), free("2001:db8::/64"), free("::/0")
	rests := free("10.0.0.0-10.0.0.27", "10.0.0.29-10.0.0.138", "10.0.0.140-10.0.0.221", "10.0.0.223-10.0.1.58")
	for name, tc := range map[string]struct {
		set     [][]Choice
		sets    int64
		atLeast bool
	}{
		"an IPv4 network":           {[][]Choice{{{eight, 5}}, {{eight, 8}}}, 1 << 24 / 13, false},
		"with another pool":         {[][]Choice{{{free("11.0.0.0/28"), 16}, {eight, 5}}, {{eight, 8}}}, 1 + (1<<24-8)/13, false},
		"both families":             {[][]Choice{{{eight, 4}}, {{six, 1 << 20}}}, 1 << 22, false},
		"an IPv6 network":           {[][]Choice{{{six, 5}}, {{six, 8}}}, 1418980313362273201, false},
		"more than MaxInt64":        {[][]Choice{{{six, 1}}}, math.MaxInt64, true},
		"all of it":                 {[][]Choice{{{all, 7}}, {{all, 7}}}, math.MaxInt64, true},
		"a rest fits another best":  {[][]Choice{{{rests, 9}}, {{rests, 39}}, {{rests, 1}}}, 6, false},
		"shared, more than counted": {[][]Choice{{{eight, 5}}, {{free("10.0.0.0/9"), 8}}}, maxCountedSets, true},
	} {
		got := CountSets(tc.set)
		if got.Sets != tc.sets || got.AtLeast != tc.atLeast || len(got.Next) != len(tc.set) {
			t.Errorf("%s: %d, at least %t, want %d, %t", name, got.Sets, got.AtLeast, tc.sets, tc.atLeast)
		}
	}
	if got := CountSets(nil); got.Sets != math.MaxInt64 || !got.AtLeast {
		t.Errorf("sets without ranges: %+v", got)
	}
	if got := CountSets([][]Choice{{{six, 0}}}); got.Sets != 0 || got.AtLeast {
		t.Errorf("a range without addresses: %+v", got)
	}
}

func BenchmarkCountSets(b *testing.B) {
	ten, nine := &Vacancy{Free: []Range{RangeOfPrefix(netip.MustParsePrefix("10.0.0.0/8"))}}, &Vacancy{Free: []Range{RangeOfPrefix(netip.MustParsePrefix("10.0.0.0/9"))}}
	fragments := &Vacancy{}
	for n := range 1 << 14 {
		first := netip.AddrFrom4([4]byte{11, byte(n >> 10), byte(n >> 2), byte(n << 6)})
		fragments.Free = append(fragments.Free, Range{first, netip.AddrFrom4([4]byte{11, byte(n >> 10), byte(n >> 2), byte(n<<6) + byte(n%60)})})
	}
	for name, set := range map[string][][]Choice{
		"one run":   {{{ten, 5}}, {{ten, 8}}},
		"shared":    {{{ten, 5}}, {{nine, 8}}},
		"fragments": {{{fragments, 5}}, {{fragments, 8}}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				CountSets(set)
			}
		})
	}
}
