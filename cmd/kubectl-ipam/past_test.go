package main

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/historyrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// missingAllocations returns the allocation of a claim that the records lack: the claim
// has owned its addresses since the time in its status.
func TestMissingAllocations(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	owned, err := allocator.ParseRange("10.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	i := inventory.New(now, nil)
	i.Add(&butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/25"}})
	since := metav1.NewTime(now.Add(-time.Hour))
	for n, name := range []string{"recorded", "older", "waits"} {
		address := fmt.Sprint("10.0.0.", n)
		a := &butlerv1.IPAllocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team", Name: "web"},
				Type: butlerv1.TypeNodes, PinnedRange: &butlerv1.PinnedIPRange{StartAddress: address, EndAddress: address},
			},
			Status: butlerv1.IPAllocationStatus{AllocatedAt: &since},
		}
		if name != "waits" {
			a.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionReady, Status: metav1.ConditionTrue}}
		}
		i.Add(a)
	}
	records := []historyrecord.Record{{Event: historyrecord.EventAllocated, UID: "recorded", Time: now}, {Event: historyrecord.EventReleased, UID: "older", Time: now.Add(-time.Minute), Ranges: []allocator.Range{owned}}}
	missing := missingAllocations(i, records)
	if len(missing) != 1 || missing[0].UID != "older" || !missing[0].Time.Equal(since.Time) || missing[0].Pool != "NetworkPool/ns/pool" {
		t.Fatalf("missing: %+v", missing)
	}
	h := historyrecord.NewHistory(append(records, missing...))
	for minute, want := range map[int]int{-70: 0, -30: 1, -1: 0} {
		if owners := h.Owners("", owned, historyrecord.Period{Begin: now.Add(time.Duration(minute) * time.Minute), End: now.Add(time.Duration(minute)*time.Minute + 1)}); len(owners) != want {
			t.Errorf("%d minutes ago: %+v, want %d owners", -minute, owners, want)
		}
	}
}
