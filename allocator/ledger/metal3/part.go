package metal3

import (
	"math"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Settings is what an address comes with.
type Settings struct {
	Prefix     int // 0 where nobody says
	Gateway    *v1alpha1.IP
	DNSServers []v1alpha1.IP
}

// Part is what one entry of spec.pools offers, from its first address to its last. The range is not valid where the entry has no address.
type Part struct {
	allocator.Range
	Settings Settings
}

// PartsOf is the entries of a pool in the order in which they are used up, one Part each, with the pool's own settings where an entry has
// none. Of an entry that cannot be read, the errors say what is wrong, and its range is not valid.
func PartsOf(p *v1alpha1.IPPool) ([]Part, field.ErrorList) {
	var (
		parts []Part
		errs  field.ErrorList
	)
	for i := range p.Spec.Pools {
		part, bad := partOf(p, i)
		parts, errs = append(parts, part), append(errs, bad...)
	}
	return parts, errs
}

func partOf(p *v1alpha1.IPPool, i int) (Part, field.ErrorList) {
	read, errs := readEntry(i, p.Spec.Pools[i])
	part := Part{Settings: settingsIn(p, p.Spec.Pools[i])}
	if len(errs) == 0 {
		part.Range = read.reachable()
	}
	return part, errs
}

// partWith is the first part that has an address, false where none has.
func partWith(p *v1alpha1.IPPool, a netip.Addr) (Part, bool) {
	for i := range p.Spec.Pools {
		if part, _ := partOf(p, i); part.Contains(a) {
			return part, true
		}
	}
	return Part{}, false
}

// SettingsFor is what an address of a pool comes with: those of the first entry that has it, else the pool's own.
func SettingsFor(p *v1alpha1.IPPool, a netip.Addr) Settings {
	if part, has := partWith(p, a); has {
		return part.Settings
	}
	return settingsIn(p, v1alpha1.Pool{})
}

func settingsIn(p *v1alpha1.IPPool, entry v1alpha1.Pool) Settings {
	s := Settings{Prefix: entry.Prefix, Gateway: entry.Gateway, DNSServers: servers(entry)}
	if s.Prefix == 0 {
		s.Prefix = p.Spec.Prefix
	}
	if s.Gateway == nil {
		s.Gateway = p.Spec.Gateway
	}
	if len(s.DNSServers) == 0 {
		s.DNSServers = p.Spec.DNSServers
	}
	return s
}

// servers is the name servers of an entry, nil for none.
func servers(entry v1alpha1.Pool) []v1alpha1.IP {
	var ips []v1alpha1.IP
	for _, s := range entry.DNSServers {
		ips = append(ips, v1alpha1.IP(s))
	}
	return ips
}

func entryPath(i int) *field.Path { return field.NewPath("spec", "pools").Index(i) }

// entry is what is written in an entry of spec.pools; what is absent is not valid.
type entry struct {
	start, end netip.Addr
	subnet     netip.Prefix
}

// readEntry reads what is written in an entry and checks what must hold for it to have a meaning. Paths are made for faults only: a pool may have
// thousands of entries, and they cost more than all else.
func readEntry(i int, p v1alpha1.Pool) (entry, field.ErrorList) {
	var (
		e    entry
		errs field.ErrorList
	)
	fault := func(name string, err *field.Error) {
		err.Field = entryPath(i).Child(name).String()
		errs = append(errs, err)
	}
	address := func(name string, value *v1alpha1.IP) netip.Addr {
		if value == nil {
			return netip.Addr{}
		}
		a, err := fields.At(nil, string(*value)).Address()
		if err != nil {
			fault(name, err)
			return netip.Addr{}
		}
		return a
	}
	e.start, e.end = address("start", p.Start), address("end", p.End)
	if p.Subnet != nil {
		network, err := fields.At(nil, string(*p.Subnet)).Prefix()
		if err != nil {
			fault("subnet", err)
		} else {
			e.subnet = network
		}
	}
	if e.start.IsValid() && e.end.IsValid() && e.end.Less(e.start) {
		fault("end", fields.At(nil, string(*p.End)).Invalid("must not be lower than start %s: swap the two, or correct one", *p.Start))
	}
	return e, errs
}

// first is the address that an entry starts with, false where it has none.
func (e entry) first() (netip.Addr, bool) {
	switch {
	case e.start.IsValid():
		return e.start, !e.subnet.IsValid() || e.subnet.Contains(e.start)
	case e.subnet.IsValid():
		a := e.subnet.Addr().Next()
		return a, e.subnet.Contains(a)
	}
	return netip.Addr{}, false
}

// reachable is every address that an entry gives.
func (e entry) reachable() allocator.Range {
	first, ok := e.first()
	if !ok {
		return allocator.Range{}
	}
	last := allocator.RangeOfPrefix(netip.PrefixFrom(first, 0)).Last
	if e.subnet.IsValid() {
		last = allocator.RangeOfPrefix(e.subnet).Last
	}
	if e.bounded() && e.end.Less(last) {
		last = e.end
	}
	return allocator.Range{First: first, Last: last}
}

// bounded tells whether end bounds an entry: without start, or with one of the other family, it does not.
func (e entry) bounded() bool {
	return e.start.IsValid() && e.start.BitLen() == e.end.BitLen()
}

// size is how many addresses Metal3 counts of an entry, which it does where an address is to be picked at random; false where it cannot: without
// an end, or beyond an int64. A subnet beside start and end does not matter to it, and neither do the host bits of a subnet alone.
func (e entry) size() (int64, bool) {
	r, network := allocator.Range{First: e.start, Last: e.end}, allocator.RangeOfPrefix(e.subnet)
	switch {
	case e.start.IsValid() && e.end.IsValid():
	case e.start.IsValid():
		r.Last = network.Last
	case e.subnet.IsValid():
		r = allocator.Range{First: network.First.Next(), Last: network.Last}
		return r.Size(), !beyondInt64(r)
	}
	return r.Size(), r.IsValid() && !beyondInt64(r)
}

func beyondInt64(r allocator.Range) bool {
	_, more := r.At(math.MaxInt64)
	return more
}

// enclosed is the addresses that an entry speaks of, whether or not they can be reached: Metal3 accepts preAllocations by this.
func (e entry) enclosed() stretch {
	s := stretch{e.start, e.end}
	if !s.last.IsValid() {
		s.last = allocator.RangeOfPrefix(netip.PrefixFrom(netip.IPv6Unspecified(), 0)).Last
	}
	if network := allocator.RangeOfPrefix(e.subnet); network.IsValid() {
		if s.first.Less(network.First) {
			s.first = network.First
		}
		if network.Last.Less(s.last) {
			s.last = network.Last
		}
	}
	return s
}

// stretch is the addresses from first to last, of either family, or both: IPv4 counts as the lower one. It has none where last is below first.
type stretch struct{ first, last netip.Addr }

// stretches finds out in which of many an address is. They are sorted by first, each as if it reached as far as any before it.
type stretches []stretch

func newStretches(all []stretch) stretches {
	slices.SortFunc(all, func(x, y stretch) int { return x.first.Compare(y.first) })
	for i := 1; i < len(all); i++ {
		if all[i].last.Less(all[i-1].last) {
			all[i].last = all[i-1].last
		}
	}
	return all
}

// have tells whether an address is in one of them.
func (s stretches) have(a netip.Addr) bool {
	after, _ := slices.BinarySearchFunc(s, a, func(s stretch, a netip.Addr) int {
		if a.Less(s.first) {
			return 1
		}
		return -1
	})
	return after > 0 && !s[after-1].last.Less(a)
}
