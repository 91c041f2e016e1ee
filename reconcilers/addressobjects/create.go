package addressobjects

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// EnsureAddress returns the name of a claim's address object, and creates the object if
// it is missing. It returns a claims.RequeueError if the claim has to wait: of 0 if the
// pool is missing or the claim is being deleted, since the next event of the pool or of
// the claim requeues the claim.
func (a Claims[T, A]) EnsureAddress(ctx context.Context, d *claims.Deps, c T) (string, error) {
	named, _ := annotated.ParseAddressAnnotation(c)
	isWanted := func(o A) bool {
		converted := a.Kind.Convert(o)
		return a.isAddressObjectOf(c, converted) && len(converted.Ranges) == 1 && converted.Ranges[0].First == named
	}
	all, err := a.addressesOf(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return "", err
	}
	if i := slices.IndexFunc(all, isWanted); i >= 0 {
		a.attempts.forget(client.ObjectKeyFromObject(c))
		return all[i].GetName(), a.takeOwnership(ctx, d, c, all[i])
	}
	want, err := a.Build(ctx, d, c)
	if apierrors.IsNotFound(err) {
		return "", claims.RequeueError(0)
	}
	if err != nil {
		return "", err
	}
	return a.createAddress(ctx, d, c, want, isWanted)
}

// finalizerPause is how long an owned address object stays without a finalizer that a
// client removed: the client may be about to delete the object.
const finalizerPause = time.Second

// takeOwnership adds owners and finalizer to an address object, so that the object stays
// while the claim is stored: also to an object created by another client, restored
// without owners and finalizer, or created for an earlier claim with the claim's name.
// The address belongs to the claim even if the API server denies the write.
func (a Claims[T, A]) takeOwnership(ctx context.Context, d *claims.Deps, c T, stored A) error {
	if stored.GetDeletionTimestamp() != nil {
		return nil
	}
	_, finalizer := a.Finalizers(c)
	isOwned := slices.ContainsFunc(stored.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == c.GetUID() })
	var unmarked []client.Object
	if isOwned && !controllerutil.ContainsFinalizer(stored, finalizer) {
		unmarked = append(unmarked, stored)
	}
	since := a.unmarked.Observe(client.ObjectKeyFromObject(c), d.Now(), unmarked)
	if isOwned && len(unmarked) == 0 {
		return nil
	}
	if left := since[stored.GetUID()].Add(finalizerPause).Sub(d.Now()); isOwned && left > 0 {
		return claims.RequeueError(left)
	}
	want, err := a.Build(ctx, d, c)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	o := write.DeepCopy(stored)
	others := slices.DeleteFunc(slices.Clone(o.GetOwnerReferences()), func(r metav1.OwnerReference) bool {
		return slices.ContainsFunc(want.GetOwnerReferences(), func(w metav1.OwnerReference) bool { return w.Kind == r.Kind })
	})
	o.SetOwnerReferences(append(others, want.GetOwnerReferences()...))
	controllerutil.AddFinalizer(o, finalizer)
	if err := d.IgnoreStale(ctx, stored, d.SaveObject(ctx, stored, o)); !write.IsRefused(err) {
		return err
	}
	return nil
}

// createAddress creates the address object of a claim. The name has a suffix if a foreign
// object has the name without suffix: names of several addresses can be equal.
//
// No object is created for a claim that is being deleted. Each resource has its own
// informer, and after a change of the leader the informers may show the deletion of an
// address object before the deletion of its claim. A claim that had an address object, or
// was known to an earlier leader, is therefore read from the API server.
//
// The API server may store an address object that was sent much earlier, or by a replica
// that was frozen: a later leader may have created the object, deleted it and released
// the claim meanwhile. Only the sender can detect a late create: createAddress compares
// the terms before and after the create, and deletes the object if the claim is gone.
func (a Claims[T, A]) createAddress(ctx context.Context, d *claims.Deps, c T, want A, isWanted func(A) bool) (string, error) {
	if last := a.attempts.lastAttempt(c); last.stored {
		if err := a.awaitObserved(ctx, d, c, last); err != nil {
			return "", err
		}
	}
	term, err := d.Ledger.Term()
	if down := (*ledger.NotServingError)(nil); errors.As(err, &down) {
		return "", claims.RequeueError(down.RetryAfter) // 0 if another replica is the leader
	}
	if err != nil {
		return "", err
	}
	if err := a.proveStored(ctx, d, c, term); err != nil {
		return "", err
	}
	for _, suffix := range []string{"", "-" + digest(c.GetNamespace()+"/"+c.GetName())} {
		o := write.DeepCopy(want)
		o.SetName(want.GetName() + suffix)
		object.RecordDomain(o, d.Ledger.OwnershipOf(string(c.GetUID())).RoutingDomain)
		if err = a.createNamed(ctx, d, c, o, term, isWanted); err == nil {
			return o.GetName(), nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return "", err
		}
	}
	return "", describeCreateError(err)
}

// proveStored returns nil if the claim is known to be stored: it had no address object
// and was not known to an earlier leader, or was read from the API server in this term.
// An event requeues a claim that is gone.
func (a Claims[T, A]) proveStored(ctx context.Context, d *claims.Deps, c T, term time.Time) error {
	mayBeGone := a.StatusAddress(c) != "" || d.Ledger.LandingWindow(string(c.GetUID()), time.Time{}) > 0
	if !mayBeGone || isProven(&a.attempts.claimStored, c, term) {
		return nil
	}
	stored, err := a.existsLive(ctx, d, c)
	if err != nil {
		return err
	}
	if !stored {
		return claims.RequeueError(0)
	}
	recordProof(&a.attempts.claimStored, c, term)
	return nil
}

// createNamed creates an address object of a claim under the name of o, unless it is
// stored already. If another object has the name, the error is AlreadyExists.
func (a Claims[T, A]) createNamed(ctx context.Context, d *claims.Deps, c T, o A, term time.Time, isWanted func(A) bool) error {
	if d.HasFailed(c) && a.isNameTaken(ctx, d, o, isWanted) {
		return apierrors.NewAlreadyExists(schema.ParseGroupResource(a.Kind.Resource), o.GetName())
	}
	began := d.Now()
	err := d.Client.Create(ctx, o)
	if err == nil || hasUnknownOutcome(err) {
		a.attempts.of.Store(client.ObjectKeyFromObject(c), createAttempt{claim: c.GetUID(), began: began, name: o.GetName(), stored: err == nil})
	}
	switch {
	case err == nil:
		if now, err := d.Ledger.Term(); err != nil || !now.Equal(term) {
			return a.deleteIfClaimGone(ctx, d, c, o)
		}
		return nil
	case !apierrors.IsAlreadyExists(err):
		return describeCreateError(err)
	}
	taken := err
	if err := d.Live.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	if !isWanted(o) {
		return taken
	}
	return nil
}

// isNameTaken reports whether the informers show another object of this name.
func (a Claims[T, A]) isNameTaken(ctx context.Context, d *claims.Deps, o A, isWanted func(A) bool) bool {
	shown := a.Kind.Empty()
	err := d.Client.Get(ctx, client.ObjectKeyFromObject(o), shown, client.UnsafeDisableDeepCopy)
	return err == nil && !isWanted(shown.(A))
}

// awaitObserved requeues a claim until the informers show the created address object. The
// informers never show an object that is deleted before they list: then no event requeues
// the claim, and awaitObserved permits another create.
func (a Claims[T, A]) awaitObserved(ctx context.Context, d *claims.Deps, c T, attempt createAttempt) error {
	if left := attempt.began.Add(liveReadPause).Sub(d.Now()); left > 0 {
		return claims.RequeueError(min(left, liveReadPause))
	}
	stored, err := a.findStored(ctx, d, c, attempt.name)
	if err != nil {
		return err
	}
	if stored != nil {
		return claims.RequeueError(liveReadPause)
	}
	a.attempts.forget(client.ObjectKeyFromObject(c))
	return nil
}

// existsLive reads from the API server whether a claim is stored and not being deleted.
func (a Claims[T, A]) existsLive(ctx context.Context, d *claims.Deps, c T) (bool, error) {
	stored := a.NewClaim()
	err := d.Live.Get(ctx, client.ObjectKeyFromObject(c), stored)
	return err == nil && stored.GetUID() == c.GetUID() && stored.GetDeletionTimestamp() == nil, client.IgnoreNotFound(err)
}

// deleteIfClaimGone deletes an address object created by this replica if the claim is
// gone or being deleted. The error is never nil: without a failure it is a
// claims.RequeueError.
func (a Claims[T, A]) deleteIfClaimGone(ctx context.Context, d *claims.Deps, c T, created A) error {
	stored, err := a.existsLive(ctx, d, c)
	if err != nil {
		return err
	}
	if stored {
		return claims.RequeueError(liveReadPause)
	}
	_, finalizer := a.Finalizers(c)
	if err := a.deleteAddress(ctx, d, created, finalizer); err != nil {
		return err
	}
	return claims.RequeueError(0)
}

// ReadPool reads the pool of a claim: copy before changing, since its status may list
// every owner. If the informers show the claim first, the pool is read live: no event of
// the informers would requeue the claim.
func ReadPool(ctx context.Context, d *claims.Deps, k ledger.Key, into client.Object) error {
	err := d.Client.Get(ctx, feed.Request(k).NamespacedName, into, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = d.Live.Get(ctx, feed.Request(k).NamespacedName, into)
	}
	return err
}

// hasUnknownOutcome reports whether a failed write may be stored all the same, now or
// later.
func hasUnknownOutcome(err error) bool {
	var status apierrors.APIStatus
	return !errors.As(err, &status) || status.Status().Code >= http.StatusInternalServerError
}

// describeCreateError returns a *claims.DeniedError if the API server denies the creation
// of an address object for a lasting reason: a policy, a quota, a missing right, or
// foreign objects with both names. All other errors are returned unchanged: creates that
// race for a quota get a conflict, and a client may give up a claim whose status reports
// a failure.
func describeCreateError(err error) error {
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) { // the claims of the namespace are deleted as well
		return err
	}
	if apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsAlreadyExists(err) {
		return denied("create", err)
	}
	return err
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:8]
}

// denied returns the error of a create or delete of an address object that the API server
// denies.
func denied(verb string, err error) error {
	return &claims.DeniedError{Err: &annotated.AddressError{Verb: verb, Err: err}}
}
