package inventory

import (
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/state"
)

// Pool describes a stored pool.
type Pool struct {
	Key    Key
	Domain string            // routing domain; "" is the default routing domain
	Ranges []allocator.Range // offered, in address order, merged
	Object metav1.Object
	Kind   *kinds.Kind
	// Description has what the status says, among others.
	Description object.PoolDescription
	Fault       string // rule that the pool breaks; "" for a valid pool
	Faulty      bool   // the pool offers no address because of Fault
	Deleting    bool
	Paused      bool
	Manual      bool // allocates only ranges requested by address

	converted state.Pool
	releases  []Release // recorded in the status, newest first
}

func (i *Inventory) addPool(p state.Pool, fault error, o metav1.Object) {
	p = i.maskPool(p)
	i.state.ObservePool(i.now, p)
	if IsAnonymous(p.Key) {
		i.anonymous.blocked[p.Key] = blocked{p.RoutingDomain, p.Blocked}
		return
	}
	described := &Pool{
		Key: p.Key, Domain: p.RoutingDomain, Ranges: allocator.Union(p.Window), Object: o, Deleting: p.Deleting, Paused: p.Paused, Manual: p.Manual,
		Faulty: p.Fault != "", converted: p, Kind: kinds.Of(o),
	}
	described.Description = described.Kind.DescribePool(o)
	described.releases = newReleases(p.Key, described.Description.Releases)
	if fault != nil {
		described.Fault = fault.Error()
	}
	i.pools[p.Key] = described
}

// Pools lists the pools by resource, namespace and name.
func (i *Inventory) Pools() []*Pool {
	return slices.SortedFunc(maps.Values(i.pools), func(x, y *Pool) int { return CompareKeys(x.Key, y.Key) })
}

// Pool returns a pool; nil if the Inventory does not contain the pool.
func (i *Inventory) Pool(k Key) *Pool { return i.pools[k] }

// Usage counts the addresses of a pool as the status of the pool does. Without the
// journal, Granted is the number in the status, and granted addresses count as free.
func (i *Inventory) Usage(k Key) state.Usage {
	u, known := i.state.Usage(k)
	if known && !i.knowsGrants {
		u.Granted = i.pools[k].Description.Granted
	}
	return u
}

// KnowsGrants reports whether the journal was read. Without the journal, granted
// addresses count as free.
func (i *Inventory) KnowsGrants() bool { return i.knowsGrants }

// Overlapping lists the visible pools of the routing domain of p, without p, that offer
// addresses of p.
func (i *Inventory) Overlapping(p *Pool) []Key {
	return slices.DeleteFunc(i.state.Overlapping(p.converted), IsAnonymous)
}

// PoolsOffering lists the pools of a routing domain that offer an address of a range.
func (i *Inventory) PoolsOffering(domain string, r allocator.Range) (list []*Pool) {
	for _, p := range i.Pools() {
		if p.Domain == domain && slices.ContainsFunc(p.Ranges, r.Overlaps) {
			list = append(list, p)
		}
	}
	return list
}

// StayingOwners lists the objects that own addresses of a pool and are not being deleted.
func (i *Inventory) StayingOwners(k Key) []state.Owner { return i.state.StayingOwners(k) }

// ReuseDelay returns the length of the cooldown of the addresses of the pool.
func (p *Pool) ReuseDelay() time.Duration { return p.converted.ReuseDelay }

// Declared lists the ranges of the pool one by one, without a merge of adjacent ranges. A
// requested range must be inside one declared range; a range allocated by count may span
// two adjacent declared ranges.
func (p *Pool) Declared() []allocator.Range { return p.converted.Window }

// Windows returns the ranges of the pool, with the reserved addresses in them, in address
// order. A claim lies in one of the ranges.
func (p *Pool) Windows() []allocator.Range {
	if !p.Kind.HasRanges {
		return p.Ranges
	}
	windows := slices.Clone(p.Declared())
	slices.SortFunc(windows, func(x, y allocator.Range) int { return x.First.Compare(y.First) })
	return windows
}

// Blocked lists the ranges that the pool blocks in its routing domain: reserved networks,
// the gateway, preAllocations, and status.infrastructureAllocations.
func (p *Pool) Blocked() []allocator.Range { return p.converted.Blocked }

// Blocks reports whether the pool blocks an address of a range. what describes the
// blocking field; what may be "".
func (p *Pool) Blocks(r allocator.Range) (what string, blocks bool) {
	n := slices.IndexFunc(p.converted.Blocked, r.Overlaps)
	if n >= 0 && p.converted.WhatIsBlocked != nil {
		what = p.converted.WhatIsBlocked(p.converted.Blocked[n])
	}
	return what, n >= 0
}

// reservation describes the field that blocks a range of Blocked, with the description of
// a reserved network; "" without a description.
func (p *Pool) reservation(blocked allocator.Range) (what string) {
	if p.converted.WhatIsBlocked != nil {
		what = p.converted.WhatIsBlocked(blocked)
	}
	if p.Kind.Reservations == nil || p.Kind.Reservations.Named {
		return what
	}
	entries, _ := p.Kind.Reservations.List(p.Object)
	for _, reserved := range entries {
		if reserved.Range == blocked && reserved.Description != "" {
			return what + ": " + reserved.Description
		}
	}
	return what
}

// Domains lists the routing domains of the pools, and of the addresses that claims own:
// the pool of an owner may be gone.
func (i *Inventory) Domains() []string {
	domains := map[string]bool{}
	for _, p := range i.pools {
		domains[p.Domain] = true
	}
	for _, c := range i.claims {
		if o := i.OwnershipOf(c.UID); o.Allocated {
			domains[o.RoutingDomain] = true
		}
	}
	return slices.Sorted(maps.Keys(domains))
}

// Cooldown returns the ranges of a pool in cooldown, and the earliest end of a cooldown;
// zero if no end is known.
func (i *Inventory) Cooldown(p *Pool) (ranges []allocator.Range, first time.Time) {
	for _, g := range i.Segments(p.Domain, p.Ranges) {
		if g.State != state.SegmentCooldown {
			continue
		}
		ranges = append(ranges, g.Range)
		if !g.Until.IsZero() && (first.IsZero() || g.Until.Before(first)) {
			first = g.Until
		}
	}
	return ranges, first
}

// Free lists the blocks of at least the given number of free addresses of a pool, in
// address order.
func (i *Inventory) Free(p *Pool, least int64) (list []allocator.Range) {
	for _, g := range i.Segments(p.Domain, p.Ranges) {
		if g.State == state.SegmentFree && g.Range.Size() >= least {
			list = append(list, g.Range)
		}
	}
	return list
}

// Vacancy returns the free addresses of a pool for allocator.CountSets.
func (i *Inventory) Vacancy(p *Pool) *allocator.Vacancy {
	return &allocator.Vacancy{Domain: p.Domain, Free: i.Free(p, 1), Policy: p.converted.Policy, Waits: !p.Serves()}
}

// Serves reports whether the pool, while it has room, allocates addresses to claims
// without a requested address.
func (p *Pool) Serves() bool { return !p.Paused && !p.Manual && !p.Deleting && p.Fault == "" }

// Total counts addresses by state.
type Total map[state.SegmentState]int64

// Totals counts the addresses of segments by state. Counts saturate at MaxInt64.
func Totals(list []state.Segment) Total {
	ranges := map[state.SegmentState][]allocator.Range{}
	for _, g := range list {
		ranges[g.State] = append(ranges[g.State], g.Range)
	}
	total := Total{}
	for s, r := range ranges {
		total[s] = allocator.Total(r)
	}
	return total
}
