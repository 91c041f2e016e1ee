package webhooks

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// annotatedClaims is the part of an adapter whose claims have their address in the
// annotation ipAddress. A claim for any address is always stored, as its clients expect.
// A claim for an exact address is denied if the address is not available.
type annotatedClaims[T client.Object] struct {
	cached   client.Reader
	clusters clusterpause.Clusters
}

func (annotatedClaims[T]) hasAddresses(c T) bool {
	a, _ := annotated.ParseAddressAnnotation(c)
	return a.IsValid()
}

func (annotatedClaims[T]) withoutAddresses(c T) T {
	c = c.DeepCopyObject().(T)
	annotations := c.GetAnnotations()
	for _, key := range []string{v1alpha1.AnnotationIPAddress, butlerv1.AnnotationGrant, butlerv1.AnnotationOrigin, butlerv1.AnnotationGrantedDomain} {
		delete(annotations, key)
	}
	c.SetAnnotations(annotations)
	return c
}

// changesAddresses is true if the stored claim has no allocation yet.
func (annotatedClaims[T]) changesAddresses(old, c T) bool {
	was, _ := annotated.ParseAddressAnnotation(old)
	is, _ := annotated.ParseAddressAnnotation(c)
	return !annotated.HasAllocatedAddress(old) && is.IsValid() && is != was
}

func (annotatedClaims[T]) fillSpec(c T, ranges []allocator.Range) (warnings []string) {
	annotated.FillAddress(c, ranges)
	return nil
}

func (annotatedClaims[T]) restoreSpec(stored, updated T) {
	setAnnotations(updated, findAbsent(updated, stored, v1alpha1.AnnotationIPAddress))
}

// admitPending stores a claim for any address whose pool cannot serve it now. A claim for
// an exact address is denied.
func (annotatedClaims[T]) admitPending(c T, err error) (warning string, denial error) {
	var (
		wait     *clusterpause.WaitError
		deleting *ledger.PoolDeletingError
		paused   *ledger.PoolPausedError
		faulty   *ledger.FaultyPoolError
		owned    *ledger.OwnedError
	)
	named, _ := annotated.ParseAddressAnnotation(c)
	switch {
	case errors.As(err, &wait), errors.As(err, &paused), (errors.As(err, &deleting) || errors.As(err, &faulty)) && !named.IsValid():
		return err.Error() + ": the claim is stored without an address", nil
	case errors.Is(err, allocator.ErrExhausted):
		return fmt.Sprintf("%s: %v: the claim is stored without an address and gets one as soon as there is room", annotated.FailureExhausted, err), nil
	case errors.As(err, &owned) && !named.IsValid(): // the pool reserves the address for the claim, or an address object records the address
		return fmt.Sprintf("%s: an address is reserved for the claim, but %s: the claim is stored without an address and gets the reserved address as soon as that is free",
			annotated.FailureUnavailable, owned.SeenFrom(c.GetNamespace())), nil
	case errors.As(err, &owned):
		return "", fmt.Errorf("%w: %w", annotated.FailureUnavailable, err)
	}
	return "", err
}

// requestsOfIPPool returns the request of a claim to an IPPool. While the Cluster of the
// pool is paused or missing, a claim for any address waits, and so does a claim for an
// address that the pool reserves: clusterctl may create the address object that permits
// the address later. Other exact addresses are granted.
func (a annotatedClaims[T]) requestsOfIPPool(ctx context.Context, c T, pool ledger.Key, pools client.Reader) ([]ledger.RangeRequest, error) {
	p, err := readPool(ctx, pool, pools, &v1alpha1.IPPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	request, err := metal3.BuildClaimRequest(p, c)
	exact, _ := annotated.ParseAddressAnnotation(c)
	anyAddress, reserved := !exact.IsValid() && err == nil, errors.Is(err, annotated.FailureUnavailable)
	if wait := metal3.CheckPoolWait(p, a.clusters); wait != nil && (anyAddress || reserved) {
		return nil, wait // clusterctl creates the claim, then the address object with the reserved address, and unpauses the Cluster last
	}
	if err != nil {
		return nil, err
	}
	return request.ToLedger(), nil
}

// awaitsAddressObject reports whether a claim that names an earlier allocation is denied
// because of the create of an address object that is not observed yet: the address object
// of the claim, in a restore.
func (annotatedClaims[T]) awaitsAddressObject(c T, err error) bool {
	owned := (*ledger.OwnedError)(nil)
	if !errors.As(err, &owned) || !owned.Promised || !annotated.HasAllocatedAddress(c) {
		return false
	}
	kind := kinds.ForResource(owned.Owner.Resource)
	return kind != nil && kind.IsAddressObject()
}

// checkReservedAddress returns an error if an IPPool reserves a different address for a
// claim with a generated name. A claim with a pinned address keeps the pinned address:
// most likely it is restored from a backup, with the name that was generated at its first
// create.
func checkReservedAddress(ctx context.Context, c metav1.Object, pool ledger.Key, pools client.Reader) error {
	if c.GetAnnotations()[butlerv1.AnnotationOrigin] == butlerv1.OriginPinned {
		return nil
	}
	p, err := readPool(ctx, pool, pools, &v1alpha1.IPPool{}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil
	}
	has, _ := annotated.ParseAddressAnnotation(c)
	if request, err := metal3.BuildRequest(p, c.GetName(), ""); err == nil && request.IgnorePoolBlocks && request.Address != has {
		return &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second,
			Reason: fmt.Sprintf("pool %s reserves %s for a claim with the generated name %s", pool, request.Address, c.GetName())}
	}
	return nil
}
