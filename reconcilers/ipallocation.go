package reconcilers

import (
	"context"
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations/status,verbs=update

// Butler is the API butler.butlerlabs.dev.
var Butler API = &api[*v1alpha1.IPAllocation, *v1alpha1.NetworkPool]{
	claimKind: butler.KindIPAllocation, poolKind: butler.KindNetworkPool,
	claimName: "ipallocation", poolName: "networkpool", wholeStatus: true,
	claims: ipAllocations{}, pools: networkPools{},
}

// ipAllocations adapts IPAllocations: the answer is spec.pinnedRange and spec.count, and a finalizer keeps each until its release is recorded.
type ipAllocations struct{}

func (ipAllocations) empty() *v1alpha1.IPAllocation { return &v1alpha1.IPAllocation{} }

func (ipAllocations) emptyList() client.ObjectList { return &v1alpha1.IPAllocationList{} }

func (ipAllocations) claim(a *v1alpha1.IPAllocation) ledger.Claim { return butler.ClaimOf(a) }

func (ipAllocations) unreadable(a *v1alpha1.IPAllocation) error {
	_, _, err := butler.RangeOf(a)
	return err
}

func (ipAllocations) held(a *v1alpha1.IPAllocation) bool {
	_, source, _ := butler.RangeOf(a)
	return source != butler.Nowhere
}

func (ipAllocations) answered(a *v1alpha1.IPAllocation) bool {
	return a.Spec.PinnedRange != nil && a.Annotations[v1alpha1.AnnotationOrigin] != ""
}

func (ipAllocations) vouched(_ context.Context, _ *desk, a *v1alpha1.IPAllocation) (others []allocator.Range, yes bool, err error) {
	return nil, a.Status.Phase == v1alpha1.PhaseAllocated, nil
}

func (ipAllocations) flagged(a *v1alpha1.IPAllocation) bool { return butler.Flagged(a) }

func (ipAllocations) failed(a *v1alpha1.IPAllocation) bool {
	return a.Status.Phase == v1alpha1.PhaseFailed
}

func (ipAllocations) condition(a *v1alpha1.IPAllocation) *metav1.Condition {
	return meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
}

func (ipAllocations) rests(context.Context, *desk, *v1alpha1.IPAllocation, metal3.Clusters) error {
	return nil
}

func (ipAllocations) wants(ctx context.Context, d *desk, a *v1alpha1.IPAllocation) ([]ledger.Want, string, error) {
	if r, _, err := butler.RangeOf(a); err == nil && r.IsValid() {
		return []ledger.Want{{Exact: r, Count: r.Size()}}, v1alpha1.OriginAuto, nil
	}
	p, pool := &v1alpha1.NetworkPool{}, butler.PoolKeyOf(a)
	if a.Spec.Count == nil && d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil, "", &ledger.NoPoolError{Pool: pool} // how many it gets by default is the pool's to say
	}
	return []ledger.Want{{Count: int64(butler.CountFor(a, p))}}, v1alpha1.OriginAuto, nil
}

func (ipAllocations) fill(a *v1alpha1.IPAllocation, ranges []allocator.Range) {
	r, _, _ := butler.RangeOf(a)
	if len(ranges) > 0 {
		r = ranges[0]
	}
	if a.Spec.PinnedRange == nil {
		a.Spec.PinnedRange = butler.PinnedRange(r)
	}
	if size := r.Size(); a.Spec.Count == nil && size <= math.MaxInt32 {
		a.Spec.Count = ptr.To(int32(size))
	}
}

func (ipAllocations) complete(a *v1alpha1.IPAllocation, space string) bool {
	labels := butler.MissingLabels(a, space)
	for k, v := range labels {
		metav1.SetMetaDataLabel(&a.ObjectMeta, k, v)
	}
	return controllerutil.AddFinalizer(a, v1alpha1.FinalizerIPAllocation) || len(labels) > 0
}

func (ipAllocations) allocated(_ context.Context, d *desk, a *v1alpha1.IPAllocation) (bool, error) {
	r, _, _ := butler.RangeOf(a)
	a.Status = *allocatedStatus(a, r, metav1.NewTime(d.wall()))
	return true, nil
}

func (ipAllocations) gone(context.Context, *desk, types.NamespacedName) (time.Duration, error) {
	return 0, nil
}

func (ipAllocations) strays(context.Context, *desk, *v1alpha1.IPAllocation) (time.Duration, error) {
	return 0, nil
}

func (ipAllocations) clashing(a *v1alpha1.IPAllocation, message string) {
	a.Status = *refusedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAddressConflict, message)
}

func (ipAllocations) refused(a *v1alpha1.IPAllocation, wants []ledger.Want, err error) {
	count := int64(0)
	if len(wants) > 0 {
		count = wants[0].Count
	}
	a.Status = *refusal(a, count, err)
}

// touch writes to an allocation that has no range: a write of one that is still on its way was decided on that. One that has its range is left
// alone, as such a write can only write that.
func (ipAllocations) touch(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (version uint64, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		version = 0
		a := &v1alpha1.IPAllocation{}
		if err := live.Get(ctx, request(k).NamespacedName, a); err != nil || string(a.UID) != uid {
			return err
		}
		version = fields.ResourceVersion(a)
		if _, source, _ := butler.RangeOf(a); source != butler.Nowhere {
			return nil
		}
		// The time makes it a change whatever was there before.
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAllocationFailed, ObservedGeneration: a.Generation,
			Message: "the range could not be written and is given anew (" + time.Now().UTC().Format(time.RFC3339Nano) + ")",
		})
		err := c.Status().Update(ctx, a)
		version = fields.ResourceVersion(a)
		return err
	})
	if err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return version, nil
}
