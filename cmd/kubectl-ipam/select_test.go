package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/health"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

// site returns an inventory with pools of equal names, and claims.
func site() *inventory.Inventory {
	i := inventory.New(time.Now(), nil)
	meta := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(namespace + name), ResourceVersion: "1"}
	}
	for _, p := range []struct{ namespace, name, cidr, domain string }{
		{"butler-system", "vlan40", "10.40.0.0/24", ""}, {"lab", "vlan40", "10.41.0.0/24", ""}, {"lab", "edge", "10.42.0.0/24", ""}, {"lab", "red", "10.43.0.0/24", "red"}, {"v6", "v6", "2001:db8::/64", "v6"},
	} {
		i.Add(&butlerv1.NetworkPool{ObjectMeta: meta(p.namespace, p.name), Spec: butlerv1.NetworkPoolSpec{CIDR: p.cidr, RoutingDomain: p.domain}})
	}
	i.Add(&metal3v1.IPPool{ObjectMeta: meta("lab", "edge"), Spec: metal3v1.IPPoolSpec{Pools: []metal3v1.Pool{{Start: ptr.To(metal3v1.IP("10.44.0.1")), End: ptr.To(metal3v1.IP("10.44.0.9"))}}}})
	vip := &novaedgev1.ProxyVIP{ObjectMeta: meta("", "vip-web-005")}
	vip.Spec.Address = "10.45.0.1/32"
	i.Add(vip)
	i.Add(&metal3v1.IPClaim{ObjectMeta: meta("lab", "machine"), Spec: metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "edge"}}})
	return i
}

func siteApp(namespace string) (*app, *bytes.Buffer) {
	var out bytes.Buffer
	a := newApp(streams{out: &out, err: &out})
	a.output, a.overrides.Context.Namespace = "table", namespace
	return a, &out
}

// The flag -n restricts the name of a pool to its namespace, and an error names the pools
// that may be meant.
func TestFindPool(t *testing.T) {
	for _, tc := range []struct{ namespace, argument, want string }{
		{"", "vlan40", `2 pools are named "vlan40": write NetworkPool/butler-system/vlan40, or NetworkPool/lab/vlan40`},
		{"lab", "vlan40", "NetworkPool lab/vlan40"},
		{"lab", "butler-system/vlan40", "NetworkPool butler-system/vlan40"},
		{"lab", "np/butler-system/vlan40", "NetworkPool butler-system/vlan40"},
		{"butler-system", "np/edge", `no pool "np/edge" among those that you may read: did you mean IPPool/lab/edge, NetworkPool/lab/edge?`},
		{"butler-system", "red", `no pool "red" in namespace "butler-system" among those that you may read: did you mean lab/red?`},
		{"nope", "vlan40", `no pool "vlan40" in namespace "nope" among those that you may read: did you mean butler-system/vlan40, lab/vlan40?`},
		{"", "vlan4", `no pool "vlan4" among those that you may read: did you mean butler-system/vlan40, lab/vlan40?`},
		{"", "lab/edgee", `no pool "lab/edgee" among those that you may read: did you mean IPPool/lab/edge, NetworkPool/lab/edge?`},
		{"", "laab/red", `no pool "laab/red" among those that you may read: did you mean lab/red?`},
		{"", "corporate", `no pool "corporate" among those that you may read: list them with kubectl ipam pools`},
		{"lab", "edge", `2 pools are named "edge": write IPPool/lab/edge, or NetworkPool/lab/edge`},
	} {
		a, _ := siteApp(tc.namespace)
		p, err := a.findPool(site(), tc.argument)
		got := fmt.Sprint(err)
		if err == nil {
			got = inventory.TitleOf(p.Key)
		}
		if got != tc.want {
			t.Errorf("-n %q %s: %s, want %s", tc.namespace, tc.argument, got, tc.want)
		}
	}
	a, _ := siteApp("")
	a.domain, a.domainSet = "", true
	if _, err := a.findPool(site(), "red"); err == nil || err.Error() != `no pool "red" in routing domain "" among those that you may read: did you mean lab/red of routing domain "red"?` {
		t.Errorf("%v", err)
	}
}

// Each pool is completed to the first argument that names no other pool.
func TestCompletePools(t *testing.T) {
	const edge = "ippool/lab/edge\tIPPool networkpool/lab/edge\tNetworkPool"
	for _, tc := range []struct{ namespace, prefix, want string }{
		{"", "", edge + " butler-system/vlan40\tNetworkPool lab/vlan40\tNetworkPool red\tNetworkPool v6\tNetworkPool"},
		{"", "r", "red\tNetworkPool"},
		{"", "lab/", "lab/red\tNetworkPool lab/vlan40\tNetworkPool"},
		{"", "ippool/", "ippool/lab/edge\tIPPool"},
		{"lab", "v", "vlan40\tNetworkPool"},
		{"nope", "", ""},
	} {
		a, _ := siteApp(tc.namespace)
		got := a.poolArguments(site(), tc.prefix)
		slices.Sort(got)
		want := strings.Split(tc.want, " ")
		slices.Sort(want)
		if strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("-n %q %q: %q, want %q", tc.namespace, tc.prefix, got, want)
		}
	}
}

// The shell offers file names only for the flags and arguments that are files.
func TestCompletion_OffersFilesOnlyForFiles(t *testing.T) {
	root := newRoot(streams{in: strings.NewReader(""), out: &bytes.Buffer{}, err: &bytes.Buffer{}})
	files := map[string]bool{}
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if _, completes := cmd.GetFlagCompletionFunc(f.Name); !completes && f.NoOptDefVal == "" {
				files[f.Name] = true
			}
		})
		takesArgument := strings.Contains(cmd.Use, " ") && !strings.Contains(cmd.Use, "FILE")
		if takesArgument && cmd.ValidArgsFunction == nil {
			t.Errorf("the argument of %s has no completion", cmd.Use)
		}
	}
	for name := range files {
		if !slices.Contains(fileFlags, name) {
			t.Errorf("the shell offers files for --%s", name)
		}
	}
	if len(files) != len(fileFlags) {
		t.Errorf("files for %v, want %v", files, fileFlags)
	}
}

func TestCompletion_Names(t *testing.T) {
	i := site()
	i.Add(&butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "lab", Name: "web-nodes", UID: "web-nodes", ResourceVersion: "1"},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "red"}, Type: butlerv1.TypeNodes, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: "team-1", Name: "web"},
		},
	})
	for what, got := range map[string][2]string{
		"domains":    {strings.Join(domainNames(i), " "), "red v6"},
		"namespaces": {strings.Join(poolNamespaces(i), " "), "butler-system lab v6"},
		"tenants":    {strings.Join(tenantNamesOf(i), " "), "team-1/web"},
		"owners":     {strings.Join(ownerNames(i), " "), "team-1/web proxyvip/vip-web-005\tNotReady ipclaim/lab/machine\tPending ipallocation/lab/web-nodes\tPending"},
	} {
		if got[0] != got[1] {
			t.Errorf("%s: %q, want %q", what, got[0], got[1])
		}
	}
}

// who names the claims and tenants that an argument may mean.
func TestWho_Suggestions(t *testing.T) {
	a, _ := siteApp("")
	for argument, want := range map[string]string{
		"vip-web-005":           `"vip-web-005" is the name of a claim without its kind: write proxyvip/vip-web-005`,
		"lab/machine":           `"lab/machine" is the name of a claim without its kind: write ipclaim/lab/machine`,
		"machine":               `"machine" is the name of a claim without its kind: write ipclaim/lab/machine`,
		"proxyvip/vip-web-05":   `no tenant or claim is named "proxyvip/vip-web-05": did you mean proxyvip/vip-web-005?`,
		"nothing/of/the-kind-x": `"nothing/of/the-kind-x" is no address, range or network, and no tenant (namespace/name) or claim (kind/namespace/name) has this name`,
	} {
		if _, err := a.answer(site(), argument); fmt.Sprint(err) != want {
			t.Errorf("who %s: %v, want %s", argument, err, want)
		}
	}
}

// check selects the findings about objects of a namespace, and every finding about the
// installation.
func TestCheck_SelectsNamespace(t *testing.T) {
	i := site()
	of := func(d health.Defect, objects ...inventory.Key) health.Finding {
		return health.Finding{Defect: d, Objects: objects}
	}
	lab, other := butler.NetworkPoolKey("lab", "vlan40"), butler.NetworkPoolKey("butler-system", "vlan40")
	findings := []health.Finding{of(health.Full, lab), of(health.Full, other), of(health.Overlap, other, lab), of(health.NoLeader), of(health.CreateFails, other), of(health.NoAddress, inventory.Key{Resource: metal3.ResourceIPClaim, Namespace: "lab", Name: "machine"})}
	for namespace, want := range map[string][]bool{
		"": {true, true, true, true, true, true}, "lab": {true, false, true, true, true, true}, "butler-system": {false, true, true, true, true, false}, "nope": {false, false, false, true, true, false},
	} {
		a, _ := siteApp(namespace)
		for n, f := range findings {
			if got := a.selectsFinding(i, f); got != want[n] {
				t.Errorf("-n %q: finding %d is selected: %t", namespace, n, got)
			}
		}
	}
}

// A list without items names the namespace of the flag, and those that may be meant.
func TestLists_EmptyNamespace(t *testing.T) {
	for namespace, want := range map[string]string{
		"labb": "no pools in namespace \"labb\": did you mean lab?\n", "production": "no pools in namespace \"production\": others have some, as butler-system, lab, v6\n",
	} {
		a, out := siteApp(namespace)
		if err := a.poolList(site()).print(a); err != nil || out.String() != want {
			t.Errorf("-n %s: %q, want %q: %v", namespace, out, want, err)
		}
	}
	a, out := siteApp("v6")
	if err := a.claimList(site(), func(c *inventory.Claim) bool { return a.selects(c.Key, c.Domain) && c.Key.Namespace != "" }).print(a); err != nil || out.String() != "no claims in namespace \"v6\": others have some, as lab\n" {
		t.Errorf("%q: %v", out, err)
	}
}

// A grid of an IPv6 pool shows the smallest part with all addresses in use, or with --in
// the whole network.
func TestMap_GridOfIPv6(t *testing.T) {
	i := site()
	i.Add(&butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "v6", Name: "a", UID: "a", ResourceVersion: "1"},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "v6"}, Type: butlerv1.TypeNodes, PinnedRange: &butlerv1.PinnedIPRange{StartAddress: "2001:db8::20", EndAddress: "2001:db8::2f"},
		},
	})
	p := i.Pool(butler.NetworkPoolKey("v6", "v6"))
	draw := func(network allocator.Range) string {
		a, out := siteApp("")
		if err := a.printGrid(i, p, network, report.NetworkText(network), i.Segments(p.Domain, report.Offered(p, network)), nil); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	whole := p.Networks()[0]
	part := gridStart(i, p, whole)
	if got := draw(part); part.String() != "2001:db8::-2001:db8::3ff" || !strings.Contains(got, "one sign is an address\n") ||
		!strings.Contains(got, "\n   2001:db8::  ........ ........ ........ ........\n") || !strings.Contains(got, "\n 2001:db8::20  NNNNNNNN NNNNNNNN ........ ........\n") {
		t.Errorf("%s:\n%s", part, got)
	}
	if got := draw(whole); !strings.Contains(got, "one sign is 2^54 addresses\n") || !strings.Contains(got, "  +....... ........ ........ ........\n") ||
		!strings.Contains(got, "\n 2001:db8:0:0:800::  ........ ") || !strings.Contains(got, "(30 more rows like this)\n") {
		t.Errorf("%s:\n%s", whole, got)
	}
}

// The lists for programs have the addresses of both families of a pool. A document names
// the networks that it leaves out.
func TestMap_DualStack(t *testing.T) {
	i := site()
	k := inventory.Key{Resource: novaedge.ResourceProxyIPPool, Name: "dual"}
	i.Add(&novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "dual", UID: "dual", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.46.0.0/30", "2001:db8:46::/126"}}})
	p := i.Pool(k)
	network, offered, err := mapNetwork(p, "")
	if err != nil {
		t.Fatal(err)
	}
	for output, want := range map[string]string{
		"csv":  "range,size,domain,state,owner,tenant,purpose,since,until\n10.46.0.1-10.46.0.2,2,,free,,,,,\n2001:db8:46::1-2001:db8:46::3,3,,free,,,,,\n",
		"name": "10.46.0.1-10.46.0.2\n2001:db8:46::1-2001:db8:46::3\n",
	} {
		a, out := siteApp("")
		a.output = output
		err := a.printRanges(i, p, network, i.Segments("", offered), "", otherNetworks(p, ""))
		if err != nil || out.String() != want {
			t.Errorf("-o %s: %q, want %q: %v", output, out, want, err)
		}
	}
}

// A number in JSON that exceeds the largest int64 has its digits beside it.
func TestDocuments_NumbersBeyondInt64(t *testing.T) {
	i := site()
	p := i.Pool(butler.NetworkPoolKey("v6", "v6"))
	for what, document := range map[string]any{
		"pool":    report.NewPool(i, p),
		"map":     report.NewAddressMap(i, p, p.Networks()[0]),
		"segment": report.NewAddressMap(i, p, p.Networks()[0]).Segments[0],
		"free":    newRangeItem(p.Ranges[0]),
		"plan":    report.NewPlan(i, p, inventory.Plan{Before: p.Ranges, After: p.Ranges}),
		"fit":     report.NewFit(i, p, []int64{1}, inventory.Fit{}),
	} {
		text, err := json.Marshal(document)
		var fields struct {
			Exact map[string]string `json:"exact"`
		}
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		if err != nil || len(fields.Exact) == 0 {
			t.Errorf("%s: %s: %v", what, text, err)
		}
		for field, digits := range fields.Exact {
			if digits != "18446744073709551616" || what != "map" && what != "fit" && !strings.Contains(string(text), fmt.Sprintf(`%q:9223372036854775807`, field)) {
				t.Errorf("%s: %s=%s: %s", what, field, digits, text)
			}
		}
	}
	if text, _ := json.Marshal(report.NewPool(i, i.Pool(butler.NetworkPoolKey("lab", "red")))); strings.Contains(string(text), "exact") {
		t.Errorf("a small pool: %s", text)
	}
}
