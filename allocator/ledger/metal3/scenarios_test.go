package metal3_test

import (
	"net/netip"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// scenario is one of testdata/scenarios.yaml, which says what the fields mean.
type scenario struct {
	Name   string
	Stored bool // the pool breaks rules that came later
	Pool   v1alpha1.IPPoolSpec
	Held   []netip.Addr
	Steps  []struct {
		Claim, Retry, Release string
		IPAddress             string
		Error                 string
		Want                  answer
	}
}

// answer is what a claim gets.
type answer struct {
	Address    netip.Addr
	From, To   netip.Addr // where Address may be any of them
	Prefix     int
	Gateway    *v1alpha1.IP
	DNSServers []v1alpha1.IP
	Name       string // of its IPAddress; not compared where empty
}

func TestScenarios(t *testing.T) {
	text, err := os.ReadFile("testdata/scenarios.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var scenarios []scenario
	if err := yaml.UnmarshalStrict(text, &scenarios); err != nil {
		t.Fatal(err)
	}
	for _, tc := range scenarios {
		t.Run(tc.Name, func(t *testing.T) {
			tc.run(t)
		})
	}
}

func (tc scenario) run(t *testing.T) {
	p := &v1alpha1.IPPool{Spec: tc.Pool}
	p.Spec.NamePrefix = "abcpref"
	if errs := metal3.ValidateIPPool(p); len(errs) > 0 != tc.Stored {
		t.Fatalf("pool: %v", errs)
	}
	place := newPlace(t, p, tc.Held...)
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
		for other, held := range has {
			if held == a && other != claim {
				t.Errorf("claim %s: got %s, which %s has", claim, a, other)
			}
		}
		has[claim] = a
		s, want := metal3.SettingsFor(p, a), step.Want
		got := answer{Address: a, Prefix: s.Prefix, Gateway: s.Gateway, DNSServers: s.DNSServers, Name: metal3.AddressName(p, a)}
		if want.From.IsValid() && !a.Less(want.From) && !want.To.Less(a) {
			want.From, want.To, want.Address = netip.Addr{}, netip.Addr{}, a
		}
		if want.Name == "" {
			want.Name = got.Name
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("claim %s (-want +got):\n%s", claim, diff)
		}
	}
}
