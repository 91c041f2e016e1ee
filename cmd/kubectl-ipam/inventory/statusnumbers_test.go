package inventory

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// A pool has hidden owners if its status has fewer free addresses than the inventory, and
// some claims were not read.
func TestHiddenOwners(t *testing.T) {
	now := metav1.Now().Time
	networkPool := func(total, available, granted int64) metav1.Object {
		return &butlerv1.NetworkPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "1"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/24"},
			Status: butlerv1.NetworkPoolStatus{TotalIPs: total, AvailableIPs: available, GrantedIPs: granted},
		}
	}
	ipPool := &metal3v1.IPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "1"},
		Spec:       metal3v1.IPPoolSpec{Pools: []metal3v1.Pool{{Start: new(metal3v1.IP("10.1.0.1")), End: new(metal3v1.IP("10.1.0.20"))}}},
		Status:     metal3v1.IPPoolStatus{AvailableIPCount: new(int64(7))},
	}
	proxyPool := &novaedgev1.ProxyIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", UID: "pool", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.2.0.0/28"}},
		Status: novaedgev1.ProxyIPPoolStatus{Available: 2, Allocated: 14},
	}
	for name, test := range map[string]struct {
		pool    metav1.Object
		readAll bool
		want    string
	}{
		"NetworkPool, all owned":             {pool: networkPool(256, 0, 0), want: "the status has 0 free: claims that you may not list own the others"},
		"NetworkPool, some owned":            {pool: networkPool(256, 200, 6), want: "the status has 200 free: claims that you may not list own the others"},
		"NetworkPool, every claim read":      {pool: networkPool(256, 0, 0), readAll: true},
		"NetworkPool, equal numbers":         {pool: networkPool(256, 256, 0)},
		"NetworkPool, only grants in status": {pool: networkPool(256, 246, 10), want: "the status has 246 free: 10 are granted, or owned by claims that you may not list"},
		"NetworkPool without status":         {pool: networkPool(0, 0, 0)},
		"IPPool":                             {pool: ipPool, want: "the status has 7 free: claims that you may not list own the others"},
		"ProxyIPPool":                        {pool: proxyPool, want: "the status has 2 free: claims that you may not list own the others"},
	} {
		t.Run(name, func(t *testing.T) {
			i := New(now, nil)
			i.Add(test.pool)
			if !test.readAll {
				i.LeaveOut(butler.ResourceIPAllocation, "ns")
			}
			if got := i.NoteOfHiddenOwners(i.Pools()[0]); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// A restricted inventory counts the claims that its reader may not list.
func TestHiddenOwners_OfRestrictedInventory(t *testing.T) {
	i := NewRestricted(metav1.Now().Time, func(Key) bool { return true })
	i.Add(&butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "1"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/24"},
		Status: butlerv1.NetworkPoolStatus{TotalIPs: 256},
	})
	i.LeaveOut(butler.ResourceIPAllocation, "ns")
	if note := i.NoteOfHiddenOwners(i.Pools()[0]); note != "" {
		t.Error(note)
	}
}
