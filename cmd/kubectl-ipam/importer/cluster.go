package importer

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/state"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// compareWithCluster returns the items that the cluster lacks. An item in conflict with
// the cluster is not returned.
func (pl *planner) compareWithCluster(items []*item) (missing []*item) {
	var ranges []allocator.Range
	for _, it := range items {
		ranges = append(ranges, it.ranges...)
	}
	c := comparison{
		planner: pl, segments: pl.i.Segments(pl.Pool.Domain, ranges),
		blocked: allocator.Union(pl.Pool.Blocked()), names: newNamedReservations(pl.Pool),
	}
	for _, it := range items {
		before := len(pl.Conflicts)
		rest := c.compare(it)
		switch {
		case len(pl.Conflicts) > before:
		case len(rest) == 0:
			pl.Present += len(it.rows())
		default:
			lacking := map[int]bool{}
			for _, lack := range it.split(rest) {
				missing = append(missing, lack)
				for _, p := range lack.parts {
					lacking[p.row] = true
				}
			}
			pl.Present += len(it.rows()) - len(lacking)
		}
	}
	return missing
}

// split returns a copy of the item for each range. An item that is a claim with several
// ranges is returned as a whole.
func (it *item) split(ranges []allocator.Range) (items []*item) {
	if len(it.ranges) > 1 || slices.Equal(ranges, it.ranges) {
		return []*item{it}
	}
	for _, r := range ranges {
		one := *it
		one.ranges = []allocator.Range{r}
		one.parts = slices.DeleteFunc(slices.Clone(it.parts), func(p part) bool { return !p.Overlaps(r) })
		items = append(items, &one)
	}
	return items
}

// comparison compares items with the inventory's state of their addresses.
type comparison struct {
	*planner
	segments []state.Segment   // of the addresses of the items
	blocked  []allocator.Range // ranges that the pool reserves, in address order
	names    namedReservations
}

// in returns the segments that contain addresses of a range.
func (c *comparison) in(r allocator.Range) []state.Segment {
	from, _ := slices.BinarySearchFunc(c.segments, r.First, func(g state.Segment, a netip.Addr) int {
		if g.Range.Last.Less(a) {
			return -1
		}
		return 1
	})
	to := from
	for to < len(c.segments) && !r.Last.Less(c.segments[to].Range.First) {
		to++
	}
	return c.segments[from:to]
}

// compare returns the ranges of an item that the cluster lacks, and records conflicts.
func (c *comparison) compare(it *item) (rest []allocator.Range) {
	switch it.kind {
	case addressfile.KindReserved:
		rest = allocator.Subtract(it.ranges, c.blocked)
		if it.entry && len(rest) > 0 {
			rest = it.ranges
		}
	case addressfile.KindPreAllocation:
		if c.isPreAllocated(it) {
			return nil
		}
		rest = it.ranges
	case addressfile.KindIPAllocation:
		if it.name == "" {
			return c.compareUnnamed(it)
		}
		fallthrough
	default:
		if stored := c.i.Claim(c.keyOf(it)); stored != nil {
			if !slices.Equal(stored.Ranges, it.ranges) || stored.Pool != c.Pool.Key || stored.State == inventory.ClaimDeleting || it.kind == addressfile.KindIPAllocation && stored.Tenant != it.tenant {
				c.addConflict(ConflictName, it.rows(), "%s %s exists, with %s; the file says %s %s", it.kind, inventory.NameOf(stored.Key), describeClaim(stored), rangesText(it.ranges), it.owner())
				return nil
			}
			return c.checkSegments(it, it.ranges, stored.Key)
		}
		rest = it.ranges
	}
	c.checkSegments(it, rest, inventory.Key{})
	return rest
}

// compareUnnamed returns the ranges of an IPAllocation that no stored IPAllocation of the
// tenant owns, and records conflicts.
func (c *comparison) compareUnnamed(it *item) (rest []allocator.Range) {
	var owned []allocator.Range
	for _, g := range c.in(it.ranges[0]) {
		if g.State != state.SegmentOwned || g.Pool != c.Pool.Key || len(g.Rivals) > 0 {
			continue
		}
		if stored := c.i.Claim(g.Owner); stored != nil && stored.Key.Resource == butler.ResourceIPAllocation && stored.Tenant == it.tenant &&
			stored.State != inventory.ClaimDeleting && (!it.purposeGiven || string(stored.Purpose) == string(it.purpose)) {
			owned = append(owned, g.Range)
		}
	}
	rest = allocator.Subtract(it.ranges, owned)
	c.checkSegments(it, rest, inventory.Key{})
	for _, r := range rest {
		missing := *it
		missing.ranges = []allocator.Range{r}
		if stored := c.i.Claim(c.keyOf(&missing)); stored != nil {
			c.addConflict(ConflictName, it.rowsIn(r), "IPAllocation %s exists, with %s; its name derives from %s, which the file says is %s", inventory.NameOf(stored.Key), describeClaim(stored), r, it.owner())
		}
	}
	return rest
}

// checkSegments records a conflict for each segment of ranges that makes the import of
// the item impossible. A segment is no conflict in these cases:
//
//   - the segment is free
//   - the claim with the key own is the owner
//   - the item is a preAllocation for the owner, or the segment is preallocated to the
//     claim that the item becomes
//   - the item is a reservation, and the segment is reserved, in cooldown or moved
//   - the segment is granted to the claim that the item becomes
//
// The result is always nil: compare returns it for an item that the cluster has.
func (c *comparison) checkSegments(it *item, ranges []allocator.Range, own inventory.Key) []allocator.Range {
	for _, r := range ranges {
		for _, g := range c.in(r) {
			common := g.Range.Intersect(r)
			fail := func(kind ConflictKind, format string, args ...any) {
				c.addConflict(kind, it.rowsIn(common), "%s %s; the file says %s", common, fmt.Sprintf(format, args...), it.owner())
			}
			switch g.State {
			case state.SegmentReserved:
				c.checkBlocked(it, common)
			case state.SegmentOwned:
				if g.Owner == own || it.kind == addressfile.KindPreAllocation && g.Owner.Name == it.name && g.Owner.Namespace == c.Pool.Key.Namespace {
					continue
				}
				more := ""
				if stored := c.i.Claim(g.Owner); stored != nil {
					more = describeOwner(stored)
				}
				fail(ConflictOwned, "is owned by %s %s%s", inventory.KindOf(g.Owner), inventory.NameOf(g.Owner), more)
			case state.SegmentCooldown:
				if !isReservation(it.kind) { // addresses in cooldown may be reserved
					fail(ConflictCooldown, "is in cooldown until %s", g.Until.UTC().Format(time.RFC3339))
				}
			case state.SegmentGranted:
				if c.isOwnGrant(it, r) {
					continue
				}
				fail(ConflictGranted, "is granted to a claim that is being created%s", nameIfKnown(g.Owner))
			case state.SegmentMoved:
				if !isReservation(it.kind) {
					fail(ConflictMoved, "is owned by %s %s in another cluster", inventory.KindOf(g.Owner), inventory.NameOf(g.Owner))
				}
			case state.SegmentWithheld:
				fail(ConflictWithheld, "is withheld, as an update of pool %s removes it", inventory.NameOf(g.Owner))
			}
		}
	}
	return nil
}

// isOwnGrant reports whether a range is granted to the claim that an item becomes. An
// earlier import whose create failed leaves such a grant.
func (c *comparison) isOwnGrant(it *item, r allocator.Range) bool {
	if isReservation(it.kind) {
		return false
	}
	one := *it
	if it.name == "" {
		one.ranges = []allocator.Range{r}
	}
	return c.i.IsGrantedTo(c.keyOf(&one), c.Pool.Domain, one.ranges)
}

func isReservation(k addressfile.Kind) bool {
	return k == addressfile.KindReserved || k == addressfile.KindPreAllocation
}

// checkBlocked records a conflict for each part of a reserved range that the pools do not
// allow an item to use.
func (c *comparison) checkBlocked(it *item, reserved allocator.Range) {
	if isReservation(it.kind) {
		return // a range may be reserved twice
	}
	rest := []allocator.Range{reserved} // for which no conflict is recorded
	for _, p := range c.i.Pools() {
		if p.Domain != c.Pool.Domain {
			continue
		}
		for _, blocked := range p.Blocked() {
			for _, r := range rest {
				if !blocked.Overlaps(r) {
					continue
				}
				part := blocked.Intersect(r)
				if kind, why := c.whyBlocked(it, p, part); why != "" {
					c.addConflict(kind, it.rowsIn(part), "%s %s; the file says %s", part, why, it.owner())
					rest = allocator.Subtract(rest, []allocator.Range{part})
				}
			}
		}
	}
}

// whyBlocked returns why a pool that blocks a range does not allow an item to use the
// range; "" if the item may use the range.
func (c *comparison) whyBlocked(it *item, p *inventory.Pool, r allocator.Range) (ConflictKind, string) {
	what, _ := p.Blocks(r)
	switch {
	case p.Kind.Reservations == nil || !p.Kind.Reservations.Named:
		if what = cmp.Or(what, "is reserved"); p.Key != c.Pool.Key {
			what = fmt.Sprintf("in pool %s %s", inventory.NameOf(p.Key), what)
		}
		return ConflictReserved, what
	case p.Key == c.Pool.Key && c.names.address[it.name] == r.First:
		return "", "" // the address is kept for the name of the claim
	}
	return ConflictPreAllocated, fmt.Sprintf("is kept for a claim (spec.preAllocations) by pool %s", inventory.NameOf(p.Key))
}

// namedReservations has the entries of a pool that keep one address for a name.
type namedReservations struct {
	address map[string]netip.Addr // name -> address
	name    map[netip.Addr]string // address -> name, the last of several
}

// newNamedReservations returns the named reservations of a pool.
func newNamedReservations(p *inventory.Pool) namedReservations {
	names := namedReservations{map[string]netip.Addr{}, map[netip.Addr]string{}}
	if r := p.Kind.Reservations; r != nil && r.Named {
		entries, _ := r.List(p.Object)
		for _, e := range entries {
			names.address[e.Name], names.name[e.Range.First] = e.Range.First, e.Name
		}
	}
	return names
}

// isPreAllocated reports whether spec.preAllocations of the pool contains the name or the
// address of an item. It records a conflict in these cases:
//
//   - the name has another address
//   - the address has another name, and the file contains a name for the address
func (c *comparison) isPreAllocated(it *item) bool {
	address := it.ranges[0].First
	if kept, ok := c.names.address[it.name]; ok {
		if kept != address {
			c.addConflict(ConflictPreAllocated, it.rows(), "%s is already the name for %s in spec.preAllocations of the pool; the file says %s", it.name, kept, address)
		}
		return true
	}
	name, kept := c.names.name[address]
	if kept && !it.derived {
		c.addConflict(ConflictPreAllocated, it.rows(), "%s is kept for %s in spec.preAllocations of the pool; the file says %s", address, name, it.owner())
	}
	return kept
}

func nameIfKnown(k inventory.Key) string {
	if k.Name == "" {
		return ""
	}
	return ": " + inventory.KindOf(k) + " " + inventory.NameOf(k)
}

// describeClaim returns the ranges and the tenant of a stored claim, for messages.
func describeClaim(c *inventory.Claim) string {
	if len(c.Ranges) == 0 {
		return "no addresses" + describeOwner(c)
	}
	return rangesText(c.Ranges) + describeOwner(c)
}

// describeOwner returns the tenant of a stored claim and whether the claim is being
// deleted, for messages.
func describeOwner(c *inventory.Claim) (text string) {
	if c.Tenant != "" {
		text = " for " + c.Tenant
	}
	if c.State == inventory.ClaimDeleting {
		text += ", and is being deleted"
	}
	return text
}
