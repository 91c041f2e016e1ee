package reconcilers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// Claims of Metal3 and of Cluster API have their address in an object of its own, made for them when it is known to be theirs alone.
//
//	claim ── answered, confirmed ──▶ address made ──▶ claim's status names it
//	claim ── being deleted, nobody else's finalizer left ──▶ address deleted ──▶ gone ──▶ claim's finalizer off ──▶ gone
//
// No claim goes while an address of its own may still be on its way into the API server: nobody would ever ask for that one.
// Somebody else may make such an object, before its claim or after: it is the claim's then. One of a claim that is gone, which nobody can be
// expected to restore any more, goes after orphanAge.

// orphanAge is how old an address is at least that is deleted because it has no claim. A restore brings the one soon after the other.
const orphanAge = 10 * time.Minute

// addressesFor lists the objects that hold an address for a claim, as the informers have them: copy before changing.
func addressesFor[A client.Object](ctx context.Context, d *desk, list client.ObjectList, claim types.NamespacedName) ([]A, error) {
	return listIndexed[A](ctx, d.client, list, metal3.IndexFor, claim.Namespace, claim.Name)
}

// attempt is the last try to make an address for a claim, from its beginning.
type attempt struct {
	claim  types.UID
	began  time.Time
	stored bool // else nobody knows
}

// attempts are those whose addresses the informers do not show yet. The zero value is ready.
type attempts struct{ of sync.Map } // claim's name -> attempt

func (a *attempts) last(c client.Object) attempt {
	if last, ok := a.of.Load(client.ObjectKeyFromObject(c)); ok && last.(attempt).claim == c.GetUID() {
		return last.(attempt)
	}
	return attempt{}
}

func (a *attempts) forget(claim types.NamespacedName) { a.of.Delete(claim) }

// makeAddress makes the address object of a claim and gives its name. Where another object has that name, which may stand for several addresses, it
// gets a longer one. ours tells whether an object is the one. The name is "" while the informers have yet to show what was made: that brings the
// claim back.
//
// It is made for no claim that is going. Each kind has an informer of its own, and that of a replica which has just taken over may show the end of an
// address before that of its claim: whether a claim is still there that had one before, or that the last holder of the journal knew, the API server
// says. named says that its status names an address.
func makeAddress[A client.Object](ctx context.Context, d *desk, claim client.Object, named bool, want A, ours func(A) bool) (string, error) {
	if d.made.last(claim).stored {
		return "", nil
	}
	if named || d.ledger.Landing(string(claim.GetUID()), time.Time{}) > 0 {
		now := copied(claim)
		err := d.live.Get(ctx, client.ObjectKeyFromObject(claim), now)
		if err != nil || now.GetUID() != claim.GetUID() || now.GetDeletionTimestamp() != nil {
			return "", client.IgnoreNotFound(err) // its end comes by itself
		}
	}
	try := attempt{claim: claim.GetUID(), began: d.now()}
	var err error
	for _, suffix := range []string{"", "-" + digest(claim.GetNamespace()+"/"+claim.GetName())} {
		a := copied(want)
		a.SetName(want.GetName() + suffix)
		err = d.client.Create(ctx, a)
		if try.stored = err == nil; try.stored || undecided(err) {
			d.made.of.Store(client.ObjectKeyFromObject(claim), try)
		}
		if err == nil {
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

// readPool reads the pool of a claim. The informers may show the claim first: then nothing of theirs would bring it back.
func (d *desk) readPool(ctx context.Context, k ledger.Key, into client.Object) error {
	err := d.client.Get(ctx, request(k).NamespacedName, into)
	if apierrors.IsNotFound(err) {
		err = d.live.Get(ctx, request(k).NamespacedName, into)
	}
	return err
}

// undecided tells whether a write that failed may be stored all the same, now or later.
func undecided(err error) bool {
	var answer apierrors.APIStatus
	return !errors.As(err, &answer) || answer.Status().Code >= http.StatusInternalServerError
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:8]
}

// withdraw takes a claim that is being deleted, and the objects that hold its address, on their way. Whoever has a finalizer on the claim still
// uses the address. What goes to another cluster is clusterctl's. Where the status names an address, which named tells, no attempt to make one is
// open but this replica's. The duration is how long the claim waits for one that may yet turn up.
func withdraw[A client.Object](ctx context.Context, d *desk, c client.Object, named bool, addresses []A, claimFinalizer, addressFinalizer string) (time.Duration, error) {
	if metal3.Away(c) || len(c.GetFinalizers()) != 1 || !controllerutil.ContainsFinalizer(c, claimFinalizer) {
		return 0, nil
	}
	for _, stored := range addresses {
		if err := d.deleteAddress(ctx, copied(stored), addressFinalizer); err != nil {
			return 0, err
		}
	}
	if len(addresses) > 0 {
		d.made.forget(client.ObjectKeyFromObject(c))
		return 0, nil // they come back when they are gone
	}
	if last := d.made.last(c); !named || !last.began.IsZero() {
		if wait := d.ledger.Landing(string(c.GetUID()), last.began); wait > 0 {
			return wait, nil
		}
	}
	return 0, d.dropFinalizer(ctx, c, claimFinalizer)
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
