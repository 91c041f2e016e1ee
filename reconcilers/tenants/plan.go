package tenants

import (
	"math"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Timing is how patient decisions are.
type Timing struct {
	// PendingAfter is how long a Service waits before it gets an address of its own, unless MetalLB has refused it already.
	PendingAfter time.Duration
	// HeadroomAfter is how long a Service that MetalLB has not refused may wait before free addresses of the first blocks no longer count:
	// MetalLB should have taken them, and did not.
	HeadroomAfter time.Duration
	// ShrinkAfter is how long a block that was added is unused before it is given back.
	ShrinkAfter time.Duration
	// Settle is how long a range must have been gone from the tenant's pool before it is released: MetalLB applies a change some time
	// after it was made, and may until then give out an address of the range.
	Settle time.Duration
}

// DefaultTiming is for tenants whose operator says nothing.
var DefaultTiming = Timing{PendingAfter: time.Second, HeadroomAfter: 30 * time.Second, ShrinkAfter: 10 * time.Minute, Settle: 5 * time.Second}

// View is what is seen in a tenant. Without a recent one nothing may be decided.
type View struct {
	Services []Service
	// Partial says that there are more Services than these. What none of these uses is not idle then.
	Partial bool
	// InPool is the ranges that the tenant's MetalLB pool has.
	InPool []allocator.Range
	// GoneSince is, by block, since when its range has been missing from that pool without a break, as far as was observed.
	GoneSince map[string]time.Time
}

// Plan is what to do now for a tenant's load balancers. Names are of blocks.
type Plan struct {
	// Addresses is the content of the tenant's MetalLB pool, in order: one range for a block. Where there is none the pool must go:
	// MetalLB refuses a pool without addresses, and all of its configuration with it, and works on with what it had.
	Addresses []allocator.Range

	// Need is how many addresses are to be added so that every Service is served that has waited long enough for one; Want, how many to ask
	// for: as many or, so that growth comes in larger steps and is one for all that came together, some more. Neither goes beyond the
	// quota; Short is how many it denies.
	Need, Want, Short int32

	StartClock []string // used until now: record since when it is idle
	StopClock  []string // used again: remove that record
	Withdrawn  []string // idle for long enough, and for that reason not in Addresses
	Release    []string // withdrawn, gone from the tenant's pool and unused still: delete
	Discard    []string // failed: delete

	// Next is when to decide again if nothing changes before; zero for never.
	Next time.Time
}

// Decide is what to do for a tenant's load balancers.
func Decide(t Tenant, p Policy, blocks []Block, v View, timing Timing, now time.Time) Plan {
	d := decision{timing: timing, now: now, view: v, used: map[string]int32{}}
	for _, s := range v.Services {
		d.taken = append(append(d.taken, s.Has...), s.Asks...)
	}
	slices.SortFunc(d.taken, netip.Addr.Compare)
	d.taken = slices.Compact(d.taken)
	for _, b := range blocks {
		if b.Kind == v1alpha1.TypeLoadBalancer {
			d.add(b)
		}
	}
	if p.IPAM && p.Elastic {
		d.grow(p)
		d.shrink()
	}
	d.plan.Addresses = d.addresses(t)
	return d.plan
}

// decision is one while it is made.
type decision struct {
	plan   Plan
	timing Timing
	now    time.Time
	view   View
	blocks []Block
	taken  []netip.Addr     // addresses that Services have or ask for, in order, each once
	used   map[string]int32 // block -> how many of its addresses are taken
	busy   int32            // addresses of idle blocks that waiting Services are about to use
}

func (d *decision) add(b Block) {
	d.blocks = append(d.blocks, b)
	if !b.Range.IsValid() {
		return
	}
	from, _ := slices.BinarySearchFunc(d.taken, b.Range.First, netip.Addr.Compare)
	to, last := slices.BinarySearchFunc(d.taken, b.Range.Last, netip.Addr.Compare)
	d.used[b.Name] = int32(to-from) + int32(truth(last))
}

func (d *decision) free(b Block) int32 { return max(b.size()-d.used[b.Name], 0) }

// grow sets what to ask for. Services that wait are served, in this order, by
//
//	free addresses of first blocks   for those that MetalLB may still serve by itself
//	free addresses of added blocks   and of all that are not in the tenant's pool yet
//	new addresses                    for those that have waited long enough, and with them for those that have not
func (d *decision) grow(p Policy) {
	var headroom, added int32 // free addresses
	for _, b := range d.blocks {
		switch {
		case b.Deleting || b.Failed:
		case b.Growth || !slices.ContainsFunc(d.view.InPool, func(r allocator.Range) bool { return r.Covers(b.Range) }):
			added = saturated(int64(added) + int64(d.free(b)))
		default:
			headroom = saturated(int64(headroom) + int64(d.free(b)))
		}
	}
	var all, due, doubtful []Service // each with those that have waited longer
	for _, s := range d.view.Services {
		if !s.Waits {
			continue
		}
		all = append(all, s)
		if s.Refused || d.passed(s.Since, d.timing.PendingAfter) {
			due = append(due, s)
		}
		if s.Refused || d.passed(s.Since, d.timing.HeadroomAfter) {
			doubtful = append(doubtful, s)
		}
	}
	beyond := func(services []Service) int32 { // what first blocks do not serve
		return max(addressesFor(services)-headroom, addressesFor(doubtful))
	}
	d.busy = beyond(all)
	d.plan.Need = max(beyond(due)-added, 0)
	if d.plan.Need == 0 {
		return
	}
	d.plan.Want = max(d.plan.Need, p.Increment, d.busy-added)
	room := max(p.MaxLoadBalancers-held(d.blocks, v1alpha1.TypeLoadBalancer), 0)
	d.plan.Short = max(d.plan.Need-room, 0)
	d.plan.Need, d.plan.Want = min(d.plan.Need, room), min(d.plan.Want, room)
}

// shrink runs the clocks of blocks that were added. What waiting Services are about to use is not idle: first the free addresses of blocks
// that are in use anyway, then whole blocks in their order, those last that have left the tenant's pool already.
func (d *decision) shrink() {
	var idle []Block
	for _, b := range d.blocks {
		switch {
		case !b.Growth || b.Deleting:
		case b.Failed:
			if b.Replaceable && d.passed(b.Created, ReplaceAfter) {
				d.plan.Discard = append(d.plan.Discard, b.Name)
			}
		case !b.usable() || d.used[b.Name] > 0 || d.view.Partial:
			d.busy -= d.free(b)
			d.stopClock(b)
		default:
			idle = append(idle, b)
		}
	}
	slices.SortStableFunc(idle, func(a, b Block) int {
		return truth(!d.view.GoneSince[a.Name].IsZero()) - truth(!d.view.GoneSince[b.Name].IsZero())
	})
	for _, b := range idle {
		switch {
		case d.busy > 0:
			d.busy -= d.free(b)
			d.stopClock(b)
		case b.Fixed:
			d.stopClock(b)
		case b.IdleSince.IsZero():
			d.plan.StartClock = append(d.plan.StartClock, b.Name)
			d.wake(d.now.Add(d.timing.ShrinkAfter))
		case d.passed(b.IdleSince, d.timing.ShrinkAfter):
			d.plan.Withdrawn = append(d.plan.Withdrawn, b.Name)
			if gone := d.view.GoneSince[b.Name]; !gone.IsZero() && d.passed(gone, d.timing.Settle) {
				d.plan.Release = append(d.plan.Release, b.Name)
			}
		}
	}
}

func (d *decision) stopClock(b Block) {
	if !b.IdleSince.IsZero() {
		d.plan.StopClock = append(d.plan.StopClock, b.Name)
	}
}

// passed tells whether it is long since a time, and if not yet, when to look again.
func (d *decision) passed(since time.Time, long time.Duration) bool {
	at := since.Add(long)
	if !d.now.Before(at) {
		return true
	}
	d.wake(at)
	return false
}

func (d *decision) wake(at time.Time) {
	if d.plan.Next.IsZero() || at.Before(d.plan.Next) {
		d.plan.Next = at
	}
}

// addresses is what the tenant may use and is not withdrawn, in the order of the addresses. While that is nothing, what it was given by
// hand stays. Of ranges that overlap, as those of two routing domains may, the lower counts: MetalLB refuses both together.
func (d *decision) addresses(t Tenant) []allocator.Range {
	var ranges []allocator.Range
	for _, b := range d.blocks {
		if b.usable() && !slices.Contains(d.plan.Withdrawn, b.Name) {
			ranges = append(ranges, b.Range)
		}
	}
	if len(ranges) == 0 && t.ByHand.IsValid() {
		return []allocator.Range{t.ByHand}
	}
	slices.SortFunc(ranges, func(a, b allocator.Range) int { return a.First.Compare(b.First) })
	var apart []allocator.Range
	for _, r := range ranges {
		if n := len(apart); n == 0 || !apart[n-1].Overlaps(r) {
			apart = append(apart, r)
		}
	}
	return apart
}

func saturated(n int64) int32 { return int32(max(min(n, math.MaxInt32), math.MinInt32)) }
