package plugin

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// pinned returns an IPAllocation NAME of a range for the tenant team-1/NAME.
func pinned(ns, pool, name, first, last string) *butlerv1.IPAllocation {
	a := suite.Kinds[0].Claim(ns, name, "").(*butlerv1.IPAllocation)
	a.Spec.PoolRef.Name = pool
	a.Spec.TenantClusterRef = butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: name}
	a.Spec.PinnedRange = &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last}
	return a
}

// A grid of a large network starts at the used addresses, and the first line names the
// part of the network. --in shows another part.
func TestMap_GridStartsWhereAddressesAreUsed(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, networkPool(ns, "large", "10.0.0.0/8", ns), networkPool(ns, "empty", "10.0.0.0/8", ns+"-empty"), networkPool(ns, "small", "10.0.0.0/21", ns+"-small"),
		pinned(ns, "large", "web", "10.1.0.0", "10.1.0.7"), pinned(ns, "small", "shop", "10.0.0.0", "10.0.0.7"))
	grid := func(args ...string) (first, rest string) {
		first, rest, _ = strings.Cut(ipam(t, append([]string{"map"}, args...)...).stdout, "\n")
		return first, rest
	}
	for _, test := range []struct {
		args        []string
		first, rows string
	}{
		{
			[]string{ns + "/large", "--grid"}, "10.1.0.0/22 of 10.0.0.0/8 (another part: --in RANGE), 1016 free in 1 block, largest 1016, 8 owned by 1 claim, one sign is an address",
			"  10.1.0.0  NNNNNNNN ........ ........ ........\n 10.1.0.32  ........",
		},
		{
			[]string{ns + "/large", "--grid", "--in", "10.0.0.0/8"}, "10.0.0.0/8, 16777208 free in 2 blocks, largest 16711672, 8 owned by 1 claim, one sign is 16384 addresses",
			"      10.0.0.0  ....+... ........ ........ ........\n",
		},
		{[]string{ns + "/empty", "--grid"}, "10.0.0.0/8, 16777216 free in 1 block, largest 16777216, one sign is 16384 addresses", ""},
		{[]string{ns + "/small"}, "10.0.0.0/21, 2040 free in 1 block, largest 2040, 8 owned by 1 claim, one sign is 2 addresses", "  10.0.0.0  NNNN"},
	} {
		first, rows := grid(test.args...)
		if first != test.first {
			t.Errorf("%v: the first line is %q, want %q", test.args, first, test.first)
		}
		if !strings.HasPrefix(rows, test.rows) {
			t.Errorf("%v: the rows are\n%s", test.args, rows)
		}
	}
}

// The map of a tenant counts only the ranges and addresses of the tenant, as text and as
// JSON.
func TestMap_CountsTheRangesOfATenant(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	again := pinned(ns, "pool", "web-again", "10.1.0.9", "10.1.0.9")
	again.Spec.TenantClusterRef.Name = "web"
	suite.Create(t, admin, networkPool(ns, "pool", "10.1.0.0/24", ns), pinned(ns, "pool", "web", "10.1.0.0", "10.1.0.6"), again, pinned(ns, "pool", "shop", "10.1.0.7", "10.1.0.8"))
	for tenant, want := range map[string]string{
		"team-1/web":  "team-1/web in 10.1.0.0/24: 2 ranges, 8 addresses\nRANGE ",
		"team-1/shop": "team-1/shop in 10.1.0.0/24: 1 range, 2 addresses\nRANGE ",
		"team-1/none": "team-1/none in 10.1.0.0/24: 0 ranges, 0 addresses\n",
	} {
		out := ipam(t, "map", ns+"/pool", "--tenant", tenant).stdout
		if !strings.HasPrefix(out, want) {
			t.Errorf("%s: %q, want %q", tenant, out, want)
		}
		m := decoded[addressMap](t, "map", ns+"/pool", "--tenant", tenant)
		total, lines := int64(0), 1
		for _, s := range m.Segments {
			total, lines = total+s.Size, 2+len(m.Segments) // plus two header lines
		}
		if m.Totals["owned"] != total || len(m.Totals) > 1 || strings.Count(out, "\n") != lines {
			t.Errorf("%s: the ranges %v have %d addresses, and the totals are %v: %q", tenant, m.Segments, total, m.Totals, out)
		}
	}
}

// A map of a pool with several networks starts at the first network, and names the others
// with the flag that shows them.
func TestMap_NamesTheOtherNetworks(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, &novaedgev1.ProxyIPPool{
		ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"203.0.113.0/24", "2001:db8:200::/120", "198.18.0.0/28", "10.99.0.0/28"}},
	})
	const others = "not shown: 198.18.0.0/28, 203.0.113.0/24, 2001:db8:200::/120, which the pool offers too (--in 198.18.0.0/28)"
	for _, test := range []struct {
		args []string
		want string
	}{
		{nil, "10.99.0.0/28, 14 free in 1 block, largest 14, one sign is an address\n" + others + "\n"},
		{[]string{"--ranges"}, "10.99.0.0/28, 14 free in 1 block, largest 14\n" + others + "\nRANGE"},
		{[]string{"--in", "203.0.113.0/24"}, "203.0.113.0/24, 254 free in 1 block, largest 254, one sign is an address\n  203.0.113.0"},
		{[]string{"--in", "2001:db8:200::/120"}, "2001:db8:200::/120, 255 free in 1 block, largest 255\nRANGE"},
	} {
		if out := ipam(t, append([]string{"map", "proxyippool/" + ns}, test.args...)...).stdout; !strings.HasPrefix(out, test.want) {
			t.Errorf("%v: %q, want %q", test.args, out, test.want)
		}
	}
	if r := ipam(t, "map", "proxyippool/"+ns, "-o", "csv"); r.stderr != "" || strings.Count(r.stdout, "\n") != 5 || !strings.Contains(r.stdout, "\n2001:db8:200::1-2001:db8:200::ff,255,") {
		t.Errorf("csv: %q and %q", r.stderr, r.stdout)
	}
	if m := decoded[struct{ OtherNetworks []string }](t, "map", "proxyippool/"+ns); len(m.OtherNetworks) != 3 {
		t.Errorf("the other networks in JSON are %q", m.OtherNetworks)
	}
}
