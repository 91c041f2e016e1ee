package cluster

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// An installation that is kept is older than the inventories of the checks: an address in
// use is a finding only if the installation before shows it too.
func TestKept_AddressInUse(t *testing.T) {
	i := inventory.New(time.Now(), nil)
	i.Add(&butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pool", UID: "pool", ResourceVersion: "1"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.0/24"}})
	address, err := allocator.ParseRange("10.0.0.5")
	if err != nil {
		t.Fatal(err)
	}
	var last *kept
	for n, tc := range []struct {
		uid   string // of the Service that uses the address; "" for none
		found bool
	}{{"1", false}, {"1", true}, {"2", false}, {"", false}, {"2", false}, {"2", true}} {
		k := &kept{}
		if last != nil {
			k.before = last.firstSeen()
		}
		last = k
		for range 2 { // each check of the installation has the same result
			h := health.Report{}
			if tc.uid != "" {
				h.Findings = health.CheckUses(i, nil, []health.Use{{Address: address, By: "Service ns/web", UID: tc.uid, Service: "ns/web"}})
			}
			k.confirm(&h, i)
			var notChecked []string
			if tc.uid != "" && !tc.found {
				notChecked = []string{"1 address of Nodes and Services (until the next read of both)"}
			}
			if len(h.Findings) != map[bool]int{true: 1}[tc.found] || !slices.Equal(h.NotChecked, notChecked) {
				t.Errorf("read %d: %+v, want found: %t", n, h, tc.found)
			}
		}
	}
}
