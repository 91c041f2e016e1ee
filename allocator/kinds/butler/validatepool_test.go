package butler_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// F1 to F15 are the product's own validation scenarios, in its order.
func TestValidateNetworkPool(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []string
	}{
		"F1 valid": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}], tenantAllocation: {start: 10.40.0.128, end: 10.40.0.255}}`,
		},
		"F2 bad CIDR": {
			spec: `{cidr: not-a-cidr}`,
			want: []string{`spec.cidr: Invalid value: "not-a-cidr": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"F3 reserved outside": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 192.168.0.0/28}]}`,
			want: []string{`spec.reserved[0].cidr: Invalid value: "192.168.0.0/28": lies outside spec.cidr 10.40.0.0/24: correct it or grow spec.cidr`},
		},
		"F4 range outside": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {start: 10.41.0.0, end: 10.41.0.9}}`,
			want: []string{`spec.tenantAllocation: Invalid value: "10.41.0.0-10.41.0.9": lies outside spec.cidr 10.40.0.0/24: correct it or grow spec.cidr`},
		},
		"F5 start after end": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {start: 10.40.0.200, end: 10.40.0.100}}`,
			want: []string{`spec.tenantAllocation: Invalid value: "10.40.0.200-10.40.0.100": range 10.40.0.200-10.40.0.100 is reversed, write the lower address first`},
		},
		"F6 two faults": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 192.168.0.0/28}], tenantAllocation: {start: 10.40.0.200, end: 10.40.0.100}}`,
			want: []string{
				`spec.tenantAllocation: Invalid value: "10.40.0.200-10.40.0.100": range 10.40.0.200-10.40.0.100 is reversed, write the lower address first`,
				`spec.reserved[0].cidr: Invalid value: "192.168.0.0/28": lies outside spec.cidr 10.40.0.0/24: correct it or grow spec.cidr`,
			},
		},
		"F7 no ranges": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {}}`,
		},
		"F8 bad reserved": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0}]}`,
			want: []string{`spec.reserved[0].cidr: Invalid value: "10.40.0.0": must have a prefix length: write 10.40.0.0/32 for this address alone, a smaller one for a network`},
		},
		"F9 several ranges in order": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}, {start: 10.40.0.64, end: 10.40.0.95}]}}`,
		},
		"F10 not in order": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.64, end: 10.40.0.95}, {start: 10.40.0.16, end: 10.40.0.31}]}}`,
			want: []string{`spec.tenantAllocation.ranges[1]: Invalid value: "10.40.0.16/28": must come before spec.tenantAllocation.ranges[0] (10.40.0.64-10.40.0.95): list ranges in ascending order`},
		},
		"F11 overlapping": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}, {start: 10.40.0.31, end: 10.40.0.60}]}}`,
			want: []string{`spec.tenantAllocation.ranges[1]: Invalid value: "10.40.0.31-10.40.0.60": overlaps spec.tenantAllocation.ranges[0] (10.40.0.16-10.40.0.31): make them one range, or two that share no address`},
		},
		"F12 one range outside": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}, {start: 10.40.1.1, end: 10.40.1.2}]}}`,
			want: []string{`spec.tenantAllocation.ranges[1]: Invalid value: "10.40.1.1-10.40.1.2": lies outside spec.cidr 10.40.0.0/24: correct it or grow spec.cidr`},
		},
		"F13 reserved inside a range": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.20/30}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}]}}`,
		},
		"F14 reserved outside all ranges": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}]}}`,
		},
		"F15 reserved over an edge": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.16/29}], tenantAllocation: {ranges: [{start: 10.40.0.20, end: 10.40.0.31}]}}`,
			want: []string{`spec.reserved[0].cidr: Invalid value: "10.40.0.16/29": reaches over an edge of spec.tenantAllocation.ranges[0] (10.40.0.20-10.40.0.31): reserve networks that lie inside the range or beside it`},
		},

		"reserved around a whole range": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/27}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.20}]}}`,
		},
		"ranges that touch": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.0, end: 10.40.0.31}, {start: 10.40.0.32, end: 10.40.0.255}]}}`,
		},
		"reserved over each other": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}, {cidr: 10.40.0.0/29}]}`,
		},
		"the whole of IPv4": {spec: `{cidr: 0.0.0.0/0}`},
		"the whole of IPv6": {
			spec: `{cidr: "::/0"}`,
			want: []string{`spec.cidr: Invalid value: "::/0": is more than a pool can hold: use a longer prefix`},
		},
		"no CIDR": {
			spec: `{cidr: ""}`,
			want: []string{`spec.cidr: Invalid value: "": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"prefix too long": {
			spec: `{cidr: 10.40.0.0/33}`,
			want: []string{`spec.cidr: Invalid value: "10.40.0.0/33": must have a prefix length from 0 to 32: "33" is none`},
		},
		"octet too large": {
			spec: `{cidr: 10.40.0.256/32}`,
			want: []string{`spec.cidr: Invalid value: "10.40.0.256/32": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"zone in a CIDR": {
			spec: `{cidr: "fe80::%eth0/64"}`,
			want: []string{`spec.cidr: Invalid value: "fe80::%eth0/64": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`},
		},
		"host bits": {
			spec: `{cidr: 10.40.0.5/24, reserved: [{cidr: 10.40.0.1/28}]}`,
			want: []string{
				`spec.cidr: Invalid value: "10.40.0.5/24": has bits set after the prefix: write 10.40.0.0/24`,
				`spec.reserved[0].cidr: Invalid value: "10.40.0.1/28": has bits set after the prefix: write 10.40.0.0/28`,
			},
		},
		"not canonical": {
			spec: `{cidr: "2001:DB8::/64", reserved: [{cidr: "2001:db8:0:0::/120"}], tenantAllocation: {ranges: [{start: "2001:db8::0100", end: "2001:db8:0::200"}]}}`,
			want: []string{
				`spec.cidr: Invalid value: "2001:DB8::/64": must be in canonical form, in lower case: write 2001:db8::/64`,
				`spec.reserved[0].cidr: Invalid value: "2001:db8:0:0::/120": must be in canonical form, as short as can be: write 2001:db8::/120`,
				`spec.tenantAllocation.ranges[0].start: Invalid value: "2001:db8::0100": must be in canonical form, as short as can be: write 2001:db8::100`,
				`spec.tenantAllocation.ranges[0].end: Invalid value: "2001:db8:0::200": must be in canonical form, as short as can be: write 2001:db8::200`,
			},
		},
		"IPv4 written as IPv6": {
			spec: `{cidr: "::ffff:10.40.0.0/120", tenantAllocation: {start: "::ffff:10.40.0.1", end: 10.40.0.9}}`,
			want: []string{
				`spec.cidr: Invalid value: "::ffff:10.40.0.0/120": must not be IPv4 written as IPv6: write 10.40.0.0/24`,
				`spec.tenantAllocation.start: Invalid value: "::ffff:10.40.0.1": must not be IPv4 written as IPv6: write 10.40.0.1`,
			},
		},
		"zones in a range": {
			spec: `{cidr: "fe80::/64", tenantAllocation: {ranges: [{start: "fe80::1%eth0", end: "fe80::9%eth0"}]}}`,
			want: []string{
				`spec.tenantAllocation.ranges[0].start: Invalid value: "fe80::1%eth0": must not have a zone: write fe80::1`,
				`spec.tenantAllocation.ranges[0].end: Invalid value: "fe80::9%eth0": must not have a zone: write fe80::9`,
			},
		},
		"unreadable range": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0, end: 10.40.0.010}]}}`,
			want: []string{
				`spec.tenantAllocation.ranges[0].start: Invalid value: "10.40.0": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.tenantAllocation.ranges[0].end: Invalid value: "10.40.0.010": must have no leading zeros: write 10.40.0.10`,
			},
		},
		"two families in a range": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.1, end: "2001:db8::9"}]}}`,
			want: []string{`spec.tenantAllocation.ranges[0]: Invalid value: "10.40.0.1-2001:db8::9": range 10.40.0.1-2001:db8::9 mixes IPv4 and IPv6, use one family`},
		},
		"foreign family": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: "2001:db8::/120"}], tenantAllocation: {ranges: [{start: "2001:db8::1", end: "2001:db8::9"}]}}`,
			want: []string{
				`spec.reserved[0].cidr: Invalid value: "2001:db8::/120": is of the other address family than spec.cidr 10.40.0.0/24: use one family in a pool`,
				`spec.tenantAllocation.ranges[0]: Invalid value: "2001:db8::1-2001:db8::9": is of the other address family than spec.cidr 10.40.0.0/24: use one family in a pool`,
			},
		},
		"start without end": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {start: 10.40.0.1}}`,
			want: []string{`spec.tenantAllocation.end: Required value: start and end must be set together: set both, or use ranges instead`},
		},
		"end without start": {
			spec: `{cidr: 10.40.0.0/24, tenantAllocation: {end: 10.40.0.1}}`,
			want: []string{`spec.tenantAllocation.start: Required value: start and end must be set together: set both, or use ranges instead`},
		},
		"routing domain that is no label value": {
			spec: `{cidr: 10.40.0.0/24, routingDomain: lab/1}`,
			want: []string{`spec.routingDomain: Invalid value: "lab/1": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')`},
		},
		"reuse delay of more than a month": {
			spec: `{cidr: 10.40.0.0/24, reuseDelay: 721h}`,
			want: []string{`spec.reuseDelay: Invalid value: "721h0m0s": must be a duration from 0s to 720h, such as 10m`},
		},
		"reuse delay below nothing": {
			spec: `{cidr: 10.40.0.0/24, reuseDelay: -1s}`,
			want: []string{`spec.reuseDelay: Invalid value: "-1s": must be a duration from 0s to 720h, such as 10m`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, messages(butler.ValidateNetworkPool(poolWith(t, tc.spec)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestValidateNetworkPoolUpdate(t *testing.T) {
	const grown = `{cidr: 10.40.0.0/23}`
	cases := map[string]struct {
		old, updated string
		want         []string
	}{
		"the same":             {old: grown, updated: grown},
		"cidr grows upwards":   {old: grown, updated: `{cidr: 10.40.0.0/21}`},
		"cidr grows downwards": {old: `{cidr: 10.40.4.0/22}`, updated: `{cidr: 10.40.0.0/21}`},
		"cidr shrinks": {
			old: grown, updated: `{cidr: 10.40.0.0/24}`,
			want: []string{`spec.cidr: Forbidden: may grow but never shrink or move: 10.40.0.0/24 does not contain the present 10.40.0.0/23; use a network that does, or add another pool`},
		},
		"cidr moves": {
			old: grown, updated: `{cidr: 10.42.0.0/23}`,
			want: []string{`spec.cidr: Forbidden: may grow but never shrink or move: 10.42.0.0/23 does not contain the present 10.40.0.0/23; use a network that does, or add another pool`},
		},
		"cidr changes its family": {
			old: grown, updated: `{cidr: "2001:db8::/64"}`,
			want: []string{`spec.cidr: Forbidden: may grow but never shrink or move: 2001:db8::/64 does not contain the present 10.40.0.0/23; use a network that does, or add another pool`},
		},
		"cidr loses host bits": {old: `{cidr: 10.40.0.5/23}`, updated: grown},
		"tenant ranges narrow": {
			old:     `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}]}}`,
			updated: `{cidr: 10.40.0.0/24, tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.17}]}}`,
		},
		"a fault that was stored stays, another is refused": {
			old:     `{cidr: 10.40.0.5/23}`,
			updated: `{cidr: 10.40.0.5/23, reserved: [{cidr: 10.50.0.0/28}]}`,
			want:    []string{`spec.reserved[0].cidr: Invalid value: "10.50.0.0/28": lies outside spec.cidr 10.40.0.0/23: correct it or grow spec.cidr`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			errs := butler.ValidateNetworkPoolUpdate(poolWith(t, tc.old), poolWith(t, tc.updated))
			if diff := cmp.Diff(tc.want, messages(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func nobody(netip.Addr) string { return "" }

func TestFindPoolWarnings_OwnedEndsOfANetwork(t *testing.T) {
	describeOwner := func(a netip.Addr) string { return map[string]string{"10.30.0.0": "by ipallocations/web"}[a.String()] }
	if diff := cmp.Diff([]string{
		"10.30.0.0, the network address of spec.cidr, which no machine can use, is owned by ipallocations/web: unless the pool is for load balancers alone, delete the owner, and add 10.30.0.0/32 to spec.reserved then",
		"10.30.0.255, the broadcast address of spec.cidr, can be allocated, and no machine can use it: add 10.30.0.255/32 to spec.reserved, unless the pool is for load balancers alone",
	}, butler.FindPoolWarnings(poolWith(t, `{cidr: 10.30.0.0/24}`), describeOwner)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}

func TestWarningsFor(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []string
	}{
		"nothing to say": {spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}]}}`},
		"start and end": {
			spec: `{cidr: 10.40.0.0/21, tenantAllocation: {start: 10.40.1.0, end: 10.40.7.254}}`,
			want: []string{`spec.tenantAllocation.start and end are deprecated: write ranges: [{start: "10.40.1.0", end: "10.40.7.254"}] instead`},
		},
		"start and end beside ranges": {
			spec: `{cidr: 10.40.0.0/21, tenantAllocation: {start: 10.40.1.0, end: 10.40.7.254, ranges: [{start: 10.40.1.0, end: 10.40.7.254}]}}`,
			want: []string{`spec.tenantAllocation.start and end are ignored because ranges is set: remove them`},
		},
		"reserved twice": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/29}, {cidr: 10.40.0.0/28}, {cidr: 10.40.0.0/28}, {cidr: 10.40.0.255/32}]}`,
			want: []string{
				`spec.reserved[0].cidr 10.40.0.0/29 lies inside spec.reserved[1].cidr 10.40.0.0/28 already: remove it`,
				`spec.reserved[2].cidr 10.40.0.0/28 lies inside spec.reserved[1].cidr 10.40.0.0/28 already: remove it`,
			},
		},
		"the ends of a network without gateway": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}]}`,
			want: []string{
				`10.40.0.255, the broadcast address of spec.cidr, can be allocated, and no machine can use it: add 10.40.0.255/32 to spec.reserved, unless the pool is for load balancers alone`,
			},
		},
		"a gateway, and the ends of the network": {
			spec: `{cidr: 10.40.0.0/24, gateway: 10.40.0.1}`,
			want: []string{
				`10.40.0.0, the network address of spec.cidr, can be allocated, and no machine can use it: add 10.40.0.0/32 to spec.reserved, unless the pool is for load balancers alone`,
				`10.40.0.255, the broadcast address of spec.cidr, can be allocated, and no machine can use it: add 10.40.0.255/32 to spec.reserved, unless the pool is for load balancers alone`,
			},
		},
		"a gateway, and one end reserved":            {spec: `{cidr: 10.40.0.0/24, gateway: 10.40.0.1, reserved: [{cidr: 10.40.0.0/28}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.254}]}}`},
		"a gateway of a network that has no ends":    {spec: `{cidr: 10.40.0.0/31, gateway: 10.40.0.1}`},
		"a gateway of a network of the other family": {spec: `{cidr: "fd00::/120", gateway: "fd00::1"}`},
		"nothing left": {
			spec: `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/27}], tenantAllocation: {ranges: [{start: 10.40.0.16, end: 10.40.0.31}]}}`,
			want: []string{`spec.reserved covers every address that spec offers to tenants: nothing can be allocated from this pool`},
		},
		"nothing left beside the gateway": {
			spec: `{cidr: 10.40.0.0/31, reserved: [{cidr: 10.40.0.0/32}], gateway: 10.40.0.1}`,
			want: []string{`spec.reserved and spec.gateway cover every address that spec offers to tenants: nothing can be allocated from this pool`},
		},
	}
	misplaced := poolWith(t, `{cidr: 10.40.0.0/31, routingDomain: a}`)
	misplaced.Labels = map[string]string{v1alpha1.LabelRoutingDomain: "b"}
	misplaced.Annotations = map[string]string{v1alpha1.AnnotationReuseDelay: "10m"}
	if diff := cmp.Diff([]string{
		"label butler.butlerlabs.dev/routing-domain counts for nothing on a NetworkPool: set spec.routingDomain instead",
		"annotation butler.butlerlabs.dev/reuse-delay counts for nothing on a NetworkPool: set spec.reuseDelay instead",
	}, butler.FindPoolWarnings(misplaced, nobody)); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, butler.FindPoolWarnings(poolWith(t, tc.spec), nobody)); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
