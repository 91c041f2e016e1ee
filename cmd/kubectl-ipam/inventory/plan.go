package inventory

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/state"
)

// Plan is the effect of an update or a deletion of a pool.
type Plan struct {
	// Faults lists the rules that the updated pool breaks. If Faults is not empty, the
	// Plan has no other effect of the update, and After equals Before.
	Faults field.ErrorList
	// Denied is the first reason of the allocator to deny the change; nil if the
	// allocator admits the change.
	Denied error
	// Owners lists, in address order, the addresses of staying owners (see StayingOwners)
	// that the deletion affects, or the owned and the granted addresses that the update
	// affects:
	//
	//   - addresses that the update removes, if the owner got them from this pool or from
	//     an unknown pool
	//   - addresses that the update blocks, unless the pool may block owned addresses
	Owners []state.Segment
	// Before and After are the free addresses of the pool.
	Before, After []allocator.Range
}

// PlanUpdate computes the effect of an update of a stored pool. updated is the new
// version of the pool and has the type of the stored version.
func (i *Inventory) PlanUpdate(p *Pool, updated metav1.Object) Plan {
	converted, faults := convertUpdate(p.Object, updated)
	plan := Plan{Faults: faults, Before: i.Free(p, 1)}
	if len(faults) > 0 {
		plan.After = plan.Before
		return plan
	}
	leaving := allocator.Subtract(p.Ranges, converted.Window)
	blocked := allocator.Subtract(converted.Blocked, p.converted.Blocked)
	for _, g := range i.Segments(p.Domain, leaving) {
		if (g.State == state.SegmentOwned || g.State == state.SegmentGranted) && (g.Pool == p.Key || g.Pool == Key{}) {
			plan.Owners = append(plan.Owners, g)
		}
	}
	if !converted.MayBlockOwned {
		for _, g := range i.Segments(p.Domain, allocator.Subtract(blocked, leaving)) {
			if g.State == state.SegmentOwned || g.State == state.SegmentGranted {
				plan.Owners = append(plan.Owners, g)
			}
		}
	}
	slices.SortFunc(plan.Owners, func(x, y state.Segment) int { return x.Range.First.Compare(y.Range.First) })

	converted.ResourceVersion = p.converted.ResourceVersion + 1
	withheld, err := i.state.UpdatePool(converted)
	if named, ok := err.(interface{ SeenFrom(place string) string }); ok && i.anonymous != nil {
		err = errors.New(named.SeenFrom(p.Key.Namespace))
	}
	plan.Denied = err
	if withheld != nil {
		i.state.WithdrawGrant(withheld)
	}
	plan.After = i.freeAfter(p, converted)
	return plan
}

// PlanDeletion computes the effect of the deletion of a stored pool. Its owners are those
// of the webhook, also claims that lost their addresses in a conflict. The webhook admits
// a deletion that PlanDeletion denies if all owners leave for a reason outside of the
// state machine, such as the deletion of their TenantCluster.
func (i *Inventory) PlanDeletion(p *Pool) Plan {
	plan := Plan{Before: i.Free(p, 1)}
	staying, counts := map[Key]bool{}, map[string]int{}
	for _, o := range i.StayingOwners(p.Key) {
		staying[o.Key] = true
		counts[o.Key.Resource]++
	}
	if len(staying) == 0 || p.Deleting {
		return plan
	}
	var owned []allocator.Range // also outside the ranges of the pool
	for _, o := range i.state.OwnedThrough(p.Key) {
		owned = append(owned, o.Range)
	}
	losers := maps.Clone(staying)
	for _, g := range i.Segments(p.Domain, owned) {
		if g.Pool == p.Key && staying[g.Object] {
			plan.Owners = append(plan.Owners, g)
			delete(losers, g.Object)
		}
	}
	maps.DeleteFunc(losers, func(k Key, _ bool) bool { return IsAnonymous(k) })
	var counted []string
	for _, resource := range Resources {
		if n := counts[resource]; n > 0 {
			counted = append(counted, allocator.Counted(n, KindOf(Key{Resource: resource})))
		}
	}
	plan.Denied = fmt.Errorf("%s %s addresses of the pool: delete %s first",
		strings.Join(counted, " and "), allocator.Agree(len(staying), "owns", "own"), allocator.Agree(len(staying), "it", "them"))
	if len(losers) > 0 {
		named := TitleOf(slices.MinFunc(slices.Collect(maps.Keys(losers)), CompareKeys))
		if more := len(losers) - 1; more > 0 {
			named += fmt.Sprintf(" and %d more", more)
		}
		plan.Denied = fmt.Errorf("%w, also %s without addresses after a lost conflict", plan.Denied, named)
	}
	return plan
}

// freeAfter returns the free addresses of a pool after an update. Addresses that the
// update removes or blocks are not free, whether or not their owners stay.
func (i *Inventory) freeAfter(p *Pool, updated state.Pool) []allocator.Range {
	blocked := slices.Clone(updated.Blocked)
	for _, other := range i.pools {
		if other != p && other.Domain == updated.RoutingDomain {
			blocked = append(blocked, other.converted.Blocked...)
		}
	}
	if i.anonymous != nil {
		for _, other := range i.anonymous.blocked {
			if other.domain == updated.RoutingDomain {
				blocked = append(blocked, other.ranges...)
			}
		}
	}
	usable := allocator.Subtract(updated.Window, blocked)
	var taken []allocator.Range
	for _, g := range i.Segments(updated.RoutingDomain, usable) {
		if g.State != state.SegmentFree && g.State != state.SegmentReserved {
			taken = append(taken, g.Range)
		}
	}
	return allocator.Subtract(usable, taken)
}

// convertUpdate converts the new version of a pool, and returns the rules that the update
// breaks.
func convertUpdate(old, updated metav1.Object) (p state.Pool, faults field.ErrorList) {
	kind := kinds.Of(updated)
	p, _ = kind.ConvertPool(updated)
	return p, kind.ValidatePoolUpdate(old, updated)
}
