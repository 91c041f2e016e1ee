package console

import (
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
)

func tenantHandler(i *inventory.Inventory, tenant func(context.Context, string, string) inventory.Tenant) http.Handler {
	return New(Options{
		View:   func(context.Context) (View, error) { return View{Inventory: i}, nil },
		Tenant: tenant, Now: func() time.Time { return now }, Version: "test",
	})
}

// The page of a tenant of the platform shows quota, growth, conditions, and the ranges of
// the load balancers.
func TestTenant_Golden(t *testing.T) {
	growth := allocation("vlan40", "web-lb-2", "web", "10.40.0.24", "10.40.0.25", butlerv1.TypeLoadBalancer)
	growth.Labels = map[string]string{butlerv1.LabelAllocationRole: butlerv1.RoleGrowth}
	growth.Annotations = map[string]string{butlerv1.AnnotationIdleSince: "2026-01-02T03:00:00Z"}
	at := metav1.NewTime(now.Add(-time.Minute))
	cluster := &butlerv1.TenantCluster{
		ObjectMeta: named("team-1", "web"), Spec: butlerv1.TenantClusterSpec{ProviderConfigRef: &butlerv1.ProviderReference{Name: "lab"}},
		Status: butlerv1.TenantClusterStatus{Conditions: []metav1.Condition{
			{Type: butlerv1.ConditionLoadBalancerIPsAvailable, Status: metav1.ConditionFalse, Reason: butlerv1.ReasonQuotaExceeded, Message: "Services need 2 addresses more <b>", LastTransitionTime: at},
			{Type: "ControlPlaneReady", Status: metav1.ConditionTrue, Reason: "Ready", Message: "of another author"},
			{Type: butlerv1.ConditionNetworkReady, Status: metav1.ConditionTrue, Reason: butlerv1.ReasonReady, Message: "nodes 10.40.0.8-10.40.0.12", LastTransitionTime: at},
		}},
	}
	provider := &butlerv1.ProviderConfig{ObjectMeta: named("butler-system", "lab"), Spec: butlerv1.ProviderConfigSpec{Network: &butlerv1.ProviderNetwork{
		Mode: butlerv1.NetworkModeIPAM, LoadBalancer: &butlerv1.ProviderLoadBalancer{AllocationMode: butlerv1.LBAllocationElastic, GrowthIncrement: new(int32(2))},
		QuotaPerTenant: &butlerv1.TenantQuota{MaxLoadBalancerIPs: new(int32(16))},
	}}}
	h := tenantHandler(newInventory(t, append(objects(), growth)), func(_ context.Context, namespace, name string) inventory.Tenant {
		if namespace != "team-1" || name != "web" {
			t.Errorf("asked for %s/%s", namespace, name)
		}
		return inventory.NewTenant(cluster, []*butlerv1.ProviderConfig{provider})
	})
	compareGolden(t, h, "tenant-platform.html", "/tenant?tenant=team-1/web")
	compareGolden(t, h, "tenant-platform.json", "/tenant.json?tenant=team-1/web")
}

// A TenantCluster without claims has a page, which shows why the tenant has no claims.
// The page has a line about objects that are not read.
func TestTenant_WithoutClaims(t *testing.T) {
	stored := inventory.Tenant{NotRead: []string{"tenantclusters: not read, as you may not list them"}}
	h := tenantHandler(newInventory(t, objects()), func(context.Context, string, string) inventory.Tenant { return stored })
	if w := get(t, h, "/tenant?tenant=team-9/new"); w.Code != http.StatusNotFound {
		t.Errorf("a tenant that is not stored: status %d", w.Code)
	}
	if page := mustGet(t, h, "/tenant?tenant=team-1/web"); !strings.Contains(page, `<p class="facts">tenantclusters: not read, as you may not list them</p>`) || strings.Contains(page, "MetalLB") {
		t.Errorf("without TenantClusters: %s", mainOf(page))
	}
	c := &butlerv1.TenantCluster{ObjectMeta: named("team-9", "new")}
	c.Spec.Networking = &butlerv1.TenantNetworking{LoadBalancerPool: &butlerv1.LoadBalancerPool{Start: "10.9.0.0", End: "10.9.0.7"}}
	c.Status.Conditions = []metav1.Condition{{Type: butlerv1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: butlerv1.ReasonPoolExhausted, Message: "no pool has room for nodes"}}
	stored = inventory.NewTenant(c, nil)
	page := mustGet(t, h, "/tenant?tenant=team-9/new")
	for _, want := range []string{"No addresses.", "no pool has room for nodes", "quota: not known", "Set by hand: 10.9.0.0-10.9.0.7."} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in %s", want, mainOf(page))
		}
	}
}

// Equal addresses in two routing domains are different addresses of a tenant, and the
// tables of the page name the routing domains.
func TestTenant_SeveralRoutingDomains(t *testing.T) {
	i := inventory.New(now, nil)
	for _, domain := range []string{"", "red"} {
		i.Add(networkPool("pool"+domain, "10.40.0.0/26", domain))
		nodes := allocation("pool"+domain, "nodes"+domain, "web", "10.40.0.0", "10.40.0.4", butlerv1.TypeNodes)
		nodes.Labels = map[string]string{butlerv1.LabelRoutingDomain: domain}
		i.Add(nodes)
		lb := allocation("pool"+domain, "lb"+domain, "web", "10.40.0.8", "10.40.0.15", butlerv1.TypeLoadBalancer)
		lb.Labels = map[string]string{butlerv1.LabelAllocationRole: butlerv1.RoleGrowth, butlerv1.LabelRoutingDomain: domain}
		i.Add(lb)
	}
	i.Add(allocation("pool", "other", "shop", "10.40.0.32", "10.40.0.35", butlerv1.TypeNodes))
	h := handlerOf(i)
	var item report.Tenant
	if err := json.Unmarshal([]byte(mustGet(t, h, "/tenant.json?tenant=team-1/web")), &item); err != nil {
		t.Fatal(err)
	}
	want := []report.TenantAddresses{{Purpose: "nodes", Count: 10, Ranges: 2}, {Purpose: "loadbalancer", Count: 16, Ranges: 2}}
	if !reflect.DeepEqual(item.Addresses, want) {
		t.Errorf("%+v, want %+v", item.Addresses, want)
	}
	page := mustGet(t, h, "/tenant?tenant=team-1/web")
	for text, n := range map[string]int{"10 for nodes in 2 ranges, 16 for loadbalancer in 2 ranges.": 1, `<th scope="col">Routing domain</th>`: 2, "<td>red</td>": 3, "<td>(default)</td>": 3} {
		if got := strings.Count(page, text); got != n {
			t.Errorf("%q is %d times on the page, want %d: %s", text, got, n, mainOf(page))
		}
	}
	if page := mustGet(t, h, "/tenant?tenant=team-1/shop"); strings.Contains(page, "Routing domain") {
		t.Errorf("a tenant with one routing domain: %s", mainOf(page))
	}
}

// A tenant that has released all addresses has a page, to which the recorded releases
// link.
func TestTenant_WithoutAddresses(t *testing.T) {
	h := handlerOf(newInventory(t, objects()))
	const link = `<a href="/tenant?tenant=team-1%2Fold">`
	if page := mustGet(t, h, "/pool?"+vlan40); !strings.Contains(page, link) {
		t.Errorf("no %s in %s", link, mainOf(page))
	}
	if page := mustGet(t, h, "/tenant?tenant=team-1%2Fold"); !strings.Contains(page, "No addresses.") {
		t.Errorf("the page: %s", mainOf(page))
	}
}
