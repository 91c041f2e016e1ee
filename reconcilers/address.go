package reconcilers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// Claims of Metal3 and of Cluster API have their address in an object of its own, made for them when it is known to be theirs alone.
//
//	claim ── answered, confirmed ──▶ address made ──▶ claim's status names it
//	claim ── being deleted, nobody else's finalizer left ──▶ address deleted ──▶ gone ──▶ claim's finalizer off ──▶ gone
//
// Somebody else may make such an object, before its claim or after: it is the claim's then. One of a claim that is gone, which nobody can be
// expected to restore any more, goes after orphanAge.

// orphanAge is how old an address is at least that is deleted because it has no claim. A restore brings the one soon after the other.
const orphanAge = 10 * time.Minute

// addressesFor lists the objects that hold an address for a claim, as the informers have them: copy before changing.
func addressesFor[A client.Object](ctx context.Context, d *desk, list client.ObjectList, claim types.NamespacedName) ([]A, error) {
	return listIndexed[A](ctx, d.client, list, metal3.IndexFor, claim.Namespace, claim.Name)
}

// makeAddress makes the address object of a claim and gives its name. Where another object has that name, which may stand for several addresses, it
// gets a longer one. ours tells whether an object is the one. The name is "" while the informers have yet to show what was made: that brings the
// claim back.
func makeAddress[A client.Object](ctx context.Context, d *desk, claim client.Object, want A, ours func(A) bool) (string, error) {
	name := client.ObjectKeyFromObject(claim)
	if d.made.has(name, claim.GetUID()) {
		return "", nil
	}
	var err error
	for _, suffix := range []string{"", "-" + digest(claim.GetNamespace()+"/"+claim.GetName())} {
		a := copied(want)
		a.SetName(want.GetName() + suffix)
		if err = d.client.Create(ctx, a); err == nil {
			d.made.add(name, claim.GetUID())
			return a.GetName(), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", err
		}
		if err := d.live.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return "", err
		}
		if ours(a) {
			return a.GetName(), nil
		}
	}
	return "", err
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:8]
}

// withdraw takes a claim that is being deleted, and the objects that hold its address, on their way. Whoever has a finalizer on the claim still
// uses the address. What goes to another cluster is clusterctl's.
func withdraw[A client.Object](ctx context.Context, d *desk, c client.Object, addresses []A, claimFinalizer, addressFinalizer string) error {
	if metal3.Away(c) || len(c.GetFinalizers()) != 1 || !controllerutil.ContainsFinalizer(c, claimFinalizer) {
		return nil
	}
	for _, stored := range addresses {
		if err := d.deleteAddress(ctx, copied(stored), addressFinalizer); err != nil {
			return err
		}
	}
	if len(addresses) > 0 {
		return nil // they come back when they are gone
	}
	return d.dropFinalizer(ctx, c, claimFinalizer)
}

func (d *desk) deleteAddress(ctx context.Context, a client.Object, finalizer string) error {
	before := copied(a)
	if controllerutil.RemoveFinalizer(a, finalizer) {
		if err := d.save(ctx, before, a); err != nil {
			return overtaken(err)
		}
	}
	if a.GetDeletionTimestamp() != nil {
		return nil
	}
	return overtaken(d.client.Delete(ctx, a, client.Preconditions{UID: ptr.To(a.GetUID())}))
}

// orphans deletes the addresses of a claim that is gone, once they are old enough, and says when that is.
func orphans[A client.Object](ctx context.Context, d *desk, addresses []A, finalizer string) (time.Duration, error) {
	wait := time.Duration(0)
	for _, stored := range addresses {
		if !controllerutil.ContainsFinalizer(stored, finalizer) || metal3.Away(stored) {
			continue // made by somebody else, or on its way
		}
		if left := stored.GetCreationTimestamp().Add(orphanAge).Sub(d.now()); left > 0 {
			wait = max(wait, left)
			continue
		}
		if err := d.deleteAddress(ctx, copied(stored), finalizer); err != nil {
			return 0, err
		}
	}
	return wait, nil
}

// owner is a reference to the owner of an address.
func owner(o client.Object, apiVersion, kind string) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID()}
}
