package importer_test

import (
	"bytes"
	"embed"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/addressfile"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/exporter"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/importer"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

var (
	now         = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	networkPool = butler.NetworkPoolKey("ns", "vlan40")
	ipPool      = metal3.IPPoolKey("ns", "prov")
	proxyIPPool = novaedge.ProxyIPPoolKey("edge")
)

// testdata contains a file of each format, written by hand from the documentation of the
// tool.
//
//go:embed testdata
var testdata embed.FS

func newNetworkPool(change ...func(*butlerv1.NetworkPoolSpec)) *butlerv1.NetworkPool {
	p := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "vlan40", UID: "pool", ResourceVersion: "1"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.40.0.0/21"}}
	for _, c := range change {
		c(&p.Spec)
	}
	return p
}

func newAllocation(name, first, last, tenant string) *butlerv1.IPAllocation {
	namespace, cluster, _ := strings.Cut(tenant, "/")
	return &butlerv1.IPAllocation{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "2"},
		Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "vlan40"}, Type: butlerv1.TypeNodes, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: namespace, Name: cluster},
			PinnedRange: &butlerv1.PinnedIPRange{StartAddress: first, EndAddress: last},
		},
	}
}

func newIPPool() *metal3v1.IPPool {
	first, last := metal3v1.IP("10.41.0.10"), metal3v1.IP("10.41.0.250")
	return &metal3v1.IPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "prov", UID: "ippool", ResourceVersion: "1"}, Spec: metal3v1.IPPoolSpec{
		NamePrefix: "prov", Pools: []metal3v1.Pool{{Start: &first, End: &last}},
	}}
}

func newIPClaim(name, address string) *metal3v1.IPClaim {
	return &metal3v1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "2", Annotations: map[string]string{metal3v1.AnnotationIPAddress: address}},
		Spec:       metal3v1.IPClaimSpec{Pool: corev1.ObjectReference{Name: "prov"}},
	}
}

func newInventory(objects ...metav1.Object) *inventory.Inventory {
	i := inventory.New(now, nil)
	for _, o := range objects {
		i.Add(o)
	}
	return i
}

func open(t *testing.T, name string) []byte {
	t.Helper()
	data, err := testdata.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func read(t *testing.T, data []byte, m addressfile.Mapping) *addressfile.File {
	t.Helper()
	f, err := addressfile.Read(bytes.NewReader(data), m)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func newPlan(t *testing.T, i *inventory.Inventory, pool inventory.Key, f *addressfile.File, o importer.Options) *importer.Plan {
	t.Helper()
	p, err := importer.NewPlan(i, i.Pool(pool), f, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// describe returns the reservations and claims of a plan, one per line.
func describe(p *importer.Plan) (lines []string) {
	if p.Updated != nil {
		if pool, ok := p.Updated.(*butlerv1.NetworkPool); ok {
			for n, r := range pool.Spec.Reserved[len(pool.Spec.Reserved)-len(p.Reservations):] {
				lines = append(lines, fmt.Sprintf("reserved %s %v %q", r.CIDR, p.Reservations[n].Rows, r.Description))
			}
		}
	}
	for _, r := range p.Reservations {
		if r.Kind == addressfile.KindPreAllocation {
			lines = append(lines, fmt.Sprintf("preAllocation %s %s %v", r.Name, r.Range, r.Rows))
		}
	}
	for _, c := range p.Claims {
		purpose := ""
		if a, ok := c.Object.(*butlerv1.IPAllocation); ok {
			purpose = " " + string(a.Spec.Type)
		}
		lines = append(lines, fmt.Sprintf("%s %s %v %s%s %v", c.Kind, c.Key.Name, c.Ranges, c.Tenant, purpose, c.Rows))
	}
	for _, l := range p.LeftOut {
		lines = append(lines, fmt.Sprintf("left out %v %s", l.Rows, l.Reason))
	}
	for _, l := range p.NotInUse {
		lines = append(lines, fmt.Sprintf("not in use %v %s", l.Rows, l.Reason))
	}
	if p.Present+p.Duplicates > 0 {
		lines = append(lines, fmt.Sprintf("%d present, %d duplicates", p.Present, p.Duplicates))
	}
	for _, c := range p.Conflicts {
		lines = append(lines, fmt.Sprintf("conflict %s %v %s", c.Kind, c.Rows, c.Text))
	}
	return lines
}

// Every format is read, with its peculiarities: byte order mark, separators, CRLF, quoted
// cells, line breaks in cells, UTF-16, several tables in a file.
func TestNewPlan_Formats(t *testing.T) {
	cases := map[string]struct {
		file string
		m    addressfile.Mapping
		o    importer.Options
		want []string
	}{
		"NetBox addresses": {
			file: "netbox-addresses.csv", o: importer.Options{SkipOutside: true},
			want: []string{
				`reserved 10.40.1.0/32 [8] ""`,
				`reserved 10.40.1.20/31 [5 7] "kept for\nthe migration"`,
				`reserved 10.40.1.255/32 [9] ""`,
				`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [2 3 10]`,
				`IPAllocation vlan40-10-40-1-7 [10.40.1.7] team-1/web loadbalancer [4]`,
				`left out [12] addresses outside the pool`,
				`left out [11] the VRF "blue": the pool is in the routing domain ""; if both are one network, add --vrf-map "blue="`,
				`0 present, 1 duplicates`,
			},
		},
		"NetBox prefixes": {
			file: "netbox-prefixes.csv",
			want: []string{
				`reserved 10.40.2.16/28 [5] ""`,
				`IPAllocation vlan40-10-40-2-0-to-10-40-2-15 [10.40.2.0-10.40.2.15] team-1/web nodes [4]`,
				`not in use [2 3] networks`,
			},
		},
		"NetBox ranges": {
			file: "netbox-ranges.csv",
			want: []string{
				`reserved 10.40.1.20/30 [3] "DHCP"`, `reserved 10.40.1.24/30 [3] "DHCP"`, `reserved 10.40.1.28/31 [3] "DHCP"`,
				`IPAllocation vlan40-10-40-1-10-to-10-40-1-19 [10.40.1.10-10.40.1.19] team-1/web nodes [2]`,
			},
		},
		"phpIPAM": {
			file: "phpipam.csv",
			want: []string{`reserved 10.40.1.1/32 [2] "gw; router"`, `reserved 10.40.1.2/31 [3 4] "ns1; DNS; first; ns2"`},
		},
		"phpIPAM, tenants by another column": {
			file: "phpipam.csv", m: addressfile.Mapping{Columns: map[string]string{"Owner": "tenant"}}, o: importer.Options{Tenants: map[string]string{"Jane Roe": "team-1/jane"}},
			want: []string{
				`reserved 10.40.1.1/32 [2] "gw; router"`, `reserved 10.40.1.3/32 [4] "ns2"`,
				`IPAllocation vlan40-10-40-1-2 [10.40.1.2] team-1/jane nodes [3]`,
			},
		},
		"Infoblox": {
			file: "infoblox.csv", o: importer.Options{SkipOutside: true},
			want: []string{
				`reserved 10.40.1.53/32 [9] "ns.example.com"`, `reserved 10.40.1.54/32 [9] "ns.example.com"`,
				`reserved 10.40.1.100/30 [7] "clients"`, `reserved 10.40.1.104/29 [7] "clients"`, `reserved 10.40.1.112/28 [7] "clients"`, `reserved 10.40.1.128/30 [7] "clients"`,
				`IPAllocation vlan40-10-40-1-5-to-10-40-1-6 [10.40.1.5-10.40.1.6] team-1/web nodes [4 5]`,
				`left out [11] addresses outside spec.cidr of the pool`,
				`not in use [2] networks`,
			},
		},
		"Windows": {
			file: "windows.csv",
			want: []string{`reserved 10.40.1.25/32 [3] "printer; second floor"`, `reserved 10.40.1.26/32 [4] ""`},
		},
		"plain, with mapped columns": {
			file: "plain.csv", m: addressfile.Mapping{Columns: map[string]string{"Team name": "tenant", "purpose": "type"}},
			want: []string{
				`reserved 10.40.2.0/32 [6] "nobody"`,
				`IPAllocation vlan40-10-40-1-5 [10.40.1.5] team-1/web nodes [3]`,
				`IPAllocation vlan40-10-40-1-6-to-10-40-1-9 [10.40.1.6-10.40.1.9] team-1/web nodes [4]`,
				`IPAllocation vlan40-10-40-1-16-to-10-40-1-31 [10.40.1.16-10.40.1.31] team-1/web loadbalancer [5]`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := newPlan(t, newInventory(newNetworkPool()), networkPool, read(t, open(t, tc.file), tc.m), tc.o)
			if diff := cmp.Diff(tc.want, describe(p)); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// NewPlan returns an error for options that are invalid, and for rows whose tenant, type
// or kind the options do not resolve. The error names row, value and remedy.
func TestNewPlan_Faults(t *testing.T) {
	cases := map[string]struct {
		text string
		o    importer.Options
		pool inventory.Key
		want string
	}{
		"tenant without namespace": {text: "range,tenant\n10.40.0.1,web\n10.40.0.2,web\n", want: `row 2 has the tenant "web", which has no namespace: write --tenant-map "web=NAMESPACE/NAME" (and 1 row more)`},
		"invalid name":             {text: "range,tenant\n10.40.0.1,team/Web 1\n", want: `row 2 has the tenant "team/Web 1", whose name "Web 1" is no name of an object (at most 253 of a-z, 0-9, '-' and '.'): write --tenant-map "team/Web 1=NAMESPACE/NAME"`},
		"invalid namespace":        {text: "range,tenant\n10.40.0.1,Team.1/web\n", want: `row 2 has the tenant "Team.1/web", whose namespace "Team.1" is no name of a namespace (at most 63 of a-z, 0-9 and '-'): write --tenant-map "Team.1/web=NAMESPACE/NAME"`},
		"invalid option":           {text: "range\n10.40.0.1\n", o: importer.Options{Tenants: map[string]string{"": "web"}}, want: `tenant map ""="web": which has no namespace`},
		"type":                     {text: "range,tenant,type\n10.40.0.1,a/b,node\n", want: `row 2 has the type "node": use nodes or loadbalancer`},
		"kind of another pool":     {text: "kind,ranges\nIPClaim,10.40.0.1\n", want: `row 2 is IPClaim, which a NetworkPool cannot have: only IPAllocation, Reserved, IPAddressClaim`},
		"as of another pool":       {text: "range\n10.40.0.1\n", o: importer.Options{As: addressfile.KindIPClaim}, want: `rows cannot become IPClaim in a NetworkPool: only IPAllocation, Reserved, IPAddressClaim`},
		"several addresses":        {text: "kind,name,ranges\nIPClaim,a,10.41.0.10-10.41.0.11\n", pool: ipPool, want: `row 2 has several addresses, and IPClaim a has one`},
		"too many":                 {text: "range\n" + strings.Repeat("10.41.0.10-10.41.0.250\n", 204), pool: ipPool, want: `row 205 brings the number of addresses over 49152: a PreAllocation has one address`},
		"proxy VIP":                {text: "range\n10.42.0.1\n", pool: proxyIPPool, want: `row 2 has no mode or no ports, which a ProxyVIP needs: add the columns mode (L2ARP, BGP or OSPF) and ports`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.pool == (inventory.Key{}) {
				tc.pool = networkPool
			}
			i := newInventory(newNetworkPool(), newIPPool(), newProxyIPPool())
			_, err := importer.NewPlan(i, i.Pool(tc.pool), read(t, []byte(tc.text), addressfile.Mapping{}), tc.o)
			if got := fmt.Sprint(err); got != tc.want {
				t.Errorf("error:\n%s\nwant:\n%s", got, tc.want)
			}
		})
	}
}

func newProxyIPPool() *novaedgev1.ProxyIPPool {
	return &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "edge", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{CIDRs: []string{"10.42.0.0/24", "2001:db8:42::/120"}}}
}

// A plan records conflicts between rows, and between rows and the cluster.
func TestNewPlan_Conflicts(t *testing.T) {
	released, reusable := metav1.NewTime(now.Add(-time.Minute)), metav1.NewTime(now.Add(time.Hour))
	full := newNetworkPool(func(s *butlerv1.NetworkPoolSpec) {
		s.Gateway, s.ReuseDelay = "10.40.0.1", &metav1.Duration{Duration: 2 * time.Hour}
		s.Reserved = []butlerv1.ReservedRange{{CIDR: "10.40.7.0/24"}}
		s.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.40.0.0", End: "10.40.0.255"}, {Start: "10.40.1.0", End: "10.40.6.255"}}}
	})
	full.Status.Releases = []butlerv1.Release{{Name: "gone", StartAddress: "10.40.3.0", EndAddress: "10.40.3.9", ReleasedAt: released, ReusableAt: &reusable}}
	kept := newIPPool()
	kept.Spec.PreAllocations = map[string]metal3v1.IP{"node-1": "10.41.0.20"}
	grantTo := func(token byte, name, address string) journal.Entry {
		a := netip.MustParseAddr(address)
		return journal.Entry{Token: journal.Token{token}, Ranges: []allocator.Range{{First: a, Last: a}}, Resource: butler.ResourceIPAllocation, Namespace: "ns", NameHash: journal.HashName(name)}
	}
	i := inventory.New(now, []journal.Entry{grantTo(1, "other", "10.40.4.0"), grantTo(2, "vlan40-10-40-4-2", "10.40.4.2")})
	leaving, deleted := newAllocation("leaving", "10.40.2.20", "10.40.2.20", "team-1/web"), metav1.NewTime(now)
	leaving.DeletionTimestamp = &deleted
	for _, o := range []metav1.Object{full, kept, leaving, newAllocation("web", "10.40.2.0", "10.40.2.9", "team-1/web"), newIPClaim("node-2", "10.41.0.30"),
		&novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: "edge", UID: "edge", ResourceVersion: "1"}, Spec: novaedgev1.ProxyIPPoolSpec{Addresses: []string{"10.40.5.1"}}},
		&novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: "vip", UID: "vip", ResourceVersion: "3"}, Spec: novaedgev1.ProxyVIPSpec{Address: "10.40.5.1/32", PoolRef: &novaedgev1.PoolReference{Name: "edge"}}},
	} {
		i.Add(o)
	}
	for name, reserved := range map[string]string{"beside": "10.40.5.140/30", "third": "10.40.5.144/30"} {
		i.Add(&butlerv1.NetworkPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), ResourceVersion: "1"},
			Spec:       butlerv1.NetworkPoolSpec{CIDR: "10.40.5.128/25", Reserved: []butlerv1.ReservedRange{{CIDR: reserved}}},
		})
	}
	cases := map[string]struct {
		text string
		pool inventory.Key
		o    importer.Options
		want []string
	}{
		"two tenants": {
			text: "range,tenant\n10.40.1.90-10.40.1.95,a/a\n10.40.1.94,b/b\n",
			want: []string{
				"IPAllocation vlan40-10-40-1-90-to-10-40-1-95 [10.40.1.90-10.40.1.95] a/a nodes [2]",
				"conflict rows [2 3] 10.40.1.94 is for a/a (nodes) in row 2, and for b/b (nodes) in row 3",
			},
		},
		"two types": {
			text: "range,tenant,type\n10.40.1.1,a/a,nodes\n10.40.1.1,a/a,loadbalancer\n",
			want: []string{
				"IPAllocation vlan40-10-40-1-1 [10.40.1.1] a/a nodes [2]",
				"conflict rows [2 3] 10.40.1.1 is for a/a (nodes) in row 2, and for a/a (loadbalancer) in row 3",
			},
		},
		"reserved and allocated": {
			text: "range,tenant\n10.40.1.0/24,\n10.40.1.9,a/a\n10.40.1.10,a/b\n",
			want: []string{
				"conflict rows [2 3] 10.40.1.9 is reserved in row 2, and for a/a (nodes) in row 3",
				"conflict rows [2 4] 10.40.1.10 is reserved in row 2, and for a/b (nodes) in row 4",
			},
		},
		"one name": {
			text: "kind,name,ranges,tenant,type\nIPAllocation,x,10.40.1.1,a/a,nodes\nIPAllocation,x,10.40.1.5,a/a,nodes\n",
			want: []string{
				"IPAllocation x [10.40.1.1] a/a nodes [2]",
				"conflict name [2 3] 10.40.1.1 and 10.40.1.5 are both for IPAllocation x: give each a name of its own",
			},
		},
		"owned by another tenant": {
			text: "range,tenant\n10.40.2.8,a/a\n10.40.2.9,a/a\n10.40.2.10,a/a\n",
			want: []string{"conflict owned [2 3] 10.40.2.8-10.40.2.9 is owned by IPAllocation ns/web for team-1/web; the file says for a/a (nodes)"},
		},
		"owned, to be reserved": {
			text: "range\n10.40.2.8-10.40.2.19\n",
			want: []string{"conflict owned [2] 10.40.2.8-10.40.2.9 is owned by IPAllocation ns/web for team-1/web; the file says reserved"},
		},
		"owned by the tenant, and being deleted": {
			text: "range,tenant\n10.40.2.20,team-1/web\n",
			want: []string{"conflict owned [2] 10.40.2.20 is owned by IPAllocation ns/leaving for team-1/web, and is being deleted; the file says for team-1/web (nodes)"},
		},
		"owned by another kind": {
			text: "range,tenant\n10.40.5.1,a/a\n",
			want: []string{"conflict owned [2] 10.40.5.1 is owned by ProxyVIP vip; the file says for a/a (nodes)"},
		},
		"owned by the tenant": {
			text: "range,tenant\n10.40.2.0,team-1/web\n10.40.2.9,team-1/web\n10.40.2.10,team-1/web\n10.40.2.11,team-1/web\n",
			want: []string{"IPAllocation vlan40-10-40-2-10-to-10-40-2-11 [10.40.2.10-10.40.2.11] team-1/web nodes [4 5]", "2 present, 0 duplicates"},
		},
		"reserved": {
			text: "range,tenant\n10.40.0.1,a/a\n10.40.7.5,a/a\n",
			want: []string{
				"conflict reserved [2] 10.40.0.1 is the gateway of the pool (spec.gateway); the file says for a/a (nodes)",
				"conflict outside [3] 10.40.7.5 is outside the pool (inside spec.cidr, but in no range of spec.tenantAllocation): 10.40.0.0-10.40.0.255 10.40.1.0-10.40.6.255",
			},
		},
		"two ranges of the pool": {
			text: "range,tenant\n10.40.0.250-10.40.1.3,a/a\n",
			want: []string{"conflict outside [2] 10.40.0.250-10.40.1.3 is not in one range of the pool: 10.40.0.0-10.40.0.255 10.40.1.0-10.40.6.255"},
		},
		"rows that share some addresses": {
			text: "range,tenant\n10.40.1.80-10.40.1.95,a/a\n10.40.1.90-10.40.1.99,b/b\n",
			want: []string{
				"IPAllocation vlan40-10-40-1-80-to-10-40-1-95 [10.40.1.80-10.40.1.95] a/a nodes [2]",
				"conflict rows [2 3] 10.40.1.90-10.40.1.95 is for a/a (nodes) in row 2, and for b/b (nodes) in row 3",
			},
		},
		"reserved by two pools": {
			text: "range,tenant\n10.40.5.128-10.40.5.160,a/a\n", pool: butler.NetworkPoolKey("ns", "beside"),
			want: []string{
				"conflict reserved [2] 10.40.5.140-10.40.5.143 is reserved (spec.reserved[0].cidr); the file says for a/a (nodes)",
				"conflict reserved [2] 10.40.5.144-10.40.5.147 in pool ns/third is reserved (spec.reserved[0].cidr); the file says for a/a (nodes)",
			},
		},
		"reserved already": {text: "range\n10.40.0.1\n10.40.7.0/25\n10.40.7.5\n", want: []string{"3 present, 0 duplicates"}},
		"cooldown": {
			text: "range,tenant\n10.40.3.5-10.40.3.12,a/a\n10.40.3.3,\n",
			want: []string{
				"conflict cooldown [2] 10.40.3.5-10.40.3.9 is in cooldown until 2026-01-01T01:00:00Z; the file says for a/a (nodes)",
			},
		},
		"granted to an import that failed": {
			text: "range,tenant\n10.40.4.2,a/a\n",
			want: []string{"IPAllocation vlan40-10-40-4-2 [10.40.4.2] a/a nodes [2]"},
		},
		"granted": {
			text: "range,tenant\n10.40.4.0,a/a\n",
			want: []string{"conflict granted [2] 10.40.4.0 is granted to a claim that is being created; the file says for a/a (nodes)"},
		},
		"outside": {
			text: "range,tenant\n10.99.0.1,a/a\n10.40.6.250-10.40.7.3,a/a\n2001:db8::1,\n",
			want: []string{
				"conflict outside [2] 10.99.0.1 is outside the pool: 10.40.0.0-10.40.0.255 10.40.1.0-10.40.6.255",
				"conflict outside [3] 10.40.7.0-10.40.7.3 of 10.40.6.250-10.40.7.3 is outside the pool: 10.40.0.0-10.40.0.255 10.40.1.0-10.40.6.255",
				"conflict outside [4] 2001:db8::1 is outside spec.cidr of the pool: 10.40.0.0-10.40.7.255",
			},
		},
		"a run does not cross the border of two ranges": {
			text: "range,tenant\n10.40.0.254,a/a\n10.40.0.255,a/a\n10.40.1.0,a/a\n",
			want: []string{
				"IPAllocation vlan40-10-40-0-254-to-10-40-0-255 [10.40.0.254-10.40.0.255] a/a nodes [2 3]",
				"IPAllocation vlan40-10-40-1-0 [10.40.1.0] a/a nodes [4]",
			},
		},
		"the name of a stored claim": {
			text: "kind,name,ranges,tenant,type\nIPAllocation,web,10.40.1.1,team-1/web,nodes\n",
			want: []string{"conflict name [2] IPAllocation ns/web exists, with 10.40.2.0-10.40.2.9 for team-1/web; the file says 10.40.1.1 for IPAllocation web of team-1/web"},
		},
		"invalid name": {
			text: "kind,name,ranges,tenant,type\nIPAllocation,Web,10.40.1.1,a/a,nodes\n",
			want: []string{
				"IPAllocation Web [10.40.1.1] a/a nodes [2]",
				`conflict invalid [2] 10.40.1.1 as IPAllocation: metadata.name: Invalid value: "Web": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
			},
		},
		"preAllocations of foreign rows": {
			text: "range\n10.41.0.20\n10.41.0.21\n10.41.0.30\n", pool: ipPool,
			want: []string{
				"preAllocation _prov-10-41-0-21 10.41.0.21 [3]", "1 present, 0 duplicates",
				"conflict owned [4] 10.41.0.30 is owned by IPClaim ns/node-2; the file says kept for _prov-10-41-0-30",
			},
		},
		"preAllocations by name": {
			text: "name,range\nnode-1,10.41.0.20\nnode-2,10.41.0.30\nnode-3,10.41.0.40\n", pool: ipPool,
			want: []string{"preAllocation node-2 10.41.0.30 [3]", "preAllocation node-3 10.41.0.40 [4]", "1 present, 0 duplicates"},
		},
		"preAllocation of another name": {
			text: "name,range\nnode-1,10.41.0.40\nnode-9,10.41.0.20\n", pool: ipPool,
			want: []string{
				"conflict preAllocated [2] node-1 is already the name for 10.41.0.20 in spec.preAllocations of the pool; the file says 10.41.0.40",
				"conflict preAllocated [3] 10.41.0.20 is kept for node-1 in spec.preAllocations of the pool; the file says kept for node-9",
			},
		},
		"IPClaims": {
			text: "name,range\nnode-1,10.41.0.20\nnode-2,10.41.0.30\nnode-3,10.41.0.40\n", pool: ipPool, o: importer.Options{As: addressfile.KindIPClaim},
			want: []string{"IPClaim node-1 [10.41.0.20]  [2]", "IPClaim node-3 [10.41.0.40]  [4]", "1 present, 0 duplicates"},
		},
		"IPClaim of a kept address": {
			text: "name,range\nnode-9,10.41.0.20\n", pool: ipPool, o: importer.Options{As: addressfile.KindIPClaim},
			want: []string{"conflict preAllocated [2] 10.41.0.20 is kept for a claim (spec.preAllocations) by pool ns/prov; the file says for IPClaim node-9"},
		},
		"as allocations": {
			text: "range,tenant\n10.40.1.1,a/a\n10.40.1.2,\n", o: importer.Options{As: addressfile.KindIPAllocation},
			want: []string{"IPAllocation vlan40-10-40-1-1 [10.40.1.1] a/a nodes [2]", "left out [3] addresses that are reserved, or have no tenant: only allocations are imported"},
		},
		"as reserved": {
			text: "range,tenant\n10.40.1.1,a/a\n10.40.1.1,b/b\n10.40.1.0,\n", o: importer.Options{As: addressfile.KindReserved},
			want: []string{`0 present, 1 duplicates`, `reserved 10.40.1.0/31 [2 3 4] ""`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.pool == (inventory.Key{}) {
				tc.pool = networkPool
			}
			got := describe(newPlan(t, i, tc.pool, read(t, []byte(tc.text), addressfile.Mapping{}), tc.o))
			slices.Sort(got)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
		})
	}
}

// SkipOutside leaves out a row only if no address of the row is in the pool.
func TestNewPlan_SkipOutside(t *testing.T) {
	file := "ranges,tenant\n172.16.0.1,team-1/web\n10.40.1.5 172.16.0.2,team-1/web\n10.40.1.6,team-1/web\n"
	got := describe(newPlan(t, newInventory(newNetworkPool()), networkPool, read(t, []byte(file), addressfile.Mapping{}), importer.Options{SkipOutside: true}))
	if diff := cmp.Diff([]string{
		"IPAllocation vlan40-10-40-1-6 [10.40.1.6] team-1/web nodes [4]",
		"left out [2] addresses outside the pool",
		"conflict outside [3] 172.16.0.2 is outside the pool (other addresses of the row are inside: write a row for each): 10.40.0.0-10.40.7.255",
	}, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
}

// A plan reserves at most 256 networks, and no reserved network crosses the border of a
// range of the pool.
func TestNewPlan_ReservedNetworks(t *testing.T) {
	i := newInventory(newNetworkPool(func(s *butlerv1.NetworkPoolSpec) {
		s.TenantAllocation = &butlerv1.TenantAllocation{Ranges: []butlerv1.IPRange{{Start: "10.40.0.16", End: "10.40.7.255"}}}
	}))
	got := describe(newPlan(t, i, networkPool, read(t, []byte("range\n10.40.0.0-10.40.0.31\n"), addressfile.Mapping{}), importer.Options{}))
	if diff := cmp.Diff([]string{`reserved 10.40.0.0/28 [2] ""`, `reserved 10.40.0.16/28 [2] ""`}, got); diff != "" {
		t.Errorf("plan (-want +got):\n%s", diff)
	}
	var scattered, dense strings.Builder
	for n := range 257 {
		fmt.Fprintf(&scattered, "10.40.%d.%d\n", n/100, n%100*2+20)
		fmt.Fprintf(&dense, "10.40.%d.%d\n", (n+256)/256, n%256)
	}
	p := newPlan(t, i, networkPool, read(t, []byte("range\n"+scattered.String()), addressfile.Mapping{}), importer.Options{})
	if len(p.Conflicts) != 1 || p.Conflicts[0].Kind != importer.ConflictPool || !strings.Contains(p.Conflicts[0].Text, "257 networks, 256 at most") {
		t.Errorf("257 scattered addresses: %v", p.Conflicts)
	}
	p = newPlan(t, i, networkPool, read(t, []byte("range\n"+dense.String()), addressfile.Mapping{}), importer.Options{})
	if len(p.Conflicts) != 0 || len(p.Reservations) != 2 {
		t.Errorf("257 adjacent addresses: %d networks, %v", len(p.Reservations), p.Conflicts)
	}
}

// apply adds the planned objects to an inventory.
func apply(i *inventory.Inventory, p *importer.Plan, version int) {
	if p.Updated != nil {
		p.Updated.SetResourceVersion(fmt.Sprint(version))
		i.Add(p.Updated)
	}
	for _, c := range p.Claims {
		c.Object.SetUID(types.UID("uid-" + c.Key.Resource + c.Key.Name))
		c.Object.SetResourceVersion(fmt.Sprint(version))
		i.Add(c.Object)
	}
}

// A plan has conflicts exactly if the rows and the stored objects contain an address with
// two owners; the test compares address by address. After a plan without conflicts is
// written, a second import of the file changes nothing.
func TestNewPlan_EqualsComparisonByAddress(t *testing.T) {
	const seeds = 3000
	withConflicts, written := 0, 0
	for seed := range uint64(seeds) {
		random := rand.New(rand.NewPCG(seed, 1))
		i := newInventory(newNetworkPool(func(s *butlerv1.NetworkPoolSpec) {
			s.CIDR, s.Reserved = "10.40.0.0/25", []butlerv1.ReservedRange{{CIDR: "10.40.0.64/29"}}
		}))
		owners := [128]string{}
		for n := range 8 {
			owners[64+n] = "reserved"
		}
		tenants := []string{"a/a", "b/b", "c/c", ""}
		for n := range 2 {
			first := n * 20
			last := first + random.IntN(6)
			tenant := tenants[random.IntN(3)]
			i.Add(newAllocation(fmt.Sprint("stored-", n), fmt.Sprintf("10.40.0.%d", first), fmt.Sprintf("10.40.0.%d", last), tenant))
			for a := first; a <= last; a++ {
				owners[a] = tenant
			}
		}
		var text strings.Builder
		text.WriteString("range,tenant\n")
		clash := false
		for range 1 + random.IntN(12) {
			first := random.IntN(128)
			last := min(first+random.IntN(3)*random.IntN(4), 127)
			tenant := tenants[random.IntN(len(tenants))]
			if first == last {
				fmt.Fprintf(&text, "10.40.0.%d,%s\n", first, tenant)
			} else {
				fmt.Fprintf(&text, "10.40.0.%d-10.40.0.%d,%s\n", first, last, tenant)
			}
			owner := tenant
			if owner == "" {
				owner = "reserved"
			}
			for a := first; a <= last; a++ {
				clash = clash || owners[a] != "" && owners[a] != owner
				if owners[a] == "" {
					owners[a] = owner
				}
			}
		}
		file := read(t, []byte(text.String()), addressfile.Mapping{})
		p := newPlan(t, i, networkPool, file, importer.Options{})
		if clash != (len(p.Conflicts) > 0) {
			t.Fatalf("seed %d: clash %t, conflicts %v\n%s", seed, clash, p.Conflicts, text.String())
		}
		if clash {
			withConflicts++
			continue
		}
		written++
		apply(i, p, 10)
		for a, owner := range owners {
			address := netip.AddrFrom4([4]byte{10, 40, 0, byte(a)})
			got := ""
			for _, answer := range i.Who("", allocator.Range{First: address, Last: address}) {
				if c := i.Claim(answer.Segment.Owner); c != nil {
					got = c.Tenant
				}
				if answer.ReservedBy != nil {
					got = "reserved"
				}
			}
			if got != owner {
				t.Fatalf("seed %d: %s belongs to %q, want %q\n%s", seed, address, got, owner, text.String())
			}
		}
		if again := newPlan(t, i, networkPool, file, importer.Options{}); !again.Empty() || len(again.Conflicts) > 0 {
			t.Fatalf("seed %d: a second import changes %v\n%s", seed, describe(again), text.String())
		}
	}
	if withConflicts < seeds/20 || written < seeds/20 {
		t.Errorf("%d plans with conflicts and %d without: the test shows little", withConflicts, written)
	}
}

// An exported pool, imported into an inventory that contains only the pool, is exported
// again as equal bytes, in CSV and in YAML.
func TestExport_RoundTrip(t *testing.T) {
	texts := []string{"", "plain", " blanks ", "comma, \"quotes\" and ; semicolons", "two\nlines", "tab\t", "Zürich ✓", "=1+1", "- a: b", "'=1+1", "@x", "-5", "\x1b[31mred", "=\"x\"", "# no comment", "line\u2028separator", "x\u202810.40.3.1", "nul\x00", "=" + strings.Repeat("y", 1020), "\"=\"x\"\n=\"y\""}
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2))
		text := func() string { return texts[random.IntN(len(texts))] }
		described := func(o metav1.Object) metav1.Object {
			if annotations := o.GetAnnotations(); annotations == nil {
				o.SetAnnotations(map[string]string{inventory.AnnotationDescription: text()})
			} else {
				annotations[inventory.AnnotationDescription] = text()
			}
			return o
		}
		full, kept := newNetworkPool(), newIPPool()
		kept.Spec.PreAllocations = map[string]metal3v1.IP{"_gateway": "10.41.0.10", "node-1": "10.41.0.21"}
		objects := []metav1.Object{full, kept, newProxyIPPool()}
		for n := range 20 {
			first := 10 * n
			switch random.IntN(3) {
			case 0:
				network := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 40, 3, byte(first)}), 29+random.IntN(4)).Masked()
				full.Spec.Reserved = append(full.Spec.Reserved, butlerv1.ReservedRange{CIDR: network.String(), Description: text()})
			case 1:
				a := newAllocation(fmt.Sprint("a-", n), fmt.Sprintf("10.40.1.%d", first), fmt.Sprintf("10.40.1.%d", first+random.IntN(10)), "team-1/web")
				if random.IntN(2) == 0 {
					a.Spec.Type, a.Labels = butlerv1.TypeLoadBalancer, map[string]string{butlerv1.LabelTeam: "blue"}
				}
				objects = append(objects, described(a))
			}
			if c := newIPClaim(fmt.Sprint("node-", n), fmt.Sprintf("10.41.0.%d", 20+n)); random.IntN(2) == 0 {
				c.Labels = map[string]string{clusterpause.LabelClusterName: "cluster-1"}
				objects = append(objects, described(c))
			}
			v := &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("vip-", n), UID: types.UID(fmt.Sprint("vip-", n)), ResourceVersion: "3"}, Spec: novaedgev1.ProxyVIPSpec{
				Mode: novaedgev1.ModeBGP, Ports: []int32{80, 443}[:1+random.IntN(2)], PoolRef: &novaedgev1.PoolReference{Name: "edge"},
			}}
			switch random.IntN(4) {
			case 0:
				v.Spec.Address = fmt.Sprintf("10.42.0.%d/32", 1+n)
			case 1:
				v.Spec.IPv6Address, v.Spec.AddressFamily = fmt.Sprintf("2001:db8:42::%x/128", 1+n), novaedgev1.FamilyIPv6
			case 2:
				v.Spec.Address, v.Spec.IPv6Address, v.Spec.AddressFamily = fmt.Sprintf("10.42.0.%d/32", 1+n), fmt.Sprintf("2001:db8:42::%x/128", 1+n), novaedgev1.FamilyDual
			default:
				continue
			}
			objects = append(objects, described(v))
		}
		source := newInventory(objects...)
		for _, pool := range []inventory.Key{networkPool, ipPool, proxyIPPool} {
			for name, write := range map[string]func(*bytes.Buffer, []addressfile.Entry) error{
				"CSV":  func(w *bytes.Buffer, e []addressfile.Entry) error { return addressfile.WriteCSV(w, e) },
				"YAML": func(w *bytes.Buffer, e []addressfile.Entry) error { return addressfile.WriteYAML(w, e) },
			} {
				export := func(i *inventory.Inventory) []byte {
					entries, leftOut := exporter.Export(i, i.Pool(pool))
					var out bytes.Buffer
					if err := write(&out, entries); err != nil || len(leftOut) > 0 {
						t.Fatal(err, leftOut)
					}
					return out.Bytes()
				}
				exported := export(source)
				bare := newInventory(newNetworkPool(), newIPPool(), newProxyIPPool())
				p := newPlan(t, bare, pool, read(t, exported, addressfile.Mapping{}), importer.Options{})
				if len(p.Conflicts) > 0 {
					t.Fatalf("seed %d, %s, %s: %v\n%s", seed, pool, name, p.Conflicts, exported)
				}
				apply(bare, p, 10)
				if again := export(bare); !bytes.Equal(exported, again) {
					t.Fatalf("seed %d, %s, %s: exported\n%s\nthen\n%s", seed, pool, name, exported, again)
				}
			}
		}
	}
}

// Export leaves out claims that do not own the ranges that they name, with a line for
// each reason, whatever the status of a claim says. An import accepts the exported rows.
func TestExport_LeavesOut(t *testing.T) {
	outside, rival := newAllocation("outside", "10.40.99.5", "10.40.99.5", "team-1/web"), newAllocation("rival", "10.40.1.5", "10.40.1.5", "team-2/db")
	rival.CreationTimestamp = metav1.NewTime(now) // the older claim owns the addresses
	outside.Status.Phase = butlerv1.PhaseFailed
	pending, deleting, deleted := newAllocation("pending", "", "", "team-1/web"), newAllocation("deleting", "10.40.1.30", "10.40.1.30", "team-1/web"), metav1.NewTime(now)
	pending.Spec.PinnedRange = nil
	deleting.DeletionTimestamp = &deleted
	moved := newAllocation("moved", "10.40.98.1", "10.40.98.1", "team-1/web") // owns the address by its status, although the pool does not offer the address
	moved.Status.Phase, moved.Status.StartAddress, moved.Status.EndAddress, moved.Status.AllocatedCount = butlerv1.PhaseAllocated, "10.40.98.1", "10.40.98.1", 1
	i := newInventory(newNetworkPool(), newAllocation("web", "10.40.1.5", "10.40.1.7", "team-1/web"), rival, outside, pending, deleting, moved)
	for name, owns := range map[string]bool{"web": true, "moved": true, "outside": false} {
		if o := i.OwnershipOf("uid-" + name); o.Allocated != owns {
			t.Fatalf("ownership of %s: %+v", name, o)
		}
	}
	entries, leftOut := exporter.Export(i, i.Pool(networkPool))
	if diff := cmp.Diff([]string{
		"1 claim being deleted",
		"1 claim that lost an address conflict",
		"1 claim with addresses that are not in one range of the pool, which import denies",
		"1 claim without addresses",
		"1 claim without ownership of the named addresses: kubectl ipam check shows the reason",
	}, leftOut); diff != "" {
		t.Errorf("left out (-want +got):\n%s", diff)
	}
	var file bytes.Buffer
	if err := addressfile.WriteCSV(&file, entries); err != nil || len(entries) != 1 || entries[0].Name != "web" {
		t.Fatalf("entries %+v: %v", entries, err)
	}
	p := newPlan(t, newInventory(newNetworkPool()), networkPool, read(t, file.Bytes(), addressfile.Mapping{}), importer.Options{})
	if diff := cmp.Diff([]string{"IPAllocation web [10.40.1.5-10.40.1.7] team-1/web nodes [2]"}, describe(p)); diff != "" {
		t.Errorf("import of the export (-want +got):\n%s", diff)
	}
}

// Read returns only valid ranges, for every input. After a plan without conflicts is
// written, a second import of the file changes nothing.
func FuzzRead(f *testing.F) {
	for _, folder := range []string{"testdata/", "testdata/exports/"} {
		files, err := testdata.ReadDir(strings.TrimSuffix(folder, "/"))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			if file.IsDir() { // another folder, or one with inputs that fuzzing found
				continue
			}
			data, err := testdata.ReadFile(folder + file.Name())
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, "auto")
		}
	}
	f.Add([]byte("kind,name,ranges\nPreAllocation,a,10.41.0.20\nIPClaim,a,10.41.0.20\nProxyVIP,v,10.42.0.1 2001:db8:42::1\n"), "csv")
	f.Add([]byte("apiVersion: kubectl-ipam.butlerlabs.dev/v1\nkind: AddressList\nitems: [{kind: Reserved, ranges: 10.40.0.0/28}]\n"), "yaml")
	f.Fuzz(func(t *testing.T, data []byte, format string) {
		file, err := addressfile.Read(bytes.NewReader(data), addressfile.Mapping{Format: format})
		if err != nil {
			return
		}
		for _, r := range file.Records {
			for _, one := range r.Ranges {
				if !one.IsValid() {
					t.Fatalf("row %d has the range %v", r.Row, one)
				}
			}
		}
		i := newInventory(newNetworkPool(), newIPPool(), newProxyIPPool())
		for _, pool := range []inventory.Key{networkPool, ipPool, proxyIPPool} {
			p, err := importer.NewPlan(i, i.Pool(pool), file, importer.Options{SkipOutside: true, TenantNamespace: "team"})
			if err != nil || len(p.Conflicts) > 0 {
				continue
			}
			apply(i, p, 10)
			if again, err := importer.NewPlan(i, i.Pool(pool), file, importer.Options{SkipOutside: true, TenantNamespace: "team"}); err != nil || !again.Empty() || len(again.Conflicts) > 0 {
				t.Fatalf("a second import into %s: %v, %v", pool, err, describe(again))
			}
		}
	})
}
