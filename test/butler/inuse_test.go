package butler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
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

// warnings collects the warnings of responses.
type warnings struct {
	mu   sync.Mutex
	text string
}

// HandleWarningHeader implements rest.WarningHandler.
func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text += text + "\n"
}

// take returns the warnings since the last call.
func (w *warnings) take() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := w.text
	w.text = ""
	return text
}

// The address of a Node is avoided in every routing domain as long as no pool is in the
// default one, then in the default one alone, and after a change of the flag in the named
// one alone. The status of the pools follows.
func TestInUse_RoutingDomainOfTheCluster(t *testing.T) {
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--shutdown-delay=0s"}})
	var warned warnings
	warns, err := suite.NewClient(s, func(config *rest.Config) { config.WarningHandler = &warned })
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	suite.Create(t, c, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.70.0.5"}}
	if err := c.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	ns := suite.CreateNamespace(t, c)
	create := func(name, domain string, wantWarned ...string) {
		t.Helper()
		p := pool(ns, "10.70.0.0/28")
		p.Name, p.Spec.RoutingDomain = name, domain
		warned.take()
		suite.Create(t, warns, p)
		text := warned.take()
		for _, want := range wantWarned {
			if !strings.Contains(text, want) {
				t.Errorf("create of pool %s warned %q, want %q", name, text, want)
			}
		}
		if got := strings.Contains(text, "--cluster-routing-domain"); got != (len(wantWarned) > 0) {
			t.Errorf("create of pool %s warned %q", name, text)
		}
	}
	// awaitUse waits until the status of a pool has the Node or not, and requests its
	// address.
	awaitUse := func(name string, inUse bool) {
		t.Helper()
		p := pool(ns, "")
		p.Name = name
		suite.AwaitObject(t, c, p, func(p *v1alpha1.NetworkPool) string {
			if list := p.Status.InfrastructureAllocations; p.Status.TotalIPs == 0 || (len(list) == 1) != inUse || len(list) > 1 {
				return fmt.Sprintf("pool %s has %d addresses and lists %v, want the Node: %t", name, p.Status.TotalIPs, list, inUse)
			}
			return ""
		})
		a := claim(ns, "exact-"+name, 0)
		a.Spec.PoolRef.Name, a.Spec.PinnedRange = name, &v1alpha1.PinnedIPRange{StartAddress: "10.70.0.5", EndAddress: "10.70.0.5"}
		if inUse {
			suite.RequireDenied(t, c.Create(t.Context(), a), 422, "10.70.0.5 is")
			return
		}
		suite.Eventually(t, 10*time.Second, func(context.Context) error { return c.Create(t.Context(), a) }) // the status is observed a little later
		readyWith(t, c, a, "10.70.0.5-10.70.0.5")
		suite.Delete(t, c, a)
		suite.AwaitGone(t, c, a)
	}
	create("red", "red")
	awaitUse("red", true)
	create("blue", "blue")
	awaitUse("blue", true)
	create("default", "", "is the first in the default routing domain", "(blue, red)", "chart value clusterRoutingDomain")
	awaitUse("red", false)
	awaitUse("blue", false)
	awaitUse("default", true)
	create("second", "")
	first := s.Managers()[0]
	if _, err := s.AddManager(t.Context(), "--cluster-routing-domain=red"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Terminate(), first.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	awaitUse("red", true)
	awaitUse("default", false)
	awaitUse("blue", false)
	create("green", "green")
}
