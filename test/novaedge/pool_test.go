package novaedge

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// Names of subtests begin with the case of the package comment.
func TestProxyIPPool_Offers(t *testing.T) {
	for _, tc := range []struct {
		name   string
		offers []string
		size   int64
		first  []string // addresses in the order in which they are given
	}{
		{"p1-28", []string{"10.21.1.0/28"}, 14, []string{"10.21.1.1/32", "10.21.1.2/32"}},
		{"p2-explicit", []string{"10.21.2.30", "10.21.2.10", "10.21.2.20"}, 3, []string{"10.21.2.10/32", "10.21.2.20/32", "10.21.2.30/32"}},
		{"p3-mixed", []string{"10.21.3.0/30", "10.21.4.1"}, 3, []string{"10.21.3.1/32", "10.21.3.2/32", "10.21.4.1/32"}},
		{"p4-32", []string{"10.21.5.1/32"}, 1, []string{"10.21.5.1/32"}},
		{"t12-24", []string{"10.21.6.0/24"}, 254, []string{"10.21.6.1/32", "10.21.6.2/32", "10.21.6.3/32"}},
		{"t12-120", []string{"2001:db8:21::/120"}, 255, []string{"2001:db8:21::1/128", "2001:db8:21::2/128"}},
		{"t13-31", []string{"10.21.7.0/31"}, 2, []string{"10.21.7.0/32", "10.21.7.1/32"}},
		{"t13-127", []string{"2001:db8:22::/127"}, 2, []string{"2001:db8:22::/128", "2001:db8:22::1/128"}},
		{"t13-128", []string{"2001:db8:23::5/128"}, 1, []string{"2001:db8:23::5/128"}},
		{"t13-15", []string{"10.22.0.0/15"}, 131070, []string{"10.22.0.1/32"}},
		{"t13-64", []string{"fd21::/64"}, 1<<63 - 1, []string{"fd21::1/128"}}, // the counter saturates
		{"t13-host-bits", []string{"10.21.8.200/28"}, 14, []string{"10.21.8.193/32"}},
		{"readmitted", []string{"10.21.9.0/30", "10.21.9.0"}, 3, []string{"10.21.9.0/32", "10.21.9.1/32"}},
		{"p12-explicit", []string{"2001:db8:24::3", "2001:db8:24::1", "2001:db8:24::2"}, 3, []string{"2001:db8:24::1/128", "2001:db8:24::2/128"}},
		{"t12-mixed", []string{"10.21.13.0/28", "10.21.14.200", "10.21.14.100"}, 16, []string{"10.21.13.1/32", "10.21.13.2/32"}},
		{"t12-28", []string{"10.21.15.0/28"}, 14, []string{"10.21.15.1/32", "10.21.15.2/32", "10.21.15.3/32"}},
		{"repeated", []string{"10.21.10.0/30", "10.21.10.1"}, 2, []string{"10.21.10.1/32", "10.21.10.2/32"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := pool(tc.name, tc.offers...)
			suite.CreateForTest(t, admin, p)
			counts(t, p, 0, tc.size)
			for i, want := range tc.first {
				v := vip(tc.name+string(rune('a'+i)), p.Name)
				if want[0] == '2' || want[0] == 'f' {
					v.Spec.AddressFamily = v1alpha1.FamilyIPv6
				}
				gets(t, v, want)
			}
			left := tc.size - int64(len(tc.first))
			if tc.name == "t13-64" {
				left = tc.size
			}
			suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProxyIPPool) string {
				if p.Status.Allocated == int64(len(tc.first)) && (p.Status.Available == left || tc.name == "t13-64") {
					return ""
				}
				return "counters are behind"
			})
		})
	}
}

func TestProxyIPPool_Invalid(t *testing.T) {
	for name, tc := range map[string]struct {
		pool *v1alpha1.ProxyIPPool
		says string
	}{
		"p5-invalid":   {pool("p5", "invalid/24"), "spec.cidrs[0]"},
		"a2-invalid":   {pool("a2", "10.0.0.300"), "spec.addresses[0]"},
		"t13-mapped":   {pool("t13m", "::ffff:10.0.0.0/120"), "spec.cidrs[0]"},
		"nothing":      {pool("nothing"), "at least one network in cidrs or one address in addresses"},
		"no-networks6": {pool("all6", "::/0"), "spec.cidrs[0]"},
	} {
		t.Run(name, func(t *testing.T) {
			suite.RequireDenied(t, admin.Create(t.Context(), tc.pool), 422, tc.says)
		})
	}
}

func TestProxyIPPool_WarnsOfHostBitsAndOverlaps(t *testing.T) {
	_, warning := suite.Kubectl(t, cluster, `{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: host-bits}, spec: {cidrs: [10.23.0.200/28]}}`, "create", "-f", "-")
	t.Cleanup(func() { _ = admin.Delete(context.Background(), pool("host-bits")) })
	contains(t, warning, "spec.cidrs[0]: 10.23.0.200/28 has bits set after the prefix, which do not count: it is 10.23.0.192/28, addresses 10.23.0.193 to 10.23.0.206")
	suite.AwaitObject(t, admin, pool("host-bits"), func(p *v1alpha1.ProxyIPPool) string {
		if meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionReady) {
			return ""
		}
		return "not ready"
	})
	_, warning = suite.Kubectl(t, cluster, `{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: over}, spec: {cidrs: [10.23.0.0/24]}}`, "create", "-f", "-")
	t.Cleanup(func() { _ = admin.Delete(context.Background(), pool("over")) })
	contains(t, warning, "pool over offers some of the same addresses as host-bits")
}

func TestPool_WarnsOfAddressesOfTheCluster(t *testing.T) {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "uses-24"}, Spec: corev1.NodeSpec{PodCIDR: "10.24.1.0/24", PodCIDRs: []string{"10.24.1.0/24", "fd24:1::/64"}}}
	suite.CreateForTest(t, admin, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "uses-24"}, {Type: corev1.NodeInternalIP, Address: "10.24.0.5"}}
	if err := admin.Status().Update(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		suite.CreateForTest(t, admin, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("uses-25-%d", i)}, Spec: corev1.NodeSpec{PodCIDR: fmt.Sprintf("10.25.%d.0/24", i), PodCIDRs: []string{fmt.Sprintf("10.25.%d.0/24", i)}}})
	}
	services := &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "uses-25"}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.25.128.0/24"}}}
	suite.CreateForTest(t, admin, services)
	suite.CreateForTest(t, admin, pool("uses-default", "10.26.0.0/28")) // so the default routing domain is that of the cluster
	const says = "offers addresses that this cluster uses itself, exclude them: "
	for _, tc := range []struct{ offers, domain, want string }{
		{"10.24.0.0/28", "", "10.24.0.5 of Node uses-24"},
		{"10.24.1.200/32", "", "10.24.1.0/24 of Pods of Node uses-24"},
		{"fd24:1::/120", "", "fd24:1::/64 of Pods of Node uses-24"},
		{"10.25.0.0/16", "", "10.25.128.0/24 of ServiceCIDR uses-25, 10.25.0.0/24 of Pods of Node uses-25-0, 10.25.1.0/24 of Pods of Node uses-25-1, " +
			"10.25.2.0/24 of Pods of Node uses-25-2, more"},
		{"10.24.2.0/24", "", ""},
		{"10.24.0.0/28", "elsewhere", ""}, // the addresses of another routing domain are not the cluster's
	} {
		first, last := edgesOf(t, tc.offers)
		pools := []string{
			fmt.Sprintf("{apiVersion: novaedge.io/v1alpha1, kind: ProxyIPPool, metadata: {name: uses, labels: {%s: %q}}, spec: {cidrs: [%q]}}", butlerv1.LabelRoutingDomain, tc.domain, tc.offers),
			fmt.Sprintf("{apiVersion: butler.butlerlabs.dev/v1alpha1, kind: NetworkPool, metadata: {namespace: default, name: uses}, spec: {cidr: %q, routingDomain: %q}}", tc.offers, tc.domain),
			fmt.Sprintf("{apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, metadata: {namespace: default, name: uses, labels: {%s: %q}}, spec: {namePrefix: uses, pools: [{start: %q, end: %q}]}}",
				butlerv1.LabelRoutingDomain, tc.domain, first, last),
		}
		for n, p := range pools {
			want := tc.want
			if n > 0 && strings.Contains(want, " of Node ") && !strings.Contains(want, "Pods of Node") { // a Node may have an address of this pool, which is not allocated
				want = ""
			}
			_, warned := suite.Kubectl(t, cluster, p, "create", "--dry-run=server", "-f", "-")
			_, used, _ := strings.Cut(warned, says)
			if used, _, _ = strings.Cut(used, "\n"); used != want {
				t.Errorf("%s draws %q, want %q", p, warned, want)
			}
		}
	}
}

// edgesOf returns the first and the last address of a network.
func edgesOf(t *testing.T, network string) (first, last netip.Addr) {
	t.Helper()
	r, err := allocator.ParseRange(network)
	if err != nil {
		t.Fatal(err)
	}
	return r.First, r.Last
}
