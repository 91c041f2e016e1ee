package api

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// list is "{ranges: …}" or the like with n entries.
func list(name string, n int, entry string) string {
	return fmt.Sprintf("%s: [%s]", name, strings.Repeat(entry+", ", n))
}

func TestNetworkPool_Rules(t *testing.T) {
	const tenants = `{cidr: 10.40.0.0/24, tenantAllocation: {%s}}`
	cases := map[string]struct {
		spec string
		want []string
	}{
		"IPv4":          {spec: `{cidr: 10.40.0.0/24}`},
		"one address":   {spec: `{cidr: 10.40.0.7/32}`},
		"all of IPv4":   {spec: `{cidr: 0.0.0.0/0}`},
		"IPv6":          {spec: `{cidr: "2001:db8:40::/64", reserved: [{cidr: "2001:db8:40::/120"}], tenantAllocation: {ranges: [{start: "2001:db8:40::1:0", end: "2001:db8:40::1:ffff"}]}}`},
		"all there is":  {spec: `{cidr: 10.40.0.0/21, reserved: [{cidr: 10.40.0.0/28, description: Routers}], tenantAllocation: {ranges: [{start: 10.40.1.0, end: 10.40.3.254}, {start: 10.40.5.0, end: 10.40.7.254}], defaults: {nodesPerTenant: 3, lbPoolPerTenant: 4}}, routingDomain: lab-1, reuseDelay: 1h30m}`},
		"start and end": {spec: `{cidr: 10.40.0.0/21, tenantAllocation: {start: 10.40.1.0, end: 10.40.7.254}}`},
		"empty start and end, as some clients send them": {spec: fmt.Sprintf(tenants, `start: "", end: ""`)},
		"as many entries as there may be": {
			spec: `{cidr: 10.40.0.0/24, ` + list("reserved", 256, `{cidr: 10.40.0.0/28}`) + `, tenantAllocation: {` + list("ranges", 16, `{start: 10.40.0.1, end: 10.40.0.2}`) + `}}`,
		},

		"cidr: missing": {
			spec: `{}`,
			want: []string{`spec.cidr: Required value`},
		},
		"cidr: unreadable": {
			spec: `{cidr: 10.40.0.0/33}`,
			want: []string{`spec.cidr: Invalid value: "10.40.0.0/33": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"cidr: octet of 999": {
			spec: `{cidr: 999.40.0.0/24}`,
			want: []string{`spec.cidr: Invalid value: "999.40.0.0/24": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"cidr: host bits": {
			spec: `{cidr: 10.40.0.5/24}`,
			want: []string{`spec.cidr: Invalid value: "10.40.0.5/24": has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24`},
		},
		"cidr: not canonical": {
			spec: `{cidr: "2001:DB8::/64"}`,
			want: []string{`spec.cidr: Invalid value: "2001:DB8::/64": must be in lower case: write 2001:db8::/64`},
		},
		"cidr: IPv4 written as IPv6": {
			spec: `{cidr: "::ffff:10.40.0.0/120"}`,
			want: []string{`spec.cidr: Invalid value: "::ffff:10.40.0.0/120": must not be IPv4 written as IPv6: write it as IPv4`},
		},
		"cidr: all of IPv6": {
			spec: `{cidr: "::/0"}`,
			want: []string{`spec.cidr: Invalid value: "::/0": cidr ::/0 is more than a pool can hold: use a longer prefix`},
		},
		"gateway: inside":                  {spec: `{cidr: 10.40.0.0/24, gateway: 10.40.0.1}`},
		"gateway: link-local in IPv6":      {spec: `{cidr: "2001:db8:40::/64", gateway: "fe80::1"}`},
		"gateway: the subnet's own router": {spec: `{cidr: "2001:db8:40::/64", gateway: "2001:db8:40::"}`},
		"gateway: outside": {
			spec: `{cidr: 10.40.0.0/24, gateway: 10.41.0.1}`,
			want: []string{`spec.gateway: Invalid value: gateway must lie inside spec.cidr, or be link-local IPv6 in an IPv6 pool: correct it or remove it`},
		},
		"gateway: link-local in IPv4": {
			spec: `{cidr: 10.40.0.0/24, gateway: 169.254.0.1}`,
			want: []string{`spec.gateway: Invalid value: gateway must lie inside spec.cidr, or be link-local IPv6 in an IPv6 pool: correct it or remove it`},
		},
		"gateway: foreign family": {
			spec: `{cidr: 10.40.0.0/24, gateway: "fe80::1"}`,
			want: []string{`spec.gateway: Invalid value: gateway must lie inside spec.cidr, or be link-local IPv6 in an IPv6 pool: correct it or remove it`},
		},
		"gateway: not canonical": {
			spec: `{cidr: "2001:db8:40::/64", gateway: "2001:db8:40::01"}`,
			want: []string{`spec.gateway: Invalid value: "2001:db8:40::01": must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1`},
		},
		"gateway: capitals": {
			spec: `{cidr: "2001:db8:40::/64", gateway: "2001:DB8:40::1"}`,
			want: []string{`spec.gateway: Invalid value: "2001:DB8:40::1": must be in lower case: write 2001:db8:40::1`},
		},
		"gateway: a blank": {
			spec: `{cidr: 10.40.0.0/24, gateway: "10.40.0.1 "}`,
			want: []string{`spec.gateway: Invalid value: "10.40.0.1 ": must have no blanks around it`},
		},
		"gateway: a prefix length": {
			spec: `{cidr: 10.40.0.0/24, gateway: 10.40.0.1/24}`,
			want: []string{`spec.gateway: Invalid value: "10.40.0.1/24": must be an address without a prefix length`},
		},
		"cidr: long form and bits after the prefix": {
			spec: `{cidr: "2001:db8:0::5/64"}`,
			want: []string{`spec.cidr: Invalid value: "2001:db8:0::5/64": must be in canonical form, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64`},
		},
		"gateway: empty": {
			spec: `{cidr: 10.40.0.0/24, gateway: ""}`,
			want: []string{`spec.gateway: Invalid value: "": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`},
		},
		"reserved: unreadable": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0}]}`,
			want: []string{`spec.reserved[0].cidr: Invalid value: "10.40.0.0": must have a prefix length: write 10.40.0.0/32 for this address alone, a smaller one for a network`},
		},
		"reserved: host bits": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.1/28}]}`,
			want: []string{`spec.reserved: Invalid value: a reserved cidr has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24`},
		},
		"reserved: not canonical": {
			spec: `{cidr: "2001:db8::/64", reserved: [{cidr: "2001:DB8::/120"}]}`,
			want: []string{`spec.reserved: Invalid value: every reserved cidr must be in canonical form, in lower case, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64`},
		},
		"reserved: outside": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.41.0.0/28}]}`,
			want: []string{`spec.reserved: Invalid value: every reserved cidr must lie inside spec.cidr: correct it or remove the entry`},
		},
		"reserved: larger than the pool": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/23}]}`,
			want: []string{`spec.reserved: Invalid value: every reserved cidr must lie inside spec.cidr: correct it or remove the entry`},
		},
		"reserved: foreign family": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: "2001:db8::/120"}]}`,
			want: []string{`spec.reserved: Invalid value: every reserved cidr must lie inside spec.cidr: correct it or remove the entry`},
		},
		"reserved: too many": {
			spec: `{cidr: 10.40.0.0/24, ` + list("reserved", 257, `{cidr: 10.40.0.0/28}`) + `}`,
			want: []string{`spec.reserved: Too many: 257: must have at most 256 items`},
		},
		"ranges: unreadable": {
			spec: fmt.Sprintf(tenants, `ranges: [{start: 10.40.0, end: 10.40.0.010}]`),
			want: []string{
				`spec.tenantAllocation.ranges[0].end: Invalid value: "10.40.0.010": must have no leading zeros`,
				`spec.tenantAllocation.ranges[0].start: Invalid value: "10.40.0": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
			},
		},
		"ranges: outside": {
			spec: fmt.Sprintf(tenants, `ranges: [{start: 10.40.0.250, end: 10.40.1.5}]`),
			want: []string{`spec.tenantAllocation.ranges: Invalid value: every range must lie inside spec.cidr: correct start and end, or grow cidr`},
		},
		"ranges: foreign family": {
			spec: fmt.Sprintf(tenants, `ranges: [{start: "2001:db8::1", end: "2001:db8::2"}]`),
			want: []string{`spec.tenantAllocation.ranges: Invalid value: every range must lie inside spec.cidr: correct start and end, or grow cidr`},
		},
		"ranges: too many": {
			spec: fmt.Sprintf(tenants, list("ranges", 17, `{start: 10.40.0.1, end: 10.40.0.2}`)),
			want: []string{`spec.tenantAllocation.ranges: Too many: 17: must have at most 16 items`},
		},
		"start: without end": {
			spec: fmt.Sprintf(tenants, `start: 10.40.0.1`),
			want: []string{`spec.tenantAllocation: Invalid value: start and end must be set together: set both, or use ranges instead`},
		},
		"end: without start": {
			spec: fmt.Sprintf(tenants, `start: "", end: 10.40.0.9`),
			want: []string{`spec.tenantAllocation: Invalid value: start and end must be set together: set both, or use ranges instead`},
		},
		"start: zone": {
			spec: `{cidr: "fe80::/64", tenantAllocation: {start: "fe80::1%eth0", end: "fe80::2"}}`,
			want: []string{`spec.tenantAllocation.start: Invalid value: "fe80::1%eth0": must not have a zone`},
		},
		"start and end: outside": {
			spec: fmt.Sprintf(tenants, `start: 10.40.0.250, end: 10.40.1.5`),
			want: []string{`spec.tenantAllocation: Invalid value: start and end must lie inside spec.cidr: correct them, or grow cidr`},
		},
		"defaults: none": {
			spec: fmt.Sprintf(tenants, `defaults: {nodesPerTenant: 0, lbPoolPerTenant: 0}`),
			want: []string{
				`spec.tenantAllocation.defaults.lbPoolPerTenant: Invalid value: 0: spec.tenantAllocation.defaults.lbPoolPerTenant in body should be greater than or equal to 1`,
				`spec.tenantAllocation.defaults.nodesPerTenant: Invalid value: 0: spec.tenantAllocation.defaults.nodesPerTenant in body should be greater than or equal to 1`,
			},
		},
		"routingDomain: no label value": {
			spec: `{cidr: 10.40.0.0/24, routingDomain: -lab}`,
			want: []string{`spec.routingDomain: Invalid value: "-lab": routingDomain must be a label value: at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit`},
		},
		"routingDomain: too long": {
			spec: `{cidr: 10.40.0.0/24, routingDomain: ` + strings.Repeat("a", 64) + `}`,
			want: []string{`spec.routingDomain: Too long: may not be more than 63 bytes`},
		},
		"reuseDelay: a month": {spec: `{cidr: 10.40.0.0/24, reuseDelay: 720h}`},
		"reuseDelay: none":    {spec: `{cidr: 10.40.0.0/24, reuseDelay: "0"}`},
		"reuseDelay: longer": {
			spec: `{cidr: 10.40.0.0/24, reuseDelay: 720h1s}`,
			want: []string{`spec.reuseDelay: Invalid value: "720h1s": reuseDelay must be a duration from 0s to 720h, such as 10m`},
		},
		"reuseDelay: negative": {
			spec: `{cidr: 10.40.0.0/24, reuseDelay: -5m}`,
			want: []string{`spec.reuseDelay: Invalid value: "-5m": reuseDelay must be a duration from 0s to 720h, such as 10m`},
		},
		"reuseDelay: no unit": {
			spec: `{cidr: 10.40.0.0/24, reuseDelay: "10"}`,
			want: []string{`spec.reuseDelay: Invalid value: "10": reuseDelay must be a duration from 0s to 720h, such as 10m`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := admin.Create(t.Context(), pool(t, tc.spec), client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworkPool_CIDRMayOnlyGrow(t *testing.T) {
	const refused = `spec.cidr: Forbidden: cidr may grow but never shrink or move: use a network that contains the present one, or add another pool`
	cases := map[string]struct {
		old, updated string
		want         []string
	}{
		"the same":         {old: "10.40.2.0/23", updated: "10.40.2.0/23"},
		"grows":            {old: "10.40.2.0/23", updated: "10.40.0.0/21"},
		"shrinks":          {old: "10.40.2.0/23", updated: "10.40.2.0/24", want: []string{refused}},
		"moves":            {old: "10.40.2.0/23", updated: "10.40.4.0/23", want: []string{refused}},
		"changes family":   {old: "10.40.2.0/23", updated: "2001:db8::/64", want: []string{refused}},
		"grows in IPv6":    {old: "2001:db8::/64", updated: "2001:db8::/56"},
		"shrinks in IPv6":  {old: "2001:db8::/64", updated: "2001:db8::/65", want: []string{refused}},
		"becomes nonsense": {old: "10.40.2.0/23", updated: "?", want: []string{`spec.cidr: Invalid value: "?": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := pool(t, fmt.Sprintf("{cidr: %q}", tc.old))
			suite.CreateForTest(t, admin, o)
			if err := unstructured.SetNestedField(o.Object, tc.updated, "spec", "cidr"); err != nil {
				t.Fatal(err)
			}
			err := admin.Update(t.Context(), o, client.DryRunAll)
			if diff := diffFaults(t, tc.want, err); diff != "" {
				t.Errorf("faults (-want +got):\n%s", diff)
			}
		})
	}
}

func TestNetworkPool_Defaults(t *testing.T) {
	cases := map[string]struct {
		spec string
		want map[string]any // spec.tenantAllocation
	}{
		"of an empty defaults":  {spec: `{cidr: 10.40.0.0/24, tenantAllocation: {defaults: {}}}`, want: map[string]any{"defaults": map[string]any{"nodesPerTenant": int64(5), "lbPoolPerTenant": int64(8)}}},
		"beside one that is":    {spec: `{cidr: 10.40.0.0/24, tenantAllocation: {defaults: {lbPoolPerTenant: 2}}}`, want: map[string]any{"defaults": map[string]any{"nodesPerTenant": int64(5), "lbPoolPerTenant": int64(2)}}},
		"none without defaults": {spec: `{cidr: 10.40.0.0/24, tenantAllocation: {}}`, want: map[string]any{}},
		"none without tenants":  {spec: `{cidr: 10.40.0.0/24}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := pool(t, tc.spec)
			if err := admin.Create(t.Context(), o, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			got, _, err := unstructured.NestedMap(o.Object, "spec", "tenantAllocation")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("tenantAllocation (-want +got):\n%s", diff)
			}
		})
	}
}
