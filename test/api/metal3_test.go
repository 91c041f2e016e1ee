package api

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	metal3 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// metal3Object is an object of Metal3's group with a spec in YAML.
func metal3Object(t *testing.T, kind, spec string) *unstructured.Unstructured {
	t.Helper()
	return object(t, kind, "apiVersion: "+metal3.GroupVersion.String()+"\nspec: "+spec)
}

func TestMetal3_Rules(t *testing.T) {
	cases := map[string]struct {
		kind, spec string
		want       []string
	}{
		"pool: the product's example": {
			kind: "IPPool",
			spec: `{clusterName: cluster1, namePrefix: test1-prov, pools: [{start: 192.168.0.10, end: 192.168.0.30, prefix: 25, gateway: 192.168.0.1}, {subnet: 192.168.1.1/26}, {subnet: 192.168.1.128/25}], prefix: 24, gateway: 192.168.1.1, preAllocations: {claim1: 192.168.0.12}}`,
		},
		"pool: all there is": {
			kind: "IPPool",
			spec: `{namePrefix: p, pools: [{start: "2001:DB8::0001", end: "2001:db8::a", subnet: "2001:db8::1/64", prefix: 64, gateway: "2001:db8::ffff", dnsServers: ["::1"]}], prefix: 128, gateway: "::", dnsServers: [8.8.8.8, 8.8.4.4], allocationStrategy: random}`,
		},
		"pool: without pools":              {kind: "IPPool", spec: `{namePrefix: p}`},
		"pool: of an end alone":            {kind: "IPPool", spec: `{namePrefix: p, pools: [{end: 10.0.0.9}]}`},
		"pool: negative prefix":            {kind: "IPPool", spec: `{namePrefix: p, prefix: -1}`},
		"pool: name prefix of no DNS name": {kind: "IPPool", spec: `{namePrefix: A_b}`},
		"pool: without name prefix": {
			kind: "IPPool", spec: `{}`,
			want: []string{`spec.namePrefix: Required value`},
		},
		"pool: empty name prefix": {
			kind: "IPPool", spec: `{namePrefix: ""}`,
			want: []string{`spec.namePrefix: Invalid value: "": spec.namePrefix in body should be at least 1 chars long`},
		},
		"pool: long prefix": {
			kind: "IPPool", spec: `{namePrefix: p, prefix: 129, pools: [{start: 10.0.0.1, prefix: 129}]}`,
			want: []string{
				`spec.pools[0].prefix: Invalid value: 129: spec.pools[0].prefix in body should be less than or equal to 128`,
				`spec.prefix: Invalid value: 129: spec.prefix in body should be less than or equal to 128`,
			},
		},
		"pool: strategy": {
			kind: "IPPool", spec: `{namePrefix: p, allocationStrategy: best}`,
			want: []string{`spec.allocationStrategy: Unsupported value: "best": supported values: "sequential", "random"`},
		},
		"pool: entry without addresses": {
			kind: "IPPool", spec: `{namePrefix: p, pools: [{subnet: 10.0.0.0/24}, {gateway: 10.0.0.1, dnsServers: [8.8.8.8]}]}`,
			want: []string{`spec.pools[1]: Invalid value: an entry of pools needs addresses: set start and end, or subnet`},
		},
		"pool: texts that are no addresses": {
			kind: "IPPool", spec: `{namePrefix: p, gateway: "10.0.0.1 ", pools: [{start: 10.0.0.01, end: "::ffff:10.0.0.9", gateway: "fe80::1%eth0"}, {subnet: 10.0.0.0}, {subnet: "10.0.1.0/24 "}], preAllocations: {a: 10.0.0.1/24}, dnsServers: [dns]}`,
			want: []string{
				`spec.dnsServers[0]: Invalid value: "dns": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.gateway: Invalid value: "10.0.0.1 ": must have no blanks around it`,
				`spec.pools[0].end: Invalid value: "::ffff:10.0.0.9": must not be IPv4 written as IPv6: write it as IPv4`,
				`spec.pools[0].gateway: Invalid value: "fe80::1%eth0": must not have a zone`,
				`spec.pools[0].start: Invalid value: "10.0.0.01": must have no leading zeros`,
				`spec.pools[1].subnet: Invalid value: "10.0.0.0": must have a prefix length: write 10.0.0.0/32 for this address alone, a smaller one for a network`,
				`spec.pools[2].subnet: Invalid value: "10.0.1.0/24 ": must have no blanks around it`,
				`spec.preAllocations[a]: Invalid value: "10.0.0.1/24": must be an address without a prefix length`,
			},
		},

		"claim":                  {kind: "IPClaim", spec: `{pool: {name: pool1, namespace: default}}`},
		"claim: every reference": {kind: "IPClaim", spec: `{pool: {apiVersion: ipam.metal3.io/v1alpha1, kind: IPPool, name: pool1, namespace: default, fieldPath: x, resourceVersion: "1", uid: u}}`},
		"claim: without pool":    {kind: "IPClaim", spec: `{}`, want: []string{`spec.pool: Required value`}},
		"claim: of no certain pool": {
			kind: "IPClaim", spec: `{pool: {namespace: default}}`,
			want: []string{`spec.pool.name: Required value: name the IPPool, in the same namespace, that the address is to come from`},
		},

		"address": {kind: "IPAddress", spec: `{claim: {name: c}, pool: {name: pool1}, address: 192.168.0.13, prefix: 24, gateway: 192.168.0.1, dnsServers: [8.8.8.8]}`},
		"address: nothing": {
			kind: "IPAddress", spec: `{}`,
			want: []string{`spec.address: Required value`, `spec.claim: Required value`, `spec.pool: Required value`},
		},
		"address: of nobody": {
			kind: "IPAddress", spec: `{claim: {name: ""}, pool: {}, address: 192.168.0.13}`,
			want: []string{
				`spec.claim.name: Required value: name the claim that owns the address or, to reserve the address, a name that no claim can have, such as _reserved`,
				`spec.pool.name: Required value: name the IPPool that the address belongs to`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admin.Create(t.Context(), metal3Object(t, tc.kind, tc.spec), client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMetal3_AddressSyntax(t *testing.T) {
	const seven = "1:2:3:4:5:6:7"
	cases := map[string]struct {
		accepted, refused []string
		spec              string
	}{
		"address": {
			spec:     `{namePrefix: p, gateway: %q}`,
			accepted: []string{"0.0.0.0", "192.168.0.10", "255.255.255.255", "::", "::1", "1::", "2001:DB8::5", "2001:db8::0005", seven + ":8", seven + "::", "::2:3:4:5:6:7:8", "1::3:4:5:6:7:8", "1:2:3:4:5:6::8", "fe80::1"},
			refused:  []string{"", "01.2.3.4", "256.1.1.1", "1.2.3", "1.2.3.4.5", "1.2.3.4/32", " 1.2.3.4", "::ffff:1.2.3.4", "fe80::1%eth0", seven, seven + ":8:9", "::" + seven + ":8", "1::2::3", "12345::", "g::", ":", "1:"},
		},
		"subnet": {
			spec:     `{namePrefix: p, pools: [{subnet: %q}]}`,
			accepted: []string{"192.168.1.1/26", "0.0.0.0/0", "10.0.0.0/9", "10.0.0.0/32", "2001:db8::/64", "::1/128", "::/0", "::/99", "::/119"},
			refused:  []string{"", "192.168.1.1", "192.168.1.1/", "192.168.1.1/08", "192.168.1.1/33", "::/129", "::/00", "::/08", "::/008", "::/-1", "fe80::1%eth0/64"},
		},
	}
	for name, tc := range cases {
		for i, text := range append(tc.accepted, tc.refused...) {
			t.Run(name+": "+text, func(t *testing.T) {
				t.Parallel()
				wrong := faults(t, admin.Create(t.Context(), metal3Object(t, "IPPool", fmt.Sprintf(tc.spec, text)), client.DryRunAll))
				if accepted := len(wrong) == 0; accepted != (i < len(tc.accepted)) {
					t.Errorf("accepted: %v: %v", accepted, wrong)
				}
			})
		}
	}
}

func TestMetal3_ImmutableFields(t *testing.T) {
	const (
		otherPool    = `spec.pool: Forbidden: name, namespace and kind of the pool cannot be changed: create another IPClaim in the other pool and delete this one`
		otherAddress = `spec.%s: Forbidden: name, namespace and kind of the %[1]s cannot be changed: create another IPAddress and delete this one`
		address      = `{claim: {name: c}, pool: {name: p}, address: 192.168.0.13}`
	)
	cases := map[string]struct {
		kind, old, updated string
		want               []string
	}{
		"pool: anything else": {kind: "IPPool", old: `{namePrefix: p, prefix: 24}`, updated: `{namePrefix: p, allocationStrategy: sequential, clusterName: c, pools: [{subnet: 10.0.0.0/24}], preAllocations: {a: 10.0.0.1}}`},
		"pool: name prefix": {
			kind: "IPPool", old: `{namePrefix: abcd}`, updated: `{namePrefix: abcde}`,
			want: []string{`spec.namePrefix: Forbidden: namePrefix cannot be changed, the IPAddress objects of the pool are named after it: create another IPPool`},
		},
		"pool: strategy": {
			kind: "IPPool", old: `{namePrefix: p}`, updated: `{namePrefix: p, allocationStrategy: random}`,
			want: []string{`spec.allocationStrategy: Forbidden: allocationStrategy cannot be changed: create another IPPool`},
		},
		"pool: strategy left out": {
			kind: "IPPool", old: `{namePrefix: p, allocationStrategy: random}`, updated: `{namePrefix: p}`,
			want: []string{`spec.allocationStrategy: Forbidden: allocationStrategy cannot be changed: create another IPPool`},
		},
		"claim: what does not count": {kind: "IPClaim", old: `{pool: {name: p}}`, updated: `{pool: {name: p, apiVersion: ipam.metal3.io/v1alpha1, uid: u}}`},
		"claim: pool":                {kind: "IPClaim", old: `{pool: {name: p}}`, updated: `{pool: {name: q}}`, want: []string{otherPool}},
		"claim: namespace and kind": {
			kind: "IPClaim", old: `{pool: {name: p, namespace: default}}`, updated: `{pool: {name: p, kind: IPPool}}`,
			want: []string{otherPool},
		},
		"claim: empty is absent":       {kind: "IPClaim", old: `{pool: {name: p, namespace: "", kind: ""}}`, updated: `{pool: {name: p}}`},
		"address: what does not count": {kind: "IPAddress", old: address, updated: `{claim: {name: c, uid: u}, pool: {name: p, uid: u}, address: 192.168.0.13, prefix: 24, gateway: 192.168.0.1, dnsServers: [8.8.8.8]}`},
		"address: address": {
			kind: "IPAddress", old: address, updated: `{claim: {name: c}, pool: {name: p}, address: 192.168.0.14}`,
			want: []string{`spec.address: Forbidden: address cannot be changed: create another IPAddress and delete this one`},
		},
		"address: claim": {kind: "IPAddress", old: address, updated: `{claim: {name: d}, pool: {name: p}, address: 192.168.0.13}`, want: []string{fmt.Sprintf(otherAddress, "claim")}},
		"address: pool's namespace": {
			kind: "IPAddress", old: address, updated: `{claim: {name: c}, pool: {name: p, namespace: default}, address: 192.168.0.13}`,
			want: []string{fmt.Sprintf(otherAddress, "pool")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := metal3Object(t, tc.kind, tc.old)
			suite.CreateForTest(t, admin, o)
			o.Object["spec"] = metal3Object(t, tc.kind, tc.updated).Object["spec"]
			err := admin.Update(t.Context(), o, client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIPPool_Defaults(t *testing.T) {
	o := metal3Object(t, "IPPool", `{namePrefix: p}`)
	if err := admin.Create(t.Context(), o, client.DryRunAll); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"namePrefix": "p", "allocationStrategy": "sequential"}
	if diff := cmp.Diff(want, o.Object["spec"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestMetal3_Columns(t *testing.T) {
	p := metal3Object(t, "IPPool", `{namePrefix: p}`)
	p.SetGenerateName("")
	p.SetName("columns")
	p.SetLabels(map[string]string{"cluster.x-k8s.io/cluster-name": "cluster1"})
	suite.CreateForTest(t, admin, p)
	p.Object["status"] = map[string]any{"capacity": int64(210), "availableIPCount": int64(209), "capacityCapped": false, "indexes": map[string]any{"claim1": "192.168.0.12"}}
	if err := admin.Status().Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"Name": "columns", "Cluster": "cluster1", "Capacity": "210", "Available IPs": "209", "Capacity Capped": "false"}
	if diff := cmp.Diff(want, columns(t, metal3.GroupVersion, "ippools", "columns")); diff != "" {
		t.Errorf("columns of a pool (-want +got):\n%s", diff)
	}
	for resource, tc := range map[string]struct {
		o    *unstructured.Unstructured
		want map[string]string
	}{
		"ipclaims":    {metal3Object(t, "IPClaim", `{pool: {name: p}}`), map[string]string{"Address": "<nil>", "Pool": "p"}},
		"ipaddresses": {metal3Object(t, "IPAddress", `{claim: {name: c}, pool: {name: p}, address: 192.168.0.13}`), map[string]string{"Address": "192.168.0.13", "Pool": "p", "Claim": "c"}},
	} {
		tc.o.SetGenerateName("")
		tc.o.SetName("columns")
		suite.CreateForTest(t, admin, tc.o)
		tc.want["Name"] = "columns"
		if diff := cmp.Diff(tc.want, columns(t, metal3.GroupVersion, resource, "columns")); diff != "" {
			t.Errorf("columns of %s (-want +got):\n%s", resource, diff)
		}
	}
}

func TestMetal3_Names(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion(metal3.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	type names struct{ Short, Categories []string }
	got := map[string]names{}
	for _, r := range list.APIResources {
		got[r.Name] = names{r.ShortNames, r.Categories}
	}
	clusterAPI := []string{"cluster-api", "ipam"}
	want := map[string]names{
		"ippools":         {[]string{"ipp", "ippool", "m3ipp", "m3ippool", "m3ippools", "metal3ipp", "metal3ippool", "metal3ippools"}, clusterAPI},
		"ippools/status":  {},
		"ipclaims":        {[]string{"ipc", "ipclaim", "m3ipc", "m3ipclaim", "m3ipclaims", "metal3ipc", "metal3ipclaim", "metal3ipclaims"}, clusterAPI},
		"ipclaims/status": {},
		"ipaddresses":     {[]string{"ipaddress", "m3ipa", "m3ipaddress", "m3ipaddresses", "metal3ipa", "metal3ipaddress", "metal3ipaddresses"}, []string{"metal3", "ipam"}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
}

// By these labels `clusterctl move` and Cluster API's own tools find the kinds.
func TestMetal3_ClusterctlLabels(t *testing.T) {
	want := map[string]string{
		"clusterctl.cluster.x-k8s.io": "",
		"cluster.x-k8s.io/provider":   "ipam-metal3",
		"cluster.x-k8s.io/v1alpha2":   "v1alpha2",
		"cluster.x-k8s.io/v1alpha3":   "v1alpha3_v1alpha4",
		"cluster.x-k8s.io/v1alpha4":   "v1alpha5",
		"cluster.x-k8s.io/v1beta1":    "v1beta1",
	}
	for _, resource := range []string{"ippools", "ipclaims", "ipaddresses"} {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		if err := admin.Get(t.Context(), client.ObjectKey{Name: resource + "." + metal3.GroupVersion.Group}, crd); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, crd.GetLabels()); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", resource, diff)
		}
	}
}
