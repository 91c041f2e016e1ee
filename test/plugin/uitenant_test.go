package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The page of a tenant shows the conditions, quota and ranges that a manager with
// --tenants records, also for a tenant without addresses.
func TestUI_Tenant(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, Tenants: true, ManagerArgs: []string{"--tenants"}})
	ns := suite.CreateNamespace(t, c)
	pool := networkPool(s.Namespace(), "lab", "10.98.0.0/28", "")
	pool.Spec.TenantAllocation = &butlerv1.TenantAllocation{Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: 5, LBPoolPerTenant: 8}}
	provider := &butlerv1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "lab"}, Spec: butlerv1.ProviderConfigSpec{
		Provider: "harvester", Network: &butlerv1.ProviderNetwork{
			Mode: butlerv1.NetworkModeIPAM, PoolRefs: []butlerv1.PoolReference{{Name: "lab"}},
			LoadBalancer:   &butlerv1.ProviderLoadBalancer{AllocationMode: butlerv1.LBAllocationElastic, InitialPoolSize: ptr.To[int32](3), GrowthIncrement: ptr.To[int32](4)},
			QuotaPerTenant: &butlerv1.TenantQuota{MaxNodeIPs: ptr.To[int32](6), MaxLoadBalancerIPs: ptr.To[int32](7)},
		},
	}}
	tenant := func(name string) *butlerv1.TenantCluster {
		return &butlerv1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.TenantClusterSpec{ProviderConfigRef: &butlerv1.ProviderReference{Name: "lab"}}}
	}
	u := startUI(t, s.Kubeconfig())
	suite.Create(t, c, pool, provider, tenant("first"))
	page := "/tenant?tenant=" + ns + "/first"
	u.eventually(t, page, "<th scope=\"row\">NetworkReady</th><td>True</td>", true)
	u.eventually(t, page, "5 for nodes in 1 range (quota: 6), 3 for loadbalancer in 1 range (quota: 7).", true)
	for _, want := range []string{
		"ProviderConfig " + s.Namespace() + "/lab", "grow by at least 4 when Services need more",
		`<td>IPAllocation ` + s.Namespace() + "/" + ns + `-first-lb</td><td>initially</td><td>yes</td>`,
	} {
		u.eventually(t, page, want, true)
	}
	var document report.Tenant
	if err := json.Unmarshal([]byte(u.mustGet(t, strings.Replace(page, "?", ".json?", 1))), &document); err != nil {
		t.Fatal(err)
	}
	if document.Kind != "Tenant" || document.AllocationMode != "elastic" || len(document.LoadBalancers) != 1 || !document.LoadBalancers[0].Ready || len(document.Claims) != 2 || len(document.Conditions) == 0 {
		t.Errorf("%+v", document)
	}

	suite.Create(t, c, tenant("second")) // 5 of the remaining 8 addresses are for nodes
	u.eventually(t, "/tenant?tenant="+ns+"/second", "<th scope=\"row\">NetworkReady</th><td>True</td>", true)
	suite.Create(t, c, tenant("third"))
	page = "/tenant?tenant=" + ns + "/third"
	u.eventually(t, page, "<td>PoolExhausted</td>", true)
	if shown := u.mustGet(t, page); !strings.Contains(shown, "No addresses") && !strings.Contains(shown, "0 for nodes in 0 ranges (quota: 6)") {
		t.Errorf("the third tenant: %s", shown)
	}

	// The viewer role does not allow reading the objects of the platform: the page has a
	// line about this, and shows no such object.
	suite.Create(t, c, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "tenant-viewer"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "butler-ipam-viewer"},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant-viewer"}},
	})
	kubeconfig := kubeconfigIn(t, s, "tenant-viewer", ns)
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the role has taken effect
		if r := run(t, kubeconfig, "pools"); r.stderr != "" {
			return errors.New(r.stderr)
		}
		return nil
	})
	viewer := startUI(t, kubeconfig)
	shown := viewer.mustGet(t, "/tenant?tenant="+ns+"/first")
	for text, want := range map[string]bool{
		"tenantclusters: not read, as you may not list them": true, "providerconfigs: not read, as you may not list them": true, "5 for nodes in 1 range,": true,
		"quota:": false, "NetworkReady": false, "Warning: ": false, "IPAddressPool": false,
	} {
		if strings.Contains(shown, text) != want {
			t.Errorf("a viewer sees %q: %v, want %v: %s", text, !want, want, shown)
		}
	}
	t.Run("console", func(t *testing.T) { requireTenantsOfConsole(t, s, c, ns) })
}

// requireTenantsOfConsole requires that butler-ipam console shows the conditions and the
// quota of the tenant first only to persons with the right to list TenantClusters and
// ProviderConfigs.
func requireTenantsOfConsole(t *testing.T, s *sandbox.Sandbox, c client.Client, ns string) {
	console := newWebConsole(suite.StartConsole(t, s, c, "../..", "tenants.enabled=true"))
	const user, viewer, tenants = "butler-ipam-console-user", "butler-ipam-viewer", "butler-ipam-tenants-viewer"
	type part struct{ condition, quota bool }
	for name, person := range map[string]struct {
		roles map[string]string
		want  part
	}{
		"operator":    {map[string]string{user: "", viewer: "", tenants: ""}, part{true, true}},
		"of-a-tenant": {map[string]string{user: "", viewer: "", tenants: ns}, part{true, false}}, // the ProviderConfig is in another namespace
		"viewer":      {map[string]string{user: "", viewer: ""}, part{}},
	} {
		token := suite.CreatePerson(t, c, ns, name, person.roles)
		suite.Eventually(t, time.Minute, func(ctx context.Context) error { // the console caches a denied right for 30 s
			p, err := console.get(ctx, "/tenant?tenant="+ns+"/first&namespace="+ns, bearing(token))
			got := part{strings.Contains(p.body, "NetworkReady"), strings.Contains(p.body, "(quota: 6)")}
			if err == nil && (got != person.want || !strings.Contains(p.body, "5 for nodes in 1 range")) {
				err = fmt.Errorf("%s sees %+v, want %+v: status %d: %s", name, got, person.want, p.code, p.body)
			}
			return err
		})
	}
}
