package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// quietLimit is by when all grants that came to nothing have ended: their life, and what
// it takes to find out.
const quietLimit = 2*grantExpiry + 30*time.Second

// quiet waits until what is stored and what the ledger counts are the same, and gives the
// differences that stay.
func (r *run) quiet(ctx context.Context) (differences []string) {
	limit, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	for {
		found := r.differences(limit)
		if limit.Err() != nil && differences != nil {
			return differences // what was found in time says more than how the last look ended
		}
		if differences = found; len(differences) == 0 {
			return nil
		}
		select {
		case <-limit.Done():
			return differences
		case <-time.After(time.Second):
		}
	}
}

func (r *run) differences(ctx context.Context) (found []string) {
	v, err := r.store.Read(ctx)
	if err != nil {
		return []string{err.Error()}
	}
	if len(v.Entries) > 0 {
		found = append(found, fmt.Sprintf("the journal still holds %d grants", len(v.Entries)))
	}
	var pools v1alpha1.NetworkPoolList
	if err := r.client.List(ctx, &pools, client.InNamespace(namespace)); err != nil {
		return append(found, err.Error())
	}
	all, err := r.claims(ctx)
	if err != nil {
		return append(found, err.Error())
	}
	owned := map[netip.Addr]int{} // address -> objects that have it
	for _, o := range all {
		for at := range addressesOf(o).each {
			owned[at]++
		}
	}
	left, err := r.orphans(ctx, all)
	if err != nil {
		return append(found, err.Error())
	}
	for name, o := range left {
		found = append(found, fmt.Sprintf("IPAddress %s has no claim: %s", name, r.history.lastOf(o.claim, o.revision)))
		owned[o.at]++
	}
	found = append(found, r.movedDifferences(ctx, owned)...)
	for _, o := range all {
		if o.GetDeletionTimestamp() != nil {
			found = append(found, o.GetName()+" is still going")
		}
		switch ready, flagged := stateOf(o); {
		case r.waitsWithReason(o, owned): // and may be flagged
		case lacks(o, addressesOf(o)):
			found = append(found, o.GetName()+" has no range, or not all")
		case !ready && !flagged:
			found = append(found, fmt.Sprintf("%s is not Ready: %s", o.GetName(), messageOf(o)))
		case flagged && !shared(owned, addressesOf(o)):
			found = append(found, fmt.Sprintf("%s is flagged, and nobody else has an address of its range, %s: %s", o.GetName(), addressesOf(o), messageOf(o)))
		}
	}
	for _, p := range pools.Items {
		prefix, want := netip.MustParsePrefix(p.Spec.CIDR), int64(0)
		for at := range owned {
			if prefix.Contains(at) {
				want++
			}
		}
		if p.DeletionTimestamp != nil && want == 0 {
			found = append(found, "pool "+p.Name+" is still going, and none of its addresses is owned")
		}
		if p.Status.AllocatedIPs != want {
			found = append(found, fmt.Sprintf("pool %s counts %d allocated addresses, its objects hold %d", p.Name, p.Status.AllocatedIPs, want))
		}
	}
	return slices.Concat(found, r.vipDifferences(ctx, owned), r.serviceDifferences(ctx, owned))
}

// messageOf returns what the status of a claim says of its state.
func messageOf(o client.Object) string {
	message := func(conditions []metav1.Condition, name string) string {
		if c := meta.FindStatusCondition(conditions, name); c != nil {
			return c.Reason + ": " + c.Message
		}
		return "no condition"
	}
	switch o := o.(type) {
	case *v1alpha1.IPAllocation:
		return message(o.Status.Conditions, v1alpha1.ConditionReady)
	case *novaedgev1.ProxyVIP:
		return message(o.Status.Conditions, novaedgev1.ConditionBound)
	case *ipamv1.IPAddressClaim:
		return message(o.Status.Conditions, clusterv1.ReadyCondition)
	case *metal3v1.IPClaim:
		if o.Status.ErrorMessage != nil {
			return *o.Status.ErrorMessage
		}
	}
	return "no message"
}

// claims are those that are stored, of every kind.
func (r *run) claims(ctx context.Context) (all []client.Object, err error) {
	var allocations v1alpha1.IPAllocationList
	var vips novaedgev1.ProxyVIPList
	var ipClaims metal3v1.IPClaimList
	var addressClaims ipamv1.IPAddressClaimList
	within := client.InNamespace(namespace)
	err = errors.Join(r.client.List(ctx, &allocations, within), r.client.List(ctx, &vips), r.client.List(ctx, &ipClaims, within), r.client.List(ctx, &addressClaims, within))
	if err != nil {
		return nil, err
	}
	for i := range ipClaims.Items {
		all = append(all, &ipClaims.Items[i])
	}
	for i := range addressClaims.Items {
		all = append(all, &addressClaims.Items[i])
	}
	for i := range allocations.Items {
		all = append(all, &allocations.Items[i])
	}
	for i := range vips.Items {
		all = append(all, &vips.Items[i])
	}
	return all, nil
}

// orphan is an IPAddress whose claim is gone.
type orphan struct {
	claim    string
	at       netip.Addr
	revision string // of its last version
}

// orphans are those that are stored, by name.
func (r *run) orphans(ctx context.Context, claims []client.Object) (map[string]orphan, error) {
	var metal3 metal3v1.IPAddressList
	var cluster ipamv1.IPAddressList
	within := client.InNamespace(namespace)
	if err := errors.Join(r.client.List(ctx, &metal3, within), r.client.List(ctx, &cluster, within)); err != nil {
		return nil, err
	}
	stored := map[string]bool{}
	for _, o := range claims {
		stored[fmt.Sprintf("%T %s", o, o.GetName())] = true
	}
	left := map[string]orphan{}
	for _, a := range metal3.Items {
		if !stored[fmt.Sprintf("%T %s", &metal3v1.IPClaim{}, a.Spec.Claim.Name)] {
			left[a.Name+" of Metal3"] = orphan{a.Spec.Claim.Name, netip.MustParseAddr(string(a.Spec.Address)), a.ResourceVersion}
		}
	}
	for _, a := range cluster.Items {
		if !stored[fmt.Sprintf("%T %s", &ipamv1.IPAddressClaim{}, a.Spec.ClaimRef.Name)] {
			left[a.Name+" of Cluster API"] = orphan{a.Spec.ClaimRef.Name, netip.MustParseAddr(a.Spec.Address), a.ResourceVersion}
		}
	}
	return left, nil
}

// vipDifferences are those between what is owned and what the pool of ProxyVIPs counts.
func (r *run) vipDifferences(ctx context.Context, owned map[netip.Addr]int) []string {
	var p novaedgev1.ProxyIPPool
	if err := r.client.Get(ctx, client.ObjectKey{Name: vipPool}, &p); err != nil {
		return []string{err.Error()}
	}
	want := int64(0)
	for at := range owned {
		if offered(at) {
			want++
		}
	}
	if p.Status.Allocated != want {
		return []string{fmt.Sprintf("pool %s counts %d allocated addresses, the objects of all kinds hold %d", vipPool, p.Status.Allocated, want)}
	}
	return nil
}

// shared tells whether several have one of these addresses.
func shared(owned map[netip.Addr]int, some addresses) bool {
	for at := range some.each {
		if owned[at] > 1 {
			return true
		}
	}
	return false
}
