package reconcilers

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// adopt answers an allocation that holds a range nobody here gave it: one of an earlier allocator, where the range may stand in
// status alone, or one that was stored around the webhooks or before its pool. The ledger has held the range since it first saw the
// object and has confirmed that it is this one's; nothing is granted, this writes down how it is.
func (r *allocations) adopt(ctx context.Context, a *v1alpha1.IPAllocation, rng allocator.Range) error {
	if r.answers.has(client.ObjectKeyFromObject(a), a.UID) {
		return nil
	}
	if a.Status.Phase != v1alpha1.PhaseAllocated { // else an earlier allocator has vouched for it
		if err := r.offered(ctx, a, rng); err != nil {
			return r.refuse(ctx, a, refusal(a, rng.Size(), err))
		}
	}
	return r.write(ctx, a, ledger.Grant{Range: rng, Space: r.spaceOf(ctx, a)}, v1alpha1.OriginAdopted)
}

// offered checks a range that came in around the webhooks as they would have.
func (r *allocations) offered(ctx context.Context, a *v1alpha1.IPAllocation, rng allocator.Range) error {
	stored := &v1alpha1.NetworkPool{}
	key := butler.PoolKeyOf(a)
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, stored); err != nil {
		return &ledger.NoPoolError{Pool: key} // the informers know no other error
	}
	pool, _ := butler.PoolOf(stored)
	if !slices.ContainsFunc(pool.Window, func(w allocator.Range) bool { return w.Covers(rng) }) {
		return &ledger.PoolError{Pool: key, Err: &allocator.OutsideError{Range: rng, Window: pool.Window}}
	}
	for _, b := range pool.Blocked {
		if b.Overlaps(rng) {
			return &ledger.PoolError{Pool: key, Err: &allocator.BlockedError{Range: b}}
		}
	}
	return nil
}
