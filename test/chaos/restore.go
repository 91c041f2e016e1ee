package main

import (
	"context"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// goneWithin bounds the wait for the end of what is to be restored.
const goneWithin = 5 * time.Second

// deletedWithin bounds the time for which a deletion is repeated: longer than the outages
// of the API server.
const deletedWithin = 30 * time.Second

// saved is what a backup has of an object: no UID, version, owners, finalizers or status.
func saved(o client.Object) client.Object {
	s := o.DeepCopyObject().(client.Object)
	s.SetUID("")
	s.SetResourceVersion("")
	s.SetOwnerReferences(nil)
	s.SetFinalizers(nil)
	s.SetManagedFields(nil)
	s.SetGeneration(0)
	s.SetCreationTimestamp(metav1.Time{})
	switch s := s.(type) {
	case *metal3v1.IPClaim:
		s.Status = metal3v1.IPClaimStatus{}
	case *ipamv1.IPAddressClaim:
		s.Status = ipamv1.IPAddressClaimStatus{}
	case *novaedgev1.ProxyVIP:
		s.Status = novaedgev1.ProxyVIPStatus{}
	case *butlerv1.NetworkPool:
		s.Status = butlerv1.NetworkPoolStatus{}
	case *novaedgev1.ProxyIPPool:
		s.Status = novaedgev1.ProxyIPPoolStatus{}
	case *metal3v1.IPPool:
		s.Status = metal3v1.IPPoolStatus{}
	}
	return s
}

// removeFinalizers is a person who does not wait for the manager.
func (w *worker) removeFinalizers(ctx context.Context, o client.Object) {
	_ = w.client.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"finalizers": null}}`)))
}

// restore loses some claims, with their address objects, and restores them in any order.
func (w *worker) restore(ctx context.Context) {
	var all []client.Object
	for range 1 + w.random.IntN(3) {
		if len(w.own) > 0 {
			all = append(all, w.lose(ctx)...)
		}
	}
	w.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	given := map[string]bool{} // the claims that have what they had
	for _, o := range all {
		if !isClaim(o) {
			_ = w.client.Create(ctx, o)
			continue
		}
		for w.owed != nil {
			w.repeat(ctx) // as anything else
		}
		w.restoring = true
		given[o.GetName()] = w.create(ctx, o).err == nil
		w.restoring = false
	}
	for _, o := range all { // a person puts right what the backup had wrong: another has it by now
		if claim := claimOf(o); claim != "" && !given[claim] {
			w.deleteAddressObject(ctx, o)
		}
	}
}

// deleteAddressObject deletes an address object and its finalizers, again while the API
// server fails. An object of the same name that belongs to another claim stays.
func (w *worker) deleteAddressObject(ctx context.Context, o client.Object) {
	for limit := time.Now().Add(deletedWithin); time.Now().Before(limit); pause(ctx) {
		stored := o.DeepCopyObject().(client.Object)
		err := w.client.Get(ctx, client.ObjectKeyFromObject(o), stored)
		if apierrors.IsNotFound(err) || err == nil && claimOf(stored) != claimOf(o) {
			return
		}
		if err != nil {
			continue
		}
		w.removeFinalizers(ctx, stored)
		if client.IgnoreNotFound(w.client.Delete(ctx, stored)) == nil {
			return
		}
	}
}

// lose saves a claim and its address object, and deletes them, with or without their
// finalizers.
func (w *worker) lose(ctx context.Context) (backup []client.Object) {
	i := w.random.IntN(len(w.own))
	o := w.own[i]
	if w.client.Get(ctx, client.ObjectKeyFromObject(o), o) != nil || o.GetGenerateName() != "" || !addressesOf(o).some() {
		return nil
	}
	lost := []client.Object{o}
	switch c := o.(type) {
	case *metal3v1.IPClaim:
		if c.Status.Address != nil {
			lost = append(lost, &metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Status.Address.Name}})
		}
	case *ipamv1.IPAddressClaim:
		if c.Status.AddressRef.Name != "" {
			lost = append(lost, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: c.Status.AddressRef.Name}})
		}
	case *novaedgev1.ProxyVIP:
	default:
		return nil
	}
	for _, l := range lost[1:] {
		if w.client.Get(ctx, client.ObjectKeyFromObject(l), l) != nil {
			return nil
		}
	}
	for _, l := range lost {
		backup = append(backup, saved(l))
	}
	hasty := w.random.IntN(2) == 0
	for _, l := range lost {
		if hasty {
			w.removeFinalizers(ctx, l)
		}
		if err := w.client.Delete(ctx, l.DeepCopyObject().(client.Object)); err != nil && !apierrors.IsNotFound(err) {
			return nil // it is tried again some time
		}
	}
	w.own = slices.Delete(w.own, i, i+1)
	for limit := time.Now().Add(goneWithin); time.Now().Before(limit); pause(ctx) {
		if apierrors.IsNotFound(w.client.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object))) {
			break
		}
	}
	return backup
}

// claimOf is the claim of an address object, "" for what is none.
func claimOf(o client.Object) string {
	switch o := o.(type) {
	case *metal3v1.IPAddress:
		return o.Spec.Claim.Name
	case *ipamv1.IPAddress:
		return o.Spec.ClaimRef.Name
	}
	return ""
}

func isClaim(o client.Object) bool { return claimOf(o) == "" }
