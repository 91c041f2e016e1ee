package butler

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

func TestIPAllocation_DenialNamesTheCause(t *testing.T) {
	ns := namespace(t)
	p := pool(ns, "10.40.0.0/24", "10.40.0.0-10.40.0.63", "10.40.0.128-10.40.0.191")
	p.Spec.Reserved, p.Spec.Gateway = []v1alpha1.ReservedRange{{CIDR: "10.40.0.16/28"}}, "10.40.0.191"
	going := pool(ns, "10.41.0.0/24")
	going.Name = "going"
	going.Finalizers = []string{"example.org/keep"}
	suite.Create(t, admin, p, going, pinned(ns, "web", "10.40.0.0-10.40.0.3"))
	if err := admin.Delete(t.Context(), going); err != nil {
		t.Fatal(err)
	}
	where := "pool " + ns + "/pool"

	late := claim(ns, "x", 1)
	late.Spec.PoolRef.Name = "going"
	for name, tc := range map[string]struct {
		claim *v1alpha1.IPAllocation
		code  int32
		parts []string
	}{
		"owned":          {pinned(ns, "x", "10.40.0.2-10.40.0.5"), 403, []string{where, "10.40.0.2-10.40.0.3 is owned by ipallocations/web", "ask for another range"}},
		"reserved":       {pinned(ns, "x", "10.40.0.14-10.40.0.17"), 422, []string{where, "spec.pinnedRange", "10.40.0.16-10.40.0.31 is reserved (spec.reserved[0].cidr)", "choose a range outside it"}},
		"gateway":        {pinned(ns, "x", "10.40.0.190-10.40.0.191"), 422, []string{where, "spec.pinnedRange", "10.40.0.191 is the gateway of the pool (spec.gateway): choose a range outside it"}},
		"in no range":    {pinned(ns, "x", "10.40.0.200-10.40.0.201"), 422, []string{where, "outside the pool (inside spec.cidr, but in no range of spec.tenantAllocation)"}},
		"outside":        {pinned(ns, "x", "10.99.0.0-10.99.0.3"), 422, []string{where, "spec.pinnedRange", "outside the pool", "10.40.0.128-10.40.0.191"}},
		"between ranges": {pinned(ns, "x", "10.40.0.70-10.40.0.71"), 422, []string{where, "spec.pinnedRange", "outside the pool"}},
		"over two":       {pinned(ns, "x", "10.40.0.60-10.40.0.130"), 422, []string{where, "spec.pinnedRange", "spans more than one range"}},
		"other family":   {pinned(ns, "x", "2001:db8::1-2001:db8::2"), 422, []string{where, "spec.pinnedRange", "outside the pool"}},
		"too many":       {claim(ns, "x", 65), 403, []string{where, "65 addresses requested, 107 free, largest free block 63", "ask for fewer"}},
		"pool is going":  {late, 403, []string{"pool " + ns + "/going is being deleted", "use another pool"}},
	} {
		err := admin.Create(t.Context(), tc.claim)
		t.Run(name, func(t *testing.T) { suite.RequireDenied(t, err, tc.code, tc.parts...) })
	}
	elsewhere := suite.CreateNamespace(t, admin)
	suite.Create(t, admin, pool(elsewhere, "10.40.0.0/24"), pinned(elsewhere, "seen", "10.40.0.255-10.40.0.255"))
	suite.RequireDenied(t, admin.Create(t.Context(), pinned(elsewhere, "x", "10.40.0.16-10.40.0.17")), 422,
		"pool "+elsewhere+"/pool: in a pool of another namespace 10.40.0.16-10.40.0.31 is reserved")
	if lines := openGrants(t, ns); len(lines) > 1 {
		t.Errorf("%d grants are open, want at most that of what was stored", len(lines))
	}
}

func TestNetworkPool_GrowsAndKeepsOwnedAddresses(t *testing.T) {
	ns := namespace(t)
	suite.Create(t, admin, pool(ns, "10.42.0.0/24"), pinned(ns, "web", "10.42.0.100-10.42.0.103"))
	with := func(change string) *v1alpha1.NetworkPool {
		p := pool(ns, "10.42.0.0/24")
		if err := yaml.Unmarshal([]byte(change), &p.Spec); err != nil {
			t.Fatal(err)
		}
		return p
	}
	const owned = "10.42.0.100-10.42.0.103 "
	for name, tc := range map[string]struct {
		change string
		code   int32
		parts  []string
	}{
		"shrinking":                {"cidr: 10.42.0.0/25", 422, []string{"spec.cidr", "may grow but never shrink or move"}},
		"moving":                   {"cidr: 10.43.0.0/24", 422, []string{"spec.cidr", "may grow but never shrink or move"}},
		"reserving what is owned":  {"reserved: [{cidr: 10.42.0.96/29}]", 403, []string{"pool " + ns + "/pool", owned + "would become reserved", "ipallocations/web", "delete the owner first"}},
		"ranges without the owned": {"tenantAllocation: {ranges: [{start: 10.42.0.0, end: 10.42.0.99}]}", 403, []string{owned + "would leave the pool's ranges", "ipallocations/web"}},
		"start and end likewise":   {"tenantAllocation: {start: 10.42.0.104, end: 10.42.0.200}", 403, []string{owned + "would leave the pool's ranges", "ipallocations/web"}},
		"another routing domain":   {"routingDomain: dc2", 403, []string{owned, "would change its routing domain", "ipallocations/web"}},
		"unsorted ranges":          {"tenantAllocation: {ranges: [{start: 10.42.0.200, end: 10.42.0.210}, {start: 10.42.0.0, end: 10.42.0.110}]}", 422, []string{"spec.tenantAllocation.ranges[1]", "ascending"}},
		"reserved over an edge":    {"{tenantAllocation: {ranges: [{start: 10.42.0.50, end: 10.42.0.110}]}, reserved: [{cidr: 10.42.0.48/29}]}", 422, []string{"spec.reserved[0].cidr", "reaches over an edge"}},
	} {
		for mode, options := range map[string][]client.UpdateOption{"": nil, ", dry run": {client.DryRunAll}} {
			err := update(t, with(tc.change), options...)
			t.Run(name+mode, func(t *testing.T) { suite.RequireDenied(t, err, tc.code, tc.parts...) })
		}
	}
	suite.Create(t, admin, pinned(ns, "db", "10.42.0.110-10.42.0.111"), pinned(ns, "mail", "10.42.0.112-10.42.0.112"))
	suite.RequireDenied(t, update(t, with("reserved: [{cidr: 10.42.0.96/27}]")), 403,
		owned+"would become reserved while it is owned by ipallocations/web, and further addresses by 2 others: delete the owners first")
	suite.Delete(t, admin, pinned(ns, "db", ""))
	suite.Delete(t, admin, pinned(ns, "mail", ""))
	for _, change := range []string{
		"cidr: 10.42.0.0/23",
		"{cidr: 10.42.0.0/23, reserved: [{cidr: 10.42.1.0/28}]}",
		"{cidr: 10.42.0.0/23, tenantAllocation: {ranges: [{start: 10.42.0.100, end: 10.42.0.103}]}}",
		"{cidr: 10.42.0.0/23, tenantAllocation: {ranges: [{start: 10.42.0.0, end: 10.42.1.255}]}}",
	} {
		if err := update(t, with(change)); err != nil {
			t.Errorf("%s: %v", change, err)
		}
	}
	suite.Create(t, admin, claim(ns, "grown", 256))
}

func TestIPAllocation_DenialHidesOwnersOfOtherNamespaces(t *testing.T) {
	ns := namespace(t)
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "stranger-"}}
	suite.Create(t, admin, other)
	suite.Create(t, admin, pool(other.Name, "10.44.0.0/24"), pinned(other.Name, "secret", "10.44.0.4-10.44.0.7"))

	// The pool overlaps: it is made all the same, and says so.
	text, err := yaml.Marshal(pool(ns, "10.44.0.0/28"))
	if err != nil {
		t.Fatal(err)
	}
	header := "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: NetworkPool\n"
	if _, warning := suite.Kubectl(t, cluster, header+string(text), "create", "-f", "-"); !strings.Contains(warning, "same addresses as "+other.Name+"/pool") {
		t.Errorf("kubectl wrote %q, want a warning that names the other pool", warning)
	}
	a := claim(ns, "a", 8)
	suite.Create(t, admin, a)
	if got := addressesOf(a); got != "10.44.0.8-10.44.0.15" {
		t.Errorf("range %q, want the addresses that the other pool has not given", got)
	}
	reserving := pool(ns, "10.44.0.0/28")
	reserving.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.44.0.0/29"}}
	for name, err := range map[string]error{
		"pinning":   admin.Create(t.Context(), pinned(ns, "b", "10.44.0.7-10.44.0.7")),
		"reserving": update(t, reserving),
	} {
		suite.RequireDenied(t, err, 403, "is owned in another namespace")
		if err != nil && strings.Contains(err.Error(), "secret") || strings.Contains(err.Error(), other.Name) {
			t.Errorf("%s tells who holds the address: %v", name, err)
		}
	}
}

// Advice that the next request would be denied for is none.
func TestIPAllocation_DenialAdvice(t *testing.T) {
	ns := namespace(t)
	full := pool(ns, "10.45.8.0/29")
	full.Name = "full"
	full.Spec.Reserved = []v1alpha1.ReservedRange{{CIDR: "10.45.8.0/29"}}
	suite.Create(t, admin, full, pool(ns, "10.45.9.0/29"), pinned(ns, "all", "10.45.9.0-10.45.9.7"))
	none := claim(ns, "x", 4)
	none.Spec.PoolRef.Name = "full"
	suite.RequireDenied(t, admin.Create(t.Context(), none), 403, "0 free, largest free block 0: the pool offers no address that is not reserved: reserve fewer or enlarge the pool")
	suite.RequireDenied(t, admin.Create(t.Context(), claim(ns, "x", 4)), 403, "0 free, largest free block 0: release some or enlarge the pool")
	_, warned := suite.Kubectl(t, cluster, "", "patch", "networkpool", "pool", "-n", ns, "--type=merge", "-p", `{"spec": {"reuseDelay": "1m"}}`)
	const want = "10.45.9.0, the network address of spec.cidr, which no machine can use, is owned by ipallocations/all: unless the pool is for load balancers alone, delete the owner, and add 10.45.9.0/32 to spec.reserved then"
	if !strings.Contains(warned, want) {
		t.Errorf("kubectl wrote %q, want %q", warned, want)
	}
}

func TestRoutingDomain_SameAddressesInTwo(t *testing.T) {
	ns := namespace(t)
	for _, domain := range []string{"east", "west"} {
		p, a := pool(ns, "10.45.0.0/30"), claim(ns, domain, 4)
		p.Name, p.Spec.RoutingDomain, a.Spec.PoolRef.Name = domain, domain, domain
		suite.Create(t, admin, p, a)
	}
}

func TestNetworkPool_WarnsOfDeprecatedFields(t *testing.T) {
	ns := namespace(t)
	const header = "apiVersion: butler.butlerlabs.dev/v1alpha1\nkind: NetworkPool\nmetadata: {name: pool}\n"
	for verb, tc := range map[string]struct{ spec, want string }{
		"create": {"{cidr: 10.46.0.0/24, tenantAllocation: {start: 10.46.0.1, end: 10.46.0.9}}", "deprecated"},
		"apply":  {"{cidr: 10.46.0.0/24, tenantAllocation: {start: 10.46.0.1, end: 10.46.0.9, ranges: [{start: 10.46.0.1, end: 10.46.0.20}]}}", "ignored"},
	} {
		if _, warning := suite.Kubectl(t, cluster, header+"spec: "+tc.spec, verb, "-n", ns, "--dry-run=server", "-f", "-"); !strings.Contains(warning, tc.want) {
			t.Errorf("kubectl %s wrote %q, want a warning that says %q", verb, warning, tc.want)
		}
	}
}
