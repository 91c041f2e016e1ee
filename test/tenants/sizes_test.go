package tenants

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func TestInitialAllocation_Sizes(t *testing.T) {
	p := pool(t, "sizes", "10.46.0.0/24", "10.46.0.0", "10.46.0.7")
	pool(t, "sizes-small", "10.46.1.0/24", "10.46.1.0", "10.46.1.1")
	suite.Change(t, admin, p, func(p *v1alpha1.NetworkPool) {
		p.Spec.TenantAllocation.Defaults = &v1alpha1.AllocationDefaults{NodesPerTenant: 5, LBPoolPerTenant: 3}
	})
	provider(t, "sizes", `{mode: ipam, poolRefs: [{name: sizes}, {name: sizes-small}, {name: sizes-none}]}`, false)
	ns := suite.CreateNamespace(t, admin)

	c := tenant(t, ns, "pools-number", "sizes", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c, ns+"-pools-number-lb 10.46.0.0-10.46.0.2")
	suite.Change(t, admin, c, func(c *v1alpha1.TenantCluster) {
		c.Spec.Networking = &v1alpha1.TenantNetworking{LBPoolSize: ptr.To[int32](6)}
	})
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		const want = "spec.networking.lbPoolSize is 6, and the tenant has 3 addresses for load balancers"
		for _, is := range c.Status.Conditions {
			if is.Type == v1alpha1.ConditionNetworkReady && strings.Contains(is.Message, want) {
				return ""
			}
		}
		return "no condition says " + want
	})
	more := read[v1alpha1.IPAllocation](t, `{metadata: {namespace: `+cluster.Namespace()+`, name: more}, spec: {poolRef: {name: sizes}, type: loadbalancer, count: 3, tenantClusterRef: {namespace: `+ns+`, name: pools-number}}}`)
	suite.CreateForTest(t, admin, more)
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		for _, is := range c.Status.Conditions {
			if is.Type == v1alpha1.ConditionNetworkReady && is.Message == "loadbalancer 10.46.0.3-10.46.0.5, loadbalancer 10.46.0.0-10.46.0.2" {
				return ""
			}
		}
		return "the conditions do not name both ranges alone"
	})

	late := tenant(t, ns, "too-large", "sizes", ", networking: {lbPoolSize: 9}")
	suite.CreateForTest(t, admin, late)
	message := networkReady(t, late, metav1.ConditionFalse, v1alpha1.ReasonPoolExhausted)
	for _, part := range []string{"/sizes: 9 addresses requested, 2 free", "/sizes-small: 9 addresses requested, 2 free", "pool sizes-none does not exist"} {
		if !strings.Contains(message, part) {
			t.Errorf("the condition says %q, want %q", message, part)
		}
	}
}

// An elastic tenant without ingress has no load balancer addresses at rest, or headroom
// for its own Services, as the ProviderConfig chooses.
func TestInitialAllocation_IngressDisabled(t *testing.T) {
	pool(t, "headroom", "10.55.0.0/24", "10.55.0.0", "10.55.0.7")
	p := provider(t, "headroom", `{mode: ipam, poolRefs: [{name: headroom}], loadBalancer: {allocationMode: elastic, initialPoolSize: 3}}`, false)
	ns := suite.CreateNamespace(t, admin)
	rest := tenant(t, ns, "rest", "headroom", ", addons: {ingress: {enabled: false}}")
	suite.CreateForTest(t, admin, rest)
	if message := networkReady(t, rest, metav1.ConditionTrue, v1alpha1.ReasonReady); message != "the tenant needs no initial addresses" {
		t.Errorf("the condition says %q", message)
	}
	has(t, rest)
	// Butler's own CRD has no field ingressDisabled.
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) { p.Annotations[v1alpha1.AnnotationIngressDisabled] = "headroom" })
	has(t, rest, ns+"-rest-lb 10.55.0.0-10.55.0.2")
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) {
		p.Spec.Network.LoadBalancer.IngressDisabled = v1alpha1.IngressDisabledNone
	})
	none := tenant(t, ns, "none", "headroom", ", addons: {ingress: {enabled: false}}")
	suite.CreateForTest(t, admin, none)
	networkReady(t, none, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, none)
	has(t, rest, ns+"-rest-lb 10.55.0.0-10.55.0.2")
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) {
		p.Spec.Network.LoadBalancer.IngressDisabled = v1alpha1.IngressDisabledHeadroom
	})
	has(t, none, ns+"-none-lb 10.55.0.3-10.55.0.5")
}
