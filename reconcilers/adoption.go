package reconcilers

import (
	"context"
	"errors"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// adopt answers an allocation that holds a range nobody here gave it: one of an earlier allocator, where the range may stand in
// status alone, or one that was stored around the webhooks or before its pool. The ledger has held the range since it first saw the
// object; this writes down that it does.
func (r *allocations) adopt(ctx context.Context, a *v1alpha1.IPAllocation, rng allocator.Range) (reconcile.Result, error) {
	if r.sent.has(client.ObjectKeyFromObject(a), a.UID) {
		return reconcile.Result{}, nil
	}
	vouched := a.Status.Phase == v1alpha1.PhaseAllocated // by an earlier allocator
	var err error
	if !vouched {
		err = r.offered(ctx, a, rng)
	}
	if err == nil {
		q := requestOf(a)
		q.Exact = rng
		var grant ledger.Grant
		if grant, err = r.grant(ctx, q); err == nil {
			err = r.write(ctx, a, grant, v1alpha1.OriginAdopted)
		}
	}
	if vouched && errors.As(err, new(*refusedError)) {
		return reconcile.Result{}, nil // its pool is missing or going: what it says of itself stays until that changes
	}
	return r.settled(ctx, a, rng.Size(), err)
}

// offered checks a range that came in around the webhooks as they would have. Errors: *refusedError.
func (r *allocations) offered(ctx context.Context, a *v1alpha1.IPAllocation, rng allocator.Range) error {
	stored := &v1alpha1.NetworkPool{}
	key := butler.PoolKeyOf(a)
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: key.Name}, stored); err != nil {
		return &refusedError{&ledger.NoPoolError{Pool: key}} // the informers know no other error
	}
	pool, _ := butler.PoolOf(stored)
	if !slices.ContainsFunc(pool.Window, func(w allocator.Range) bool { return w.Covers(rng) }) {
		return &refusedError{&ledger.PoolError{Pool: key, Err: &allocator.OutsideError{Range: rng, Window: pool.Window}}}
	}
	for _, b := range pool.Blocked {
		if b.Overlaps(rng) {
			return &refusedError{&ledger.PoolError{Pool: key, Err: &allocator.BlockedError{Range: b}}}
		}
	}
	return nil
}
