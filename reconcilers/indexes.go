package reconcilers

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Indexes of the IPAllocations in the informer. They hold only what is in a passing state, so that looking for it costs the same
// however many there are.
const (
	indexWaiting  = "waiting"  // pool -> without an answer of ours
	indexReleased = "released" // pool -> Released, and still with our finalizer
	indexConflict = "conflict" // flagged -> all that are
)

const flagged = "flagged"

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	pool := func(a *v1alpha1.IPAllocation) string { return a.Spec.PoolRef.Name }
	for _, index := range []struct {
		name  string
		has   func(*v1alpha1.IPAllocation) bool
		value func(*v1alpha1.IPAllocation) string
	}{
		{indexWaiting, func(a *v1alpha1.IPAllocation) bool { return a.DeletionTimestamp == nil && !answered(a) }, pool},
		{indexReleased, released, pool},
		{indexConflict, butler.Flagged, func(*v1alpha1.IPAllocation) string { return flagged }},
	} {
		err := indexer.IndexField(ctx, &v1alpha1.IPAllocation{}, index.name, func(o client.Object) []string {
			if a := o.(*v1alpha1.IPAllocation); index.has(a) {
				return []string{index.value(a)}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// listIndexed gives the allocations of a pool that are in an index. They are the informer's own: copy before changing.
func (d *desk) listIndexed(ctx context.Context, index, namespace, pool string) ([]v1alpha1.IPAllocation, error) {
	var list v1alpha1.IPAllocationList
	err := d.client.List(ctx, &list, client.InNamespace(namespace), client.MatchingFields{index: pool}, client.UnsafeDisableDeepCopy)
	return list.Items, err
}

// released says whether an allocation has been marked Released, and is there only until its release is recorded.
func released(a *v1alpha1.IPAllocation) bool {
	return a.DeletionTimestamp != nil && a.Status.Phase == v1alpha1.PhaseReleased && a.Status.ReleasedAt != nil &&
		controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation)
}
