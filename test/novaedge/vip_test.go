package novaedge

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/historyrecord"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func contains(t *testing.T, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Errorf("%q does not say %q", text, part)
	}
}

// Cases T3, T4, T16 and N4 of the package comment.
func TestProxyVIP_StaticAddress(t *testing.T) {
	p := pool("static", "10.32.0.0/29")
	p.Spec.AutoAssign = false
	suite.CreateForTest(t, admin, p)
	suite.RequireDenied(t, admin.Create(t.Context(), vip("static-any", p.Name)), 422, "spec.address", "does not assign addresses automatically")
	gets(t, vip("static-2", p.Name, at("10.32.0.2/32")), "10.32.0.2/32")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("static-thief", p.Name, at("10.32.0.2"))), 403, "10.32.0.2 is owned by proxyvips/static-2")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("static-out", p.Name, at("10.33.0.2/32"))), 422, "spec.address", "10.33.0.2 is outside the pool")
	gets(t, vip("static-bare", "", at("10.32.0.1")), "10.32.0.1") // without poolRef, inside the pool
	gets(t, vip("static-nowhere", "", at("192.0.2.77/32")), "192.0.2.77/32")
	if err := suite.TryChange(t, admin, p, func(p *v1alpha1.ProxyIPPool) { p.Spec.AutoAssign = true }); err != nil {
		t.Fatal(err)
	}
	gets(t, vip("static-auto", p.Name), "10.32.0.3/32")
	late := pool("static-late", "192.0.2.76/30", "192.0.2.77")
	suite.CreateForTest(t, admin, late)
	gets(t, vip("static-late", late.Name), "192.0.2.78/32")
	counts(t, late, 2, 0)
	if got, want := bound(t, vip("static-nowhere", "")), "AddressAllocated: Address 192.0.2.77/32 reserved, of no pool"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// VIPs with missing, contradictory or superfluous fields are denied.
func TestProxyVIP_Invalid(t *testing.T) {
	suite.CreateForTest(t, admin, pool("sense", "10.34.0.0/29"))
	for name, tc := range map[string]struct {
		vip  *v1alpha1.ProxyVIP
		says []string
	}{
		"nothing":      {vip("x", ""), []string{"name an address (address, ipv6Address), or the pool"}},
		"no-address":   {vip("x", "", at("10.0.0.300")), []string{"spec.address"}},
		"s15-mode":     {vip("x", "sense", func(s *v1alpha1.ProxyVIPSpec) { s.Mode = "l2arp" }), []string{"spec.mode", `"L2ARP", "BGP", "OSPF"`}},
		"s15-family":   {vip("x", "sense", of("IPv4")), []string{"spec.addressFamily", `"ipv4", "ipv6", "dual"`}},
		"other-family": {vip("x", "", at("2001:db8::1/128")), []string{"spec.address", "must be IPv4 with addressFamily ipv4"}},
		"two-of-one":   {vip("x", "", of(v1alpha1.FamilyIPv6), at("2001:db8::1"), at6("2001:db8::2")), []string{"spec.address", "one address too many"}},
		"half":         {vip("x", "", of(v1alpha1.FamilyDual), at("10.34.1.1")), []string{"spec.poolRef", "takes two addresses"}},
		"no-ports":     {vip("x", "sense", func(s *v1alpha1.ProxyVIPSpec) { s.Ports = nil }), []string{"spec.ports"}},
	} {
		t.Run(name, func(t *testing.T) {
			suite.RequireDenied(t, admin.Create(t.Context(), tc.vip), 422, tc.says...)
		})
	}
}

// Case T14.
func TestProxyVIP_Families(t *testing.T) {
	four, six, both := pool("four", "10.35.0.0/29"), pool("six", "2001:db8:35::/125"), pool("both", "10.35.1.0/30", "2001:db8:35:1::/126")
	suite.CreateForTest(t, admin, four, six, both)
	gets(t, vip("f-4", both.Name), "10.35.1.1/32")
	gets(t, vip("f-6", both.Name, of(v1alpha1.FamilyIPv6)), "2001:db8:35:1::1/128")
	gets(t, vip("f-dual", both.Name, of(v1alpha1.FamilyDual)), "10.35.1.2/32 2001:db8:35:1::2/128")
	counts(t, both, 4, 1)
	suite.RequireDenied(t, admin.Create(t.Context(), vip("f-none", both.Name, of(v1alpha1.FamilyDual))), 403, "pool both")
	counts(t, both, 4, 1) // no half of it is left behind
	gets(t, vip("f-last", both.Name, of(v1alpha1.FamilyIPv6)), "2001:db8:35:1::3/128")
	for _, family := range []v1alpha1.AddressFamily{v1alpha1.FamilyIPv6, v1alpha1.FamilyDual} {
		suite.RequireDenied(t, admin.Create(t.Context(), vip("f-lacks", four.Name, of(family))), 422, "spec.addressFamily", "pool four offers no IPv6 addresses")
	}
	suite.RequireDenied(t, admin.Create(t.Context(), vip("f-lacks", six.Name)), 422, "spec.addressFamily", "pool six offers no IPv4 addresses")
	d := vip("f-dual", "")
	if got, want := bound(t, d), "AddressAllocated: Addresses 10.35.1.2/32 and 2001:db8:35:1::2/128 allocated from pool both"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if d.Status.AllocatedAddress != "10.35.1.2/32" || d.Status.AllocatedIPv6Address != "2001:db8:35:1::2/128" {
		t.Errorf("status %+v", d.Status)
	}
}

// Cases T2, A11 and N3.
func TestProxyIPPool_Overlapping(t *testing.T) {
	one, two := pool("over-1", "10.36.0.0/29"), pool("over-2", "10.36.0.0/28")
	suite.CreateForTest(t, admin, one, two)
	gets(t, vip("over-a", one.Name), "10.36.0.1/32")
	gets(t, vip("over-b", two.Name), "10.36.0.2/32")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("over-c", two.Name, at("10.36.0.1"))), 403, "10.36.0.1 is owned by proxyvips/over-a")
	counts(t, one, 2, 4)
	counts(t, two, 2, 12)
}

func TestProxyVIP_SharesItsSpaceWithNetworkPools(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	p, np := pool("kinds", "10.37.0.0/29"), &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: ns}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.37.0.0/29", Reserved: []butlerv1.ReservedRange{{CIDR: "10.37.0.6/32"}}},
	}
	suite.CreateForTest(t, admin, p, np)
	allocation := func(name, first, last string) *butlerv1.IPAllocation {
		return &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: ns}, Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Name: "web", Namespace: "team"},
			Type: butlerv1.TypeNodes, PinnedRange: &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last},
		}}
	}
	owned := allocation("owned", "10.37.0.1", "10.37.0.2")
	suite.CreateForTest(t, admin, owned)
	gets(t, vip("kinds-a", p.Name), "10.37.0.3/32")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("kinds-b", p.Name, at("10.37.0.2"))), 403, "10.37.0.2 is owned by a namespaced object: ask for another range")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("kinds-b", "", at("10.37.0.2"))), 403, "10.37.0.2 is owned by a namespaced object: ask for another range")
	suite.RequireDenied(t, admin.Create(t.Context(), allocation("thief", "10.37.0.3", "10.37.0.4")), 403, "10.37.0.3 is owned by proxyvips/kinds-a")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("kinds-b", p.Name, at("10.37.0.6"))), 422, "pool "+p.Name+": in pool "+ns+"/pool 10.37.0.6 is reserved")
	suite.RequireDenied(t, admin.Create(t.Context(), vip("kinds-b", "", at("10.37.0.6"))), 422, "pool "+ns+"/pool: 10.37.0.6 is reserved")
	counts(t, p, 3, 2)
	suite.AwaitObject(t, admin, np, func(np *butlerv1.NetworkPool) string {
		if np.Status.AllocatedIPs == 3 {
			return ""
		}
		return fmt.Sprintf("%d allocated, want 3", np.Status.AllocatedIPs)
	})
}

// Cases T10, A5 and N12.
func TestProxyVIP_BeforeItsPool(t *testing.T) {
	v := vip("early", "later", of(v1alpha1.FamilyDual))
	suite.CreateForTest(t, admin, v)
	unbound(t, v, v1alpha1.ReasonPoolNotFound)
	fixed := vip("early-fixed", "later", at("10.38.0.5"))
	suite.CreateForTest(t, admin, fixed)
	suite.CreateForTest(t, admin, pool("later", "10.38.0.0/29", "2001:db8:38::/126"))
	suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
		if addresses(v) == "10.38.0.1/32 2001:db8:38::1/128" {
			return ""
		}
		return addresses(v)
	})
	bound(t, v)
	bound(t, fixed)
}

// Cases T6 and T7, and updates of other fields. A ProxyVIP whose address changes and that
// is deleted at once owns neither address in the history afterwards.
func TestHistory_AddressChangedBeforeTheDeletion(t *testing.T) {
	suite.CreateForTest(t, admin, pool("changes", "10.55.0.0/28"))
	v := vip("changes", "changes", at("10.55.0.1"))
	suite.CreateForTest(t, admin, v)
	bound(t, v)
	suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.55.0.2" })
	suite.Delete(t, admin, v)
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		var text bytes.Buffer
		for _, m := range cluster.Managers() {
			part, err := os.ReadFile(m.LogPath())
			if err != nil {
				return err
			}
			text.Write(part)
		}
		history, err := historyrecord.ReadLog(&text)
		if err != nil {
			return err
		}
		for _, address := range []string{"10.55.0.1", "10.55.0.2"} {
			r, err := allocator.ParseRange(address)
			if err != nil {
				return err
			}
			tenures := history.Owners("", r, historyrecord.Period{})
			if len(tenures) != 1 || tenures[0].UID != string(v.UID) || tenures[0].From.IsZero() || tenures[0].Until.IsZero() {
				return fmt.Errorf("owners of %s: %+v", address, tenures)
			}
		}
		return nil
	})
}

func TestProxyVIP_Update(t *testing.T) {
	p, other := pool("up", "10.39.0.0/28", "2001:db8:39::/126"), pool("up-other", "10.39.1.0/28")
	suite.CreateForTest(t, admin, p, other)
	v := vip("up", p.Name)
	gets(t, v, "10.39.0.1/32")
	bound(t, v)
	err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.PoolRef.Name = other.Name })
	suite.RequireDenied(t, err, 422, "spec.poolRef", "cannot be changed while addresses are owned")

	t.Run("what is left out comes back", func(t *testing.T) {
		if err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = ""; v.Spec.Ports = []int32{443} }); err != nil {
			t.Fatal(err)
		}
		if addresses(v) != "10.39.0.1/32" || v.Spec.Ports[0] != 443 {
			t.Errorf("%+v", v.Spec)
		}
	})
	t.Run("another address", func(t *testing.T) {
		suite.CreateForTest(t, admin, vip("up-taken", p.Name, at("10.39.0.2")))
		suite.RequireDenied(t, suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.39.0.2/32" }), 403, "10.39.0.2 is owned by proxyvips/up-taken")
		suite.RequireDenied(t, suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.40.0.2/32" }), 422, "10.40.0.2 is outside the pool")
		if err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.39.0.9/32" }); err != nil {
			t.Fatal(err)
		}
		suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
			if v.Status.AllocatedAddress == "10.39.0.9/32" {
				return ""
			}
			return v.Status.AllocatedAddress
		})
		told(t, v, "IPsAllocated", "Address 10.39.0.9/32 allocated from pool "+p.Name)
		gets(t, vip("up-next", p.Name), "10.39.0.1/32") // what it left is free
	})
	t.Run("a family more, and less", func(t *testing.T) {
		if err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.AddressFamily = v1alpha1.FamilyDual }); err != nil {
			t.Fatal(err)
		}
		if got, want := addresses(v), "10.39.0.9/32 2001:db8:39::1/128"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		counts(t, p, 2, 15) // those of the subtests before are gone
		if err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.AddressFamily = v1alpha1.FamilyIPv4; v.Spec.IPv6Address = "" }); err != nil {
			t.Fatal(err)
		}
		if got, want := addresses(v), "10.39.0.9/32"; got != want {
			t.Errorf("%q, want %q", got, want)
		}
		counts(t, p, 1, 16)
	})
	t.Run("the pool left", func(t *testing.T) {
		if err := suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.PoolRef, v.Spec.Address = nil, "" }); err != nil {
			t.Fatal(err)
		}
		if addresses(v) != "10.39.0.9/32" || v.Spec.PoolRef != nil {
			t.Errorf("%+v", v.Spec)
		}
		suite.RequireDenied(t, admin.Create(t.Context(), vip("up-thief", p.Name, at("10.39.0.9"))), 403, "10.39.0.9 is owned by proxyvips/up")
	})
}

// The label of a VIP without pool determines the routing domain of its address. The label
// is immutable: in another routing domain, another object may own the address.
func TestRoutingDomain_OfAVIPWithoutPoolStays(t *testing.T) {
	const domain = "butler.butlerlabs.dev/routing-domain"
	pooled, bare := vip("domain-pooled", "domain"), vip("domain-bare", "", at("192.0.2.99"))
	bare.Labels = map[string]string{domain: "east"}
	suite.CreateForTest(t, admin, pool("domain", "10.44.0.0/29"), pooled, bare)
	label := func(value string) func(*v1alpha1.ProxyVIP) {
		return func(v *v1alpha1.ProxyVIP) { v.Labels = map[string]string{domain: value} }
	}
	for name, change := range map[string]func(*v1alpha1.ProxyVIP){
		"another": label("west"),
		"none":    func(v *v1alpha1.ProxyVIP) { v.Labels = nil },
	} {
		t.Run(name, func(t *testing.T) {
			suite.RequireDenied(t, suite.TryChange(t, admin, bare, change), 422, "metadata.labels["+domain+"]: Forbidden: cannot be changed",
				`while addresses of routing domain "east" are owned without a pool`, "create another ProxyVIP")
		})
	}
	suite.Change(t, admin, bare, func(v *v1alpha1.ProxyVIP) { v.Labels["example.com/team"] = "a" })
	going := vip("domain-going", "", at("192.0.2.98"))
	going.Finalizers = []string{"example.com/holds"}
	suite.CreateForTest(t, admin, going)
	if err := admin.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	suite.RequireDenied(t, suite.TryChange(t, admin, going, label("west")), 422, "metadata.labels["+domain+"]: Forbidden: cannot be changed")
	suite.Change(t, admin, going, func(v *v1alpha1.ProxyVIP) { v.Finalizers = nil })
	suite.Change(t, admin, pooled, label("west")) // its pool says where
	suite.Change(t, admin, pooled, func(v *v1alpha1.ProxyVIP) { v.Labels = nil })
	suite.RequireDenied(t, suite.TryChange(t, admin, pooled, func(v *v1alpha1.ProxyVIP) {
		v.Spec.PoolRef, v.Labels = nil, map[string]string{domain: "west"}
	}), 422, "metadata.labels["+domain+"]")
}

// Removing poolRef must not move the address to another routing domain: another object
// may own the address there, and the address would be free in the former routing domain.
func TestRoutingDomain_OfAVIPThatLeavesItsPoolStays(t *testing.T) {
	const domain = "butler.butlerlabs.dev/routing-domain"
	here, east := pool("leave", "10.46.0.0/29"), pool("leave-east", "10.46.0.0/29")
	east.Labels = map[string]string{domain: "leave-east"}
	suite.CreateForTest(t, admin, here, east)
	leaves, other := vip("leave-goes", here.Name, at("10.46.0.3")), vip("leave-other", east.Name, at("10.46.0.3"))
	suite.CreateForTest(t, admin, leaves)
	createdAfter(t, other, leaves)
	bound(t, leaves)
	bound(t, other)
	leave := func(v *v1alpha1.ProxyVIP) { v.Spec.PoolRef = nil }
	suite.Change(t, admin, leaves, func(v *v1alpha1.ProxyVIP) { v.Labels = map[string]string{domain: "leave-east"} }) // its pool says where
	suite.RequireDenied(t, suite.TryChange(t, admin, leaves, leave), 422, "metadata.labels["+domain+"]: Invalid value: \"leave-east\"",
		`must be "", the routing domain of the addresses`)
	suite.Change(t, admin, leaves, func(v *v1alpha1.ProxyVIP) { v.Spec.PoolRef, v.Labels = nil, nil })
	if err := suite.TryChange(t, admin, other, leave); err != nil { // whose label the allocator has written
		t.Error(err)
	}
	bound(t, leaves)
	bound(t, other)
}

// A VIP that is being deleted gets no more addresses, and cannot request an address that
// it does not own.
func TestProxyVIP_BeingDeletedRequestsNothing(t *testing.T) {
	p := pool("going", "10.47.0.0/29")
	suite.CreateForTest(t, admin, p)
	goes, other := vip("going-goes", p.Name, at("10.47.0.1")), vip("going-other", p.Name, at("10.47.0.2"))
	goes.Finalizers = []string{"example.com/holds"}
	suite.CreateForTest(t, admin, goes)
	createdAfter(t, other, goes)
	bound(t, goes)
	bound(t, other)
	if err := admin.Delete(t.Context(), goes); err != nil {
		t.Fatal(err)
	}
	take := func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.47.0.2" }
	suite.RequireDenied(t, suite.TryChange(t, admin, goes, take), 422, "spec.address: Forbidden: 10.47.0.2 cannot be requested by an object that is being deleted")
	suite.Change(t, admin, goes, func(v *v1alpha1.ProxyVIP) { v.Spec.Ports = append(v.Spec.Ports, 8443) })
	suite.Change(t, admin, goes, func(v *v1alpha1.ProxyVIP) { v.Finalizers = nil })
	suite.AwaitGone(t, admin, goes)
}

// An address written around the webhooks is not granted, even if the VIP has been Bound
// with another address before.
func TestConflict_BoundVIPWritesAnothersAddress(t *testing.T) {
	p := pool("around", "10.48.0.0/29")
	suite.CreateForTest(t, admin, p)
	takes, other := vip("around-takes", p.Name, at("10.48.0.1")), vip("around-other", p.Name, at("10.48.0.2"))
	suite.CreateForTest(t, admin, takes)
	createdAfter(t, other, takes)
	bound(t, takes)
	bound(t, other)
	restore := withoutWebhooks(t, vip("around-probe", p.Name, at("10.48.0.2")))
	suite.Change(t, admin, takes, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = "10.48.0.2" })
	restore()
	unbound(t, takes, v1alpha1.ReasonAddressConflict)
	bound(t, other)
}

// Of two VIPs that request one address before their pool exists, one owns the address.
// The other is flagged, although it also lacks an address of the other family.
func TestConflict_DualStackLoser(t *testing.T) {
	first, second := vip("rival-first", "rival", at("10.49.0.5")), vip("rival-second", "rival", of(v1alpha1.FamilyDual), at("10.49.0.5"))
	suite.CreateForTest(t, admin, first)
	createdAfter(t, second, first)
	suite.CreateForTest(t, admin, pool("rival", "10.49.0.0/29", "2001:db8:49::/126"))
	bound(t, first)
	unbound(t, second, v1alpha1.ReasonAddressConflict)
	suite.Delete(t, admin, first)
	bound(t, second)
}

// withoutWebhooks removes the webhooks until restore is called. The webhooks deny the
// create of denied: when the API server accepts it, the webhooks are gone.
func withoutWebhooks(t *testing.T, denied *v1alpha1.ProxyVIP) (restore func()) {
	t.Helper()
	for _, kind := range []string{"mutatingwebhookconfiguration/zz-butler-ipam", "validatingwebhookconfiguration/butler-ipam"} {
		suite.Kubectl(t, cluster, "", "delete", kind)
	}
	restore = sync.OnceFunc(func() {
		if err := cluster.InstallWebhooks(context.Background()); err != nil {
			t.Fatal(err)
		}
	})
	t.Cleanup(restore)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, denied.DeepCopy(), client.DryRunAll) })
	return restore
}

// createdAfter creates a ProxyVIP at least a second after another: creation timestamps
// have a resolution of a second.
func createdAfter(t *testing.T, v, earlier *v1alpha1.ProxyVIP) {
	t.Helper()
	for {
		rehearsal := v.DeepCopy()
		if err := admin.Create(t.Context(), rehearsal, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		if rehearsal.CreationTimestamp.After(earlier.CreationTimestamp.Time) {
			suite.CreateForTest(t, admin, v)
			return
		}
	}
}

// Case T11: waiting VIPs are served in the order of their creation, and get events.
func TestProxyVIP_WaitingAreServedInOrder(t *testing.T) {
	first, second, third := vip("fifo-c", "fifo"), vip("fifo-b", "fifo"), vip("fifo-a", "fifo")
	suite.CreateForTest(t, admin, first)
	createdAfter(t, second, first)
	createdAfter(t, third, second)
	unbound(t, third, v1alpha1.ReasonPoolNotFound)
	p := pool("fifo", "10.44.0.1")
	suite.CreateForTest(t, admin, p)
	if got, want := bound(t, first), "AddressAllocated: Address 10.44.0.1/32 allocated from pool fifo"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	told(t, first, "IPsAllocated", "Address 10.44.0.1/32 allocated from pool fifo")
	for _, v := range []*v1alpha1.ProxyVIP{second, third} {
		unbound(t, v, v1alpha1.ReasonPoolExhausted)
		told(t, v, "AllocationFailed", "pool exhausted: fifo has no free address")
	}
	counts(t, p, 1, 0)
	if out, _ := suite.Kubectl(t, cluster, "", "get", "proxyippool", p.Name, "--no-headers"); strings.Fields(out)[2] != "0" {
		t.Errorf("an empty pool is shown as %q", out)
	}
	suite.Delete(t, admin, first)
	bound(t, second)
	unbound(t, third, v1alpha1.ReasonPoolExhausted)
	suite.Delete(t, admin, second)
	bound(t, third)
}

// Cases T2 and T3: a VIP stored around the webhooks owns its address if the address is
// free. Of two VIPs with one address the later one is flagged.
func TestConflict_AroundTheWebhooks(t *testing.T) {
	p := pool("clash", "10.45.0.0/29")
	suite.CreateForTest(t, admin, p)
	holds := vip("clash-holds", p.Name, at("10.45.0.3/32"))
	suite.CreateForTest(t, admin, holds)
	bound(t, holds)
	restore := withoutWebhooks(t, vip("clash-probe", p.Name, at("10.45.0.3")))
	late := vip("clash-late", "", at("10.45.0.3"))
	suite.CreateForTest(t, admin, late)
	restore()
	unbound(t, late, v1alpha1.ReasonAddressConflict)
	if c := meta.FindStatusCondition(late.Status.Conditions, v1alpha1.ConditionConflict); c == nil || c.Status != metav1.ConditionTrue {
		t.Errorf("conditions %+v", late.Status.Conditions)
	} else {
		contains(t, c.Message, "10.45.0.3 is owned by proxyvips/clash-holds")
	}
	told(t, late, "AddressConflict", "10.45.0.3 is owned by proxyvips/clash-holds")
	bound(t, holds)
	suite.Delete(t, admin, holds)
	bound(t, late)
	if c := meta.FindStatusCondition(late.Status.Conditions, v1alpha1.ConditionConflict); c != nil {
		t.Errorf("it still has %+v", c)
	}
	gets(t, vip("clash-next", p.Name), "10.45.0.1/32")
}

// Case N1, with 200 VIPs of an earlier controller.
func TestAdoption_FromStatus(t *testing.T) {
	const total = 200
	probes := pool("earlier-probe", "10.171.0.0/30")
	suite.CreateForTest(t, admin, probes)
	gets(t, vip("earlier-holds", probes.Name, at("10.171.0.1")), "10.171.0.1")
	restore := withoutWebhooks(t, vip("earlier-denied", probes.Name, at("10.171.0.1")))
	vips := make([]*v1alpha1.ProxyVIP, total)
	for i := range vips {
		vips[i] = vip(fmt.Sprintf("earlier-%03d", i), "earlier")
		suite.CreateForTest(t, admin, vips[i])
		before := vips[i].DeepCopy()
		vips[i].Status.AllocatedAddress = fmt.Sprintf("10.42.0.%d/32", i+1)
		if err := admin.Status().Patch(t.Context(), vips[i], client.MergeFrom(before)); err != nil {
			t.Fatal(err)
		}
	}
	restore()
	p := pool("earlier", "10.42.0.0/24")
	suite.CreateForTest(t, admin, p)
	gets(t, vip("new", p.Name), "10.42.0.201/32")
	for i, v := range vips {
		bound(t, v)
		if want := fmt.Sprintf("10.42.0.%d/32", i+1); v.Spec.Address != want || v.Status.AllocatedAddress != want || v.Annotations[butlerv1.AnnotationOrigin] != butlerv1.OriginAdopted {
			t.Errorf("%s: %s, %s, %s; want %s", v.Name, v.Spec.Address, v.Status.AllocatedAddress, v.Annotations[butlerv1.AnnotationOrigin], want)
		}
	}
	counts(t, p, total+1, 254-total-1)
}

// Cases A14, T1 and T15: concurrent creates in pools that overlap each other and a
// NetworkPool, while leaders are killed.
func TestConcurrentCreates_WhileLeadersDie(t *testing.T) {
	const total, clients = 1000, 16
	ns := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin,
		pool("many-a", "10.43.0.0/20", "2001:db8:43::/112"), pool("many-b", "10.43.8.0/21", "2001:db8:43::/116"),
		&butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: "pool", Namespace: ns}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.43.0.0/19"}})
	var (
		work sync.WaitGroup
		next = make(chan int)
	)
	errs := make([]error, total)
	for range clients {
		work.Go(func() {
			for i := range next {
				errs[i] = persistently(t, func(ctx context.Context) error {
					if i%5 == 4 {
						return admin.Create(ctx, &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("a-%d", i), Namespace: ns}, Spec: butlerv1.IPAllocationSpec{
							PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Name: "web", Namespace: "team"}, Type: butlerv1.TypeNodes,
						}})
					}
					v := vip(fmt.Sprintf("many-%d", i), []string{"many-a", "many-b"}[i%2])
					if i%3 == 0 {
						v.Spec.AddressFamily = v1alpha1.FamilyDual
					}
					return admin.Create(ctx, v)
				})
			}
		})
	}
	for i := range total {
		if i == total/3 {
			if err := cluster.Managers()[0].Kill(); err != nil { // it is started again
				t.Fatal(err)
			}
		}
		if i == 2*total/3 {
			if err := cluster.Managers()[1].Kill(); err != nil {
				t.Fatal(err)
			}
		}
		next <- i
	}
	close(next)
	work.Wait()
	for i, err := range errs {
		if err != nil {
			t.Errorf("create %d: %v", i, err)
		}
	}

	var vips v1alpha1.ProxyVIPList
	var others butlerv1.IPAllocationList
	if err := admin.List(t.Context(), &vips); err != nil {
		t.Fatal(err)
	}
	if err := admin.List(t.Context(), &others, client.InNamespace(ns)); err != nil {
		t.Fatal(err)
	}
	owner, owned := map[string]string{}, 0
	has := func(address, name string) {
		owned++
		if other := owner[address]; other != "" {
			t.Errorf("%s belongs to %s and %s", address, other, name)
		}
		owner[address] = name
	}
	for _, v := range vips.Items {
		if !strings.HasPrefix(v.Name, "many-") {
			continue
		}
		t.Cleanup(func() { _ = admin.Delete(context.Background(), &v) })
		if v.Spec.Address == "" || (v.Spec.AddressFamily == v1alpha1.FamilyDual) != (v.Spec.IPv6Address != "") {
			t.Errorf("%s has %q", v.Name, addresses(&v))
		}
		for _, a := range strings.Fields(addresses(&v)) {
			has(a, v.Name)
		}
	}
	for _, a := range others.Items {
		t.Cleanup(func() { _ = admin.Delete(context.Background(), &a) })
		r, err := allocator.ParseRange(a.Spec.PinnedRange.StartAddress + "-" + a.Spec.PinnedRange.EndAddress)
		if err != nil {
			t.Fatal(err)
		}
		for address := range r.Addresses() {
			has(address.String()+"/32", a.Name)
		}
	}
	if len(vips.Items) == 0 || owned < total {
		t.Errorf("%d addresses are owned", owned)
	}
}

// persistently repeats a create until it succeeds, like a controller: both managers may
// be down for a short time.
func persistently(t *testing.T, create func(context.Context) error) (err error) {
	deadline := time.Now().Add(time.Minute)
	for time.Now().Before(deadline) {
		if err = create(t.Context()); err == nil || strings.Contains(err.Error(), "already exists") {
			return nil
		}
	}
	return err
}
