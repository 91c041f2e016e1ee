package claims

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// Addresses of Services are not allocated to claims of any kind in the routing domain of
// the cluster's network: neither those in the status nor external addresses. In another
// routing domain the same addresses are not in use.
func TestInUse_AddressesOfServices(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	at := func(kind, last int) string { return fmt.Sprintf("10.233.%d.%d", kind, last) } // the pools share the default routing domain
	var inUse []string
	for n := range suite.Kinds {
		service.Spec.ExternalIPs = append(service.Spec.ExternalIPs, at(n, 2))
		inUse = append(inUse, at(n, 1), at(n, 2))
	}
	suite.CreateForTest(t, admin, service)
	for n := range suite.Kinds {
		service.Status.LoadBalancer.Ingress = append(service.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: at(n, 1)})
	}
	if err := admin.Status().Update(t.Context(), service); err != nil {
		t.Fatal(err)
	}
	awaitUses := func(ns string, want ...string) {
		t.Helper()
		p := &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}}
		suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
			var got []string
			for _, e := range p.Status.InfrastructureAllocations {
				got = append(got, e.IP)
			}
			if p.Status.ObservedGeneration == 0 || fmt.Sprint(got) != fmt.Sprint(want) {
				return fmt.Sprintf("the status lists %v, want %v", got, want)
			}
			return ""
		})
	}
	all := inDefaultDomain(suite.Kinds[0].Pool(ns, at(0, 0), at(len(suite.Kinds), 255)))
	suite.Create(t, admin, all)
	awaitUses(ns, inUse...) // the ledger has the addresses by now
	waiting := map[string]client.Object{}
	for n, k := range suite.Kinds {
		ns := suite.CreateNamespace(t, admin)
		suite.Create(t, admin, inDefaultDomain(k.Pool(ns, at(n, 0), at(n, 4))))
		k.Gets(t, admin, k.Claim(ns, "a", ""), at(n, 0)) // at once, before a status of the pool lists the addresses
		k.Gets(t, admin, k.Claim(ns, "b", ""), at(n, 3))
		k.Gets(t, admin, k.Claim(ns, "c", ""), at(n, 4))
		last := k.Claim(ns, "d", "")
		if err := admin.Create(t.Context(), last); (err != nil) != k.Denied || k.Address(last) != "" {
			t.Errorf("%s beyond the last free address: address %q, error %v", k.Name, k.Address(last), err)
		}
		waiting[k.Name] = last
		err := admin.Create(t.Context(), k.Claim(ns, "exact", at(n, 2)), client.DryRunAll)
		if k.Denied && (err == nil || !strings.Contains(err.Error(), "in use by services of the cluster") && !strings.Contains(err.Error(), "is used by the platform")) {
			t.Errorf("%s with an exact request: %v", k.Name, err)
		}
		elsewhere := suite.CreateNamespace(t, admin)
		suite.Create(t, admin, k.Pool(elsewhere, at(n, 0), at(n, 4)))
		k.Gets(t, admin, k.Claim(elsewhere, "exact", at(n, 2)), at(n, 2))
		if n == 0 {
			awaitUses(elsewhere)
		}
	}
	suite.Delete(t, admin, service)
	awaitUses(ns)
	for n, k := range suite.Kinds {
		if !k.Denied {
			k.Binds(t, admin, waiting[k.Name], at(n, 1))
		}
	}
}

// inDefaultDomain moves a pool that is not stored into the default routing domain.
func inDefaultDomain(pool client.Object) client.Object {
	if p, is := pool.(*v1alpha1.NetworkPool); is {
		p.Spec.RoutingDomain = ""
	}
	pool.SetLabels(nil)
	return pool
}

// The address of a ProxyVIP that the manager made for a Service has one user, although
// the status of the Service has it: a lost ProxyVIP gets it again.
func TestInUse_ServiceWithAProxyVIP(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	k := suite.Kinds[4]
	suite.Create(t, admin, k.Pool(ns, "10.234.0.5", "10.234.0.9"))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "web", Annotations: map[string]string{novaedgev1.AnnotationVIPMode: "L2ARP", novaedgev1.AnnotationAddressPool: ns}}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	suite.CreateForTest(t, admin, service)
	awaitAddress := func() {
		t.Helper()
		suite.AwaitObject(t, admin, service, func(s *corev1.Service) string {
			if in := s.Status.LoadBalancer.Ingress; len(in) != 1 || in[0].IP != "10.234.0.5" {
				return fmt.Sprintf("the Service has %v", s.Status.LoadBalancer.Ingress)
			}
			return ""
		})
	}
	awaitAddress()
	vip := k.Claim(ns, "", "")
	vip.SetName("svc-" + ns + ".web")
	vip = suite.Read(t, admin, vip)
	uid := vip.GetUID()
	suite.Delete(t, admin, vip)
	suite.AwaitObject(t, admin, vip, func(o client.Object) string {
		if o.GetUID() == uid || !k.Bound(o) || k.Address(o) != "10.234.0.5" {
			return fmt.Sprintf("ProxyVIP %s has %q", o.GetUID(), k.Address(o))
		}
		return ""
	})
	awaitAddress()
}
