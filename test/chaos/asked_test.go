package main

import (
	"testing"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// A ProxyVIP of two families that has one address is half of one.
func TestProxyVIP_CompleteWithAddressesAndToken(t *testing.T) {
	const four, six = "10.0.0.1/32", "2001:db8::1/128"
	for name, tc := range map[string]struct {
		family       novaedgev1.AddressFamily
		address, six string
		token, want  bool
	}{
		"IPv4":             {novaedgev1.FamilyIPv4, four, "", true, true},
		"without a token":  {novaedgev1.FamilyIPv4, four, "", false, false},
		"without anything": {novaedgev1.FamilyIPv4, "", "", true, false},
		"both":             {novaedgev1.FamilyDual, four, six, true, true},
		"IPv4 of two":      {novaedgev1.FamilyDual, four, "", true, false},
		"IPv6 of two":      {novaedgev1.FamilyDual, "", six, true, false},
	} {
		v := &novaedgev1.ProxyVIP{Spec: novaedgev1.ProxyVIPSpec{AddressFamily: tc.family, Address: tc.address, IPv6Address: tc.six}}
		if tc.token {
			v.Annotations = map[string]string{butlerv1.AnnotationGrant: "token"}
		}
		if got := whole(v); got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}
