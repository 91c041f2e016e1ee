package webhooks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// ipAllocations adapts IPAllocations: the answer is spec.pinnedRange and spec.count.
type ipAllocations struct{ strict[*v1alpha1.IPAllocation] }

func (ipAllocations) subject() subject {
	spec := field.NewPath("spec")
	return subject{
		kind:  v1alpha1.GroupVersion.WithKind("IPAllocation"),
		exact: func(allocator.Range) *field.Path { return spec.Child("pinnedRange") },
		count: spec.Child("count"),
	}
}

func (ipAllocations) decode(raw []byte, stored bool) (*v1alpha1.IPAllocation, error) {
	a := &v1alpha1.IPAllocation{}
	if stored {
		return a, decode(raw, a, "ipallocation")
	}
	return a, decode(raw, &struct {
		Metadata *metav1.ObjectMeta         `json:"metadata"`
		Spec     *v1alpha1.IPAllocationSpec `json:"spec"`
	}{&a.ObjectMeta, &a.Spec}, "ipallocation")
}

func (ipAllocations) claim(a *v1alpha1.IPAllocation) ledger.Claim { return butler.ClaimOf(a) }

func (ipAllocations) answered(a *v1alpha1.IPAllocation) bool {
	r, where, _ := butler.RangeOf(a)
	return where == butler.InSpec || r.IsValid()
}

func (ipAllocations) failed(a *v1alpha1.IPAllocation) bool {
	return meta.IsStatusConditionFalse(a.Status.Conditions, v1alpha1.ConditionReady)
}

func (ipAllocations) unanswered(a *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	a = a.DeepCopy()
	a.Spec.PinnedRange, a.Status = nil, v1alpha1.IPAllocationStatus{}
	return a
}

func (ipAllocations) follow(p *patch, old, a *v1alpha1.IPAllocation) {
	followPool(p, old, a, butler.PoolKeyOf(old), butler.PoolKeyOf(a))
	was, is := butler.MissingLabels(&v1alpha1.IPAllocation{Spec: old.Spec}, ""), butler.MissingLabels(&v1alpha1.IPAllocation{Spec: a.Spec}, "")
	for _, label := range slices.Sorted(maps.Keys(was)) {
		if a.Labels[label] == was[label] && old.Labels[label] == was[label] && is[label] != was[label] {
			p.unlabel(a, label)
		}
	}
	if uid := old.Annotations[v1alpha1.AnnotationTenantUID]; uid != "" && uid == a.Annotations[v1alpha1.AnnotationTenantUID] && old.Spec.TenantClusterRef != a.Spec.TenantClusterRef {
		p.annotations(a, map[string]string{v1alpha1.AnnotationTenantUID: ""})
	}
	p.entries("labels", a.Labels, butler.MissingLabels(a, ""))
}

func (ipAllocations) faults(old, a *v1alpha1.IPAllocation) field.ErrorList {
	if old == nil {
		return butler.ValidateIPAllocation(a)
	}
	return butler.ValidateIPAllocationUpdate(old, a)
}

func (ipAllocations) moves(_, _ *v1alpha1.IPAllocation) bool { return false }

func (ipAllocations) wants(ctx context.Context, a *v1alpha1.IPAllocation, pools client.Reader) ([]ledger.Want, error) {
	if r, _, err := butler.RangeOf(a); err == nil && r.IsValid() {
		return []ledger.Want{{Exact: r}}, nil
	}
	if a.Spec.Count != nil {
		return []ledger.Want{{Count: int64(*a.Spec.Count)}}, nil
	}
	pool, err := readPool(ctx, butler.PoolKeyOf(a), pools, &v1alpha1.NetworkPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	return []ledger.Want{{Count: int64(butler.CountFor(a, pool))}}, nil
}

// unmet has an allocation of a paused pool stored without addresses.
func (ipAllocations) unmet(_ *v1alpha1.IPAllocation, err error) (hint string, refusal error) {
	if paused := (*ledger.PoolPausedError)(nil); errors.As(err, &paused) {
		return err.Error(), nil
	}
	return "", err
}

func (ipAllocations) pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error) {
	return storedPool(ctx, networkPools{}, k, pools)
}

func (ipAllocations) fill(p *patch, a *v1alpha1.IPAllocation, ranges []allocator.Range) (warnings []string) {
	r := ranges[0]
	if a.Spec.PinnedRange == nil {
		p.set(butler.PinnedRange(r), "spec", "pinnedRange")
	}
	switch size := r.Size(); {
	case a.Spec.Count == nil && size <= math.MaxInt32:
		p.set(size, "spec", "count")
	case a.Spec.Count != nil && int64(*a.Spec.Count) != size:
		warnings = append(warnings, fmt.Sprintf("spec.count %d is ignored: spec.pinnedRange asks for %s %s", *a.Spec.Count, allocator.AmountOf(r), allocator.Plural(size, "address")))
	}
	return warnings
}

func (ipAllocations) restore(p *patch, stored, updated *v1alpha1.IPAllocation) {
	if stored.Spec.PinnedRange != nil && updated.Spec.PinnedRange == nil {
		updated.Spec.PinnedRange = stored.Spec.PinnedRange
		p.set(stored.Spec.PinnedRange, "spec", "pinnedRange")
	}
	if count := butler.CountOf(stored); count != nil && updated.Spec.Count == nil {
		updated.Spec.Count = count
		p.set(*count, "spec", "count")
	}
}

func (ipAllocations) complete(p *patch, a *v1alpha1.IPAllocation, space string) {
	p.finalizer(a, v1alpha1.FinalizerIPAllocation)
	p.entries("labels", a.Labels, butler.MissingLabels(a, space))
}
