package novaedge

import (
	"context"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// A manifest that names no addresses changes the family by changing only addressFamily: the API server merges it with the addresses that the
// allocator filled in.
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

// remove deletes a ProxyVIP after the test.
func remove(t *testing.T, v *v1alpha1.ProxyVIP) {
	if err := admin.Delete(context.Background(), v); err != nil {
		t.Error(err)
	}
}
