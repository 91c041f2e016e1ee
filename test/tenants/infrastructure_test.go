package tenants

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// uses waits until a pool shows exactly these addresses of the platform.
func uses(t *testing.T, p *v1alpha1.NetworkPool, want ...v1alpha1.InfrastructureAllocation) {
	t.Helper()
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
		if p.Status.InfrastructureConsumedIPs != int64(len(want)) {
			return fmt.Sprintf("infrastructureConsumedIPs is %d, want %d: %+v", p.Status.InfrastructureConsumedIPs, len(want), p.Status.InfrastructureAllocations)
		}
		return cmp.Diff(want, p.Status.InfrastructureAllocations)
	})
}

func nodeWith(t *testing.T, name string, addresses ...string) *corev1.Node {
	t.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	suite.CreateForTest(t, admin, n)
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	if err := admin.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInfrastructure_InPoolStatus(t *testing.T) {
	installMachines(t)
	p := read[v1alpha1.NetworkPool](t, fmt.Sprintf(`{metadata: {namespace: %s, name: platform}, spec: {cidr: 10.50.0.0/24, reserved: [{cidr: 10.50.0.16/28}],
		tenantAllocation: {ranges: [{start: 10.50.0.64, end: 10.50.0.127}]}}}`, cluster.Namespace()))
	suite.CreateForTest(t, admin, p)
	node := nodeWith(t, "platform-0", "10.50.0.9", "10.50.0.200")
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: "ingress"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 443}}},
	}
	suite.CreateForTest(t, admin, service)
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.50.0.17"}}
	if err := admin.Status().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	machine := machineAt(cluster.Namespace(), "platform-0")
	suite.CreateForTest(t, admin, machine)
	if err := unstructured.SetNestedSlice(machine.Object, []any{map[string]any{"type": "InternalIP", "address": "10.50.0.9"}}, "status", "addresses"); err != nil {
		t.Fatal(err)
	}
	if err := admin.Status().Update(t.Context(), machine); err != nil {
		t.Fatal(err)
	}
	onNode := func(ip string) v1alpha1.InfrastructureAllocation {
		return v1alpha1.InfrastructureAllocation{IP: ip, Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "platform-0"}}
	}
	both := onNode("10.50.0.9")
	both.MachineRef = &v1alpha1.MachineReference{Namespace: cluster.Namespace(), Name: "platform-0"}
	ingress := v1alpha1.InfrastructureAllocation{
		IP: "10.50.0.17", Source: "metallb", ServiceRef: &v1alpha1.ServiceReference{Namespace: cluster.Namespace(), Name: "ingress"},
	}
	uses(t, p, both, ingress, onNode("10.50.0.200"))
	for _, o := range []client.Object{node, service, machine} {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	uses(t, p)
}

// Whoever asks the pool for it, by whichever API; and until it is given back.
func TestInfrastructure_AddressOfAClaim(t *testing.T) {
	p := pool(t, "claimed", "10.52.0.0/28", "10.52.0.0", "10.52.0.7")
	c := read[ipamv1.IPAddressClaim](t, fmt.Sprintf(`{metadata: {namespace: %s, name: claimed-node, annotations: {ipAddress: 10.52.0.1}}, spec: {poolRef: {apiGroup: butler.butlerlabs.dev, kind: NetworkPool, name: claimed}}}`, cluster.Namespace()))
	suite.CreateForTest(t, admin, c)
	nodeWith(t, "of-claim", "10.52.0.1")
	nodeWith(t, "of-nobody", "10.52.0.2")
	uses(t, p, v1alpha1.InfrastructureAllocation{IP: "10.52.0.2", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "of-nobody"}})
	free(t, p, 6)
	suite.Delete(t, admin, c)
	uses(t, p, v1alpha1.InfrastructureAllocation{IP: "10.52.0.1", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "of-claim"}},
		v1alpha1.InfrastructureAllocation{IP: "10.52.0.2", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "of-nobody"}})
	free(t, p, 6)
}

func TestInfrastructure_AddressInATenantRange(t *testing.T) {
	p := pool(t, "avoided", "10.51.0.0/28", "10.51.0.0", "10.51.0.7")
	node := nodeWith(t, "stray", "10.51.0.1")
	uses(t, p, v1alpha1.InfrastructureAllocation{IP: "10.51.0.1", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: "stray"}})
	hears(t, p, "AddressAvoided", "10.51.0.1 is in a range for tenants and in use by a Node or Machine")
	free(t, p, 7)
	claim := func(name string, count int) (*v1alpha1.IPAllocation, error) {
		a := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {poolRef: {name: avoided}, type: nodes, count: %d,
			tenantClusterRef: {namespace: elsewhere, name: none}}}`, cluster.Namespace(), name, count))
		return a, admin.Create(t.Context(), a)
	}
	a, err := claim("around", 6)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(context.Background(), a) })
	if a.Spec.PinnedRange.StartAddress != "10.51.0.2" {
		t.Errorf("got %+v, want the range behind the node", a.Spec.PinnedRange)
	}
	if _, err := claim("two", 2); err == nil || !strings.Contains(err.Error(), "exhausted") && !strings.Contains(err.Error(), "largest free block 1") {
		t.Errorf("one address is left, and two were asked for: %v", err)
	}
	// The machines of a tenant have its addresses, and nobody minds.
	own := nodeWith(t, "own", "10.51.0.4")
	if err := admin.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	uses(t, p)
	free(t, p, 2)
	if err := admin.Delete(t.Context(), own); err != nil {
		t.Fatal(err)
	}
}
