package butler_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
)

func TestValidateIPAllocation(t *testing.T) {
	cases := map[string]struct {
		object string
		want   []string
	}{
		"neither count nor range":    {object: `{}`},
		"one address":                {object: `{spec: {count: 1}}`},
		"the most that can be asked": {object: `{spec: {count: 2147483647}}`},
		"a range":                    {object: `{spec: {` + pinned + `}}`},
		"an IPv6 range":              {object: `{spec: {pinnedRange: {startAddress: "2001:db8::", endAddress: "2001:db8::ffff"}}}`},
		"no addresses": {
			object: `{spec: {count: 0}}`,
			want:   []string{`spec.count: Invalid value: 0: must be at least 1: leave it out to get the pool's default`},
		},
		"names missing": {
			object: `{spec: {poolRef: {name: ""}, tenantClusterRef: {name: "", namespace: ""}, type: ""}}`,
			want: []string{
				`spec.poolRef.name: Required value: name the object that is meant`,
				`spec.tenantClusterRef.name: Required value: name the object that is meant`,
				`spec.tenantClusterRef.namespace: Required value: name the object that is meant`,
				`spec.type: Required value: what the addresses are for: "nodes" or "loadbalancer"`,
			},
		},
		"names of 254 and 64 characters": {
			object: `{spec: {poolRef: {name: ` + strings.Repeat("a", 254) + `}, tenantClusterRef: {namespace: ` + strings.Repeat("b", 64) + `}}}`,
			want: []string{
				`spec.poolRef.name: Invalid value: "` + strings.Repeat("a", 254) + `": must be no more than 253 characters`,
				`spec.tenantClusterRef.namespace: Invalid value: "` + strings.Repeat("b", 64) + `": must be no more than 63 characters`,
			},
		},
		"a name of 253 characters": {
			object: `{spec: {poolRef: {name: ` + strings.Repeat("a", 253) + `}}}`,
		},
		"another type": {
			object: `{spec: {type: services}}`,
			want:   []string{`spec.type: Unsupported value: "services": supported values: "nodes", "loadbalancer"`},
		},
		"unreadable range": {
			object: `{spec: {pinnedRange: {startAddress: "", endAddress: 10.40.0.300}}}`,
			want: []string{
				`spec.pinnedRange.startAddress: Invalid value: "": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.pinnedRange.endAddress: Invalid value: "10.40.0.300": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
			},
		},
		"leading zeros": {
			object: `{spec: {pinnedRange: {startAddress: 10.40.0.001, endAddress: 10.40.0.9}}}`,
			want:   []string{`spec.pinnedRange.startAddress: Invalid value: "10.40.0.001": must have no leading zeros: write 10.40.0.1`},
		},
		"a network for an address": {
			object: `{spec: {pinnedRange: {startAddress: 10.40.0.0/24, endAddress: 10.40.0.9}}}`,
			want:   []string{`spec.pinnedRange.startAddress: Invalid value: "10.40.0.0/24": must be an address without a prefix length: write 10.40.0.0`},
		},
		"reversed range": {
			object: `{spec: {pinnedRange: {startAddress: 10.40.0.109, endAddress: 10.40.0.100}}}`,
			want:   []string{`spec.pinnedRange: Invalid value: "10.40.0.109-10.40.0.100": range 10.40.0.109-10.40.0.100 is reversed, write the lower address first`},
		},
		"two families": {
			object: `{spec: {pinnedRange: {startAddress: 10.40.0.109, endAddress: "2001:db8::1"}}}`,
			want:   []string{`spec.pinnedRange: Invalid value: "10.40.0.109-2001:db8::1": range 10.40.0.109-2001:db8::1 mixes IPv4 and IPv6, use one family`},
		},
		"zone": {
			object: `{spec: {pinnedRange: {startAddress: "fe80::1%eth0", endAddress: "fe80::9"}}}`,
			want:   []string{`spec.pinnedRange.startAddress: Invalid value: "fe80::1%eth0": must not have a zone: write fe80::1`},
		},
		"IPv4 written as IPv6": {
			object: `{spec: {pinnedRange: {startAddress: 10.40.0.1, endAddress: "::ffff:10.40.0.9"}}}`,
			want:   []string{`spec.pinnedRange.endAddress: Invalid value: "::ffff:10.40.0.9": must not be IPv4 written as IPv6: write 10.40.0.9`},
		},
		"not canonical": {
			object: `{spec: {pinnedRange: {startAddress: "2001:DB8::1", endAddress: "2001:db8:0:0::9"}}}`,
			want: []string{
				`spec.pinnedRange.startAddress: Invalid value: "2001:DB8::1": must be in canonical form, in lower case: write 2001:db8::1`,
				`spec.pinnedRange.endAddress: Invalid value: "2001:db8:0:0::9": must be in canonical form, as short as can be: write 2001:db8::9`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, messages(butler.ValidateIPAllocation(claimWith(t, tc.object)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateIPAllocationUpdate(t *testing.T) {
	const owned = `{spec: {count: 10, ` + pinned + `}}`
	const adopted = `{spec: {count: 2}, status: {phase: Allocated, startAddress: 10.40.0.1, endAddress: 10.40.0.2}}`
	cases := map[string]struct {
		old, updated string
		want         []string
	}{
		"the same": {old: owned, updated: owned},
		"a pending claim changes everything": {
			old:     `{spec: {count: 2}}`,
			updated: `{spec: {count: 3, poolRef: {name: other}, tenantClusterRef: {name: other, namespace: other}, type: nodes}}`,
		},
		"a pending claim is answered":           {old: `{spec: {count: 10}}`, updated: owned},
		"the answer's count arrives later":      {old: `{spec: {` + pinned + `}}`, updated: owned},
		"an earlier allocator's claim is taken": {old: adopted, updated: `{spec: {count: 2, pinnedRange: {startAddress: 10.40.0.1, endAddress: 10.40.0.2}}}`},
		"everything changes while owned": {
			old:     owned,
			updated: `{spec: {count: 11, poolRef: {name: other}, tenantClusterRef: {name: other, namespace: team-backend}, type: nodes, pinnedRange: {startAddress: 10.40.0.100, endAddress: 10.40.0.110}}}`,
			want: []string{
				`spec.poolRef: Forbidden: cannot be changed while addresses are owned: create another IPAllocation in the other pool and delete this one`,
				`spec.tenantClusterRef: Forbidden: cannot be changed while addresses are owned: create another IPAllocation for the other cluster and delete this one`,
				`spec.type: Forbidden: cannot be changed while addresses are owned: create another IPAllocation of the other type and delete this one`,
				`spec.count: Forbidden: cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one`,
				`spec.pinnedRange: Forbidden: cannot be changed while addresses are owned: they are 10.40.0.100-10.40.0.109; create another IPAllocation to move to others, and delete this one`,
			},
		},
		"count and range go": {
			old: owned, updated: `{}`,
			want: []string{
				`spec.count: Forbidden: cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one`,
				`spec.pinnedRange: Forbidden: cannot be changed while addresses are owned: delete the IPAllocation to release them`,
			},
		},
		"an earlier allocator's claim asks for other addresses": {
			old: adopted, updated: owned,
			want: []string{
				`spec.count: Forbidden: cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one`,
				`spec.pinnedRange: Forbidden: cannot be changed while addresses are owned: they are 10.40.0.1-10.40.0.2; create another IPAllocation to move to others, and delete this one`,
			},
		},
		"a fault that was stored stays, another is refused": {
			old:     `{spec: {tenantClusterRef: {name: My Cluster}}}`,
			updated: `{spec: {tenantClusterRef: {name: My Cluster}, count: 0}}`,
			want:    []string{`spec.count: Invalid value: 0: must be at least 1: leave it out to get the pool's default`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := butler.ValidateIPAllocationUpdate(claimWith(t, tc.old), claimWith(t, tc.updated))
			if diff := cmp.Diff(tc.want, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
