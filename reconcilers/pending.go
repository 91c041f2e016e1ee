package reconcilers

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// parallelWrites is how many objects of one pool are written to at a time.
const parallelWrites = 8

// pending serves the allocations of one pool that are stored without an answer: the pool appeared or grew after them, addresses came
// free, or the webhooks were not asked. Ranges are given in the order of creation, and written side by side.
type pending struct{ desk }

func (r *pending) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	waiting, err := r.waiting(ctx, req)
	if err != nil || len(waiting) == 0 {
		return reconcile.Result{}, err
	}
	pool := &v1alpha1.NetworkPool{}
	if err := r.client.Get(ctx, req.NamespacedName, pool); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for i := range waiting {
		a := waiting[i].DeepCopy()
		name := client.ObjectKeyFromObject(a)
		if _, source, _ := butler.RangeOf(a); source != butler.Nowhere {
			r.changes.allocations.Add(reconcile.Request{NamespacedName: name}) // to be adopted
			continue
		}
		if r.answers.has(name, a.UID) {
			continue
		}
		count := int64(butler.CountFor(a, pool))
		grant, err := r.give(ctx, a, count)
		if down := (*ledger.NotServingError)(nil); errors.As(err, &down) {
			return reconcile.Result{RequeueAfter: max(down.RetryAfter, time.Second)}, writes.Wait()
		}
		writes.Go(func() error {
			if err != nil {
				return r.refuse(ctx, a, refusal(a, count, err))
			}
			return r.write(ctx, a, grant, v1alpha1.OriginAuto)
		})
	}
	return reconcile.Result{}, writes.Wait()
}

// give asks the ledger first what it would grant: a request that is tried again and again should not count as failed each time.
func (r *pending) give(ctx context.Context, a *v1alpha1.IPAllocation, count int64) (ledger.Grant, error) {
	q := ledger.Request{Claim: butler.IPAllocationKey(a.Namespace, a.Name), UID: string(a.UID), Pool: butler.PoolKeyOf(a), Count: count}
	if _, err := r.ledger.Preview(ctx, q); err != nil {
		return ledger.Grant{}, err
	}
	return r.ledger.Grant(ctx, q)
}

// waiting lists the allocations of a pool without an answer, oldest first. They are the informer's own.
func (r *pending) waiting(ctx context.Context, pool reconcile.Request) ([]v1alpha1.IPAllocation, error) {
	waiting, err := r.listIndexed(ctx, indexWaiting, pool.Namespace, pool.Name)
	slices.SortFunc(waiting, func(x, y v1alpha1.IPAllocation) int {
		if c := x.CreationTimestamp.Compare(y.CreationTimestamp.Time); c != 0 {
			return c
		}
		return strings.Compare(x.Name, y.Name)
	})
	return waiting, err
}
