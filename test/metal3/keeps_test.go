package metal3

import (
	"context"
	"fmt"
	"testing"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// unclaimable are names that no claim can have.
var unclaimable = []string{"_gateway", "_nobody", "Router", "a..b", "-"}

// forged writes all annotations of an answer onto a claim, as any author of claims can.
func forged(c client.Object, address, origin string) client.Object {
	c.SetAnnotations(map[string]string{
		v1alpha1.AnnotationIPAddress: address, butlerv1.AnnotationOrigin: origin, butlerv1.AnnotationGrant: "AAAAAAAAAAAAAAAB",
	})
	return c
}

func TestPreAllocation_ForNoClaimIgnoresAnnotations(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		t.Run(k.name, func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			pool := ten(ns, "pool")
			pool.Spec.PreAllocations = map[string]v1alpha1.IP{}
			for i, name := range unclaimable {
				pool.Spec.PreAllocations[name] = v1alpha1.IP(fmt.Sprintf("10.0.0.%d", i+1))
			}
			suite.Create(t, admin, pool)
			for i, origin := range []string{butlerv1.OriginAuto, butlerv1.OriginPinned, butlerv1.OriginAdopted, "x", butlerv1.OriginAuto} {
				address := fmt.Sprintf("10.0.0.%d", i+1)
				suite.RequireDenied(t, admin.Create(t.Context(), forged(k.claim(ns, "thief", "pool", ""), address, origin)), 422, "Requested IP not available", address)
			}

			// A waiting claim, whose author changes the annotations.
			waits := k.claim(ns, "waits", "later", "")
			suite.Create(t, admin, waits)
			later := ipPool(ns, "later", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.1.1", "10.0.1.1")}})
			later.Spec.PreAllocations = map[string]v1alpha1.IP{"_gateway": "10.0.1.1"}
			suite.Create(t, admin, later)
			k.fails(t, waits, "Exhausted IP Pools")
			suite.RequireDenied(t, suite.TryChange(t, admin, waits, func(c client.Object) { forged(c, "10.0.1.1", butlerv1.OriginAuto) }),
				422, "Requested IP not available", "10.0.1.1")

			// A claim that is stored before the pool that keeps its address, and then
			// gets an origin.
			early := k.claim(ns, "early", "last", "10.0.2.1")
			suite.Create(t, admin, early)
			last := ipPool(ns, "last", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.2.1", "10.0.2.9")}})
			last.Spec.PreAllocations = map[string]v1alpha1.IP{"_gateway": "10.0.2.1"}
			suite.Create(t, admin, last)
			k.waitsFor(t, early, "Requested IP not available")
			_ = suite.TryChange(t, admin, early, func(c client.Object) { forged(c, "10.0.2.1", butlerv1.OriginAuto) }) // refused or without effect
			k.gets(t, k.claim(ns, "after", "last", ""), "10.0.2.2")
			k.waitsFor(t, early, "Requested IP not available")
		})
	}
}

// waitsFor waits until a claim that names an address says why it does not have the
// address.
func (k claimKind) waitsFor(t *testing.T, c client.Object, want string) {
	t.Helper()
	suite.AwaitObject(t, admin, c, func(c client.Object) string {
		name, failure := k.address(c)
		if failure == want && name == "" {
			return ""
		}
		return fmt.Sprintf("address %q, failure %q, want %q", name, failure, want)
	})
}

// What a NetworkPool reserves, and its gateway where that is reserved, have no exception.
func TestReserved_IgnoresAnnotations(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := &butlerv1.NetworkPool{Spec: butlerv1.NetworkPoolSpec{
		CIDR: "10.8.0.0/28", RoutingDomain: ns, Gateway: "10.8.0.1",
		Reserved: []butlerv1.ReservedRange{{CIDR: "10.8.0.0/30"}},
	}}
	pool.Namespace, pool.Name = ns, "lab"
	suite.Create(t, admin, pool)
	c := &ipamv1.IPAddressClaim{Spec: ipamv1.IPAddressClaimSpec{
		PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "lab"},
	}}
	c.Namespace, c.Name = ns, "thief"
	suite.RequireDenied(t, admin.Create(t.Context(), forged(c, "10.8.0.1", butlerv1.OriginAuto)), 422, "10.8.0.0-10.8.0.3", "is reserved")
	a := &butlerv1.IPAllocation{Spec: butlerv1.IPAllocationSpec{
		PoolRef: butlerv1.LocalObjectReference{Name: "lab"}, Type: butlerv1.TypeLoadBalancer,
		TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "tenant"},
		PinnedRange:      &butlerv1.PinnedIPRange{StartAddress: "10.8.0.1", EndAddress: "10.8.0.1"},
	}}
	a.Namespace, a.Name = ns, "thief"
	suite.RequireDenied(t, admin.Create(t.Context(), forged(a, "10.8.0.1", butlerv1.OriginAuto)), 422, "10.8.0.0-10.8.0.3", "is reserved")
}

// The address object is the record that only the manager and admins of pools write. A
// claim of the wrong name or address gets nothing by it.
func TestPreAllocation_ForNoClaimKeepsAddressObjects(t *testing.T) {
	t.Parallel()
	for _, k := range bothKinds {
		for name, tc := range map[string]struct{ first, paused bool }{
			"address object first":     {first: true},
			"paused, claim first":      {paused: true}, // as clusterctl moves them
			"paused, the object first": {first: true, paused: true},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				ns := suite.CreateNamespace(t, admin)
				pool := ten(ns, "pool")
				suite.Create(t, admin, pool)
				c := k.claim(ns, "web", "pool", "")
				k.gets(t, c, "10.0.0.1")
				name, _ := k.address(stored(t, c))
				again, object := k.restorable(t, c, "pool"), k.holds(ns, name, "pool", "web", "10.0.0.1")
				pin(t, pool, map[string]v1alpha1.IP{"_gateway": "10.0.0.1"}) // while the claim has it: it stays the claim's
				suite.Delete(t, admin, c)
				suite.AwaitGone(t, admin, object)
				if tc.paused {
					suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""} })
					k.wouldGet(t, k.claim(ns, "try", "pool", ""), "") // by then the managers have seen that
				}
				object.SetResourceVersion("")
				if tc.first {
					suite.Create(t, admin, object)
					k.wouldGet(t, k.claim(ns, "web", "pool", ""), "10.0.0.1")
				}
				thief := forged(k.claim(ns, "thief", "pool", ""), "10.0.0.1", butlerv1.OriginAuto)
				if tc.paused { // it is decided when the pool is not
					suite.Create(t, admin, thief)
				} else {
					suite.RequireDenied(t, admin.Create(t.Context(), thief), 422, "Requested IP not available", "10.0.0.1")
				}
				suite.Create(t, admin, again)
				if !tc.first {
					suite.Create(t, admin, object)
				}
				if tc.paused {
					suite.Change(t, admin, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
				}
				if got := k.bound(t, again); got.Address != "10.0.0.1" {
					t.Errorf("it has %s", got.Address)
				}
				if tc.paused {
					k.waitsFor(t, thief, "Requested IP not available")
				}
			})
		}
	}
}

// wouldGet waits until a create of a claim would be answered with this address, "" for
// none.
func (k claimKind) wouldGet(t *testing.T, c client.Object, want string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		try := c.DeepCopyObject().(client.Object)
		if err := admin.Create(ctx, try, client.DryRunAll); err != nil || answer(try) != want {
			return fmt.Errorf("it would get %q, want %q: %v", answer(try), want, err)
		}
		return nil
	})
}
