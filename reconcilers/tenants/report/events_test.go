package report_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// guideFilter is the filter of Butler's operations guide for log lines about addresses:
// grep -i -E "ipam|alloc|growth|shrink|metallb".
var guideFilter = regexp.MustCompile(`(?i)ipam|alloc|growth|shrink|metallb`)

// Each change of a tenant's addresses is one log line with pool, tenant, range and
// reason, which the filter of the operations guide passes.
func TestEvents_AreLogged(t *testing.T) {
	c := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: "team-x", Name: "web"}}
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Name: "lb-1"}, Spec: v1alpha1.IPAllocationSpec{
		PoolRef: v1alpha1.LocalObjectReference{Name: "vlan40"}, TenantClusterRef: v1alpha1.NamespacedObjectReference{Namespace: "team-x", Name: "web"},
		Type: v1alpha1.TypeLoadBalancer, PinnedRange: &v1alpha1.PinnedIPRange{StartAddress: "10.40.0.8", EndAddress: "10.40.0.9"},
	}}
	const block = ` "pool"="vlan40" "tenant"="team-x/web" "range"="10.40.0.8-10.40.0.9" "type"="loadbalancer" "allocation"="lb-1" "reason"=`
	const metallb = ` "pool"="default-pool" "tenant"="team-x/web" `
	long := strings.Repeat("192.0.2.1-192.0.2.1, ", 1000)
	cases := map[string]struct {
		record func(report.Events)
		want   string // without the quotes of the message
	}{
		"initial":  {func(e report.Events) { e.RecordInitial(c, a) }, `Initial allocation` + block + `"the tenant is new, or its initial addresses were missing"`},
		"adoption": {func(e report.Events) { e.RecordAdoption(c, a) }, `Adoption` + block + `"the tenant uses the addresses already"`},
		"growth":   {func(e report.Events) { e.RecordGrowth(c, a, 1) }, `Growth` + block + `"waiting Services need 1 address more"`},
		"no growth": {func(e report.Events) {
			e.RecordGrowthPrevented(c, metav1.Condition{Status: metav1.ConditionFalse, Reason: "PoolExhausted", Message: "no pool has room"})
		}, `Growth prevented "tenant"="team-x/web" "reason"="PoolExhausted: no pool has room"`},
		"outage": {func(e report.Events) {
			e.RecordGrowthPrevented(c, metav1.Condition{Status: metav1.ConditionUnknown, Reason: "AccessDenied", Message: "text of the tenant"})
		}, ""},
		"shrink":       {func(e report.Events) { e.RecordShrink(c, a, 10*time.Minute) }, `Shrink` + block + `"no Service has used the addresses for 10m0s"`},
		"deleted":      {func(e report.Events) { e.RecordReleased(c, a) }, `Release of allocation` + block + `"the TenantCluster was deleted"`},
		"orphan":       {func(e report.Events) { e.RecordOrphanDeleted(a, nil) }, `Release of allocation` + block + `"the TenantCluster is gone"`},
		"pool":         {func(e report.Events) { e.RecordPoolWritten(c, []string{"a-b", "c-d"}, "added c-d") }, `MetalLB pool written` + metallb + `"range"="a-b, c-d" "reason"="added c-d"`},
		"pool deleted": {func(e report.Events) { e.RecordPoolWritten(c, nil, "removed a-b") }, `MetalLB pool written` + metallb + `"range"="" "reason"="removed a-b"`},
		"drift":        {func(e report.Events) { e.RecordDrift(c, []string{"x-y"}, "it was changed") }, `MetalLB drift` + metallb + `"range"="x-y" "reason"="another writer: it was changed"`},
		"much drift": {func(e report.Events) { e.RecordDrift(c, strings.Split(long, ", "), long) },
			`MetalLB drift` + metallb + fmt.Sprintf(`"range"=%q "reason"=%q`, report.ShortenText(long), report.ShortenText("another writer: "+long))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var lines []string
			log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
			recorder := record.NewFakeRecorder(10)
			tc.record(report.Events{Recorder: recorder, Log: log})
			message, fields, _ := strings.Cut(tc.want, ` "`)
			want := []string{fmt.Sprintf(`"level"=0 "msg"=%q "%s`, message, fields)}
			if tc.want == "" {
				want = nil
			}
			if diff := cmp.Diff(want, lines); diff != "" {
				t.Errorf("lines (-want +got):\n%s", diff)
			}
			if len(lines) == 1 && !guideFilter.MatchString(lines[0]) {
				t.Errorf("the filter of the operations guide does not find %s", lines[0])
			}
			if len(recorder.Events) != 1 {
				t.Errorf("%d events, want 1", len(recorder.Events))
			}
		})
	}
}
