// Package addressobjects creates and deletes the address objects of claims: objects that
// record the address of a claim of Metal3 or Cluster API.
//
//	claim confirmed by a commit ──▶ address object created ──▶ status of the claim names it ──▶ Ready
//	deletion of the claim requested, no foreign finalizer ──▶ address object deleted ──▶ gone ──▶ cooldown recorded ──▶ claim's finalizer removed ──▶ gone
//
// Invariant: no claim ends while an address object of the claim may still be on its way
// to the API server, or from there to the informers, which may be behind the informers of
// the claims. Such an object would keep the address until the orphan age has passed.
//
// Other clients may create an address object too, before or after its claim. The claim
// owns such an object: the manager adds owner references and finalizer, also to an object
// restored without them. An address object is deleted after the orphan age, when no
// restore can be expected to create the claim, if the claim is gone or has a different
// pool or address.
package addressobjects

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// Config describes claims, T, and their address objects, A.
type Config[T, A client.Object] struct {
	Kind         *Kind
	NewClaim     func() T
	ConvertClaim func(T) ledger.Claim
	// StatusAddress returns the name of the address object that the status of a claim
	// names, "" for none.
	StatusAddress func(T) string
	// Build returns the address object for the address of a claim. It returns a NotFound
	// error if the pool does not exist.
	Build func(context.Context, *claims.Deps, T) (A, error)
	// Finalizers returns the finalizers of a claim and of its address object.
	Finalizers func(T) (claim, address string)
	// ManagedFinalizers has all finalizers that the manager adds to address objects.
	ManagedFinalizers []string
	OwnerKind         string // kind of the claims in owner references
}

// Claims is the part of a claims.Adapter that all kinds with address objects share. It
// implements claims.Releaser and claims.Dependents.
type Claims[T, A client.Object] struct {
	Config[T, A]
	*state
}

// state is what the reconciler of a claim kind remembers of address objects.
type state struct {
	attempts createAttempts
	orphans  orphanTimes          // address objects without their claim
	unmarked flow.ObservedObjects // address objects that lost their finalizer
}

// New returns the adapter of a claim kind.
func New[T, A client.Object](c Config[T, A]) Claims[T, A] { return Claims[T, A]{c, &state{}} }

// NewObject implements claims.Adapter.
func (a Claims[T, A]) NewObject() T { return a.NewClaim() }

// ToClaim implements claims.Adapter.
func (a Claims[T, A]) ToClaim(c T) ledger.Claim { return a.ConvertClaim(c) }

// CheckReadable implements claims.Adapter.
func (Claims[T, A]) CheckReadable(c T) error {
	if _, err := annotated.ParseAddressAnnotation(c); err != nil {
		return annotated.NewUnreadableFailure(c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	}
	return nil
}

// HasAddresses implements claims.Adapter.
func (a Claims[T, A]) HasAddresses(c T) bool { return len(a.ConvertClaim(c).Ranges) > 0 }

// AllocatedEarlier returns the address that the status names: it is in use. A later
// annotation does not count, since the earlier provider ignored annotations.
func (a Claims[T, A]) AllocatedEarlier(ctx context.Context, d *claims.Deps, c T) (others []allocator.Range, yes bool, err error) {
	if a.StatusAddress(c) == "" {
		return nil, false, nil
	}
	all, err := a.addressesOf(ctx, d, client.ObjectKeyFromObject(c))
	for _, o := range all {
		if object := a.Kind.Convert(o); o.GetName() == a.StatusAddress(c) && object.Pool == a.ConvertClaim(c).Pool && len(object.Ranges) == 1 {
			others = object.Ranges
		}
	}
	return others, true, err
}

// FillSpec implements claims.Adapter.
func (Claims[T, A]) FillSpec(c T, ranges []allocator.Range) { annotated.FillAddress(c, ranges) }

// CompleteMetadata adds the label of the routing domain and the finalizer to a claim, and
// lets clusterctl move the claim.
func (a Claims[T, A]) CompleteMetadata(c T, routingDomain string) bool {
	finalizer, _ := a.Finalizers(c)
	unblocked := claims.RemoveMoveBlock(c)
	return annotated.CompleteMetadata(c, routingDomain, finalizer) || unblocked
}

// FenceWrites implements claims.Adapter.
func (a Claims[T, A]) FenceWrites(ctx context.Context, c client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error) {
	return write.Fence(ctx, c, live, feed.Request(k).NamespacedName, uid, a.NewClaim())
}

// isAddressObjectOf reports whether an address object owns its address for a claim. An
// object of another pool is for another claim of the same name.
func (a Claims[T, A]) isAddressObjectOf(c T, object ledger.Claim) bool {
	claim := a.ConvertClaim(c)
	return object.OwnerClaim == claim.Key && object.Pool == claim.Pool
}

// addressesOf lists the address objects of a claim from the informers: copy before
// changing.
func (a Claims[T, A]) addressesOf(ctx context.Context, d *claims.Deps, claim types.NamespacedName) ([]A, error) {
	return claims.ListIndexed[A](ctx, d.Client, a.Kind.NewList(), annotated.IndexOwnerClaim, claim.Namespace, claim.Name)
}

// RequestsOfAddressObjects returns the request of a claim for the address of its address
// object; false without such an object.
func (a Claims[T, A]) RequestsOfAddressObjects(ctx context.Context, d *claims.Deps, c T) ([]ledger.RangeRequest, bool, error) {
	all, err := a.addressesOf(ctx, d, client.ObjectKeyFromObject(c))
	if err != nil {
		return nil, false, err
	}
	objects := make([]ledger.Claim, len(all))
	for i, o := range all {
		objects[i] = a.Kind.Convert(o)
	}
	named, _ := annotated.ParseAddressAnnotation(c)
	object, has := annotated.FindAddressObject(a.ConvertClaim(c).Pool, named, objects...)
	if !has {
		return nil, false, nil
	}
	return metal3.BuildObjectRequest(object), true, nil
}
