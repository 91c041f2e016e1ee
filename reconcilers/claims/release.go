package claims

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// RemoveFinalizer removes the finalizer of a claim, unless the claim is older than the
// last write to the claim.
func (d *Deps) RemoveFinalizer(ctx context.Context, c client.Object, finalizer string) error {
	if d.expected.IsStale(c) {
		return nil
	}
	before := write.DeepCopy(c)
	if !controllerutil.RemoveFinalizer(c, finalizer) {
		return nil
	}
	d.Released(before)
	if err := d.SaveObject(ctx, before, c); err != nil {
		return d.IgnoreStale(ctx, before, err)
	}
	d.expected.ExpectDeletion(c)
	return nil
}

// RemoveFinalizers removes the finalizers of claims of one pool that are being deleted,
// in parallel. After a failure only the failed claim pauses, and not its whole pool: by
// waitingBackoff, which a claim uses either while it waits for addresses or while it is
// being deleted.
func RemoveFinalizers[T client.Object](ctx context.Context, d *Deps, released []T, finalizer string, again *flow.Soonest) {
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for _, c := range released {
		name, basis := client.ObjectKeyFromObject(c), claimBasis{claim: claimBasisOf(c)}
		if wait := d.waitingBackoff.Wait(name, basis); wait > 0 {
			again.Add(wait)
			continue
		}
		writes.Go(func() error {
			if err := d.RemoveFinalizer(ctx, write.DeepCopy(c), finalizer); err != nil {
				again.Add(d.waitingBackoff.Failed(ctx, name, basis, err))
			}
			return nil
		})
	}
	_ = writes.Wait() // the functions return no error
}

// ReleasedAt returns the time of a release: now, or the deletion if this replica's clock
// is behind the API server's, since no release precedes the deletion.
func ReleasedAt(o client.Object, now time.Time) time.Time {
	if deleted := o.GetDeletionTimestamp(); deleted != nil && deleted.After(now) {
		return deleted.Time
	}
	return now
}
