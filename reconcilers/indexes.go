package reconcilers

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Indexes of the claims in the informers. They hold only what is in a passing state, so that looking for it costs the same however many
// there are.
const (
	indexWaiting  = "waiting"  // kind and name of a pool -> without an answer of ours
	indexReleased = "released" // pool -> Released, and still with our finalizer
	indexConflict = "conflict" // flagged -> all that are
)

const flagged = "flagged"

func (a *api[T, P]) addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for name, has := range map[string]func(T) bool{
		indexWaiting:  func(c T) bool { return c.GetDeletionTimestamp() == nil && !a.claims.answered(c) },
		indexReleased: func(c T) bool { return released(c) },
		indexConflict: a.claims.flagged,
	} {
		err := indexer.IndexField(ctx, a.claims.empty(), name, func(o client.Object) []string {
			c := o.(T)
			switch {
			case !has(c):
				return nil
			case name == indexConflict:
				return []string{flagged}
			case name == indexWaiting:
				pool := a.claims.claim(c).Pool
				return []string{waitingFor(pool.Kind, pool.Name)}
			default:
				return []string{a.claims.claim(c).Pool.Name}
			}
		})
		if err != nil {
			return err
		}
	}
	if a.addresses == nil {
		return nil
	}
	return indexer.IndexField(ctx, a.addresses.empty(), metal3.IndexFor, func(o client.Object) []string { return []string{a.addresses.claim(o).For.Name} })
}

func waitingFor(poolKind, pool string) string { return poolKind + "/" + pool }

// listIndexed gives the claims of a pool that are in an index. They are the informer's own: copy before changing.
func listIndexed[T client.Object](ctx context.Context, c client.Reader, list client.ObjectList, index, namespace, pool string) ([]T, error) {
	err := c.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{index: pool}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	var all []T
	err = meta.EachListItem(list, func(o runtime.Object) error {
		all = append(all, o.(T))
		return nil
	})
	return all, err
}

// released says whether an allocation has been marked Released, and is there only until its release is recorded.
func released(o client.Object) bool {
	a, ok := o.(*v1alpha1.IPAllocation)
	return ok && a.DeletionTimestamp != nil && a.Status.Phase == v1alpha1.PhaseReleased && a.Status.ReleasedAt != nil &&
		controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation)
}
