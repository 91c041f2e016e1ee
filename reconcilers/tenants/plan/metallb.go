package plan

import (
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// MetalLBPool is the name of the IPAddressPool with a tenant's addresses.
const MetalLBPool = "default-pool"

// FormatPoolEntries returns ranges in the form of spec.addresses of an IPAddressPool:
// "first-last", also for a single address.
func FormatPoolEntries(ranges []allocator.Range) []string {
	entries := make([]string, len(ranges))
	for i, r := range ranges {
		entries[i] = r.First.String() + "-" + r.Last.String()
	}
	return entries
}

// ParsePoolEntries returns the ranges in spec.addresses of an IPAddressPool. Entries that
// are no ranges were not written by IPAM, and are ignored.
func ParsePoolEntries(entries []string) []allocator.Range {
	var ranges []allocator.Range
	for _, e := range entries {
		if r, err := allocator.ParseRange(e); err == nil {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// DescribeChange returns which entries of a pool were added or removed; "" for no
// difference but the order.
func DescribeChange(before, after []string) string {
	var changes []string
	for _, e := range after {
		if !slices.Contains(before, e) {
			changes = append(changes, "added "+e)
		}
	}
	for _, e := range before {
		if !slices.Contains(after, e) {
			changes = append(changes, "removed "+e)
		}
	}
	return strings.Join(changes, ", ")
}
