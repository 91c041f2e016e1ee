package tenants_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

func TestAnAllocationGoesOnlyWhenTheTenantThatItHadIsGoneForLong(t *testing.T) {
	missing := func(since time.Time, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "TenantClusterMissing", Status: status, LastTransitionTime: metav1.NewTime(since)}}
	}
	cases := map[string]struct {
		recorded   string
		keep       string
		conditions []metav1.Condition
		uid        string
		want       tenants.Kinship
		at         time.Time
	}{
		"its tenant":                          {recorded: "1", uid: "1", want: tenants.Related},
		"its tenant, seen for the first time": {uid: "1", want: tenants.Unrecorded},
		"no tenant yet":                       {want: tenants.Unknown},
		"no tenant for long":                  {conditions: missing(ago(600), "True"), want: tenants.Unknown},
		"gone":                                {recorded: "1", want: tenants.Orphaned, at: ago(-5)},
		"gone, back, gone":                    {recorded: "1", conditions: missing(ago(60), "False"), want: tenants.Orphaned, at: ago(-5)},
		"gone for four minutes":               {recorded: "1", conditions: missing(ago(4), "True"), want: tenants.Orphaned, at: ago(-1)},
		"gone for five":                       {recorded: "1", conditions: missing(ago(5), "True"), want: tenants.Abandoned},
		"back before it went":                 {recorded: "1", conditions: missing(ago(4), "True"), uid: "1", want: tenants.Related},
		"another of its name":                 {recorded: "1", uid: "2", want: tenants.Orphaned, at: ago(-5)},
		"another of its name for long":        {recorded: "1", uid: "2", conditions: missing(ago(5), "True"), want: tenants.Abandoned},
		"gone, kept":                          {recorded: "1", keep: "true", conditions: missing(ago(60), "True"), want: tenants.Kept},
		"gone, not kept":                      {recorded: "1", keep: "false", conditions: missing(ago(60), "True"), want: tenants.Abandoned},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			a := &v1alpha1.IPAllocation{Status: v1alpha1.IPAllocationStatus{Conditions: tc.conditions}}
			a.Annotations = map[string]string{}
			if tc.recorded != "" {
				a.Annotations[v1alpha1.AnnotationTenantUID] = tc.recorded
			}
			if tc.keep != "" {
				a.Annotations[v1alpha1.AnnotationKeep] = tc.keep
			}
			got, at := tenants.KinshipOf(a, tc.uid, 5*time.Minute, noon)
			if got != tc.want || !at.Equal(tc.at) {
				t.Errorf("want %d at %s, got %d at %s", tc.want, tc.at, got, at)
			}
		})
	}
}

func TestMachinesThatAreLeftHoldTheAddressesOfTheirTenant(t *testing.T) {
	blocks := tenants.BlocksOf(tenant, []v1alpha1.IPAllocation{allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.8/30"), allocation(t, "waits", "growth", "")})
	seen := func(address string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(address)} }
	cases := map[string]struct {
		machines int
		seen     []netip.Addr
		want     string
	}{
		"nothing left":     {},
		"machines":         {machines: 2, want: "2 machines of the tenant are left"},
		"an address of it": {seen: seen("10.40.0.11"), want: "10.40.0.11 of IPAllocation team-x-mycluster-lb is still in use by a node"},
		"another address":  {seen: seen("10.40.0.12")},
	}
	for name, tc := range cases {
		if got := tenants.Holds(blocks, tc.machines, tc.seen); got != tc.want {
			t.Errorf("%s: want %q, got %q", name, tc.want, got)
		}
	}
}
