package main

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

// quietLimit is by when all grants that came to nothing have ended: their life, and what it takes to find out.
const quietLimit = 2*grantExpiry + 30*time.Second

func (r *run) journal(ctx context.Context) (journal.Version, error) {
	store, err := journal.NewLeaseStore(r.sandbox.Config(), sandbox.ManagerNamespace, time.Second)
	if err != nil {
		return journal.Version{}, err
	}
	return store.Read(ctx)
}

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
	v, err := r.journal(ctx)
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
	held := map[netip.Addr]bool{}
	for _, a := range allocations.Items {
		if a.DeletionTimestamp != nil {
			found = append(found, a.Name+" is still going")
		}
		if a.Spec.PinnedRange == nil {
			found = append(found, a.Name+" has no range")
			continue
		}
		if len(a.Status.Conditions) == 0 || a.Status.Conditions[0].Status != metav1.ConditionTrue && a.Status.Conditions[0].Reason != v1alpha1.ReasonAddressConflict {
			found = append(found, a.Name+" is not Ready")
		}
		last := netip.MustParseAddr(a.Spec.PinnedRange.EndAddress)
		for at := netip.MustParseAddr(a.Spec.PinnedRange.StartAddress); !last.Less(at); at = at.Next() {
			held[at] = true
		}
	}
	for _, p := range pools.Items {
		prefix, want := netip.MustParsePrefix(p.Spec.CIDR), int64(0)
		for at := range held {
			if prefix.Contains(at) {
				want++
			}
		}
		if p.Status.AllocatedIPs != want {
			found = append(found, fmt.Sprintf("pool %s counts %d allocated addresses, its objects hold %d", p.Name, p.Status.AllocatedIPs, want))
		}
	}
	return found
}
