package addressobjects

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// liveReadPause is the pause before the next live read of an address object that only the
// API server shows: the informers may never show it.
const liveReadPause = time.Second

// pollPause is the pause before the next check of a state without an event: a move that
// is not decided, a paused pool.
const pollPause = time.Minute

// eventReleasesWait is the reason of the event about a claim whose release waits for room
// in the cooldown list of the pool, or for late writes.
const eventReleasesWait = "ReleasesWait"

// Forget implements claims.Dependents.
func (a Claims[T, A]) Forget(d *claims.Deps, claim types.NamespacedName) {
	a.attempts.forget(claim)
	a.unmarked.Observe(claim, d.Now(), nil)
}

// Release deletes the address objects of a claim that is being deleted, and then removes
// the claim's finalizer. The first row that matches decides:
//
//	claim                                                 action
//	with a foreign finalizer                              none: the address is in use
//	marked as moved, and clusterctl may be moving         none for pollPause
//	with an address, no room in the cooldown list         none until the list has room
//	with address objects in the informers                 objects deleted; their deletion events requeue the claim
//	with an address object in the API server only         object deleted, next check after liveReadPause
//	with a create that the API server may still store     none for the returned duration (mayStillLand)
//	with a cooldown that the pool has yet to record       cooldown begins; none until the record, or for the returned duration
//	else                                                  finalizer removed
//
// A claim that has passed all rows in the present term is ready to end: if the removal of
// its finalizer fails, the next attempt goes from the informers' address objects straight
// to the last row.
func (a Claims[T, A]) Release(ctx context.Context, d *claims.Deps, c T) (time.Duration, error) {
	all, err := a.addressesOf(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(o A) bool { return !a.isAddressObjectOf(c, a.Kind.Convert(o)) })
	claimFinalizer, addressFinalizer := a.Finalizers(c)
	foreign := slices.DeleteFunc(slices.Clone(c.GetFinalizers()), func(f string) bool {
		return f == claimFinalizer || f == metav1.FinalizerDeleteDependents // the garbage collector waits for the deletion of the address object
	})
	if len(foreign) > 0 || !controllerutil.ContainsFinalizer(c, claimFinalizer) {
		return 0, nil
	}
	if clusterpause.IsMarkedMoved(c) {
		if moving, err := d.Clusters.IsMoving(ctx, d.Live, c.GetNamespace(), d.Ledger.ClustersOf(a.ConvertClaim(c))); moving || err != nil {
			return pollPause, err
		}
	}
	if a.HasAddresses(c) && d.Ledger.CooldownsFull(a.ConvertClaim(c).Pool, string(c.GetUID())) {
		d.Events.Warning(c, eventReleasesWait, "its release waits, as the records of the pool have no room for another cooldown: shorten the pool's reuse delay, or wait")
		return pollPause, nil // a fallback: when the list has room, the ledger reports the claim as changed, and the claim is requeued
	}
	for _, shown := range all {
		if err := a.deleteAddress(ctx, d, write.DeepCopy(shown), addressFinalizer); err != nil {
			return 0, err
		}
	}
	if len(all) > 0 {
		a.attempts.forget(client.ObjectKeyFromObject(c))
		return 0, nil // the deletion events of the address objects requeue the claim
	}
	term, termErr := d.Ledger.Term() // without a term nothing is proven, and all rows are checked
	if termErr == nil && isProven(&a.attempts.readyToEnd, c, term) {
		return 0, d.RemoveFinalizer(ctx, c, claimFinalizer)
	}
	last := a.attempts.lastAttempt(c)
	for _, name := range slices.Compact([]string{a.StatusAddress(c), last.name}) {
		stored, err := a.findStored(ctx, d, c, name)
		if err != nil {
			return 0, err
		}
		if stored != nil {
			return liveReadPause, a.deleteAddress(ctx, d, stored, addressFinalizer)
		}
	}
	if a.mayStillLand(c, last) {
		if wait := d.Ledger.ReleaseWindow(string(c.GetUID()), last.began); wait > 0 {
			d.Events.Routine(c, a.ConvertClaim(c).Pool, eventReleasesWait, fmt.Sprintf(
				"its release waits until %s, as the API server may still store an address object whose create had no answer, or was sent by an earlier leader: nothing is to be done",
				d.Wall().Add(wait).UTC().Format(time.RFC3339)))
			return wait, nil
		}
	}
	if wait := d.Ledger.BeginCooldown(string(c.GetUID())); wait > 0 {
		return wait, nil
	}
	if termErr == nil {
		recordProof(&a.attempts.readyToEnd, c, term)
	}
	return 0, d.RemoveFinalizer(ctx, c, claimFinalizer)
}

// mayStillLand reports whether the API server may still store an address object of a
// claim, after live reads have shown that neither the object that the status names nor
// the object of the last attempt is stored:
//
//	last attempt of this replica      status               may still land
//	stored                            any                  nothing: the object is gone again
//	without a known outcome           any                  the create of this replica
//	none                              without an address   a create of an earlier leader, for its LandingWindow
//	none                              with an address      nothing: the create of the earlier leader was stored before the status named the object
func (a Claims[T, A]) mayStillLand(c T, last createAttempt) bool {
	return !last.stored && (a.StatusAddress(c) == "" || last.name != "")
}

// findStored reads the address object of a claim by name from the API server; nil if
// there is none.
func (a Claims[T, A]) findStored(ctx context.Context, d *claims.Deps, c T, name string) (client.Object, error) {
	if name == "" {
		return nil, nil
	}
	o := a.Kind.Empty()
	err := d.Live.Get(ctx, client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, o)
	if err != nil || !a.isAddressObjectOf(c, a.Kind.Convert(o)) {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

// deleteAddress removes the finalizer of an address object and deletes the object.
func (a Claims[T, A]) deleteAddress(ctx context.Context, d *claims.Deps, o client.Object, finalizer string) error {
	before := write.DeepCopy(o)
	if controllerutil.RemoveFinalizer(o, finalizer) {
		if err := d.SaveObject(ctx, before, o); err != nil {
			return describeDeleteError(ctx, d, before, err)
		}
	}
	if o.GetDeletionTimestamp() != nil {
		return nil
	}
	return describeDeleteError(ctx, d, o, d.Client.Delete(ctx, o, client.Preconditions{UID: ptr.To(o.GetUID())}))
}

// describeDeleteError returns a *claims.DeniedError if the API server denies the deletion
// of an address object.
func describeDeleteError(ctx context.Context, d *claims.Deps, o client.Object, err error) error {
	if err = d.IgnoreStale(ctx, o, err); write.IsRefused(err) {
		return denied("delete", err)
	}
	return err
}
