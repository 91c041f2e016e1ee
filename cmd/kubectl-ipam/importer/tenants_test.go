package importer_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
)

// The tenants of 400 rows get names of objects, and two tenants with one name are an
// error.
func TestNewPlan_SlugTenants(t *testing.T) {
	i := newInventory(newNetworkPool())
	var text strings.Builder
	text.WriteString("range,tenant\n")
	for n := range 400 {
		fmt.Fprintf(&text, "10.40.%d.%d,Customer %d GmbH\n", n/100, n%100*2, n)
	}
	o := importer.Options{SlugTenants: true, TenantNamespace: "team", Tenants: map[string]string{"Customer 7 GmbH": "other/seven"}}
	p := newPlan(t, i, networkPool, read(t, []byte(text.String()), addressfile.Mapping{}), o)
	if len(p.Claims) != 400 || p.Claims[0].Tenant != "team/customer-0-gmbh" || p.Claims[7].Tenant != "other/seven" {
		t.Errorf("%d claims, the first for %s, the eighth for %s", len(p.Claims), p.Claims[0].Tenant, p.Claims[7].Tenant)
	}
	for text, want := range map[string]string{
		"range,tenant\n10.40.0.1,R&D\n10.40.0.2,rd\n": `row 3 has the tenant "rd", whose name would be rd, as that of the tenant "R&D": write --tenant-map "rd=NAMESPACE/NAME"`,
		"range,tenant\n10.40.0.1,東京\n":                `row 2 has the tenant "東京", which has no Latin letter and no digit for a name: write --tenant-map "東京=NAMESPACE/NAME"`,
	} {
		_, err := importer.NewPlan(i, i.Pool(networkPool), read(t, []byte(text), addressfile.Mapping{}), o)
		if fmt.Sprint(err) != want {
			t.Errorf("error:\n%v\nwant:\n%s", err, want)
		}
	}
}

// The error lists every tenant that the options do not resolve.
func TestNewPlan_UnresolvedTenants(t *testing.T) {
	i := newInventory(newNetworkPool())
	f := read(t, []byte("range,tenant\n10.40.0.1,Acme\n10.40.0.2,Beta\n10.40.0.3,Acme\n10.40.0.4,team/web\n10.40.0.5,Known\n"), addressfile.Mapping{})
	_, err := importer.NewPlan(i, i.Pool(networkPool), f, importer.Options{Tenants: map[string]string{"Known": "team/known"}})
	var unresolved *importer.TenantError
	if !errors.As(err, &unresolved) || !slices.Equal(unresolved.Tenants, []string{"Acme", "Beta"}) || !strings.Contains(err.Error(), `row 2 has the tenant "Acme"`) {
		t.Errorf("%v: %v", unresolved, err)
	}
}

// The conflict of 600 scattered addresses without a tenant names ways to import them, and
// both ways are free of conflicts.
func TestNewPlan_ScatteredAddresses(t *testing.T) {
	i := newInventory(newNetworkPool())
	var text strings.Builder
	text.WriteString("range\n")
	for n := range 600 {
		fmt.Fprintf(&text, "10.40.%d.%d\n", n/100, n%100*2)
	}
	f := read(t, []byte(text.String()), addressfile.Mapping{})
	p := newPlan(t, i, networkPool, f, importer.Options{})
	if len(p.Conflicts) != 1 || p.Conflicts[0].Kind != importer.ConflictPool {
		t.Fatalf("conflicts: %v", p.Conflicts)
	}
	for way, o := range map[string]importer.Options{
		`--tenant-map "=NAMESPACE/NAME"`: {Tenants: map[string]string{"": "team/legacy"}, Type: butlerv1.TypeNodes},
		"--as ipaddressclaims":           {As: addressfile.KindIPAddressClaim},
	} {
		if !strings.Contains(p.Conflicts[0].Text, way) {
			t.Errorf("the conflict does not name %s: %s", way, p.Conflicts[0].Text)
		}
		if p := newPlan(t, i, networkPool, f, o); len(p.Claims) != 600 || len(p.Conflicts) > 0 || p.Updated != nil {
			t.Errorf("%s: %d claims, conflicts %v", way, len(p.Claims), p.Conflicts)
		}
	}
}

// A file without VRFs and a pool of a routing domain: every row is left out with the flag
// that imports it.
func TestNewPlan_LeavesOutOtherDomains(t *testing.T) {
	i := newInventory(newNetworkPool(func(s *butlerv1.NetworkPoolSpec) { s.RoutingDomain = "red" }))
	f := read(t, []byte("address,vrf,tenant,status\n10.40.0.1/24,,a/a,active\n10.40.0.2/24,,a/a,available\n"), addressfile.Mapping{})
	p := newPlan(t, i, networkPool, f, importer.Options{})
	if len(p.LeftOut) != 1 || !strings.Contains(p.LeftOut[0].Reason, `--vrf-map "=red"`) || !slices.Equal(p.LeftOut[0].Rows, []int{2}) || len(p.NotInUse) != 1 {
		t.Errorf("left out %v, not in use %v", p.LeftOut, p.NotInUse)
	}
	if p = newPlan(t, i, networkPool, f, importer.Options{Domains: map[string]string{"": "red"}}); len(p.LeftOut) > 0 || len(p.Claims) != 1 {
		t.Errorf("left out %v, %d claims", p.LeftOut, len(p.Claims))
	}
}

// A DNS record or a lease shows only that an address is in use: another row of the file
// says whose it is, whatever the order.
func TestNewPlan_MentionsGiveWay(t *testing.T) {
	file := "header-arecord,address*,fqdn*\narecord,10.40.1.5,web\narecord,10.40.1.9,other\nheader-fixedaddress,ip_address*,EA-Tenant,network_view\nfixedaddress,10.40.1.5,a/a,default\nfixedaddress,10.40.1.9,b/b,blue\n"
	got := describe(newPlan(t, newInventory(newNetworkPool()), networkPool, read(t, []byte(file), addressfile.Mapping{}), importer.Options{}))
	want := []string{
		`reserved 10.40.1.9/32 [3] "other"`, "IPAllocation vlan40-10-40-1-5 [10.40.1.5] a/a nodes [5]",
		`left out [6] the VRF "blue": the pool is in the routing domain ""; if both are one network, add --vrf-map "blue="`, "0 present, 1 duplicates",
	}
	if !slices.Equal(got, want) {
		t.Errorf("plan:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
