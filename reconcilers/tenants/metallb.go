package tenants

import (
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// PoolEntries is ranges as spec.addresses of an IPAddressPool lists them: "first-last", also where both are one.
func PoolEntries(ranges []allocator.Range) []string {
	entries := make([]string, len(ranges))
	for i, r := range ranges {
		entries[i] = r.First.String() + "-" + r.Last.String()
	}
	return entries
}

// PoolRanges reads spec.addresses of an IPAddressPool. What cannot be read is nothing of ours, and left out.
func PoolRanges(entries []string) []allocator.Range {
	var ranges []allocator.Range
	for _, e := range entries {
		if r, err := allocator.ParseRange(e); err == nil {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// Drift says what somebody changed in the entries of a pool, for people to read: "" where that is nothing, or their order.
func Drift(ours, found []string) string {
	var changes []string
	for _, e := range found {
		if !slices.Contains(ours, e) {
			changes = append(changes, "added "+e)
		}
	}
	for _, e := range ours {
		if !slices.Contains(found, e) {
			changes = append(changes, "removed "+e)
		}
	}
	return strings.Join(changes, ", ")
}
