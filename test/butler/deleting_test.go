package butler

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// A pool with a deletionTimestamp stays until its claims are gone, and they keep their
// addresses until then: every rule on updates of pools holds for such a pool too. What
// takes nothing from anybody passes, whether a manager runs or not.
func TestNetworkPool_BeingDeleted(t *testing.T) {
	t.Parallel()
	own, c := suite.StartSandbox(t, sandbox.Options{})
	manager, err := own.AddManager(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const keeps, too = "example.com/keeps", "example.com/keeps-too"
	ns, going := suite.CreateNamespace(t, c), suite.CreateNamespace(t, c)
	networkPool := func(namespace, domain string) *v1alpha1.NetworkPool {
		p := pool(namespace, "10.80.0.0/24", "10.80.0.0-10.80.0.127")
		p.Spec.RoutingDomain = domain
		return p
	}
	ipPool := func(namespace, domain string) *metal3v1.IPPool {
		first, last := metal3v1.IP("10.81.0.1"), metal3v1.IP("10.81.0.9")
		return &metal3v1.IPPool{
			ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: namespace, Labels: map[string]string{v1alpha1.LabelRoutingDomain: domain}},
			Spec:       metal3v1.IPPoolSpec{NamePrefix: "pool", Pools: []metal3v1.Pool{{Start: &first, End: &last}}},
		}
	}
	ipClaim := func(namespace string) *metal3v1.IPClaim {
		return &metal3v1.IPClaim{ObjectMeta: metav1.ObjectMeta{Name: "owner", Namespace: namespace},
			Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "pool"}}}
	}
	vipPool := &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "pool"}, Spec: novaedgev1.ProxyIPPoolSpec{
		AutoAssign: true, CIDRs: []string{"10.82.0.0/29", "10.82.1.0/29"}}}
	vip := &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: "owner"}, Spec: novaedgev1.ProxyVIPSpec{
		PoolRef: &novaedgev1.PoolReference{Name: "pool"}, Mode: novaedgev1.ModeBGP, Ports: []int32{80}}}

	type rule struct {
		name   string
		change func(client.Object)
		code   int32
		says   string
	}
	networkPoolRules := func(owned string) []rule {
		change := func(f func(*v1alpha1.NetworkPool)) func(client.Object) {
			return func(o client.Object) { f(o.(*v1alpha1.NetworkPool)) }
		}
		return []rule{
			{"routingDomain", change(func(p *v1alpha1.NetworkPool) { p.Spec.RoutingDomain = "other" }), 403, "would change its routing domain while it is owned by ipallocations/owner"},
			{"reserved", change(func(p *v1alpha1.NetworkPool) { p.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: owned + "/32"}} }), 403, owned + " would become reserved while it is owned by ipallocations/owner"},
			{"gateway", change(func(p *v1alpha1.NetworkPool) { p.Spec.Gateway = owned }), 403, owned + " would become reserved while it is owned by ipallocations/owner"},
			{"ranges", change(func(p *v1alpha1.NetworkPool) { p.Spec.TenantAllocation.Ranges[0].Start = "10.80.0.64" }), 403, "would leave the pool's ranges while it is owned by ipallocations/owner"},
			{"cidr", change(func(p *v1alpha1.NetworkPool) { p.Spec.CIDR = "10.80.0.0/25" }), 422, "may grow but never shrink or move"},
		}
	}
	ipPoolRules := func(change func(func(*metal3v1.IPPool)) func(client.Object)) []rule {
		return []rule{
			{"routing domain", change(func(p *metal3v1.IPPool) { p.Labels[v1alpha1.LabelRoutingDomain] = "other" }), 403, "would change its routing domain while it is owned by ipclaims/owner"},
			{"no routing domain", change(func(p *metal3v1.IPPool) { delete(p.Labels, v1alpha1.LabelRoutingDomain) }), 403, "would change its routing domain while it is owned by ipclaims/owner"},
			{"pools", change(func(p *metal3v1.IPPool) { *p.Spec.Pools[0].Start = "10.81.0.5" }), 403, "10.81.0.1 would leave the pool's ranges while it is owned by ipclaims/owner"},
			{"namePrefix", change(func(p *metal3v1.IPPool) { p.Spec.NamePrefix = "other" }), 422, "spec.namePrefix"},
			{"allocationStrategy", change(func(p *metal3v1.IPPool) { p.Spec.AllocationStrategy = metal3v1.StrategyRandom }), 422, "spec.allocationStrategy"},
			{"preAllocations", change(func(p *metal3v1.IPPool) { p.Spec.PreAllocations = map[string]metal3v1.IP{"x": "10.99.0.1"} }), 422, "spec.preAllocations[x]"},
			{"reuse-delay", change(func(p *metal3v1.IPPool) {
				metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationReuseDelay, "-1s")
			}), 422, v1alpha1.AnnotationReuseDelay},
		}
	}
	ofIPPool := func(f func(*metal3v1.IPPool)) func(client.Object) {
		return func(o client.Object) { f(o.(*metal3v1.IPPool)) }
	}
	ofVIPPool := func(f func(*novaedgev1.ProxyIPPool)) func(client.Object) {
		return func(o client.Object) { f(o.(*novaedgev1.ProxyIPPool)) }
	}
	cases := []struct {
		name        string
		pool, owner client.Object
		rules       []rule
	}{
		{"NetworkPool", networkPool(ns, "a"), claim(ns, "owner", 4), networkPoolRules("10.80.0.1")},
		{"NetworkPool of a terminating namespace", networkPool(going, "b"), claim(going, "owner", 4), networkPoolRules("10.80.0.1")},
		{"IPPool", ipPool(ns, "c"), ipClaim(ns), ipPoolRules(ofIPPool)},
		{"IPPool of a terminating namespace", ipPool(going, "d"), ipClaim(going), ipPoolRules(ofIPPool)},
		{"ProxyIPPool", vipPool, vip, []rule{
			{"routing domain", ofVIPPool(func(p *novaedgev1.ProxyIPPool) {
				metav1.SetMetaDataLabel(&p.ObjectMeta, v1alpha1.LabelRoutingDomain, "other")
			}), 403, "would change its routing domain while it is owned by proxyvips/owner"},
			{"cidrs", ofVIPPool(func(p *novaedgev1.ProxyIPPool) { p.Spec.CIDRs = []string{"10.82.1.0/29"} }), 403, "10.82.0.1 would leave the pool's ranges while it is owned by proxyvips/owner"},
			{"no network", ofVIPPool(func(p *novaedgev1.ProxyIPPool) { p.Spec.CIDRs[1] = "10.82.0.300/29" }), 422, "spec.cidrs[1]"},
		}},
	}

	for _, tc := range cases { // without webhooks: one of them denies the deletion of a pool in use
		tc.pool.SetFinalizers([]string{keeps, too})
		tc.owner.SetFinalizers([]string{keeps})
		suite.Create(t, c, tc.pool, tc.owner)
		suite.AwaitObject(t, c, tc.owner, func(o client.Object) string {
			if !hasAddresses(o) {
				return "it has no addresses"
			}
			return ""
		})
		if err := c.Delete(t.Context(), tc.pool); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: going}}); err != nil { // no controller ends it here
		t.Fatal(err)
	}
	if err := own.InstallWebhooks(t.Context()); err != nil {
		t.Fatal(err)
	}

	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			generation := suite.Read(t, c, tc.pool).GetGeneration()
			for _, r := range tc.rules {
				t.Run(r.name, func(t *testing.T) {
					suite.RequireDenied(t, suite.TryChange(t, c, tc.pool, r.change), r.code, r.says)
				})
			}
			suite.Change(t, c, tc.pool, describe)
			suite.Change(t, c, tc.pool, func(o client.Object) { controllerutil.RemoveFinalizer(o, too) })
			if tc.pool.GetDeletionTimestamp() == nil || tc.pool.GetGeneration() != generation {
				t.Errorf("the pool is not as it was: %v", tc.pool)
			}
		})
	}

	// Neither metadata nor the end of a pool waits for a manager; rules do.
	if err := manager.Kill(); err != nil {
		t.Fatal(err)
	}
	<-manager.Exited()
	for _, tc := range cases {
		t.Run(tc.name+" without a manager", func(t *testing.T) {
			if err := suite.TryChange(t, c, tc.pool, tc.rules[0].change); err == nil {
				t.Errorf("%s passed without having been checked", tc.rules[0].name)
			}
			suite.Change(t, c, tc.pool, describe)
			suite.Change(t, c, tc.pool, func(o client.Object) { o.SetFinalizers(nil) })
			suite.AwaitGone(t, c, tc.pool)
		})
	}
}

// hasAddresses tells whether a claim of any kind names an address.
func hasAddresses(o client.Object) bool {
	switch o := o.(type) {
	case *v1alpha1.IPAllocation:
		return o.Spec.PinnedRange != nil
	case *novaedgev1.ProxyVIP:
		return o.Spec.Address != ""
	}
	return o.GetAnnotations()[metal3v1.AnnotationIPAddress] != ""
}

// describe changes metadata that means nothing to the allocator.
func describe(o client.Object) {
	labels, annotations := o.GetLabels(), o.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	key := fmt.Sprintf("example.com/seen-%d", len(labels))
	labels[key], annotations[key] = "yes", "yes"
	o.SetLabels(labels)
	o.SetAnnotations(annotations)
}
