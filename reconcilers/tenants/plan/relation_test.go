package plan_test

import (
	"net/netip"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

func TestRelationOf(t *testing.T) {
	missing := func(since time.Time, status metav1.ConditionStatus) []metav1.Condition {
		return []metav1.Condition{{Type: "TenantClusterMissing", Status: status, LastTransitionTime: metav1.NewTime(since)}}
	}
	cases := map[string]struct {
		recorded   string
		keep       string
		conditions []metav1.Condition
		uid        string
		want       plan.Relation
		at         time.Time
	}{
		"tenant exists":                       {recorded: "1", uid: "1", want: plan.Owned},
		"tenant exists, UID not recorded":     {uid: "1", want: plan.Unrecorded},
		"no tenant yet":                       {want: plan.TenantUnknown},
		"no tenant for long":                  {conditions: missing(ago(600), "True"), want: plan.TenantUnknown},
		"gone":                                {recorded: "1", want: plan.Orphaned, at: ago(-5)},
		"gone, back, gone":                    {recorded: "1", conditions: missing(ago(60), "False"), want: plan.Orphaned, at: ago(-5)},
		"gone for four minutes":               {recorded: "1", conditions: missing(ago(4), "True"), want: plan.Orphaned, at: ago(-1)},
		"gone for five":                       {recorded: "1", conditions: missing(ago(5), "True"), want: plan.Abandoned},
		"back in time":                        {recorded: "1", conditions: missing(ago(4), "True"), uid: "1", want: plan.Owned},
		"another tenant of the name":          {recorded: "1", uid: "2", want: plan.Orphaned, at: ago(-5)},
		"another tenant of the name for long": {recorded: "1", uid: "2", conditions: missing(ago(5), "True"), want: plan.Abandoned},
		"gone, kept":                          {recorded: "1", keep: "true", conditions: missing(ago(60), "True"), want: plan.Kept},
		"gone, not kept":                      {recorded: "1", keep: "false", conditions: missing(ago(60), "True"), want: plan.Abandoned},
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
			got, at := plan.RelationOf(a, tc.uid, 5*time.Minute, noon)
			if got != tc.want || !at.Equal(tc.at) {
				t.Errorf("want %d at %s, got %d at %s", tc.want, tc.at, got, at)
			}
		})
	}
}

func TestReasonNotToRelease(t *testing.T) {
	blocks := plan.BlocksOf(tenant, []v1alpha1.IPAllocation{allocation(t, "team-x-mycluster-lb", "initial", "10.40.0.8/30"), allocation(t, "waits", "growth", "")})
	inUse := func(address string) []netip.Addr { return []netip.Addr{netip.MustParseAddr(address)} }
	cases := map[string]struct {
		machines  int
		addresses []netip.Addr
		want      string
	}{
		"nothing left":              {},
		"machines":                  {machines: 2, want: "2 machines of the tenant are left"},
		"address of a block in use": {addresses: inUse("10.40.0.11"), want: "10.40.0.11 of IPAllocation team-x-mycluster-lb is still in use by a node"},
		"another address in use":    {addresses: inUse("10.40.0.12")},
	}
	for name, tc := range cases {
		if got := plan.ReasonNotToRelease(blocks, tc.machines, tc.addresses); got != tc.want {
			t.Errorf("%s: want %q, got %q", name, tc.want, got)
		}
	}
}
