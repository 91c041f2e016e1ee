package inventory

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/state"
)

// Release is a release in the status of a pool, which lists the newest releases.
type Release struct {
	Pool                   Key
	Claim                  string // namespace/name
	Tenant                 string // namespace/name
	Range                  allocator.Range
	AllocatedAt            time.Time // zero if not known
	ReleasedAt, ReusableAt time.Time

	claim Key
}

// newReleases lists the releases in the status of a pool, newest first.
func newReleases(k Key, recorded []object.Release) (list []Release) {
	for _, r := range recorded {
		list = append(list, Release{
			Pool: k, Claim: NameOf(r.Claim), Tenant: r.Tenant, Range: r.Range, claim: r.Claim,
			AllocatedAt: r.AllocatedAt, ReleasedAt: r.ReleasedAt, ReusableAt: r.ReusableAt,
		})
	}
	slices.SortFunc(list, compareReleases)
	return list
}

// compareReleases orders releases, newest first.
func compareReleases(x, y Release) int {
	return cmp.Or(y.ReleasedAt.Compare(x.ReleasedAt), cmp.Compare(x.Claim, y.Claim))
}

// Releases lists the recorded releases of a routing domain that overlap a range, newest
// first.
func (i *Inventory) Releases(domain string, r allocator.Range) (list []Release) {
	for _, p := range i.pools {
		if p.Domain != domain {
			continue
		}
		for _, released := range p.releases {
			if released.Range.Overlaps(r) {
				list = append(list, released)
			}
		}
	}
	slices.SortFunc(list, compareReleases)
	return list
}

// HasReleasesOf reports whether a recorded release names a tenant, as namespace/name.
func (i *Inventory) HasReleasesOf(tenant string) bool {
	for _, p := range i.pools {
		if slices.ContainsFunc(p.releases, func(r Release) bool { return r.Tenant == tenant }) {
			return true
		}
	}
	return false
}

// ReleaserOf returns the claim that has released the addresses of a segment in cooldown:
// the claim of the newest recorded release of the addresses, if the segment does not name
// the claim; zero if the claim is not known, or hidden from the reader.
func (i *Inventory) ReleaserOf(g state.Segment) Key {
	p := i.pools[g.Pool]
	if g.State != state.SegmentCooldown || g.Owner != (Key{}) || p == nil {
		return g.Owner
	}
	for _, released := range p.releases {
		if !released.Range.Covers(g.Range) {
			continue
		}
		if !i.isHidden(released.claim) {
			return released.claim
		}
		break
	}
	return Key{}
}

// Answer describes a run of addresses of a routing domain.
type Answer struct {
	Domain  string
	Segment state.Segment
	Pools   []*Pool // pools that offer the addresses of the segment: each pool offers every address
	// ReservedBy is the first pool that blocks an address of the segment, and Reservation
	// describes the blocking field; nil and "" if no pool blocks an address. Owned
	// addresses may be blocked too.
	ReservedBy  *Pool
	Reservation string
	Releases    []Release
}

// Who returns an Answer for each run of a range in a routing domain, in address order.
// All addresses of a run have one state, one owner, and the same offering pools.
func (i *Inventory) Who(domain string, r allocator.Range) (answers []Answer) {
	offers := i.offersIn(domain, r)
	for _, g := range i.Segments(domain, []allocator.Range{r}) {
		for offers[0].Last.Less(g.Range.First) {
			offers = offers[1:]
		}
		for n := 0; n < len(offers) && !g.Range.Last.Less(offers[n].First); n++ {
			part := g
			part.Range = g.Range.Intersect(offers[n].Range)
			answers = append(answers, Answer{Domain: domain, Segment: part, Pools: offers[n].pools})
		}
	}
	for _, released := range i.Releases(domain, r) {
		overlapping := answersIn(answers, released.Range)
		for n := range overlapping {
			overlapping[n].Releases = append(overlapping[n].Releases, released)
		}
	}
	for _, p := range i.Pools() {
		if p.Domain != domain {
			continue
		}
		for _, blocked := range p.converted.Blocked {
			overlapping := answersIn(answers, blocked)
			if len(overlapping) == 0 {
				continue
			}
			reservation := p.reservation(blocked)
			for n := range overlapping {
				if a := &overlapping[n]; a.ReservedBy == nil {
					a.ReservedBy, a.Reservation = p, reservation
				}
			}
		}
	}
	return answers
}

// answersIn returns the answers that overlap a range. answers are in address order.
func answersIn(answers []Answer, r allocator.Range) []Answer {
	from, _ := slices.BinarySearchFunc(answers, r.First, func(a Answer, first netip.Addr) int { return a.Segment.Range.Last.Compare(first) })
	to := from
	for to < len(answers) && !r.Last.Less(answers[to].Segment.Range.First) {
		to++
	}
	return answers[from:to]
}

// offer is a run of addresses offered by the same pools. No pool offers the addresses if
// pools is empty.
type offer struct {
	allocator.Range
	pools []*Pool // in the order of Pools
}

// offersIn divides a range of a routing domain where the set of offering pools changes.
// The offers are in address order and cover the range.
func (i *Inventory) offersIn(domain string, r allocator.Range) (list []offer) {
	type border struct {
		at   netip.Addr
		pool *Pool // begins to offer addresses at the border, or offers no address from the border on
	}
	var borders []border
	for _, p := range i.Pools() {
		for _, offered := range p.Ranges {
			if p.Domain != domain || !offered.Overlaps(r) {
				continue
			}
			part := offered.Intersect(r)
			borders = append(borders, border{part.First, p})
			if part.Last != r.Last {
				borders = append(borders, border{part.Last.Next(), p})
			}
		}
	}
	slices.SortFunc(borders, func(x, y border) int { return x.at.Compare(y.at) })
	first := r.First
	var offering []*Pool
	for _, b := range borders {
		if first.Less(b.at) {
			list = append(list, offer{allocator.Range{First: first, Last: b.at.Prev()}, slices.Clone(offering)})
			first = b.at
		}
		n, ends := slices.BinarySearchFunc(offering, b.pool, func(x, y *Pool) int { return CompareKeys(x.Key, y.Key) })
		if ends {
			offering = slices.Delete(offering, n, n+1)
		} else {
			offering = slices.Insert(offering, n, b.pool)
		}
	}
	return append(list, offer{allocator.Range{First: first, Last: r.Last}, offering})
}
