package api

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

const (
	addressRule = `must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`
	shortRule   = `must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1`
	nameRule    = `name in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$'`
)

func TestIPAllocation_Rules(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []string
	}{
		"the least":                  {spec: `{}`},
		"count":                      {spec: `{count: 8, type: loadbalancer}`},
		"the most that can be asked": {spec: `{count: 2147483647}`},
		"range":                      {spec: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}}`},
		"range of one address":       {spec: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.100}}`},
		"IPv6 range":                 {spec: `{pinnedRange: {startAddress: "2001:db8::", endAddress: "2001:db8::ffff"}}`},
		"longest names":              {spec: `{poolRef: {name: ` + strings.Repeat("a", 253) + `}, tenantClusterRef: {name: ` + strings.Repeat("a.b", 84) + `, namespace: ` + strings.Repeat("a", 63) + `}}`},

		"poolRef: missing":              {spec: `{poolRef: null}`, want: []string{`spec.poolRef: Required value`}},
		"poolRef: no name":              {spec: `{poolRef: {}}`, want: []string{`spec.poolRef.name: Required value`}},
		"poolRef: empty name":           {spec: `{poolRef: {name: ""}}`, want: []string{`spec.poolRef.name: Invalid value: "": spec.poolRef.` + nameRule}},
		"poolRef: no name of an object": {spec: `{poolRef: {name: VLAN_40}}`, want: []string{`spec.poolRef.name: Invalid value: "VLAN_40": spec.poolRef.` + nameRule}},
		"poolRef: name too long":        {spec: `{poolRef: {name: ` + strings.Repeat("a", 254) + `}}`, want: []string{`spec.poolRef.name: Too long: may not be more than 253 bytes`}},
		"tenantClusterRef: missing":     {spec: `{tenantClusterRef: null}`, want: []string{`spec.tenantClusterRef: Required value`}},
		"tenantClusterRef: no namespace": {
			spec: `{tenantClusterRef: {name: my-cluster}}`,
			want: []string{`spec.tenantClusterRef.namespace: Required value`},
		},
		"tenantClusterRef: no names of objects": {
			spec: `{tenantClusterRef: {name: My Cluster, namespace: team.backend}}`,
			want: []string{
				`spec.tenantClusterRef.name: Invalid value: "My Cluster": spec.tenantClusterRef.` + nameRule,
				`spec.tenantClusterRef.namespace: Invalid value: "team.backend": spec.tenantClusterRef.namespace in body should match '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'`,
			},
		},
		"type: missing": {spec: `{type: null}`, want: []string{`spec.type: Required value`}},
		"type: another": {spec: `{type: services}`, want: []string{`spec.type: Unsupported value: "services": supported values: "nodes", "loadbalancer"`}},
		"count: none":   {spec: `{count: 0}`, want: []string{`spec.count: Invalid value: 0: spec.count in body should be greater than or equal to 1`}},
		"count: 2^31": {
			spec: `{count: 2147483648}`,
			want: []string{
				`<nil>: Invalid value: "": Checked value must be of type integer with format int32 in spec.count`,
				`spec.count: Invalid value: 2147483648: spec.count in body should be less than or equal to 2147483647`,
			},
		},
		"count: text": {spec: `{count: eight}`, want: []string{`spec.count: Invalid value: "string": spec.count in body must be of type integer: "string"`}},
		"pinnedRange: half": {
			spec: `{pinnedRange: {startAddress: 10.40.0.100}}`,
			want: []string{`spec.pinnedRange.endAddress: Required value`},
		},
		"pinnedRange: unreadable": {
			spec: `{pinnedRange: {startAddress: 999.40.0.100, endAddress: 10.40.0.0/24}}`,
			want: []string{
				`spec.pinnedRange.endAddress: Invalid value: "10.40.0.0/24": must be an address without a prefix length`,
				`spec.pinnedRange.startAddress: Invalid value: "999.40.0.100": ` + addressRule,
			},
		},
		"pinnedRange: zones": {
			spec: `{pinnedRange: {startAddress: "fe80::1%eth0", endAddress: "fe80::2"}}`,
			want: []string{`spec.pinnedRange.startAddress: Invalid value: "fe80::1%eth0": must not have a zone`},
		},
		"pinnedRange: IPv4 written as IPv6": {
			spec: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: "::ffff:10.40.0.109"}}`,
			want: []string{`spec.pinnedRange.endAddress: Invalid value: "::ffff:10.40.0.109": must not be IPv4 written as IPv6: write it as IPv4`},
		},
		"pinnedRange: not canonical": {
			spec: `{pinnedRange: {startAddress: "2001:DB8::1", endAddress: "2001:db8:0:0::2"}}`,
			want: []string{
				`spec.pinnedRange.endAddress: Invalid value: "2001:db8:0:0::2": ` + shortRule,
				`spec.pinnedRange.startAddress: Invalid value: "2001:DB8::1": must be in lower case: write 2001:db8::1`,
			},
		},
		"pinnedRange: two families": {
			spec: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: "2001:db8::2"}}`,
			want: []string{`spec.pinnedRange: Invalid value: startAddress and endAddress must both be IPv4 or both IPv6`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admin.Create(t.Context(), claim(t, tc.spec), client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIPAllocation_ImmutableWhileAllocated(t *testing.T) {
	const owned = `{count: 10, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}}`
	cases := map[string]struct {
		old, updated string
		want         []string
	}{
		"nothing owned: all may change": {
			old:     `{count: 2}`,
			updated: `{count: 3, poolRef: {name: other}, tenantClusterRef: {name: other, namespace: other}, type: loadbalancer}`,
		},
		"nothing owned: the answer": {old: `{count: 10}`, updated: owned},
		"owned: the same":           {old: owned, updated: owned},
		"owned: count is filled in": {old: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}}`, updated: owned},
		"owned: range removed": {
			old: owned, updated: `{count: 10}`,
			want: []string{`spec: Forbidden: pinnedRange holds the allocated addresses and cannot be removed: delete the IPAllocation to release them`},
		},
		"owned: range moved": {
			old: owned, updated: `{count: 10, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.110}}`,
			want: []string{`spec: Forbidden: pinnedRange cannot be changed once it is set: delete the IPAllocation and create another one to move to other addresses`},
		},
		"owned: count changed": {
			old: owned, updated: `{count: 11, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}}`,
			want: []string{`spec: Forbidden: count cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one`},
		},
		"owned: count removed": {
			old: owned, updated: `{pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}}`,
			want: []string{`spec: Forbidden: count cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one`},
		},
		"owned: another pool": {
			old: owned, updated: `{count: 10, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}, poolRef: {name: other}}`,
			want: []string{`spec: Forbidden: poolRef cannot be changed while addresses are owned: create another IPAllocation in the other pool and delete this one`},
		},
		"owned: another cluster": {
			old: owned, updated: `{count: 10, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}, tenantClusterRef: {name: my-cluster, namespace: other}}`,
			want: []string{`spec: Forbidden: tenantClusterRef cannot be changed while addresses are owned: create another IPAllocation for the other cluster and delete this one`},
		},
		"owned: another type": {
			old: owned, updated: `{count: 10, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}, type: loadbalancer}`,
			want: []string{`spec: Forbidden: type cannot be changed while addresses are owned: create another IPAllocation of the other type and delete this one`},
		},
		"owned: the first of several": {
			old: owned, updated: `{count: 11, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.109}, poolRef: {name: other}, type: loadbalancer}`,
			want: []string{`spec: Forbidden: poolRef cannot be changed while addresses are owned: create another IPAllocation in the other pool and delete this one`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := claim(t, tc.old)
			suite.CreateForTest(t, admin, o)
			o.Object["spec"] = claim(t, tc.updated).Object["spec"]
			o.Object["status"] = map[string]any{"phase": "Failed"} // an update does not change it, whatever it says
			err := admin.Update(t.Context(), o, client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestIPAllocation_SelectableByPool(t *testing.T) {
	mine, other := claim(t, `{poolRef: {name: selected}}`), claim(t, `{poolRef: {name: not-selected}}`)
	suite.CreateForTest(t, admin, mine)
	suite.CreateForTest(t, admin, other)
	found := &unstructured.UnstructuredList{}
	found.SetAPIVersion(apiVersion)
	found.SetKind("IPAllocationList")
	if err := admin.List(t.Context(), found, client.InNamespace(namespace), client.MatchingFields{"spec.poolRef.name": "selected"}); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range found.Items {
		names = append(names, o.GetName())
	}
	if diff := cmp.Diff([]string{mine.GetName()}, names); diff != "" {
		t.Errorf("selected (-want +got):\n%s", diff)
	}
}
