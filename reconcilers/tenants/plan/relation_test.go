package plan_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds/object"
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
		domain    string // of the addresses
		addresses []netip.Addr
		want      string
	}{
		"nothing left":              {},
		"machines":                  {machines: 2, want: "2 machines of the tenant are left"},
		"address of a block in use": {addresses: inUse("10.40.0.11"), want: "10.40.0.11 of IPAllocation team-x-mycluster-lb is still in use by a node"},
		"another address in use":    {addresses: inUse("10.40.0.12")},
		"another routing domain":    {domain: "red", addresses: inUse("10.40.0.11")},
	}
	in := func(domain string, addresses []netip.Addr) func(string) []netip.Addr {
		return func(of string) []netip.Addr {
			if of != domain {
				return nil
			}
			return addresses
		}
	}
	for name, tc := range cases {
		if got := plan.ReasonNotToRelease(blocks, tc.machines, in(tc.domain, tc.addresses)); got != tc.want {
			t.Errorf("%s: want %q, got %q", name, tc.want, got)
		}
	}
}

// An allocation owns its addresses in the routing domain that it records, whatever its
// label.
func TestReasonNotToCollect_RoutingDomain(t *testing.T) {
	a := allocation(t, "lb", "initial", "10.40.0.8/30")
	a.Labels[v1alpha1.LabelRoutingDomain] = "blue"
	a.Annotations = map[string]string{v1alpha1.AnnotationGrantedDomain: "red"}
	for domain, want := range map[string]string{"": "", "blue": "", "red": "10.40.0.9 of IPAllocation lb is still in use by a node"} {
		got := plan.ReasonNotToCollect(&a, func(of string) []netip.Addr {
			if of != domain {
				return nil
			}
			return []netip.Addr{netip.MustParseAddr("10.40.0.9")}
		})
		if got != want {
			t.Errorf("addresses in use in domain %q: %q, want %q", domain, got, want)
		}
	}
}

func TestNeedsTeam(t *testing.T) {
	tenant := plan.Tenant{Namespace: "ns", Name: "web", Team: "backend"}
	const applied = `{metadata: {labels: {butler.butlerlabs.dev/team: ns}, managedFields: [{manager: flux, operation: %s, fieldsV1: {"f:metadata": {"f:labels": {%q: {}}}}}]}}`
	for name, tc := range map[string]struct {
		tenant     plan.Tenant
		allocation string
		want       bool
	}{
		"none":                             {tenant, `{}`, true},
		"the webhooks' value":              {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: ns}}}`, true},
		"the team":                         {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: backend}}}`, false},
		"the author's":                     {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: other}}}`, false},
		"the author's, empty":              {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: ""}}}`, false},
		"IPAM's, of another team":          {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: other, app.kubernetes.io/managed-by: butler-ipam}}}`, true},
		"IPAM's":                           {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: backend, app.kubernetes.io/managed-by: butler-ipam}}}`, false},
		"applied":                          {tenant, fmt.Sprintf(applied, "Apply", "f:butler.butlerlabs.dev/team"), false},
		"another label applied":            {tenant, fmt.Sprintf(applied, "Apply", "f:other"), true},
		"updated":                          {tenant, fmt.Sprintf(applied, "Update", "f:butler.butlerlabs.dev/team"), true},
		"applied by the client":            {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: ns}, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"metadata":{"labels":{"butler.butlerlabs.dev/team":"ns"}}}'}}}`, false},
		"applied by the client, without":   {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: ns}, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{"metadata":{"labels":{"a":"b"}}}'}}}`, true},
		"applied by the client, no JSON":   {tenant, `{metadata: {labels: {butler.butlerlabs.dev/team: ns}, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{'}}}`, true},
		"tenant without a team":            {plan.Tenant{Namespace: "ns"}, `{metadata: {labels: {butler.butlerlabs.dev/team: ns}}}`, false},
		"tenant without a team, unlabeled": {plan.Tenant{Namespace: "ns"}, `{}`, true},
	} {
		if got := plan.NeedsTeam(tc.tenant, read[v1alpha1.IPAllocation](t, tc.allocation)); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

func TestTenantOf_TeamLabel(t *testing.T) {
	long := strings.Repeat("team.", 30) + "x"
	for team, want := range map[string]string{"": "ns", "backend": "backend", "a.b": "a.b", long: object.LabelValue(long), "Team A": "ns"} {
		c := read[v1alpha1.TenantCluster](t, `{metadata: {namespace: ns, name: web}, spec: {teamRef: {name: "`+team+`"}}}`)
		tenant, err := plan.TenantOf(c)
		if err != nil {
			t.Fatal(err)
		}
		a := plan.NewAllocation(tenant, v1alpha1.TypeNodes, "initial", "butler-system", "a", "p", 0)
		if got := a.Labels["butler.butlerlabs.dev/team"]; got != want || plan.NeedsTeam(tenant, a) {
			t.Errorf("team %q: label %q, want %q", team, got, want)
		}
	}
	if tenant, _ := plan.TenantOf(read[v1alpha1.TenantCluster](t, `{metadata: {namespace: ns}}`)); tenant.TeamLabel() != "ns" {
		t.Errorf("no team: label %q", tenant.TeamLabel())
	}
}
