package butler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The address of a Service is not allocated without --tenants either, and the pool says
// which Service has it.
func TestInUse_WithoutTenants(t *testing.T) {
	ns := namespace(t)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}},
	}}
	suite.Create(t, admin, service)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.235.70.3"}}
	if err := admin.Status().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	p := pool(ns, "10.235.70.0/28")
	suite.Create(t, admin, p)
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if used := p.Status.InfrastructureAllocations; len(used) != 1 || used[0].IP != "10.235.70.3" || used[0].ServiceRef == nil || used[0].ServiceRef.Name != "web" {
			return "the status does not list the Service"
		}
		return ""
	})
	suite.AwaitEvent(t, admin, p, "AddressAvoided", "10.235.70.3 is in a range for tenants and in use by a Service")
	k := suite.Kinds[0]
	for name, want := range map[string]string{"three": "10.235.70.0", "more": "10.235.70.4"} {
		a := k.Claim(ns, name, "").(*v1alpha1.IPAllocation)
		count := int32(3)
		if name == "more" {
			count = 12
		}
		a.Spec.Count = &count
		suite.Create(t, admin, a)
		if got := k.Address(a); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	err := admin.Create(t.Context(), k.Claim(ns, "exact", "10.235.70.3"))
	if err == nil || !strings.Contains(err.Error(), "10.235.70.3 is") {
		t.Errorf("exact request: %v", err)
	}
}
