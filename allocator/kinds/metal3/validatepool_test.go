package metal3_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/metal3"
)

func texts(errs field.ErrorList) []string {
	var all []string
	for _, err := range errs {
		all = append(all, err.Error())
	}
	return all
}

const notRandom = `: cannot be used with allocationStrategy "random", which needs an end and no more than 2^63-1 addresses: set end, or a longer prefix`

func TestIPPoolFollowsItsRules(t *testing.T) {
	cases := map[string]struct {
		spec string
		want []string
	}{
		"nothing to offer": {spec: `{}`},
		"reversed": {
			spec: `{pools: [{start: 192.168.0.149, end: 192.168.0.140}]}`,
			want: []string{`spec.pools[0].end: Invalid value: "192.168.0.140": must not be lower than start 192.168.0.149: swap the two, or correct one`},
		},
		"IPv6 to IPv4": {
			spec: `{pools: [{start: "2001:db8::1", end: 192.168.0.140}]}`,
			want: []string{`spec.pools[0].end: Invalid value: "192.168.0.140": must not be lower than start 2001:db8::1: swap the two, or correct one`},
		},
		"no addresses": {
			spec: `{pools: [{start: 192.168.0.10, subnet: 256.256.256.256/24}, {subnet: 192.168.0.0/33}, {end: 192.168.1}]}`,
			want: []string{
				`spec.pools[0].subnet: Invalid value: "256.256.256.256/24": must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64`,
				`spec.pools[1].subnet: Invalid value: "192.168.0.0/33": must have a prefix length from 0 to 32: "33" is none`,
				`spec.pools[2].end: Invalid value: "192.168.1": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
			},
		},
		"an entry without addresses": {
			spec: `{pools: [{gateway: 192.168.0.1, dnsServers: [8.8.8.8]}]}`,
			want: []string{`spec.pools[0]: Required value: an entry of pools needs addresses: set start and end, or subnet`},
		},
		"gateways and name servers": {
			spec: `{gateway: router, dnsServers: [8.8.8.8, "fe80::1%eth0"], prefix: 129, pools: [{start: 10.0.0.1, gateway: 10.0.0, dnsServers: ["::ffff:1.2.3.4"]}]}`,
			want: []string{
				`spec.prefix: Invalid value: 129: must be at most 128`,
				`spec.gateway: Invalid value: "router": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.dnsServers[1]: Invalid value: "fe80::1%eth0": must not have a zone: write fe80::1`,
				`spec.pools[0].gateway: Invalid value: "10.0.0": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.pools[0].dnsServers[0]: Invalid value: "::ffff:1.2.3.4": must not be IPv4 written as IPv6: write 1.2.3.4`,
			},
		},
		"strategy": {
			spec: `{allocationStrategy: best}`,
			want: []string{`spec.allocationStrategy: Unsupported value: "best": supported values: "sequential", "random"`},
		},
		"random":                  {spec: `{allocationStrategy: random, pools: [{start: 10.0.0.1, end: 10.0.0.9}, {start: 10.0.1.1, subnet: 10.0.1.0/24}, {subnet: "2001:db8::/65"}]}`},
		"random over start alone": {spec: `{allocationStrategy: random, pools: [{start: 10.0.0.1}]}`, want: []string{`spec.pools[0]: Invalid value: "from 10.0.0.1"` + notRandom}},
		"random over end alone":   {spec: `{allocationStrategy: random, pools: [{end: 10.0.0.1}]}`, want: []string{`spec.pools[0]: Invalid value: "to 10.0.0.1"` + notRandom}},
		"random over too much": {
			spec: `{allocationStrategy: random, pools: [{subnet: "2001:db8::/32"}, {start: "::1", end: "ffff::"}, {start: "2001:db8::1", subnet: "2001:db8::/64"}]}`,
			want: []string{
				`spec.pools[0]: Invalid value: "2001:db8::/32"` + notRandom,
				`spec.pools[1]: Invalid value: "::1-ffff::"` + notRandom,
				`spec.pools[2]: Invalid value: "2001:db8::1 in 2001:db8::/64"` + notRandom,
			},
		},
		"kept: outside": {
			spec: `{pools: [{subnet: 192.168.0.0/24}], preAllocations: {b: 10.0.0.5}}`,
			want: []string{`spec.preAllocations[b]: Invalid value: "10.0.0.5": is out of bounds of the pools given: correct it, or add an entry to spec.pools that has it`},
		},
		"kept: twice, written in two ways": {
			spec: `{pools: [{subnet: "2001:db8::/64"}], preAllocations: {b: "2001:0db8:0:0:0:0:0:1", a: "2001:db8::1"}}`,
			want: []string{`spec.preAllocations[b]: Invalid value: "2001:0db8:0:0:0:0:0:1": IP address is already pre-allocated to claim "a": keep it for one of the two`},
		},
		"kept: unreadable": {
			spec: `{pools: [{subnet: 192.168.0.0/24}], preAllocations: {b: x, a: "?"}}`,
			want: []string{
				`spec.preAllocations[a]: Invalid value: "?": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
				`spec.preAllocations[b]: Invalid value: "x": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`,
			},
		},
		"kept: in bounds for Metal3, though out of reach": {spec: `{pools: [{subnet: 192.168.0.10/24}, {end: 10.0.0.9}], preAllocations: {a: 192.168.0.5, b: 10.0.0.1}}`},
		"kept: beyond an end that does not count": {
			spec: `{pools: [{subnet: 192.168.0.0/24, end: 192.168.0.5}], preAllocations: {a: 192.168.0.6}}`,
			want: []string{`spec.preAllocations[a]: Invalid value: "192.168.0.6": is out of bounds of the pools given: correct it, or add an entry to spec.pools that has it`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(metal3.ValidateIPPool(poolWith(t, tc.spec)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
	nameless := poolWith(t, `{}`)
	nameless.Spec.NamePrefix = ""
	if diff := cmp.Diff([]string{`spec.namePrefix: Required value: set the prefix of the names of the pool's IPAddress objects`}, texts(metal3.ValidateIPPool(nameless))); diff != "" {
		t.Errorf("without namePrefix (-want +got):\n%s", diff)
	}
}

func TestIPPoolUpdate_ChecksChangedFieldsOnly(t *testing.T) {
	cases := map[string]struct {
		old, updated string
		want         []string
	}{
		"grows and shrinks":                    {old: `{pools: [{subnet: 192.168.0.0/24}]}`, updated: `{pools: [{start: 192.168.0.1, end: 192.168.0.10}, {subnet: 10.0.0.0/24}]}`},
		"faults of an older day stay":          {old: `{pools: [{start: 10.0.0.9, end: 10.0.0.1}]}`, updated: `{pools: [{start: 10.0.0.9, end: 10.0.0.1}], prefix: 24}`},
		"the default strategy written and not": {old: `{}`, updated: `{allocationStrategy: sequential}`},
		"a new fault": {
			old: `{pools: [{start: 10.0.0.9, end: 10.0.0.1}]}`, updated: `{pools: [{start: 10.0.0.9, end: 10.0.0.2}]}`,
			want: []string{`spec.pools[0].end: Invalid value: "10.0.0.2": must not be lower than start 10.0.0.9: swap the two, or correct one`},
		},
		"a kept address falls out": {
			old:     `{pools: [{start: 192.168.0.1, end: 192.168.0.254}], preAllocations: {a: 192.168.0.50}}`,
			updated: `{pools: [{subnet: 192.168.0.128/25}], preAllocations: {a: 192.168.0.50}}`,
			want:    []string{`spec.preAllocations[a]: Invalid value: "192.168.0.50": is out of bounds of the pools given: correct it, or add an entry to spec.pools that has it`},
		},
		"name prefix": {
			old: `{namePrefix: abcd}`, updated: `{namePrefix: abcde}`,
			want: []string{`spec.namePrefix: Forbidden: cannot be changed, the IPAddress objects of the pool are named after it: it is "abcd"; create another IPPool`},
		},
		"strategy": {
			old: `{}`, updated: `{allocationStrategy: random}`,
			want: []string{`spec.allocationStrategy: Forbidden: cannot be changed: it is "sequential"; create another IPPool`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, texts(metal3.ValidateIPPoolUpdate(poolWith(t, tc.old), poolWith(t, tc.updated)))); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatIsMostLikelyNotMeantIsWarnedOf(t *testing.T) {
	const nameless = "spec.namePrefix: with it the names of some IPAddresses, or of all, are none that Kubernetes takes, and claims do not get those: create the pool with a prefix of lower case letters, digits, '-' and '.'" +
		" instead, a letter or digit first, no more than 240 characters"
	cases := map[string]struct {
		spec string
		want []string
	}{
		"nothing":                        {spec: `{pools: [{start: 192.168.0.10, end: 192.168.0.30, gateway: 192.168.0.1}, {subnet: "2001:db8::/64", gateway: "fe80::1"}], prefix: 24}`},
		"gateway and broadcast are kept": {spec: `{pools: [{subnet: 192.168.0.0/24}], gateway: 192.168.0.1, preAllocations: {gateway: 192.168.0.1, broadcast: 192.168.0.255}}`},
		"a pair has no broadcast":        {spec: `{pools: [{subnet: 192.168.0.0/31}]}`},
		"broadcast": {
			spec: `{pools: [{subnet: 192.168.1.1/26}, {subnet: 192.168.1.128/25}]}`,
			want: []string{
				`spec.pools[0]: 192.168.1.63, the broadcast address of 192.168.1.0/26, can be handed out: keep it with preAllocations, under a name that no claim can have, such as _broadcast`,
				`spec.pools[1]: 192.168.1.255, the broadcast address of 192.168.1.128/25, can be handed out: keep it with preAllocations, under a name that no claim can have, such as _broadcast`,
			},
		},
		"gateway": {
			spec: `{pools: [{start: 192.168.0.1, end: 192.168.0.30}], gateway: 192.168.0.1}`,
			want: []string{`spec.pools[0]: the gateway 192.168.0.1 can be handed out: keep it with preAllocations, under a name that no claim can have, such as _gateway`},
		},
		"gateway of another family": {
			spec: `{pools: [{start: 192.168.0.10, end: 192.168.0.30, gateway: "fe80::1"}, {subnet: "2001:db8::/64"}], gateway: 192.168.0.1}`,
			want: []string{
				`spec.pools[0]: the gateway fe80::1 is of another address family than the addresses: name one of theirs`,
				`spec.pools[1]: the gateway 192.168.0.1 is of another address family than the addresses: name one of theirs`,
			},
		},
		"end without start": {
			spec: `{pools: [{subnet: 192.168.0.0/31, end: 192.168.0.0}, {end: 192.168.0.9}]}`,
			want: []string{
				`spec.pools[0]: end counts only where start is set: set start as well, or the whole of subnet can be handed out`,
				`spec.pools[1] has no address: nothing can be handed out of it`,
			},
		},
		"start outside of subnet": {
			spec: `{pools: [{start: 192.168.0.250, subnet: 192.168.1.0/24}]}`,
			want: []string{`spec.pools[0] has no address: nothing can be handed out of it`},
		},
		"two families": {
			spec: `{pools: [{start: 192.168.0.250, end: "2001:db8::1"}]}`,
			want: []string{`spec.pools[0]: start and end are of two address families, so that end bounds nothing: use one family in an entry`},
		},
		"prefix": {
			spec: `{pools: [{start: 192.168.0.1, end: 192.168.0.2}, {start: "::1", end: "::2", prefix: -1}], prefix: 64}`,
			want: []string{
				`spec.pools[0]: prefix 64 is none of an IPv4 address: use one from 0 to 32`,
				`spec.pools[1]: prefix -1 is none of an IPv6 address: use one from 0 to 128`,
			},
		},
		"names that no object can have": {
			spec: `{pools: [{start: 192.168.0.10, end: 192.168.0.30}], namePrefix: Bad_Prefix}`,
			want: []string{nameless},
		},
		"names as long as they can be": {spec: `{pools: [{start: 192.168.0.10, end: 192.168.0.30}], namePrefix: ` + strings.Repeat("a", 240) + `}`},
		"names that are too long": {
			spec: `{pools: [{start: 192.168.0.10, end: 192.168.0.30}], namePrefix: ` + strings.Repeat("a", 241) + `}`,
			want: []string{nameless},
		},
		"kept and out of reach": {
			spec: `{pools: [{subnet: 192.168.0.1/31}, {start: 10.0.0.1, end: 10.0.0.2}], preAllocations: {a: 192.168.0.1}}`,
			want: []string{
				`spec.pools[0] has no address: nothing can be handed out of it`,
				`spec.preAllocations[a]: no entry of spec.pools reaches 192.168.0.1: a claim of this name gets no address`,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, metal3.FindPoolWarnings(poolWith(t, tc.spec))); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
		})
	}
}
