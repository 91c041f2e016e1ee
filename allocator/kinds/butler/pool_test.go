package butler_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

var compareAddresses = cmpopts.EquateComparable(allocator.Range{})

func TestPoolOffersWhatItsSpecSays(t *testing.T) {
	cases := map[string]struct {
		spec        string
		wantWindow  []string
		wantBlocked []string
	}{
		"the whole cidr, first and last address included": {
			spec:       `{cidr: 10.40.0.0/24}`,
			wantWindow: []string{"10.40.0.0-10.40.0.255"},
		},
		"the whole cidr where tenantAllocation has defaults alone": {
			spec:       `{cidr: 10.40.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3}}}`,
			wantWindow: []string{"10.40.0.0-10.40.0.255"},
		},
		"start to end": {
			spec:       `{cidr: 10.40.0.0/21, tenantAllocation: {start: 10.40.1.0, end: 10.40.7.254}}`,
			wantWindow: []string{"10.40.1.0-10.40.7.254"},
		},
		"ranges rather than start and end": {
			spec:       `{cidr: 10.40.0.0/21, tenantAllocation: {start: 10.40.1.0, end: 10.40.7.254, ranges: [{start: 10.40.2.0, end: 10.40.2.9}, {start: 10.40.2.10, end: 10.40.2.10}]}}`,
			wantWindow: []string{"10.40.2.0-10.40.2.9", "10.40.2.10"},
		},
		"reserved networks as declared, also outside the tenant ranges": {
			spec:        `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}, {cidr: 10.40.0.80/30}], tenantAllocation: {ranges: [{start: 10.40.0.64, end: 10.40.0.254}]}}`,
			wantWindow:  []string{"10.40.0.64-10.40.0.254"},
			wantBlocked: []string{"10.40.0.0/28", "10.40.0.80/30"},
		},
		"IPv6": {
			spec:        `{cidr: "2001:db8:40::/64", reserved: [{cidr: "2001:db8:40::/120"}]}`,
			wantWindow:  []string{"2001:db8:40::/64"},
			wantBlocked: []string{"2001:db8:40::/120"},
		},
		"host bits stored under older rules do not matter": {
			spec:        `{cidr: 10.40.0.5/24, reserved: [{cidr: 10.40.0.1/28}]}`,
			wantWindow:  []string{"10.40.0.0/24"},
			wantBlocked: []string{"10.40.0.0/28"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, errs := butler.ConvertPool(poolWith(t, tc.spec))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(ranges(t, tc.wantWindow...), got.Window, compareAddresses); diff != "" {
				t.Errorf("window (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(ranges(t, tc.wantBlocked...), got.Blocked, compareAddresses); diff != "" {
				t.Errorf("blocked (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPoolThatBreaksARuleOffersNothingAndStillReserves(t *testing.T) {
	got, errs := butler.ConvertPool(poolWith(t, `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}, {cidr: nonsense}, {cidr: "::/0"}]}`))
	if len(errs) != 2 {
		t.Errorf("want two errors, got %v", errs)
	}
	if len(got.Window) != 0 {
		t.Errorf("want no window, got %v", got.Window)
	}
	if diff := cmp.Diff(ranges(t, "10.40.0.0/28"), got.Blocked, compareAddresses); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}
}

func TestPoolAvoidsWhatThePlatformIsSeenToUse(t *testing.T) {
	p := poolWith(t, `{cidr: 10.40.0.0/24, reserved: [{cidr: 10.40.0.0/28}]}`)
	p.Status.InfrastructureAllocations = []v1alpha1.InfrastructureAllocation{{IP: "10.40.0.3", Source: "metallb"}, {IP: "10.40.0.77", Source: "node"}, {IP: "?", Source: "node"}}
	got, errs := butler.ConvertPool(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(ranges(t, "10.40.0.0/28", "10.40.0.3", "10.40.0.77"), got.Blocked, compareAddresses); diff != "" {
		t.Errorf("blocked (-want +got):\n%s", diff)
	}
}

func TestPoolKeepsReleasedRangesAtRest(t *testing.T) {
	p := poolWith(t, `{cidr: 10.40.0.0/24, routingDomain: lab, reuseDelay: 10m}`)
	p.ResourceVersion = "4711"
	p.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	until := metav1.NewTime(time.Unix(1_800_000_000, 0))
	p.Status.Releases = []v1alpha1.Release{
		{Name: "rests", StartAddress: "10.40.0.8", EndAddress: "10.40.0.15", ReusableAt: &until},
		{Name: "free-at-once", StartAddress: "10.40.0.16", EndAddress: "10.40.0.16"},
		{Name: "unreadable", StartAddress: "10.40.0.16", EndAddress: "?", ReusableAt: &until},
	}
	want := ledger.Pool{
		Key:             ledger.Key{Resource: "networkpools.butler.butlerlabs.dev", Namespace: "butler-system", Name: "vlan40-pool"},
		ResourceVersion: 4711,
		RoutingDomain:   "lab",
		Window:          ranges(t, "10.40.0.0/24"),
		Policy:          allocator.BestFit,
		ReuseDelay:      10 * time.Minute,
		Recorded:        []ledger.RecordedRange{{Range: ranges(t, "10.40.0.8/29")[0], Until: until.Time}},
		Deleting:        true,
	}
	got, errs := butler.ConvertPool(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if diff := cmp.Diff(want, got, compareAddresses, cmpopts.EquateComparable(allocator.BestFit), cmpopts.IgnoreFields(ledger.Pool{}, "WhatIsBlocked", "WhyOutside")); diff != "" {
		t.Errorf("pool (-want +got):\n%s", diff)
	}
}

func TestCountComesFromTheClaimThenThePoolThenTheProduct(t *testing.T) {
	withDefaults := `{cidr: 10.40.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3, lbPoolPerTenant: 4}}}`
	cases := map[string]struct {
		claim string
		pool  string
		want  int32
	}{
		"the claim's own count":               {claim: `{spec: {count: 2}}`, pool: withDefaults, want: 2},
		"the pool's count for nodes":          {claim: `{spec: {type: nodes}}`, pool: withDefaults, want: 3},
		"the pool's count for load balancers": {claim: `{spec: {type: loadbalancer}}`, pool: withDefaults, want: 4},
		"five nodes":                          {claim: `{spec: {type: nodes}}`, pool: `{cidr: 10.40.0.0/24}`, want: 5},
		"eight for load balancers":            {claim: `{spec: {type: loadbalancer}}`, pool: `{cidr: 10.40.0.0/24, tenantAllocation: {}}`, want: 8},
		"eight where the pool leaves it open": {claim: `{spec: {type: loadbalancer}}`, pool: `{cidr: 10.40.0.0/24, tenantAllocation: {defaults: {nodesPerTenant: 3}}}`, want: 8},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := butler.RequestedCount(claimWith(t, tc.claim), poolWith(t, tc.pool)); got != tc.want {
				t.Errorf("want %d, got %d", tc.want, got)
			}
		})
	}
	if got := butler.RequestedCount(claimWith(t, `{}`), nil); got != 8 {
		t.Errorf("without a pool: want 8, got %d", got)
	}
}
