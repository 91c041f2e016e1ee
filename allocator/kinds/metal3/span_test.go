package metal3

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// encloses is what stretches are checked against: an address is one that an entry speaks
// of, as Metal3 has it.
func (e entry) encloses(a netip.Addr) bool {
	return (!e.start.IsValid() || !a.Less(e.start)) && (!e.end.IsValid() || !e.end.Less(a)) && (!e.subnet.IsValid() || e.subnet.Contains(a))
}

func TestStretchesHaveWhatTheirEntriesEnclose(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	address := func() netip.Addr {
		if r.IntN(4) == 0 {
			return netip.MustParseAddr(fmt.Sprintf("fd00::%x", r.IntN(64)))
		}
		return netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(64))})
	}
	for range 20_000 {
		var (
			entries []entry
			all     []span
		)
		for range r.IntN(5) {
			var e entry
			if r.IntN(3) > 0 {
				e.start = address()
			}
			if r.IntN(3) > 0 {
				e.end = address()
			}
			if r.IntN(3) == 0 {
				a := address()
				e.subnet = netip.PrefixFrom(a, a.BitLen()-r.IntN(6)) // with host bits
			}
			entries, all = append(entries, e), append(all, e.enclosedSpan())
		}
		given := newSpanSet(all)
		for range 20 {
			a := address()
			if got, want := given.contains(a), slices.ContainsFunc(entries, func(e entry) bool { return e.encloses(a) }); got != want {
				t.Fatalf("%s in %+v: %v, want %v", a, entries, got, want)
			}
		}
	}
}

// A pool of as many entries and pins as an object of a megabyte and a half has room for.
func BenchmarkManyEntries(b *testing.B) {
	const n = 15_000
	gateway := v1alpha1.IP("10.0.0.1")
	p := &v1alpha1.IPPool{Spec: v1alpha1.IPPoolSpec{NamePrefix: "p", Gateway: &gateway, PreAllocations: map[string]v1alpha1.IP{}}}
	for i := range n {
		a := v1alpha1.IP(fmt.Sprintf("10.0.%d.%d", i/128, i%128*2))
		p.Spec.Pools = append(p.Spec.Pools, v1alpha1.Pool{Start: &a, End: &a})
		p.Spec.PreAllocations[fmt.Sprintf("claim-%d", i)] = a
	}
	last := netip.MustParseAddr(string(*p.Spec.Pools[n-1].Start))
	for name, do := range map[string]func(){
		"validated":    func() { ValidateIPPoolUpdate(p, p) },
		"warned":       func() { FindPoolWarnings(p) },
		"asked":        func() { _, _ = BuildRequest(p, "claim", last.String()) },
		"asked by pin": func() { _, _ = BuildRequest(p, "claim-1", "") },
		"settings":     func() { FindSettings(p, last) },
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				do()
			}
		})
	}
}
