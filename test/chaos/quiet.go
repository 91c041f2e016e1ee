package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// quietLimit is by when all grants that came to nothing have ended: their life, and what it takes to find out.
const quietLimit = 2*grantExpiry + 30*time.Second

// quiet waits until what is stored and what the ledger counts are the same, and gives the differences that stay.
func (r *run) quiet(ctx context.Context) (differences []string) {
	limit, cancel := context.WithTimeout(ctx, quietLimit)
	defer cancel()
	for {
		differences = r.differences(limit)
		if len(differences) == 0 || limit.Err() != nil {
			return differences
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
	if len(v.Lines) > 0 {
		found = append(found, fmt.Sprintf("the journal still holds %d grants", len(v.Lines)))
	}
	var allocations v1alpha1.IPAllocationList
	var pools v1alpha1.NetworkPoolList
	if err := r.client.List(ctx, &allocations, client.InNamespace(namespace)); err != nil {
		return append(found, err.Error())
	}
	if err := r.client.List(ctx, &pools, client.InNamespace(namespace)); err != nil {
		return append(found, err.Error())
	}
	held := map[netip.Addr]int{} // address -> objects that have it
	for _, a := range allocations.Items {
		r := rangeOf(&a)
		if !r.IsValid() {
			found = append(found, a.Name+" has no range")
		}
		for at := range r.Addresses() {
			held[at]++
		}
	}
	for _, a := range allocations.Items {
		if a.DeletionTimestamp != nil {
			found = append(found, a.Name+" is still going")
		}
		ready := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
		switch {
		case ready == nil, ready.Status != metav1.ConditionTrue && ready.Reason != v1alpha1.ReasonAddressConflict:
			found = append(found, a.Name+" is not Ready")
		case ready.Status != metav1.ConditionTrue && !shared(held, rangeOf(&a)):
			found = append(found, a.Name+" is flagged, and nobody else has an address of its range")
		}
	}
	for _, p := range pools.Items {
		prefix, want := netip.MustParsePrefix(p.Spec.CIDR), int64(0)
		for at := range held {
			if prefix.Contains(at) {
				want++
			}
		}
		if p.DeletionTimestamp != nil && want == 0 {
			found = append(found, "pool "+p.Name+" is still going, and none of its addresses is held")
		}
		if p.Status.AllocatedIPs != want {
			found = append(found, fmt.Sprintf("pool %s counts %d allocated addresses, its objects hold %d", p.Name, p.Status.AllocatedIPs, want))
		}
	}
	return found
}

// shared tells whether several have an address of a range.
func shared(held map[netip.Addr]int, r allocator.Range) bool {
	for at := range r.Addresses() {
		if held[at] > 1 {
			return true
		}
	}
	return false
}
