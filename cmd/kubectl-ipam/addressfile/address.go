package addressfile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// hostBitsError is the error for an address with a prefix length where a network is
// expected.
type hostBitsError struct{ netip.Prefix }

func (e *hostBitsError) Error() string {
	return fmt.Sprintf("%q has bits set after the prefix: write %s for the network, %s for the address", e.Prefix, e.Masked(), e.Addr())
}

// parseRanges parses addresses, ranges and networks. singles reports whether the cell
// contains only single addresses. The error for 10.40.1.5/24 asks for the address or the
// network, because the text can mean each of the two.
func parseRanges(cell string) (ranges []allocator.Range, singles bool, err error) {
	singles = true
	for _, text := range splitList(cell) {
		if p, err := netip.ParsePrefix(text); err == nil && p != p.Masked() {
			return nil, false, &hostBitsError{p}
		}
		r, err := allocator.ParseRange(text)
		if between, ok := parseBetween(text); ok && err != nil {
			r, err = between, nil
		}
		switch {
		case err != nil && paddedAddress.MatchString(text):
			return nil, false, newAddressError(text)
		case err != nil && len(text) > 60:
			return nil, false, fmt.Errorf("%q is not an address, a range or a network", Shorten(text))
		case err != nil:
			return nil, false, err
		}
		ranges, singles = append(ranges, r), singles && !strings.ContainsAny(text, "-/")
	}
	return ranges, singles, nil
}

// parseBetween parses ranges in the notations of other tools: with prefix lengths
// (10.40.1.5/24-10.40.1.9/24), and with the last number of an IPv4 address (10.40.1.5-9).
func parseBetween(text string) (r allocator.Range, ok bool) {
	from, to, ok := strings.Cut(text, "-")
	if !ok {
		return r, false
	}
	from, _, _ = strings.Cut(from, "/")
	to, _, _ = strings.Cut(to, "/")
	first, err := netip.ParseAddr(from)
	if err != nil || first.Zone() != "" {
		return r, false
	}
	if n, err := strconv.ParseUint(to, 10, 8); err == nil && first.Is4() && strconv.FormatUint(n, 10) == to {
		numbers := first.As4()
		numbers[3] = byte(n)
		to = netip.AddrFrom4(numbers).String()
	}
	last, err := netip.ParseAddr(to)
	if err != nil {
		return r, false
	}
	r, err = allocator.NewRange(first, last)
	return r, err == nil
}

// parseReverse parses the name of a PTR record: 5.1.40.10.in-addr.arpa, or 32 hexadecimal
// digits with the suffix ip6.arpa.
func parseReverse(name string) (a netip.Addr, ok bool) {
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if labels, ok := strings.CutSuffix(name, ".in-addr.arpa"); ok {
		numbers := strings.Split(labels, ".")
		slices.Reverse(numbers)
		a, err := netip.ParseAddr(strings.Join(numbers, "."))
		return a, err == nil
	}
	labels, ok := strings.CutSuffix(name, ".ip6.arpa")
	digits := strings.Split(labels, ".")
	if !ok || len(digits) != 32 {
		return a, false
	}
	slices.Reverse(digits)
	var text strings.Builder
	for n, digit := range digits {
		if n > 0 && n%4 == 0 {
			text.WriteByte(':')
		}
		text.WriteString(digit)
	}
	a, err := netip.ParseAddr(text.String())
	return a, err == nil
}

// newAddressError returns the error for a text that is no address.
func newAddressError(text string) error {
	if paddedAddress.MatchString(text) {
		numbers := strings.Split(text, ".")
		for n := range numbers {
			numbers[n] = cmp.Or(strings.TrimLeft(numbers[n], "0"), "0")
		}
		if a, err := netip.ParseAddr(strings.Join(numbers, ".")); err == nil {
			return fmt.Errorf("%q has leading zeros: write %s", text, a)
		}
	}
	return fmt.Errorf("%q is not an IP address", Shorten(text))
}

// parseAddresses parses single addresses, and ranges of them. edge is "network" or
// "broadcast" if an address has a prefix length and is the first or the last address of
// its network: no machine can use the address.
func parseAddresses(cell string) (ranges []allocator.Range, edge string, err error) {
	for _, text := range splitList(cell) {
		if between, ok := parseBetween(text); ok {
			ranges = append(ranges, between)
			continue
		}
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, err := netip.ParseAddr(text)
			if err != nil {
				return nil, "", newAddressError(text)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		r, err := allocator.NewRange(p.Addr(), p.Addr())
		if err != nil {
			return nil, "", err
		}
		ranges = append(ranges, r)
		if p.Bits() >= p.Addr().BitLen()-1 {
			continue
		}
		switch network := allocator.RangeOfPrefix(p); p.Addr() {
		case network.First:
			edge = "network"
		case network.Last:
			if p.Addr().Is4() {
				edge = "broadcast"
			}
		}
	}
	return ranges, edge, nil
}
