package butler_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
)

func TestGatewayIsKeptFromEverybody(t *testing.T) {
	cases := map[string]struct {
		spec        string
		wantBlocked []string
		wantErrors  []string
	}{
		"inside": {
			spec:        `{cidr: 10.40.0.0/24, gateway: 10.40.0.1, reserved: [{cidr: 10.40.0.8/29}]}`,
			wantBlocked: []string{"10.40.0.8/29", "10.40.0.1"},
		},
		"outside the tenant ranges": {
			spec:        `{cidr: 10.40.0.0/24, gateway: 10.40.0.254, tenantAllocation: {ranges: [{start: 10.40.0.1, end: 10.40.0.9}]}}`,
			wantBlocked: []string{"10.40.0.254"},
		},
		"link-local, which the pool does not have": {spec: `{cidr: "2001:db8:40::/64", gateway: "fe80::1"}`},
		"link-local, which the pool has":           {spec: `{cidr: "fe80::/64", gateway: "fe80::1"}`, wantBlocked: []string{"fe80::1"}},
		"of another network": {
			spec:       `{cidr: 10.40.0.0/24, gateway: 10.41.0.1}`,
			wantErrors: []string{`spec.gateway: Invalid value: "10.41.0.1": lies outside spec.cidr 10.40.0.0/24, and is not link-local IPv6 in an IPv6 pool: correct it or remove it`},
		},
		"link-local IPv4": {
			spec:       `{cidr: 10.40.0.0/24, gateway: 169.254.0.1}`,
			wantErrors: []string{`spec.gateway: Invalid value: "169.254.0.1": lies outside spec.cidr 10.40.0.0/24, and is not link-local IPv6 in an IPv6 pool: correct it or remove it`},
		},
		"not canonical": {
			spec:        `{cidr: "2001:db8:40::/64", gateway: "2001:DB8:40::1"}`,
			wantBlocked: []string{"2001:db8:40::1"},
			wantErrors:  []string{`spec.gateway: Invalid value: "2001:DB8:40::1": must be in canonical form, in lower case: write 2001:db8:40::1`},
		},
		"unreadable": {
			spec:       `{cidr: 10.40.0.0/24, gateway: router}`,
			wantErrors: []string{`spec.gateway: Invalid value: "router": must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100`},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := poolWith(t, tc.spec)
			got, _ := butler.ConvertPool(p)
			if diff := cmp.Diff(ranges(t, tc.wantBlocked...), got.Blocked, compareAddresses); diff != "" {
				t.Errorf("blocked (-want +got):\n%s", diff)
			}
			var errs []string
			for _, err := range butler.ValidateNetworkPool(p) {
				errs = append(errs, err.Error())
			}
			if diff := cmp.Diff(tc.wantErrors, errs); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}
