package reconcilers

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/pools"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations/status,verbs=update

// Butler is the API butler.butlerlabs.dev.
var Butler API = &apiAdapter[*v1alpha1.IPAllocation, *v1alpha1.NetworkPool]{
	claimResource: butler.ResourceIPAllocation, poolResource: butler.ResourceNetworkPool,
	claimName: "ipallocation", poolName: "networkpool", wholeStatus: true, workers: claimWorkers,
	newClaims: func() claims.Adapter[*v1alpha1.IPAllocation] { return ipAllocations{} }, pools: pools.NetworkPools,
}

// ipAllocations adapts IPAllocations: the allocation is in spec.pinnedRange and
// spec.count, and a finalizer keeps the object until the pool has the release record.
type ipAllocations struct{}

var (
	_ claims.Releaser[*v1alpha1.IPAllocation]        = ipAllocations{}
	_ claims.ReleaseRecorded[*v1alpha1.IPAllocation] = ipAllocations{}
)

func (ipAllocations) NewObject() *v1alpha1.IPAllocation { return &v1alpha1.IPAllocation{} }

func (ipAllocations) NewList() client.ObjectList { return &v1alpha1.IPAllocationList{} }

func (ipAllocations) ToClaim(a *v1alpha1.IPAllocation) ledger.Claim { return butler.ConvertClaim(a) }

func (ipAllocations) CheckReadable(a *v1alpha1.IPAllocation) error {
	_, _, err := butler.FindRange(a)
	return err
}

func (ipAllocations) HasAddresses(a *v1alpha1.IPAllocation) bool {
	_, source, _ := butler.FindRange(a)
	return source != butler.RangeMissing
}

func (ipAllocations) AllocatedByUs(a *v1alpha1.IPAllocation) bool {
	return a.Spec.PinnedRange != nil && a.Annotations[v1alpha1.AnnotationOrigin] != ""
}

func (ipAllocations) AllocatedEarlier(_ context.Context, _ *claims.Deps, a *v1alpha1.IPAllocation) (others []allocator.Range, yes bool, err error) {
	return nil, a.Status.Phase == v1alpha1.PhaseAllocated, nil
}

func (ipAllocations) IsFlagged(a *v1alpha1.IPAllocation) bool { return butler.IsFlagged(a) }

func (ipAllocations) HasFailed(a *v1alpha1.IPAllocation) bool {
	return a.Status.Phase == v1alpha1.PhaseFailed
}

func (ipAllocations) OwnershipCondition(a *v1alpha1.IPAllocation) *metav1.Condition {
	return meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
}

func (ipAllocations) Requests(ctx context.Context, d *claims.Deps, a *v1alpha1.IPAllocation) ([]ledger.RangeRequest, string, error) {
	if r, _, err := butler.FindRange(a); err == nil && r.IsValid() {
		return []ledger.RangeRequest{{Exact: r, Count: r.Size()}}, v1alpha1.OriginAuto, nil
	}
	p, pool := &v1alpha1.NetworkPool{}, butler.PoolKey(a)
	if a.Spec.Count == nil && d.Client.Get(ctx, feed.Request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return nil, "", &ledger.NoPoolError{Pool: pool} // the pool has the default of the count
	}
	return []ledger.RangeRequest{{Count: int64(butler.RequestedCount(a, p))}}, v1alpha1.OriginAuto, nil
}

func (ipAllocations) FillSpec(a *v1alpha1.IPAllocation, ranges []allocator.Range) {
	butler.FillSpec(a, ranges)
}

func (ipAllocations) CompleteMetadata(a *v1alpha1.IPAllocation, routingDomain string) bool {
	return butler.CompleteMetadata(a, routingDomain)
}

func (ipAllocations) SetAllocated(_ context.Context, d *claims.Deps, a *v1alpha1.IPAllocation) error {
	r, _, _ := butler.FindRange(a)
	a.Status = *allocatedStatus(a, r, metav1.NewTime(d.Wall()))
	return nil
}

func (ipAllocations) SetNotOffered(a *v1alpha1.IPAllocation, e *ledger.NotOfferedError) bool {
	return setNotOffered(&a.Status.Conditions, a.Generation, e)
}

func (ipAllocations) SetConflict(a *v1alpha1.IPAllocation, message string) {
	a.Status = *failedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAddressConflict, message)
}

func (ipAllocations) SetDenied(a *v1alpha1.IPAllocation, requests []ledger.RangeRequest, err error) {
	count := int64(0)
	if len(requests) > 0 {
		count = requests[0].Count
	}
	a.Status = *deniedStatus(a, count, err)
}

// Release writes phase Released, with the time. The pool's reconciler then writes the
// release record and removes the finalizer.
//
//	deletion requested ──▶ phase Released ──▶ release record      ──▶ finalizer removed  ──▶ gone ──▶ addresses in cooldown, then free
//	                       Release            pools.NetworkPools      pools.NetworkPools     the informer reports the delete event to the ledger
//
// The finalizer of these allocations is removed without a release record:
//
//   - without a readable range, or deferred: the allocation owns no addresses
//   - flagged: the allocation may own some of its addresses. The cooldown of these is
//     recorded in the cooldown list of the pool when the allocation is gone
//   - whose pool is gone: there is no cooldown
//   - whose pool is being deleted and has no room for the record, or whose pool's status
//     the API server refuses, as the spec breaks a rule
func (i ipAllocations) Release(ctx context.Context, d *claims.Deps, a *v1alpha1.IPAllocation) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation) {
		return 0, nil // finalizers of other clients remain
	}
	rng, _, err := butler.FindRange(a)
	if err != nil || !rng.IsValid() || butler.IsFlagged(a) || d.Ledger.OwnershipOf(string(a.UID)).Deferred != nil {
		return 0, d.RemoveFinalizer(ctx, a, v1alpha1.FinalizerIPAllocation)
	}
	if !i.AwaitsRecord(a) {
		before := a.DeepCopy()
		a.Status = *releasedStatus(a, metav1.NewTime(claims.ReleasedAt(a, d.Wall())))
		_, err := d.SaveStatus(ctx, before, a)
		return 0, err
	}
	pool := butler.PoolKey(a)
	err = d.Client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Name}, &v1alpha1.NetworkPool{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, d.RemoveFinalizer(ctx, a, v1alpha1.FinalizerIPAllocation)
	case err == nil:
		d.Queues.Pools.Add(feed.Request(pool))
	}
	return 0, err
}

// AwaitsRecord reports whether an allocation is released, and stored only until its pool
// has the release record.
func (ipAllocations) AwaitsRecord(a *v1alpha1.IPAllocation) bool {
	return a.DeletionTimestamp != nil && a.Status.Phase == v1alpha1.PhaseReleased && a.Status.ReleasedAt != nil &&
		controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation)
}

// FenceWrites updates an allocation without a range, which a write in flight may be based
// on. An allocation with a range is not fenced: only an update of its request can bring
// another range, and such an update has ended long before its grant expires.
func (ipAllocations) FenceWrites(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (version uint64, err error) {
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		version = 0
		a := &v1alpha1.IPAllocation{}
		if err := live.Get(ctx, feed.Request(k).NamespacedName, a); err != nil || string(a.UID) != uid {
			return err
		}
		version = object.ResourceVersion(a)
		if _, source, _ := butler.FindRange(a); source != butler.RangeMissing {
			return nil
		}
		// The time makes each message a change.
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAllocationFailed, ObservedGeneration: a.Generation,
			Message: "the range could not be written: a range is granted again (" + time.Now().UTC().Format(time.RFC3339Nano) + ")",
		})
		err := c.Status().Update(ctx, a)
		version = object.ResourceVersion(a)
		return err
	})
	if err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return version, nil
}
