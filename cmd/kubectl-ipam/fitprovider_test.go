package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	tenantplan "butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

// parse reads an object from YAML and sets its name.
func parse[T any, P interface {
	*T
	metav1.Object
}](t *testing.T, namespace, name, text string) P {
	t.Helper()
	o := P(new(T))
	if err := yaml.UnmarshalStrict([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	o.SetNamespace(namespace)
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion("1")
	return o
}

// estimate returns the capacity in the status of a ProviderConfig, for pools in the
// namespace tenants.
func estimate(i *inventory.Inventory, c *butlerv1.ProviderConfig) butlerv1.ProviderCapacity {
	pools, free := map[string]*butlerv1.NetworkPool{}, map[string][]allocator.Range{}
	for _, p := range i.Pools() {
		pools[p.Key.Name], free[p.Key.Name] = p.Object.(*butlerv1.NetworkPool), i.Free(p, 1)
	}
	capacity, _ := tenantplan.EstimateCapacity(tenantplan.PolicyOf(c), pools, free)
	return capacity
}

func TestProviderFit(t *testing.T) {
	pools := map[string]string{
		"small":   `{spec: {cidr: 10.0.0.0/28}}`,
		"large":   `{spec: {cidr: 10.0.1.0/26, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 4}}}}`,
		"shares":  `{spec: {cidr: 10.0.0.0/27}}`, // the 16 addresses of small, and 16 more
		"paused":  `{metadata: {annotations: {cluster.x-k8s.io/paused: "true"}}, spec: {cidr: 10.0.2.0/24}}`,
		"invalid": `{spec: {cidr: 10.0.3.0/40}}`,
		"v6":      `{spec: {cidr: "2001:db8::/64"}}`,
	}
	cases := map[string]struct {
		network, annotations, tenant string
		rows                         []string // name, priority, free addresses, sizes, number of tenants
		text                         string
		err                          string
	}{
		"defaults of the pools": {
			network: `{mode: ipam, poolRefs: [{name: large}, {name: small}]}`,
			rows:    []string{"large 0 64 nodes=3,loadbalancer=4 9", "small 0 16 nodes=5,loadbalancer=8 1"},
			text:    "10 more tenants fit; the next tenant gets addresses of NetworkPool tenants/large",
		},
		"priority before order": {
			network: `{mode: ipam, poolRefs: [{name: large, priority: 10}, {name: small, priority: -1}, {name: large, priority: 20}]}`,
			rows:    []string{"small -1 16 nodes=5,loadbalancer=8 1", "large 10 64 nodes=3,loadbalancer=4 9"},
			text:    "10 more tenants fit; the next tenant gets addresses of NetworkPool tenants/small",
		},
		"load balancers of another pool": { // small has room for the nodes of two tenants
			network: `{mode: ipam, poolRefs: [{name: small}, {name: large}]}`, tenant: "nodes=8,loadbalancer=15",
			rows: []string{"small 0 16 nodes=8,loadbalancer=15 0", "large 0 64 nodes=8,loadbalancer=15 2"},
			text: "3 more tenants fit; the next tenant gets addresses of NetworkPool tenants/small for nodes, and of NetworkPool tenants/large for loadbalancer",
		},
		"shared addresses": {
			network: `{mode: ipam, poolRefs: [{name: small}, {name: shares}]}`, tenant: "loadbalancer=8",
			rows: []string{"small 0 16 loadbalancer=8 2", "shares 0 32 loadbalancer=8 4"},
			text: "4 more tenants fit; the next tenant gets addresses of NetworkPool tenants/small",
		},
		"quota": {
			network: `{mode: ipam, poolRefs: [{name: small}], quotaPerTenant: {maxNodeIPs: 3, maxLoadBalancerIPs: 1}}`, tenant: "nodes=5,loadbalancer=8",
			rows: []string{"small 0 16 nodes=3,loadbalancer=1 4"}, text: "4 more tenants fit; the next tenant gets addresses of NetworkPool tenants/small",
		},
		"elastic, nodes elsewhere": {
			network: `{mode: ipam, poolRefs: [{name: small}], loadBalancer: {allocationMode: elastic, initialPoolSize: 16}}`, annotations: `{butler.butlerlabs.dev/node-addresses: external}`,
			rows: []string{"small 0 16 loadbalancer=16 1"}, text: "1 more tenant fits; the next tenant gets addresses of NetworkPool tenants/small",
		},
		"none": {
			network: `{mode: ipam, poolRefs: [{name: small}, {name: absent}]}`, tenant: "nodes=8,loadbalancer=9",
			rows: []string{"small 0 16 nodes=8,loadbalancer=9 0", "absent 0 0  0"}, text: "none fits: no pool has room for loadbalancer",
		},
		"no pool exists": {network: `{mode: ipam, poolRefs: [{name: absent}]}`, rows: []string{"absent 0 0  0"}, text: "none fits: no pool has room for nodes"},
		"paused pool last": {
			network: `{mode: ipam, poolRefs: [{name: small}, {name: paused}, {name: large}]}`,
			rows:    []string{"small 0 16 nodes=5,loadbalancer=8 1", "paused 0 256 nodes=5,loadbalancer=8 0", "large 0 64 nodes=3,loadbalancer=4 9"},
			text:    "1 more tenant fits; the next tenant gets addresses of NetworkPool tenants/small; then tenants wait for NetworkPool tenants/paused",
		},
		"invalid pool first": {
			network: `{mode: ipam, poolRefs: [{name: invalid}, {name: large}]}`,
			rows:    []string{"invalid 0 0 nodes=5,loadbalancer=8 0", "large 0 64 nodes=3,loadbalancer=4 9"},
			text:    "none fits: the next tenant waits for addresses for nodes of NetworkPool tenants/invalid",
		},
		"IPv6, default sizes": {
			network: `{mode: ipam, poolRefs: [{name: v6}, {name: large}]}`,
			rows:    []string{"v6 0 9223372036854775807 nodes=5,loadbalancer=8 1418980313362273201", "large 0 64 nodes=3,loadbalancer=4 9"},
			text:    "about 2^60.3 more tenants fit; the next tenant gets addresses of NetworkPool tenants/v6",
		},
		"IPv6": {
			network: `{mode: ipam, poolRefs: [{name: v6}]}`, tenant: "loadbalancer=4",
			rows: []string{"v6 0 9223372036854775807 loadbalancer=4 4611686018427387904"}, text: "about 2^62 more tenants fit; the next tenant gets addresses of NetworkPool tenants/v6",
		},
		"cloud":    {network: `{mode: cloud, poolRefs: [{name: small}]}`, err: "spec.network.mode is not ipam"},
		"no nodes": {network: `{mode: ipam, poolRefs: [{name: small}]}`, annotations: `{butler.butlerlabs.dev/node-addresses: external}`, tenant: "nodes=5", err: "omit nodes in --tenant"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			i := inventory.New(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), nil)
			for name, text := range pools {
				i.Add(parse[butlerv1.NetworkPool](t, "tenants", name, text))
			}
			annotations := tc.annotations
			if annotations == "" {
				annotations = "{}"
			}
			c := parse[butlerv1.ProviderConfig](t, "providers", "lab", fmt.Sprintf("{metadata: {annotations: %s}, spec: {provider: harvester, network: %s}}", annotations, tc.network))
			tenant, err := parseTenant(tc.tenant)
			if err != nil {
				t.Fatal(err)
			}
			f, err := newProviderFit(i, c, "tenants", tenant)
			if tc.err != "" {
				if err == nil || !strings.Contains(err.Error(), tc.err) || !strings.HasPrefix(err.Error(), "ProviderConfig providers/lab: ") {
					t.Fatalf("error %v, want %q", err, tc.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if tc.tenant == "" {
				if capacity := estimate(i, c); int64(capacity.EstimatedTenants) != min(f.Fits, math.MaxInt32) {
					t.Errorf("the status of the ProviderConfig has %d further tenants, and fit %d", capacity.EstimatedTenants, f.Fits)
				}
			}
			var rows []string
			for _, p := range f.Pools {
				rows = append(rows, fmt.Sprintf("%s %d %d %s %d", p.Name, p.Priority, p.Free, sizesText(p.Sizes), p.Fits))
				if unserved := p.Name == "paused" || p.Name == "invalid" || p.Name == "absent"; unserved != (p.Note != "") {
					t.Errorf("%s: note %q", p.Name, p.Note)
				}
			}
			if got, want := strings.Join(rows, "\n"), strings.Join(tc.rows, "\n"); got != want {
				t.Errorf("pools\n%s\nwant\n%s", got, want)
			}
			if text := explainProviderFit(f); text != tc.text {
				t.Errorf("%q, want %q", text, tc.text)
			}
			if (f.Fits == 0) != (len(f.Next) == 0) || (f.Fits == 0) != (f.Lacks != "") {
				t.Errorf("%+v", f)
			}
		})
	}
}
