package allocator

import (
	"net/netip"
	"slices"
)

// span is the addresses from first to last, both included, never reversed and of one
// family.
type span struct{ first, last number }

func (sp span) size() number         { return sp.last.minus(sp.first).next() }
func (sp span) overlaps(o span) bool { return !o.last.less(sp.first) && !sp.last.less(o.first) }
func (sp span) asRange() Range       { return Range{sp.first.addr(), sp.last.addr()} }

// clip returns the part of sp inside o, which sp overlaps.
func (sp span) clip(o span) span {
	if sp.first.less(o.first) {
		sp.first = o.first
	}
	if o.last.less(sp.last) {
		sp.last = o.last
	}
	return sp
}

func (sp span) compare(o span) int {
	if c := sp.first.compare(o.first); c != 0 {
		return c
	}
	return sp.last.compare(o.last)
}

// Union returns the addresses of all ranges, sorted, with overlapping and adjacent ranges
// merged.
func Union(ranges []Range) []Range {
	return asRanges(unionOf(ranges))
}

// CoversIn reports whether one of several ranges, in address order, covers r.
func CoversIn(ranges []Range, r Range) bool {
	n, found := slices.BinarySearchFunc(ranges, r.First, func(w Range, a netip.Addr) int { return w.First.Compare(a) })
	if !found {
		n--
	}
	return n >= 0 && ranges[n].Covers(r)
}

// Subtract returns the addresses of from that are in no range of what, sorted and merged.
func Subtract(from, what []Range) []Range {
	return asRanges(subtractSpans(unionOf(from), unionOf(what)))
}

// OverlapsAny returns a function that reports whether a range of its argument has an
// address of these ranges. The returned function is cheap for many calls.
func OverlapsAny(some []Range) func(others []Range) bool {
	all := unionOf(some)
	return func(others []Range) bool { return overlapsUnion(all, others) }
}

// overlapsUnion reports whether a range has an address of a union.
func overlapsUnion(union []span, ranges []Range) bool {
	for _, r := range ranges {
		for sp := range r.eachSpan {
			at, _ := slices.BinarySearchFunc(union, sp.first, func(u span, n number) int { return u.last.compare(n) })
			if at < len(union) && union[at].overlaps(sp) {
				return true
			}
		}
	}
	return false
}

// Total counts the addresses of all ranges, each once. It saturates at MaxInt64.
func Total(ranges []Range) int64 {
	total := int64(0)
	for _, sp := range unionOf(ranges) {
		total = addSaturating(total, sp.size().int64())
	}
	return total
}

// Unmanaged returns the addresses of a pool that are neither reserved nor offered: the
// whole pool without its first and last address (gateway and broadcast, by convention),
// the reserved ranges and the window.
func Unmanaged(pool Range, reserved, window []Range) []Range {
	edges := []Range{{pool.First, pool.First}, {pool.Last, pool.Last}}
	return Subtract([]Range{pool}, slices.Concat(edges, reserved, window))
}

// spansOf returns the spans of all ranges, sorted.
func spansOf(ranges []Range) []span {
	spans := make([]span, 0, len(ranges))
	for _, r := range ranges {
		for sp := range r.eachSpan {
			spans = append(spans, sp)
		}
	}
	slices.SortFunc(spans, span.compare)
	return spans
}

// unionOf returns the sorted spans of all ranges, with overlapping and adjacent spans
// merged.
func unionOf(ranges []Range) []span { return mergeSorted(spansOf(ranges)) }

// mergeSorted merges sorted spans into a union, in place.
func mergeSorted(spans []span) []span {
	merged := spans[:0]
	for _, sp := range spans {
		if end := len(merged) - 1; end >= 0 && (merged[end].overlaps(sp) || merged[end].last.followedBy(sp.first)) {
			if merged[end].last.less(sp.last) {
				merged[end].last = sp.last
			}
			continue
		}
		merged = append(merged, sp)
	}
	return merged
}

// subtractSpans removes the spans of what from the spans of from; both are unions, and so
// is the result.
//
//	from    |-------------|   |-----|
//	what  |---|   |--|      |---|
//	          |--|    |---|      |--|
func subtractSpans(from, what []span) []span {
	var rest []span
	for _, sp := range from {
		at, _ := slices.BinarySearchFunc(what, sp.first, func(cut span, n number) int { return cut.last.compare(n) })
		more := true // sp still has addresses
		for _, cut := range what[at:] {
			if !cut.overlaps(sp) {
				break
			}
			if sp.first.less(cut.first) {
				rest = append(rest, span{sp.first, cut.first.prev()})
			}
			if more = cut.last.less(sp.last); !more {
				break
			}
			sp.first = cut.last.next()
		}
		if more {
			rest = append(rest, sp)
		}
	}
	return rest
}

func asRanges(spans []span) []Range {
	var ranges []Range
	for _, sp := range spans {
		ranges = append(ranges, sp.asRange())
	}
	return ranges
}
