package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Claims that enter the routing domain of the load by a change of their pools. In a
// namespace of their own, claims get addresses of the load in another routing domain.
// Then their pools are deleted and made anew in the routing domain of the load, and the
// records of half of the claims are forged, by a user for whom no webhook is called. The
// claims of the load must keep their addresses, as if nothing had happened.

// intrude is the fault.
const intrude = "intrude"

const (
	intruderNamespace = "intruders"
	intruderDomain    = "intruders"
	intruderClaims    = 6 // of each kind
)

// intruderPools are the pools: their networks are the smallest network of the load, where
// most addresses have owners.
func intruderPools(domain string) []client.Object {
	meta := metav1.ObjectMeta{Namespace: intruderNamespace, Name: "intruders"}
	networkPool := &butlerv1.NetworkPool{ObjectMeta: meta, Spec: butlerv1.NetworkPoolSpec{CIDR: cidrs["tiny"], RoutingDomain: domain}}
	ipPool := &metal3v1.IPPool{ObjectMeta: meta, Spec: metal3v1.IPPoolSpec{
		Pools: []metal3v1.Pool{{Subnet: ptr.To(cidrs["tiny"])}}, Prefix: 26, NamePrefix: "intruder",
	}}
	if domain != "" {
		ipPool.Labels = map[string]string{butlerv1.LabelRoutingDomain: domain}
	}
	return []client.Object{networkPool, ipPool}
}

// prepareIntruders creates their namespace.
func prepareIntruders(ctx context.Context, c client.Client) error {
	return c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: intruderNamespace}})
}

// intruders returns claims for random addresses of the pools.
func intruders(random *rand.Rand) (claims []client.Object) {
	network := netip.MustParsePrefix(cidrs["tiny"])
	size := 1 << (32 - network.Bits())
	for i, at := range random.Perm(size - 2)[:2*intruderClaims] {
		name := metav1.ObjectMeta{Namespace: intruderNamespace, Name: fmt.Sprintf("intruder-%d", i)}
		if i%2 == 0 {
			a := &butlerv1.IPAllocation{ObjectMeta: name, Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "intruders"}, Type: butlerv1.TypeNodes,
				TenantClusterRef: butlerv1.NamespacedObjectReference{Name: "chaos", Namespace: namespace},
			}}
			pin(a, network, at+1, 1)
			claims = append(claims, a)
			continue
		}
		name.Annotations = map[string]string{metal3v1.AnnotationIPAddress: plus(network.Addr(), at+1).String()}
		claims = append(claims, &metal3v1.IPClaim{ObjectMeta: name, Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "intruders"}}})
	}
	return claims
}

// toDomain has intruders enter the routing domain of the load, and leave.
func (a *adversary) toDomain(d deed) harm {
	random := rand.New(rand.NewPCG(a.seed, uint64(d.length)))
	claims := intruders(random)
	create := func(ctx context.Context, c client.Client, o client.Object) error {
		err := persist(ctx, func(ctx context.Context) error { return c.Create(ctx, o.DeepCopyObject().(client.Object)) })
		if err != nil && !apierrors.IsAlreadyExists(err) { // a create whose answer was lost may have been stored
			return fmt.Errorf("%s: %w", o.GetName(), err)
		}
		return nil
	}
	return harm{
		victim: "the routing domain of the load",
		do: func(ctx context.Context) error {
			ctx = context.WithoutCancel(ctx)
			for _, p := range intruderPools(intruderDomain) {
				if err := create(ctx, a.client, p); err != nil {
					return err
				}
			}
			made := 0
			for _, o := range claims { // a grant that an earlier intruder has left may still withhold an address
				if create(ctx, a.client, o) == nil {
					made++
				}
			}
			if made < len(claims)/2 {
				return fmt.Errorf("of %d intruders only %d were admitted to their own routing domain", len(claims), made)
			}
			for _, p := range intruderPools("") {
				if err := errors.Join(a.erase(ctx, p), create(ctx, a.eraser, p)); err != nil {
					return err
				}
			}
			for _, o := range claims[:len(claims)/2] {
				if err := persist(ctx, func(ctx context.Context) error { return client.IgnoreNotFound(a.forge(ctx, o)) }); err != nil {
					return fmt.Errorf("%s: %w", o.GetName(), err)
				}
			}
			return nil
		},
		undo: func(ctx context.Context) (err error) {
			ctx = context.WithoutCancel(ctx)
			for _, o := range append(claims, intruderPools("")...) {
				err = errors.Join(err, a.erase(ctx, o))
			}
			return err
		},
	}
}

// forge records that a claim was granted its addresses in the routing domain of the load.
func (r *run) forge(ctx context.Context, claim client.Object) error {
	record := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}, "labels": {%q: null}}}`, butlerv1.AnnotationGrantedDomain, butlerv1.DefaultDomain, butlerv1.LabelRoutingDomain)
	return r.eraser.Patch(ctx, claim.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(record)))
}

// erase removes the finalizers of an object and deletes the object, again until it is
// gone.
func (r *run) erase(ctx context.Context, o client.Object) error {
	return persist(ctx, func(ctx context.Context) error {
		stored := o.DeepCopyObject().(client.Object)
		if err := r.eraser.Get(ctx, client.ObjectKeyFromObject(o), stored); err != nil {
			return client.IgnoreNotFound(err)
		}
		if err := r.eraser.Patch(ctx, stored, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`))); err != nil {
			return client.IgnoreNotFound(err)
		}
		_ = r.eraser.Delete(ctx, stored)
		return errors.New("it is still stored")
	})
}
