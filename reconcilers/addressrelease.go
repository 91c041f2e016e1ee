package reconcilers

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// lookForAddress is how long it takes until an address is looked for again that only the API server shows: the informers may never show it.
const lookForAddress = time.Second

// release takes a claim that is being deleted, and the objects that hold its address, on their way. Whoever has a finalizer on the claim still
// uses the address. What clusterctl takes to another cluster is left to it. Where the status names an address, an attempt to make one is taken to be open only
// if it is this replica's. The duration is how long the claim waits for one that may yet turn up.
func (a addressed[T, A]) release(ctx context.Context, d *desk, c T) (time.Duration, error) {
	all, err := a.addresses(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return 0, err
	}
	all = slices.DeleteFunc(all, func(o A) bool { return !a.isFor(c, a.kind.claim(o)) })
	claimFinalizer, addressFinalizer := a.finalizers(c)
	users := slices.DeleteFunc(slices.Clone(c.GetFinalizers()), func(f string) bool {
		return f == claimFinalizer || f == metav1.FinalizerDeleteDependents // by which the garbage collector waits for the address to go
	})
	if len(users) > 0 || !controllerutil.ContainsFinalizer(c, claimFinalizer) {
		return 0, nil
	}
	if metal3.Away(c) {
		if moving, err := d.moving(ctx, c, d.ledger.ClustersOf(a.claimOf(c))); moving || err != nil {
			return lookAgain, err
		}
	}
	if a.held(c) && d.ledger.Crowded(a.claimOf(c).Pool) {
		d.events.waitsForRoom(c, "its release waits, as its pool has no room to record one more address at rest: shorten the pool's reuse delay, or wait")
		return lookAgain, nil
	}
	for _, shown := range all {
		if err := d.deleteAddress(ctx, copied(shown), addressFinalizer); err != nil {
			return 0, err
		}
	}
	if len(all) > 0 {
		d.made.forget(client.ObjectKeyFromObject(c))
		return 0, nil // they come back when they are gone
	}
	term, err := d.ledger.Term()
	if err == nil && proven(&d.made.left, c, term) {
		return 0, d.dropFinalizer(ctx, c, claimFinalizer)
	}
	last := d.made.last(c)
	for _, name := range slices.Compact([]string{a.named(c), last.name}) {
		stored, err := a.stored(ctx, d, c, name)
		if err != nil {
			return 0, err
		}
		if stored != nil {
			return lookForAddress, d.deleteAddress(ctx, stored, addressFinalizer)
		}
	}
	if !last.stored && (a.named(c) == "" || last.name != "") {
		if wait := d.ledger.Landing(string(c.GetUID()), last.began); wait > 0 {
			return wait, nil
		}
	}
	if wait := d.ledger.Leave(string(c.GetUID())); wait > 0 {
		return wait, nil
	}
	if err == nil {
		prove(&d.made.left, c, term)
	}
	return 0, d.dropFinalizer(ctx, c, claimFinalizer)
}

// stored reads the address of a claim with this name from the API server: nil where there is none.
func (a addressed[T, A]) stored(ctx context.Context, d *desk, c T, name string) (client.Object, error) {
	if name == "" {
		return nil, nil
	}
	o := a.kind.empty()
	err := d.live.Get(ctx, client.ObjectKey{Namespace: c.GetNamespace(), Name: name}, o)
	if err != nil || !a.isFor(c, a.kind.claim(o)) {
		return nil, client.IgnoreNotFound(err)
	}
	return o, nil
}

func (d *desk) deleteAddress(ctx context.Context, a client.Object, finalizer string) error {
	before := copied(a)
	if controllerutil.RemoveFinalizer(a, finalizer) {
		if err := d.save(ctx, before, a); err != nil {
			return d.undeleted(ctx, before, err)
		}
	}
	if a.GetDeletionTimestamp() != nil {
		return nil
	}
	return d.undeleted(ctx, a, d.client.Delete(ctx, a, client.Preconditions{UID: ptr.To(a.GetUID())}))
}

// undeleted is a *metal3.AddressError where the API server refuses to let an address go.
func (d *desk) undeleted(ctx context.Context, a client.Object, err error) error {
	if err = d.overtaken.Ignore(ctx, a, err); refused(err) {
		return &metal3.AddressError{Verb: "delete", Err: err}
	}
	return err
}

// gone looks after the address objects of a claim that is no longer there.
func (a addressed[T, A]) gone(ctx context.Context, d *desk, name types.NamespacedName) (time.Duration, error) {
	all, err := a.addresses(ctx, d, name)
	if err != nil {
		return 0, err
	}
	return a.orphaned(ctx, d, name, all, func() (bool, error) {
		err := d.live.Get(ctx, name, a.fresh())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err) // its event may be yet to come
	})
}

// strays looks after the address objects that name a claim which is there and has another pool, or another address: they are those of a claim of that name
// before it, or of a backup.
func (a addressed[T, A]) strays(ctx context.Context, d *desk, c T) (time.Duration, error) {
	name := client.ObjectKeyFromObject(c)
	all, err := a.addresses(ctx, d, name)
	if err != nil || metal3.Away(c) {
		return 0, err
	}
	ranges := a.claimOf(c).Ranges
	others := slices.DeleteFunc(all, func(o A) bool {
		held := a.kind.claim(o)
		return a.isFor(c, held) && (len(ranges) == 0 || slices.Equal(held.Ranges, ranges))
	})
	return a.orphaned(ctx, d, name, others, func() (bool, error) { return true, nil })
}

// orphaned deletes address objects without their claim, and returns when to look again, zero for never. There is time for a restore that brings the claim:
// orphanAge, from the first observation on. An object that is being deleted goes at once, if that is certain. Objects that are neither marked by the manager
// nor owned by a claim stay: people make them to keep an address.
func (a addressed[T, A]) orphaned(ctx context.Context, d *desk, name types.NamespacedName, all []A, certain func() (bool, error)) (wait time.Duration, err error) {
	var orphans []client.Object
	for _, stored := range all {
		if (a.finalizerOn(stored) != "" || a.ownerOf(stored, name.Name) >= 0) && len(a.kind.claim(stored).Ranges) > 0 {
			orphans = append(orphans, stored)
		}
	}
	d.orphans.retain(name, orphans)
	if len(orphans) == 0 {
		return 0, nil
	}
	term, err := d.ledger.Term()
	if err != nil {
		return lookForAddress, nil
	}
	for _, stored := range orphans {
		if metal3.Away(stored) {
			moving, err := d.moving(ctx, stored, d.ledger.ClustersOf(a.kind.claim(stored)))
			if err != nil {
				return 0, err
			}
			if moving {
				wait = lookAgain
				continue
			}
		}
		left := d.orphans.since(term, name, stored.GetUID(), d.now()).Add(d.orphanAge).Sub(d.now())
		if d.isPaused(ctx, a.kind.claim(stored).Pool) {
			left = max(left, lookAgain) // whoever restores or moves something into a paused Cluster takes the time that it takes
		}
		if stored.GetDeletionTimestamp() != nil {
			sure, err := certain()
			if err != nil {
				return 0, err
			}
			if !sure {
				continue
			}
		} else if left > 0 {
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		if err := d.deleteAddress(ctx, copied(stored), a.finalizerOn(stored)); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// finalizerOn is the finalizer by which an address object is marked as ours, "" for none.
func (a addressed[T, A]) finalizerOn(o client.Object) string {
	if i := slices.IndexFunc(a.ours, func(f string) bool { return controllerutil.ContainsFinalizer(o, f) }); i >= 0 {
		return a.ours[i]
	}
	return ""
}

// ownerOf is where the owner references of an address object name a claim, -1 for nowhere.
func (a addressed[T, A]) ownerOf(o client.Object, claim string) int {
	return slices.IndexFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == a.owner && r.Name == claim })
}

// owner is a reference to the owner of an address.
func owner(o client.Object, apiVersion, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}
