package pools

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// tier is a share of a pool's addresses: the condition is true while at least that share
// is allocated.
type tier struct {
	condition string
	event     string
	percent   int
}

// tiers, lowest first.
var tiers = []tier{
	{v1alpha1.ConditionCapacityWarning, eventCapacityWarning, 70},
	{v1alpha1.ConditionCapacityCritical, eventCapacityCritical, 85},
	{v1alpha1.ConditionCapacityExhausted, eventCapacityExhausted, 95},
}

// poolStatus returns the status of a pool with this usage, except status.releases. usage
// counts the addresses in cooldown as allocated. faults lists the rules that the spec of
// the pool breaks.
func poolStatus(p *v1alpha1.NetworkPool, usage ledger.Usage, inCooldown int64, faults field.ErrorList) *v1alpha1.NetworkPoolStatus {
	s := p.Status.DeepCopy()
	s.ObservedGeneration = p.Generation
	s.TotalIPs, s.AllocatedIPs, s.GrantedIPs, s.AvailableIPs = usage.Total, usage.Allocated, usage.Granted, usage.Available
	pool, _ := butler.ConvertPool(p)
	s.Summary = summarize(usage, pool.Window, true)
	s.AllocationCount = int64(usage.Claims)
	s.FragmentationPercent, s.LargestFreeBlock = ptr.To(usage.Fragmentation), usage.LargestFree

	layout := butler.ComputeLayout(p)
	s.PoolSizeIPs, s.ReservedIPs, s.UnmanagedScopeIPs = layout.Size, layout.Reserved, allocator.Total(layout.Unmanaged)
	s.UnmanagedRanges = nil
	for _, r := range layout.Unmanaged {
		s.UnmanagedRanges = append(s.UnmanagedRanges, v1alpha1.UnmanagedRange{Start: r.First.String(), End: r.Last.String()})
	}
	meta.SetStatusCondition(&s.Conditions, readyCondition(p, usage, inCooldown, faults))
	for _, t := range tiers {
		meta.SetStatusCondition(&s.Conditions, t.conditionFor(p, usage))
	}
	return s
}

// manyAddresses is the number of addresses from which the number of free addresses says
// nothing to a reader.
const manyAddresses = 1 << 32

// summarize describes the usage of a pool with this window. Of a pool whose claims get
// single addresses, the largest free block is left out.
func summarize(usage ledger.Usage, window []allocator.Range, blocks bool) string {
	if usage.Exact.Total > manyAddresses {
		size := allocator.Amount(usage.Total, usage.Exact.Total)
		if len(window) == 1 {
			if network, ok := window[0].Prefix(); ok {
				size = fmt.Sprintf("a /%d", network.Bits())
			}
		}
		return fmt.Sprintf("%s allocated of %s", allocator.Amount(usage.Allocated, usage.Exact.Allocated), size)
	}
	text := fmt.Sprintf("%d of %d free", usage.Available, usage.Total)
	if blocks && usage.Available > 0 {
		text += fmt.Sprintf(", largest %d", usage.LargestFree)
	}
	return text
}

func readyCondition(p *v1alpha1.NetworkPool, usage ledger.Usage, inCooldown int64, faults field.ErrorList) metav1.Condition {
	c := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation}
	switch {
	case p.DeletionTimestamp != nil:
		c.Reason, c.Message = v1alpha1.ReasonDeleting, ownersText(controllerutil.ContainsFinalizer(p, v1alpha1.FinalizerNetworkPool), usage.Claims, "claim")
	case len(faults) > 0:
		c.Reason, c.Message = v1alpha1.ReasonValidationFailed, object.Summarize(faults)
	case usage.Exact.Total == 0:
		c.Reason, c.Message = v1alpha1.ReasonNoAddresses, butler.ExplainNothingOffered(p)
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonReady
		c.Message = fmt.Sprintf("%s of %s %s available, %s", allocator.Amount(usage.Available, usage.Exact.Available),
			allocator.Amount(usage.Total, usage.Exact.Total), allocator.Plural(usage.Total, "address"), allocator.Counted(usage.Claims, "allocation"))
		if usage.Granted > 0 {
			c.Message += fmt.Sprintf(", %s promised to creates in progress", allocator.Counted(usage.Granted, "address"))
		}
		if inCooldown > 0 {
			c.Message += fmt.Sprintf(", %s %s in cooldown", allocator.Amount(inCooldown, float64(inCooldown)), allocator.Plural(inCooldown, "address"))
		}
	}
	return c
}

func (t tier) conditionFor(p *v1alpha1.NetworkPool, usage ledger.Usage) metav1.Condition {
	c := metav1.Condition{
		Type: t.condition, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUtilizationBelowThreshold, ObservedGeneration: p.Generation,
		Message: fmt.Sprintf("%d%% of the addresses are allocated (%s of %s)", usage.Percent(),
			allocator.Amount(usage.Allocated, usage.Exact.Allocated), allocator.Amount(usage.Total, usage.Exact.Total)),
	}
	if usage.Exact.Total == 0 {
		c.Message = "nothing can be allocated: the pool offers no address that is not reserved"
	}
	if usage.Utilization() >= float64(t.percent)/100 {
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonUtilizationAboveThreshold
	}
	return c
}

// ownersText explains why a pool that is being deleted is still stored. kept: the pool
// has the finalizer of this manager.
func ownersText(kept bool, n int, noun string) string {
	switch {
	case n == 0 && !kept:
		return "no claim needs the pool: it is deleted when other programs have removed their finalizers"
	case n == 0:
		return "the create of a claim has not ended: the pool is deleted when it has"
	}
	return fmt.Sprintf("%s still %s addresses: delete %s, and the pool is deleted", allocator.Counted(n, noun), allocator.Agree(n, "owns", "own"), allocator.Agree(n, "it", "them"))
}

// crossing is a tier that the usage of a pool has reached or left; each crossing has an
// event.
type crossing struct {
	condition string
	reason    string // of the event
	message   string
}

// findCrossings compares the conditions of a pool with the new ones: it returns a
// crossing for each tier that was reached, the lowest first, or left, the highest first.
// The conditions are the memory, so a restart repeats no event.
func findCrossings(before, after []metav1.Condition) (crossed []crossing) {
	for _, t := range tiers {
		if !meta.IsStatusConditionTrue(before, t.condition) && meta.IsStatusConditionTrue(after, t.condition) {
			crossed = append(crossed, t.crossing(t.event, "at or above", after))
		}
	}
	for _, t := range slices.Backward(tiers) {
		if meta.IsStatusConditionTrue(before, t.condition) && !meta.IsStatusConditionTrue(after, t.condition) {
			crossed = append(crossed, t.crossing(eventCapacityRecovered, "below", after))
		}
	}
	return crossed
}

// crossing describes that the usage of a pool with these conditions has reached or left
// the tier.
func (t tier) crossing(reason, side string, conditions []metav1.Condition) crossing {
	message := meta.FindStatusCondition(conditions, t.condition).Message
	return crossing{t.condition, reason, fmt.Sprintf("%s %d%%: %s", side, t.percent, message)}
}
