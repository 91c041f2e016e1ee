package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestBlocksOf_ReadsAllocations(t *testing.T) {
	count := int32(2)
	want := &v1alpha1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "butler-system", Name: "team-x-mycluster-lb-1",
			Labels: map[string]string{
				"butler.butlerlabs.dev/team":            "team-x",
				"butler.butlerlabs.dev/tenant":          "mycluster",
				"butler.butlerlabs.dev/network-pool":    "vlan40-pool",
				"butler.butlerlabs.dev/allocation-type": "loadbalancer",
				"butler.butlerlabs.dev/allocation-role": "growth",
				"app.kubernetes.io/managed-by":          "butler-ipam",
			},
			Annotations: map[string]string{"butler.butlerlabs.dev/tenant-uid": "a1b2"},
		},
		Spec: v1alpha1.IPAllocationSpec{
			PoolRef:          v1alpha1.LocalObjectReference{Name: "vlan40-pool"},
			TenantClusterRef: v1alpha1.NamespacedObjectReference{Namespace: "team-x", Name: "mycluster"},
			Type:             v1alpha1.TypeLoadBalancer,
			Count:            &count,
		},
	}
	if diff := cmp.Diff(want, plan.NewAllocation(tenant, v1alpha1.TypeLoadBalancer, "growth", "butler-system", "team-x-mycluster-lb-1", "vlan40-pool", 2)); diff != "" {
		t.Errorf("allocation (-want +got):\n%s", diff)
	}
}

func TestOwns_ComparesReferenceAndUID(t *testing.T) {
	changed := func(change func(*v1alpha1.IPAllocation)) v1alpha1.IPAllocation {
		a := allocation(t, "x", "initial", "10.40.0.1")
		change(&a)
		return a
	}
	cases := map[string]struct {
		allocation v1alpha1.IPAllocation
		want       bool
	}{
		"created for the tenant":           {changed(func(*v1alpha1.IPAllocation) {}), true},
		"not recorded yet":                 {changed(func(a *v1alpha1.IPAllocation) { a.Annotations = nil }), true},
		"of an earlier tenant of the name": {changed(func(a *v1alpha1.IPAllocation) { a.Annotations[v1alpha1.AnnotationTenantUID] = "c3d4" }), false},
		"of another namespace":             {changed(func(a *v1alpha1.IPAllocation) { a.Spec.TenantClusterRef.Namespace = "team" }), false},
		"labels and name of the tenant, reference of another": {changed(func(a *v1alpha1.IPAllocation) {
			a.Spec.TenantClusterRef = v1alpha1.NamespacedObjectReference{Namespace: "team", Name: "x-mycluster"}
		}), false},
	}
	for name, tc := range cases {
		if got := len(plan.BlocksOf(tenant, []v1alpha1.IPAllocation{tc.allocation})) == 1; got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

func TestBlocksOf_FindsRoleByNameWithoutLabel(t *testing.T) {
	cases := map[string]struct {
		name, label string
		pinned      bool
		growth      bool
	}{
		"initial":                        {name: "team-x-mycluster-lb"},
		"growth":                         {name: "team-x-mycluster-lb-1", growth: true},
		"growth, two digits":             {name: "team-x-mycluster-lb-12", growth: true},
		"growth, zero":                   {name: "team-x-mycluster-lb-0", growth: true},
		"other name":                     {name: "legacy"},
		"suffix that is no number":       {name: "team-x-mycluster-lb-abc"},
		"pinned, name of a growth block": {name: "team-x-mycluster-lb-1", pinned: true},
		"labelled initial":               {name: "team-x-mycluster-lb-1", label: "initial"},
		"labelled growth":                {name: "legacy", label: "growth", growth: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := allocation(t, tc.name, tc.label, "10.40.0.1")
			if tc.label == "" {
				delete(a.Labels, v1alpha1.LabelAllocationRole)
			}
			if tc.pinned {
				pinned(&a)
			}
			blocks := plan.BlocksOf(tenant, []v1alpha1.IPAllocation{a})
			if blocks[0].Growth != tc.growth {
				t.Errorf("want growth %t, got %t", tc.growth, blocks[0].Growth)
			}
			if blocks[0].NeverReleased != tc.pinned {
				t.Errorf("want NeverReleased %t, got %t", tc.pinned, blocks[0].NeverReleased)
			}
		})
	}
}
