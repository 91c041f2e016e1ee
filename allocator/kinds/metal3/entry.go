package metal3

import (
	"math"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Settings are the network settings of an address.
type Settings struct {
	Prefix     int // 0 if not set
	Gateway    *v1alpha1.IP
	DNSServers []v1alpha1.IP
}

// OfferedRange is the range of one entry of spec.pools, with its settings. The range of
// an entry without addresses is not valid.
type OfferedRange struct {
	allocator.Range
	Settings Settings
}

// ListOfferedRanges returns one OfferedRange for each entry of a pool, in order of use.
// An entry without settings has the settings of the pool. An invalid entry has errors,
// and a range that is not valid.
func ListOfferedRanges(p *v1alpha1.IPPool) ([]OfferedRange, field.ErrorList) {
	var (
		parts []OfferedRange
		errs  field.ErrorList
	)
	for i := range p.Spec.Pools {
		part, bad := parseOfferedRange(p, i)
		parts, errs = append(parts, part), append(errs, bad...)
	}
	return parts, errs
}

func parseOfferedRange(p *v1alpha1.IPPool, i int) (OfferedRange, field.ErrorList) {
	read, errs := parseEntry(i, p.Spec.Pools[i])
	part := OfferedRange{Settings: mergeSettings(p, p.Spec.Pools[i])}
	if len(errs) == 0 {
		part.Range = read.offeredRange()
	}
	return part, errs
}

// findOfferedRange returns the first range that contains an address; false if no range
// does.
func findOfferedRange(p *v1alpha1.IPPool, a netip.Addr) (OfferedRange, bool) {
	for i := range p.Spec.Pools {
		if part, _ := parseOfferedRange(p, i); part.Contains(a) {
			return part, true
		}
	}
	return OfferedRange{}, false
}

// FindSettings returns the settings of an address: from the first entry that contains the
// address, else from the pool.
func FindSettings(p *v1alpha1.IPPool, a netip.Addr) Settings {
	if part, has := findOfferedRange(p, a); has {
		return part.Settings
	}
	return mergeSettings(p, v1alpha1.Pool{})
}

func mergeSettings(p *v1alpha1.IPPool, entry v1alpha1.Pool) Settings {
	s := Settings{Prefix: entry.Prefix, Gateway: entry.Gateway, DNSServers: convertDNSServers(entry)}
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

// convertDNSServers returns the name servers of an entry; nil for none.
func convertDNSServers(entry v1alpha1.Pool) []v1alpha1.IP {
	var ips []v1alpha1.IP
	for _, s := range entry.DNSServers {
		ips = append(ips, v1alpha1.IP(s))
	}
	return ips
}

func entryPath(i int) *field.Path { return field.NewPath("spec", "pools").Index(i) }

// entry is a parsed entry of spec.pools; absent fields are not valid.
type entry struct {
	start, end netip.Addr
	subnet     netip.Prefix
}

// parseEntry parses an entry and checks the rules on which its meaning depends. Field
// paths are built only for errors: a pool may have thousands of entries, and building
// paths costs more than parsing.
func parseEntry(i int, p v1alpha1.Pool) (entry, field.ErrorList) {
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
		a, err := fieldtext.At(nil, string(*value)).ParseAddress()
		if err != nil {
			fault(name, err)
			return netip.Addr{}
		}
		return a
	}
	e.start, e.end = address("start", p.Start), address("end", p.End)
	if p.Subnet != nil {
		network, err := fieldtext.At(nil, *p.Subnet).ParsePrefix()
		if err != nil {
			fault("subnet", err)
		} else {
			e.subnet = network
		}
	}
	if e.start.IsValid() && e.end.IsValid() && e.end.Less(e.start) {
		fault("end", fieldtext.At(nil, string(*p.End)).Invalid("must not be lower than start %s: swap the two, or correct one", *p.Start))
	}
	return e, errs
}

// firstAddress returns the first address of an entry; false for an entry without
// addresses.
func (e entry) firstAddress() (netip.Addr, bool) {
	switch {
	case e.start.IsValid():
		return e.start, !e.subnet.IsValid() || e.subnet.Contains(e.start)
	case e.subnet.IsValid():
		a := e.subnet.Addr().Next()
		return a, e.subnet.Contains(a)
	}
	return netip.Addr{}, false
}

// offeredRange returns the addresses that an entry offers.
func (e entry) offeredRange() allocator.Range {
	first, ok := e.firstAddress()
	if !ok {
		return allocator.Range{}
	}
	last := allocator.RangeOfPrefix(netip.PrefixFrom(first, 0)).Last
	if e.subnet.IsValid() {
		last = allocator.RangeOfPrefix(e.subnet).Last
	}
	if e.hasEffectiveEnd() && e.end.Less(last) {
		last = e.end
	}
	return allocator.Range{First: first, Last: last}
}

// hasEffectiveEnd reports whether end limits an entry: end has no effect without start,
// or with a start of the other family.
func (e entry) hasEffectiveEnd() bool {
	return e.start.IsValid() && e.start.BitLen() == e.end.BitLen()
}

// countAddresses returns the number of addresses by Metal3's count, which Metal3 needs
// for random allocation; false if Metal3 cannot count: without an end, or above an int64.
// The count ignores a subnet beside start and end, and the host bits of a lone subnet.
func (e entry) countAddresses() (int64, bool) {
	r, network := allocator.Range{First: e.start, Last: e.end}, allocator.RangeOfPrefix(e.subnet)
	switch {
	case e.start.IsValid() && e.end.IsValid():
	case e.start.IsValid():
		r.Last = network.Last
	case e.subnet.IsValid():
		r = allocator.Range{First: network.First.Next(), Last: network.Last}
		return r.Size(), !exceedsInt64(r)
	}
	return r.Size(), r.IsValid() && !exceedsInt64(r)
}

func exceedsInt64(r allocator.Range) bool {
	_, more := r.At(math.MaxInt64)
	return more
}

// enclosedSpan returns the addresses that an entry mentions, offered or not: Metal3
// accepts preAllocations by this rule.
func (e entry) enclosedSpan() span {
	s := span{e.start, e.end}
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

// span is the addresses from first to last, possibly across families: IPv4 sorts below
// IPv6. A span with last below first is empty.
type span struct{ first, last netip.Addr }

// spanSet finds the spans that contain an address. Spans are sorted by first; each last
// is the maximum of its own and all earlier ones.
type spanSet []span

func newSpanSet(all []span) spanSet {
	slices.SortFunc(all, func(x, y span) int { return x.first.Compare(y.first) })
	for i := 1; i < len(all); i++ {
		if all[i].last.Less(all[i-1].last) {
			all[i].last = all[i-1].last
		}
	}
	return all
}

// contains reports whether a span contains an address.
func (s spanSet) contains(a netip.Addr) bool {
	after, _ := slices.BinarySearchFunc(s, a, func(s span, a netip.Addr) int {
		if a.Less(s.first) {
			return 1
		}
		return -1
	})
	return after > 0 && !s[after-1].last.Less(a)
}
