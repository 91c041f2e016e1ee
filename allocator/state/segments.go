package state

import (
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// SegmentState is the state of the addresses of a Segment.
type SegmentState string

const (
	SegmentFree     SegmentState = "free"     // available to every claim, if a pool offers the addresses
	SegmentReserved SegmentState = "reserved" // blocked by a pool of the routing domain, or in use beside the claims, without an owner
	SegmentOwned    SegmentState = "owned"    // by a stored claim or address object
	SegmentGranted  SegmentState = "granted"  // to a claim not yet observed
	SegmentCooldown SegmentState = "cooldown" // released, and not allocated again before Until
	SegmentMoved    SegmentState = "moved"    // the claim owns the addresses in another cluster
	SegmentWithheld SegmentState = "withheld" // removed from a pool by an update not yet observed
)

// Segment is a run of addresses of a routing domain with equal state, owner and rivals.
type Segment struct {
	Range allocator.Range
	State SegmentState
	// Owner depends on State:
	//
	//	owned              the claim; for an address object without its claim, the claim named by the address object
	//	granted            the claim for which the addresses are reserved; without a name if the name is not known
	//	moved              the claim, which is stored in another cluster
	//	cooldown           the claim that has released the addresses; zero if not known
	//	withheld           the pool that the update changes
	//	free, reserved     zero
	Owner Key
	// Object is the stored object with the addresses: the claim, or an address object
	// without its claim; zero if the addresses are not owned.
	Object Key
	Pool   Key // pool from which the owner got the addresses; zero if not known
	Since  time.Time
	Until  time.Time // of a cooldown, from Since to Until; Since is zero if not known
	// Rivals lists the claims that lost a conflict with the owner about the addresses.
	Rivals []Key
}

// Segments lists the addresses of ranges in a routing domain, in address order. Adjacent
// addresses with equal owner and rivals are one segment, also across the borders of
// pools.
func (s *State) Segments(routingDomain string, ranges []allocator.Range) (list []Segment) {
	blocked := s.blockedIn(routingDomain)
	for _, r := range allocator.Union(ranges) {
		var owners []allocator.Owned
		if domain := s.domains[routingDomain]; domain != nil {
			owners = slices.Collect(domain.core.OwnedIn(r))
		}
		ownedRanges, owned := make([]allocator.Range, len(owners)), make([]Segment, 0, len(owners))
		for n, o := range owners {
			ownedRanges[n] = o.Range
			owned = append(owned, s.segmentsOf(o)...)
		}
		gaps := allocator.Subtract([]allocator.Range{r}, ownedRanges)
		free := allocator.Subtract(gaps, blocked)
		list = appendInOrder(list, owned, segmentsIn(SegmentFree, free), segmentsIn(SegmentReserved, allocator.Subtract(gaps, free)))
	}
	return list
}

// segmentsIn returns a segment in a state for each range.
func segmentsIn(state SegmentState, ranges []allocator.Range) []Segment {
	list := make([]Segment, len(ranges))
	for n, r := range ranges {
		list[n] = Segment{Range: r, State: state}
	}
	return list
}

// appendInOrder appends the segments of lists in address order. Each list is in address
// order: a merge is faster than a sort of segments, which are large.
func appendInOrder(all []Segment, lists ...[]Segment) []Segment {
	total := 0
	for _, list := range lists {
		total += len(list)
	}
	all = slices.Grow(all, total)
	for {
		next := -1
		for n, list := range lists {
			if len(list) > 0 && (next < 0 || list[0].Range.First.Compare(lists[next][0].Range.First) < 0) {
				next = n
			}
		}
		if next < 0 {
			return all
		}
		all = append(all, lists[next][0])
		lists[next] = lists[next][1:]
	}
}

// blockedIn returns the addresses of the routing domain that a pool blocks, or that are
// in use.
func (s *State) blockedIn(routingDomain string) []allocator.Range {
	var all []allocator.Range
	for p := range s.pools.in(routingDomain) {
		all = append(all, p.Blocked...)
	}
	if domain := s.domains[routingDomain]; domain != nil {
		all = append(all, allRanges(domain.avoided)...)
	}
	return allocator.Union(all)
}

// segmentsOf returns the segments of an owned range, in address order. Claims that lost a
// conflict with the owner divide the range.
func (s *State) segmentsOf(o allocator.Owned) (list []Segment) {
	h := s.holdings.find(o.OwnerID)
	g := Segment{Range: o.Range, Owner: h.ownerClaim(), Pool: h.pool}
	switch h.state() {
	case stateBound:
		g.State, g.Object = SegmentOwned, h.claim.Key
		return s.divide(g, h)
	case stateReserved, stateInherited:
		g.State = SegmentGranted
	case stateWithheld:
		g.State = SegmentWithheld
	case stateMoved:
		g.State = SegmentMoved
	default:
		g.State, g.Since, g.Until = SegmentCooldown, h.releasedAt, h.freeAt
	}
	return []Segment{g}
}

// divide divides the segment g of the holding h into parts with equal rivals, and sets
// the rivals of each part.
func (s *State) divide(g Segment, h *holding) []Segment {
	var rivals []*holding
	for o := range s.domain(h.routingDomain).contested {
		if o != h && o.claim != nil && o.overlapsAny([]allocator.Range{g.Range}) {
			rivals = append(rivals, o)
		}
	}
	slices.SortFunc(rivals, func(x, y *holding) int { return strings.Compare(x.claim.Key.coreName(), y.claim.Key.coreName()) })
	parts := []Segment{g}
	for _, rival := range rivals {
		for _, named := range rival.ranges {
			var divided []Segment
			for _, part := range parts {
				if !part.Range.Overlaps(named) {
					divided = append(divided, part)
					continue
				}
				for _, rest := range allocator.Subtract([]allocator.Range{part.Range}, []allocator.Range{named}) {
					apart := part
					apart.Range = rest
					divided = append(divided, apart)
				}
				part.Range = part.Range.Intersect(named)
				part.Rivals = append(slices.Clip(part.Rivals), rival.claim.Key)
				divided = append(divided, part)
			}
			parts = divided
		}
	}
	slices.SortFunc(parts, func(x, y Segment) int { return x.Range.First.Compare(y.Range.First) })
	return parts
}
