package plan

import (
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Timing are the delays of decisions.
type Timing struct {
	// PendingAfter is how long a Service waits before an address is allocated for it,
	// unless MetalLB has refused the Service earlier.
	PendingAfter time.Duration
	// HeadroomAfter is how long a Service that MetalLB has not refused waits before free
	// addresses of initial blocks no longer count: MetalLB should have assigned one and
	// did not.
	HeadroomAfter time.Duration
	// ShrinkAfter is how long a growth block is unused before it is released.
	ShrinkAfter time.Duration
	// Settle is how long a range must be absent from the tenant's pool before release:
	// MetalLB applies a change of the pool later, and may still assign an address of the
	// range meanwhile.
	Settle time.Duration
}

// DefaultTiming are the defaults of the flags.
var DefaultTiming = Timing{PendingAfter: time.Second, HeadroomAfter: 30 * time.Second, ShrinkAfter: 10 * time.Minute, Settle: 5 * time.Second}

// View is the observed state of a tenant.
type View struct {
	Services []Service
	// Partial: the tenant has more Services than Services lists. Unused blocks are not
	// idle then.
	Partial bool
	// InPool are the ranges in the tenant's MetalLB pool, OtherPools those in its other
	// MetalLB pools.
	InPool, OtherPools []allocator.Range
	// Foreign: the tenant's MetalLB pool was written by others, or may have been, because
	// its ranges have not been adopted yet.
	Foreign bool
	// MissingSince is, by block, since when the range has been absent from that pool
	// without a break, as observed.
	MissingSince map[string]time.Time
}

// Decision is what to do for the load balancers of a tenant. Blocks are named.
type Decision struct {
	// Offered is the content of the tenant's MetalLB pool, in ascending order: one range
	// per block. An empty list means that the pool must be deleted: MetalLB rejects a
	// pool without addresses, together with the rest of the configuration, and continues
	// with the previous configuration.
	Offered []allocator.Range
	// KeepPool: the pool must stay as it is, because a pool of others would lose
	// addresses that Services use, or may use. Lost are the known ones.
	KeepPool bool
	Lost     []allocator.Range

	// Need is the number of addresses to allocate so that every Service that has waited
	// long enough is served. Want is the number to request. Invariant: Need <= Want. The
	// surplus makes growth come in larger steps and includes Services that arrived
	// together. Need and Want are within the quota; OverQuota is the number of addresses
	// that the quota denies.
	Need, Want, OverQuota int32

	BecameIdle []string // record the begin of the idle time
	BecameUsed []string // remove the record
	Withdrawn  []string // idle for ShrinkAfter, and therefore not in Offered
	Release    []string // withdrawn, absent from the tenant's pool for Settle, and still unused: delete
	Discard    []string // failed: delete

	// Next is when to decide again if nothing changes before; zero for never.
	Next time.Time
}

// Decide returns what to do now for the load balancers of a tenant, given a recent view.
func Decide(t Tenant, p Policy, blocks []Block, v View, timing Timing, now time.Time) Decision {
	d := decider{timing: timing, now: now, view: v, usedOf: map[string]int32{}}
	for _, s := range v.Services {
		d.used = append(append(d.used, s.Addresses...), s.Requested...)
	}
	slices.SortFunc(d.used, netip.Addr.Compare)
	d.used = slices.Compact(d.used)
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer {
			d.addBlock(b)
		}
	}
	if p.IPAM && p.Elastic {
		d.decideGrowth(p)
		d.decideRelease()
	}
	d.decision.Offered = d.offeredRanges(t)
	if v.Foreign {
		d.decideKeepPool()
	}
	return d.decision
}

// decideKeepPool sets KeepPool and Lost for a pool of others. New addresses would not
// reach a pool that stays as it is, so none are requested.
func (d *decider) decideKeepPool() {
	removed := allocator.Subtract(d.view.InPool, d.decision.Offered)
	d.decision.Lost = intersect(removed, d.view.assigned())
	d.decision.KeepPool = len(d.decision.Lost) > 0 || d.view.Partial && len(removed) > 0
	if d.decision.KeepPool {
		d.decision.Need, d.decision.Want = 0, 0
	}
}

// decider is the state of one call of Decide.
type decider struct {
	decision Decision
	timing   Timing
	now      time.Time
	view     View
	blocks   []Block
	used     []netip.Addr     // addresses that Services have or request, ascending, without duplicates
	usedOf   map[string]int32 // block -> number of addresses in used
	reserved int32            // addresses of blocks that waiting Services are about to use
}

func (d *decider) addBlock(b Block) {
	d.blocks = append(d.blocks, b)
	if !b.Range.IsValid() {
		return
	}
	from, _ := slices.BinarySearchFunc(d.used, b.Range.First, netip.Addr.Compare)
	to, lastUsed := slices.BinarySearchFunc(d.used, b.Range.Last, netip.Addr.Compare)
	d.usedOf[b.Name] = int32(to-from) + int32(boolToInt(lastUsed))
}

// isInPool reports whether the tenant's MetalLB pool offers all addresses of a block.
func (d *decider) isInPool(b Block) bool {
	return slices.ContainsFunc(d.view.InPool, func(r allocator.Range) bool { return r.Covers(b.Range) })
}

func (d *decider) freeAddresses(b Block) int32 { return max(b.addressCount()-d.usedOf[b.Name], 0) }

// decideGrowth sets Need, Want and OverQuota. Waiting Services are served by, in this
// order:
//
//	headroom        free addresses of initial blocks, for Services that MetalLB may still serve
//	added           free addresses of growth blocks, and of blocks that are not in the tenant's pool yet
//	new addresses   for Services that have waited for PendingAfter or were refused, and then for the others
func (d *decider) decideGrowth(p Policy) {
	var headroom, added int32
	for _, b := range d.blocks {
		switch {
		case b.Deleting || b.Failed:
		case b.Growth || !d.isInPool(b) && !d.view.servesElsewhere(b):
			added = saturate(int64(added) + int64(d.freeAddresses(b)))
		default:
			headroom = saturate(int64(headroom) + int64(d.freeAddresses(b)))
		}
	}
	var waiting, pending, unserved []Service // unserved ⊆ pending ⊆ waiting, if HeadroomAfter >= PendingAfter
	for _, s := range d.view.Services {
		if !s.Waiting {
			continue
		}
		waiting = append(waiting, s)
		if s.Refused || d.hasPassed(s.WaitingSince, d.timing.PendingAfter) {
			pending = append(pending, s)
		}
		if s.Refused || d.hasPassed(s.WaitingSince, d.timing.HeadroomAfter) {
			unserved = append(unserved, s)
		}
	}
	beyondHeadroom := func(services []Service) int32 {
		return max(countAddressesFor(services)-headroom, countAddressesFor(unserved))
	}
	d.reserved = beyondHeadroom(waiting)
	need := max(beyondHeadroom(pending)-added, 0)
	if need == 0 {
		return
	}
	want := max(need, p.Increment, d.reserved-added)
	room := max(p.MaxLoadBalancers-quotaUsed(d.blocks, v1alpha1.TypeLoadBalancer), 0)
	d.decision.OverQuota = max(need-room, 0)
	d.decision.Need, d.decision.Want = min(need, room), min(want, room)
}

// decideRelease sets what happens to growth blocks. Reserved addresses are not idle. The
// free addresses of used blocks are reserved first, then whole unused blocks in order,
// last the blocks that have left the tenant's pool.
func (d *decider) decideRelease() {
	var unused []Block
	for _, b := range d.blocks {
		switch {
		case !b.Growth || b.Deleting:
		case b.Failed:
			if b.Replaceable && d.hasPassed(b.Created, ReplaceAfter) {
				d.decision.Discard = append(d.decision.Discard, b.Name)
			}
		case !b.isUsable() || d.usedOf[b.Name] > 0 || d.view.Partial:
			d.reserved -= d.freeAddresses(b)
			d.recordUsed(b)
		default:
			unused = append(unused, b)
		}
	}
	slices.SortStableFunc(unused, func(a, b Block) int {
		return boolToInt(!d.view.MissingSince[a.Name].IsZero()) - boolToInt(!d.view.MissingSince[b.Name].IsZero())
	})
	for _, b := range unused {
		switch {
		case d.reserved > 0:
			d.reserved -= d.freeAddresses(b)
			d.recordUsed(b)
		case b.NeverReleased:
			d.recordUsed(b)
		case b.IdleSince.IsZero():
			d.decision.BecameIdle = append(d.decision.BecameIdle, b.Name)
			d.decideAgainAt(d.now.Add(d.timing.ShrinkAfter))
		case d.hasPassed(b.IdleSince, d.timing.ShrinkAfter):
			d.decision.Withdrawn = append(d.decision.Withdrawn, b.Name)
			if since := d.view.MissingSince[b.Name]; !since.IsZero() && d.hasPassed(since, d.timing.Settle) {
				d.decision.Release = append(d.decision.Release, b.Name)
			}
		}
	}
}

// recordUsed ends the idle time of a block.
func (d *decider) recordUsed(b Block) {
	if !b.IdleSince.IsZero() {
		d.decision.BecameUsed = append(d.decision.BecameUsed, b.Name)
	}
}

// hasPassed reports whether a duration has passed since a time. If not, the next decision
// is made at the end of the duration.
func (d *decider) hasPassed(since time.Time, duration time.Duration) bool {
	at := since.Add(duration)
	if !d.now.Before(at) {
		return true
	}
	d.decideAgainAt(at)
	return false
}

func (d *decider) decideAgainAt(at time.Time) {
	if d.decision.Next.IsZero() || at.Before(d.decision.Next) {
		d.decision.Next = at
	}
}

// offeredRanges returns the usable ranges, ascending, except withdrawn ranges and ranges
// that are served elsewhere; and the manual range without usable ranges, or while
// Services use the manual range. Ranges of two routing domains may overlap, and MetalLB
// rejects overlapping entries: only the lowest of overlapping ranges is returned.
func (d *decider) offeredRanges(t Tenant) []allocator.Range {
	var ranges []allocator.Range
	for _, b := range d.blocks {
		if b.isUsable() && !slices.Contains(d.decision.Withdrawn, b.Name) && (d.isInPool(b) || !d.view.servesElsewhere(b)) {
			ranges = append(ranges, b.Range)
		}
	}
	if t.ManualRange.IsValid() && (len(ranges) == 0 || slices.ContainsFunc(d.view.assigned(), t.ManualRange.Overlaps)) {
		ranges = append(ranges, t.ManualRange)
	}
	slices.SortFunc(ranges, func(a, b allocator.Range) int { return a.First.Compare(b.First) })
	var disjoint []allocator.Range
	for _, r := range ranges {
		if n := len(disjoint); n == 0 || !disjoint[n-1].Overlaps(r) {
			disjoint = append(disjoint, r)
		}
	}
	return disjoint
}
