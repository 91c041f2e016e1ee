package webhooks

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// ipAllocations adapts IPAllocations: their addresses are in spec.pinnedRange and
// spec.count.
type ipAllocations struct{}

func (ipAllocations) subject() review.Subject {
	spec := field.NewPath("spec")
	return review.Subject{
		Kind:      v1alpha1.GroupVersion.WithKind("IPAllocation"),
		ExactPath: func(allocator.Range) *field.Path { return spec.Child("pinnedRange") },
		CountPath: spec.Child("count"),
	}
}

func (ipAllocations) newObject() *v1alpha1.IPAllocation { return &v1alpha1.IPAllocation{} }

func (ipAllocations) parts(a *v1alpha1.IPAllocation) (metadata *metav1.ObjectMeta, spec any) {
	return &a.ObjectMeta, &a.Spec
}

func (ipAllocations) toClaim(a *v1alpha1.IPAllocation) ledger.Claim { return butler.ConvertClaim(a) }

func (ipAllocations) hasAddresses(a *v1alpha1.IPAllocation) bool {
	r, where, _ := butler.FindRange(a)
	return where == butler.RangeInSpec || r.IsValid()
}

func (ipAllocations) isDeniedByStatus(a *v1alpha1.IPAllocation) bool {
	return meta.IsStatusConditionFalse(a.Status.Conditions, v1alpha1.ConditionReady)
}

func (ipAllocations) awaitsStatus(stored, a *v1alpha1.IPAllocation) bool {
	return butler.AwaitsStatus(stored, a)
}

func (ipAllocations) withoutAddresses(a *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	a = a.DeepCopy()
	a.Spec.PinnedRange, a.Status = nil, v1alpha1.IPAllocationStatus{}
	return a
}

// updateMetadata replaces the labels of pool, tenant, team and type, and removes the UID
// of the old TenantCluster.
func (ipAllocations) updateMetadata(old, a *v1alpha1.IPAllocation) {
	was, is := butler.FindMissingLabels(&v1alpha1.IPAllocation{Spec: old.Spec}, ""), butler.FindMissingLabels(&v1alpha1.IPAllocation{Spec: a.Spec}, "")
	for label := range was {
		if a.Labels[label] == was[label] && old.Labels[label] == was[label] && is[label] != was[label] {
			removeLabel(a, label)
		}
	}
	if uid := old.Annotations[v1alpha1.AnnotationTenantUID]; uid != "" && uid == a.Annotations[v1alpha1.AnnotationTenantUID] && old.Spec.TenantClusterRef != a.Spec.TenantClusterRef {
		setAnnotations(a, map[string]string{v1alpha1.AnnotationTenantUID: ""})
	}
	object.AddLabels(a, butler.FindMissingLabels(a, ""))
}

func (ipAllocations) findFaults(old, a *v1alpha1.IPAllocation) field.ErrorList {
	if old == nil {
		return butler.ValidateIPAllocation(a)
	}
	return butler.ValidateIPAllocationUpdate(old, a)
}

func (ipAllocations) requests(ctx context.Context, a *v1alpha1.IPAllocation, pools client.Reader) ([]ledger.RangeRequest, error) {
	if r, _, err := butler.FindRange(a); err == nil && r.IsValid() {
		return []ledger.RangeRequest{{Exact: r}}, nil
	}
	if a.Spec.Count != nil {
		return []ledger.RangeRequest{{Count: int64(*a.Spec.Count)}}, nil
	}
	pool, err := readPool(ctx, butler.PoolKey(a), pools, &v1alpha1.NetworkPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	return []ledger.RangeRequest{{Count: int64(butler.RequestedCount(a, pool))}}, nil
}

// admitPending stores an IPAllocation of a paused pool without addresses.
func (ipAllocations) admitPending(_ *v1alpha1.IPAllocation, err error) (warning string, denial error) {
	if paused := (*ledger.PoolPausedError)(nil); errors.As(err, &paused) {
		return err.Error(), nil
	}
	return "", err
}

func (ipAllocations) readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return readLedgerPool(ctx, networkPools{}, k, pools)
}

func (ipAllocations) fillSpec(a *v1alpha1.IPAllocation, ranges []allocator.Range) (warnings []string) {
	if len(ranges) == 0 { // the stored claim owns the range that this update requests
		return nil
	}
	r := ranges[0]
	if size := r.Size(); a.Spec.Count != nil && int64(*a.Spec.Count) != size {
		warnings = append(warnings, fmt.Sprintf("spec.count %d is ignored: spec.pinnedRange requests %s %s", *a.Spec.Count, allocator.AmountOf(r), allocator.Plural(size, "address")))
	}
	butler.FillSpec(a, ranges)
	return warnings
}

func (ipAllocations) restoreSpec(stored, updated *v1alpha1.IPAllocation) {
	butler.RestoreSpec(stored, updated)
}

func (ipAllocations) completeMetadata(a *v1alpha1.IPAllocation, routingDomain string) {
	butler.CompleteMetadata(a, routingDomain)
}
