package butler_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// poolWith is a NetworkPool with a spec written in YAML.
func poolWith(t *testing.T, spec string) *v1alpha1.NetworkPool {
	t.Helper()
	p := &v1alpha1.NetworkPool{}
	p.Namespace, p.Name = "butler-system", "vlan40-pool"
	read(t, spec, &p.Spec)
	return p
}

// claimWith is an IPAllocation written in YAML; what it does not say is valid.
func claimWith(t *testing.T, object string) *v1alpha1.IPAllocation {
	t.Helper()
	a := &v1alpha1.IPAllocation{}
	a.Namespace, a.Name = "butler-system", "my-cluster-lb"
	a.Spec = v1alpha1.IPAllocationSpec{
		PoolRef:          v1alpha1.LocalObjectReference{Name: "vlan40-pool"},
		TenantClusterRef: v1alpha1.NamespacedObjectReference{Namespace: "team-backend", Name: "my-cluster"},
		Type:             v1alpha1.TypeLoadBalancer,
	}
	read(t, object, a)
	return a
}

func read(t *testing.T, text string, into any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
}

func ranges(t *testing.T, texts ...string) []allocator.Range {
	t.Helper()
	var rs []allocator.Range
	for _, text := range texts {
		r, err := allocator.ParseRange(text)
		if err != nil {
			t.Fatal(err)
		}
		rs = append(rs, r)
	}
	return rs
}

func messages(errs field.ErrorList) []string {
	var texts []string
	for _, err := range errs {
		texts = append(texts, err.Error())
	}
	return texts
}
