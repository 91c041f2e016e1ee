package metal3_test

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/scenarios"
)

func TestScenarios(t *testing.T) {
	all, err := scenarios.Read("testdata/scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range all {
		t.Run(tc.Name, func(t *testing.T) {
			run(t, tc)
		})
	}
}

func run(t *testing.T, tc scenarios.Scenario) {
	p := &v1alpha1.IPPool{Spec: tc.Pool}
	if errs := metal3.ValidateIPPool(p); len(errs) > 0 != tc.Stored {
		t.Fatalf("pool: %v", errs)
	}
	place := newPlace(t, p, tc.Owned...)
	has := map[string]netip.Addr{} // claim -> address
	for _, step := range tc.Steps {
		if step.Release != "" {
			place.space.Release(single(has[step.Release]), 1)
			delete(has, step.Release)
			continue
		}
		claim := step.Claim + step.Retry
		a, err := place.give(claim, step.IPAddress)
		if err != nil || step.Error != "" {
			if err == nil || err.Error() != step.Error {
				t.Errorf("claim %s: want error %q, got %v, %v", claim, step.Error, a, err)
			}
			continue
		}
		for other, owned := range has {
			if owned == a && other != claim {
				t.Errorf("claim %s: got %s, which %s has", claim, a, other)
			}
		}
		has[claim] = a
		s := metal3.FindSettings(p, a)
		got := scenarios.Answer{Address: a, Prefix: s.Prefix, Gateway: s.Gateway, DNSServers: s.DNSServers, Name: metal3.AddressName(p, a)}
		if diff := cmp.Diff(step.Want.Settle(got), got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", claim, diff)
		}
	}
}
