package report

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

func newPool(name, cidr string) *butlerv1.NetworkPool {
	return &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: cidr, RoutingDomain: "prod"},
	}
}

// The pool of an owner is named whatever becomes of it, and pools that offer the
// addresses too are named apart.
func TestWho_NamesThePoolOfTheOwner(t *testing.T) {
	owner := &butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "web", ResourceVersion: "2", Labels: map[string]string{butlerv1.LabelRoutingDomain: "prod"}},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "a"}, PinnedRange: &butlerv1.PinnedIPRange{StartAddress: "10.0.0.2", EndAddress: "10.0.0.5"},
		},
		Status: butlerv1.IPAllocationStatus{Phase: butlerv1.PhaseAllocated},
	}
	for name, tt := range map[string]struct {
		pools []metav1.Object
		want  string
	}{
		"gone":                      {nil, "10.0.0.2-10.0.0.5 owned of NetworkPool ns/a, which does not exist, offered by []"},
		"gone, and another offers":  {[]metav1.Object{newPool("b", "10.0.0.0/29")}, "10.0.0.2-10.0.0.5 owned of NetworkPool ns/a, which does not exist, offered by [NetworkPool ns/b]"},
		"elsewhere":                 {[]metav1.Object{newPool("a", "10.9.0.0/29")}, "10.0.0.2-10.0.0.5 owned of NetworkPool ns/a, which does not offer it, offered by []"},
		"offers the first two only": {[]metav1.Object{newPool("a", "10.0.0.0/30")}, "10.0.0.2-10.0.0.3 owned of , offered by [NetworkPool ns/a]; 10.0.0.4-10.0.0.5 owned of NetworkPool ns/a, which does not offer it, offered by []"},
		"offers all":                {[]metav1.Object{newPool("a", "10.0.0.0/29")}, "10.0.0.2-10.0.0.5 owned of , offered by [NetworkPool ns/a]"},
	} {
		t.Run(name, func(t *testing.T) {
			i := inventory.New(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), nil)
			for _, o := range append(tt.pools, owner) {
				i.Add(o)
			}
			r, err := allocator.ParseRange("10.0.0.2-10.0.0.5")
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			for n, s := range WhoAnywhere(i, r, nil) {
				if n > 0 {
					got += "; "
				}
				pool := ""
				if s.OwnerPool != nil {
					pool = s.OwnerPool.String()
				}
				got += fmt.Sprintf("%s %s of %s, offered by %v", s.Range, s.State, pool, s.Pools)
			}
			if got != tt.want {
				t.Errorf("got %s, want %s", got, tt.want)
			}
		})
	}
}
