package novaedge

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// A manifest that names no addresses changes the family by changing only addressFamily:
// the API server merges it with the addresses that the allocator filled in.
func TestProxyVIP_FamilyChangesByApply(t *testing.T) {
	p := pool("families", "10.62.0.0/28", "2001:db8:62::/124")
	suite.CreateForTest(t, admin, p)
	manifest := func(name, spec string) string {
		return "apiVersion: novaedge.io/v1alpha1\nkind: ProxyVIP\nmetadata: {name: " + name + "}\nspec: {poolRef: {name: families}, mode: BGP, ports: [80]" + spec + "}\n"
	}
	for name, how := range map[string][]string{
		"client":  {"apply", "-f", "-"},
		"server":  {"apply", "--server-side", "-f", "-"},
		"replace": {"replace", "-f", "-"},
	} {
		t.Run(name, func(t *testing.T) {
			vipName := "family-" + name
			first := how
			if name == "replace" {
				first = []string{"create", "-f", "-"}
			}
			suite.Kubectl(t, cluster, manifest(vipName, ", addressFamily: dual"), first...)
			v := &v1alpha1.ProxyVIP{}
			v.Name = vipName
			t.Cleanup(func() { remove(t, v) })
			v = suite.Read(t, admin, v)
			four, six := v.Spec.Address, v.Spec.IPv6Address
			if four == "" || six == "" {
				t.Fatalf("a dual VIP has %q", addresses(v))
			}
			counts(t, p, 2, 27)
			for _, step := range []struct {
				spec, want string
				has        int64
			}{
				{", addressFamily: ipv4", four, 1},
				{", addressFamily: dual", four + " " + six, 2},
				{", addressFamily: ipv6", six, 1},
				{"", four, 1}, // the default is ipv4
			} {
				suite.Kubectl(t, cluster, manifest(vipName, step.spec), append(how, "--dry-run=server")...)
				suite.Kubectl(t, cluster, manifest(vipName, step.spec), how...)
				v = suite.Read(t, admin, v)
				if got := addresses(v); got != step.want {
					t.Fatalf("%q: %q, want %q", step.spec, got, step.want)
				}
				suite.AwaitObject(t, admin, v, func(v *v1alpha1.ProxyVIP) string {
					mirror := v.Status.AllocatedAddress // of an ipv6 VIP both fields have the address
					if v.Spec.AddressFamily != v1alpha1.FamilyIPv6 {
						mirror = strings.TrimSpace(mirror + " " + v.Status.AllocatedIPv6Address)
					}
					if mirror != step.want {
						return mirror
					}
					return ""
				})
				counts(t, p, step.has, 29-step.has)
			}
		})
	}
	t.Run("a person's address is not removed", func(t *testing.T) {
		const six = `, ipv6Address: "2001:db8:62::e/128"`
		suite.Kubectl(t, cluster, manifest("family-own", ", addressFamily: dual"+six), "apply", "--server-side", "-f", "-")
		t.Cleanup(func() { remove(t, vip("family-own", "")) })
		_, _, err := cluster.Kubectl(t.Context(), manifest("family-own", ", addressFamily: ipv4"+six), "apply", "--server-side", "-f", "-")
		if err == nil || !strings.Contains(err.Error(), "spec.ipv6Address") || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("%v", err)
		}
		suite.Kubectl(t, cluster, manifest("family-own", ", addressFamily: ipv4"), "apply", "--server-side", "-f", "-")
	})
}

// A client wrote one address of a dual VIP, and the allocator chose the other: a change
// of the family removes only the chosen one.
func TestProxyVIP_FamilyChangeKeepsAWrittenAddress(t *testing.T) {
	p := pool("half-written", "10.70.0.0/28", "2001:db8:70::/124")
	suite.CreateForTest(t, admin, p)
	to := func(v *v1alpha1.ProxyVIP, family v1alpha1.AddressFamily) error {
		return suite.TryChange(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.AddressFamily = family })
	}
	becomes := func(t *testing.T, v *v1alpha1.ProxyVIP, family v1alpha1.AddressFamily, want string) {
		t.Helper()
		if err := to(v, family); err != nil || addresses(v) != want {
			t.Errorf("%s: %q, want %q; %v", family, addresses(v), want, err)
		}
	}
	const four, six = "10.70.0.9", "2001:db8:70::1/128"
	for name, v := range map[string]*v1alpha1.ProxyVIP{
		"created dual": vip("written-dual", p.Name, at(four), of(v1alpha1.FamilyDual)),
		"widened":      vip("written-widened", p.Name, at(four)),
		"changed":      vip("written-changed", p.Name, of(v1alpha1.FamilyDual)),
	} {
		t.Run(name, func(t *testing.T) {
			suite.Create(t, admin, v)
			if v.Spec.Address != four {
				suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.Address = four })
			}
			becomes(t, v, v1alpha1.FamilyDual, four+" "+six)
			suite.RequireDenied(t, to(v, v1alpha1.FamilyIPv6), 422, "spec.address", four, "must be IPv6 with addressFamily ipv6")
			becomes(t, v, v1alpha1.FamilyIPv4, four)
			becomes(t, v, v1alpha1.FamilyDual, four+" "+six)
			suite.Change(t, admin, v, func(v *v1alpha1.ProxyVIP) { v.Spec.AddressFamily, v.Spec.Address = v1alpha1.FamilyIPv6, "" })
			if got := addresses(v); got != six {
				t.Errorf("the author removed the IPv4 address, and %q is left, want %q", got, six)
			}
			suite.Delete(t, admin, v) // the addresses are those of the next VIP
		})
	}
	t.Run("before the pool", func(t *testing.T) {
		v, late := vip("written-early", "half-late", at("10.70.1.9"), of(v1alpha1.FamilyDual)), pool("half-late", "10.70.1.0/28", "2001:db8:70:1::/124")
		suite.CreateForTest(t, admin, v, late)
		bound(t, v)
		suite.RequireDenied(t, to(v, v1alpha1.FamilyIPv6), 422, "spec.address", "10.70.1.9")
		becomes(t, v, v1alpha1.FamilyIPv4, "10.70.1.9")
	})
	t.Run("through a Service", func(t *testing.T) {
		s := service(suite.CreateNamespace(t, admin), "web", "vip-mode", "BGP", "address-pool", p.Name, "address-family", "dual")
		s.Spec.LoadBalancerIP = "10.70.0.7"
		suite.CreateForTest(t, admin, s)
		shows(t, s, "10.70.0.7 2001:db8:70::1")
		family := func(family string) {
			suite.Change(t, admin, s, func(s *corev1.Service) { s.Annotations[v1alpha1.AnnotationAddressFamily] = family })
		}
		family("ipv6")
		told(t, s, "IPAllocationFailed", `spec.loadBalancerIP: Invalid value: "10.70.0.7": must be IPv6 with annotation novaedge.io/address-family ipv6`)
		shows(t, s, "10.70.0.7 2001:db8:70::1")
		family("ipv4")
		shows(t, s, "10.70.0.7")
	})
}

// remove deletes a ProxyVIP after the test.
func remove(t *testing.T, v *v1alpha1.ProxyVIP) {
	if err := admin.Delete(context.Background(), v); err != nil {
		t.Error(err)
	}
}
