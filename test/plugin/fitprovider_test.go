package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/report"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// For each TenantCluster until the pools are full, the manager allocates from the pools
// that fit --provider has predicted, and fit --provider has counted the TenantClusters
// that still fit.
func TestFitProvider_EqualsTheManager(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, Tenants: true, ManagerArgs: []string{"--tenants"}})
	ns := suite.CreateNamespace(t, c)
	pool := func(name, cidr, last string, nodes, loadBalancer int32) *butlerv1.NetworkPool {
		p := networkPool(s.Namespace(), name, cidr, "")
		p.Spec.TenantAllocation = &butlerv1.TenantAllocation{
			Ranges:   []butlerv1.IPRange{{Start: strings.TrimSuffix(cidr, "/24"), End: last}},
			Defaults: &butlerv1.AllocationDefaults{NodesPerTenant: nodes, LBPoolPerTenant: loadBalancer},
		}
		return p
	}
	near, far := pool("near", "10.99.0.0/24", "10.99.0.17", 3, 4), pool("far", "10.99.1.0/24", "10.99.1.31", 5, 6)
	suite.Create(t, c, near, far, &butlerv1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lab"}, Spec: butlerv1.ProviderConfigSpec{
		Provider: "harvester", Network: &butlerv1.ProviderNetwork{Mode: butlerv1.NetworkModeIPAM, PoolRefs: []butlerv1.PoolReference{{Name: "far", Priority: ptr.To[int32](10)}, {Name: "near"}}},
	}})
	suite.AwaitObject(t, c, far, func(p *butlerv1.NetworkPool) string {
		if meta.IsStatusConditionTrue(p.Status.Conditions, butlerv1.ConditionReady) {
			return ""
		}
		return "not Ready"
	})
	fit := func() report.ProviderFit {
		return decodedFrom[report.ProviderFit](t, s.Kubeconfig(), "fit", "--provider", ns+"/lab")
	}
	// create creates a TenantCluster. It returns the types, sizes and pools of the
	// ranges, such as "nodes 5 far, loadbalancer 6 far", or the reason why the
	// TenantCluster has no addresses.
	create := func(n int64) string {
		tenant := &butlerv1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("tenant-", n)}, Spec: butlerv1.TenantClusterSpec{
			ProviderConfigRef: &butlerv1.ProviderReference{Namespace: ns, Name: "lab"},
		}}
		suite.Create(t, c, tenant)
		reason := ""
		suite.AwaitObject(t, c, tenant, func(tenant *butlerv1.TenantCluster) string {
			ready := meta.FindStatusCondition(tenant.Status.Conditions, butlerv1.ConditionNetworkReady)
			if ready == nil || ready.Reason != butlerv1.ReasonReady && ready.Reason != butlerv1.ReasonPoolExhausted {
				return fmt.Sprintf("NetworkReady is %+v", ready)
			}
			reason = ready.Reason
			return ""
		})
		if reason != butlerv1.ReasonReady {
			return reason
		}
		var pools []string
		for _, name := range []string{tenant.Status.IPAllocationRef.Name, tenant.Status.LBAllocationRef.Name} {
			a := &butlerv1.IPAllocation{}
			if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace(), Name: name}, a); err != nil {
				t.Fatal(err)
			}
			pools = append(pools, fmt.Sprintf("%s %d %s", a.Spec.Type, *a.Spec.Count, a.Spec.PoolRef.Name))
		}
		return strings.Join(pools, ", ")
	}
	first, seen := fit(), map[string]bool{}
	if first.APIVersion != report.APIVersion || first.Kind != "ProviderFit" || len(first.Pools) != 2 || first.Pools[0].Name != "near" || first.Pools[1].Priority != 10 || first.Fits != 5 {
		t.Fatalf("%+v", first)
	}
	for n := range first.Fits {
		f := fit()
		var predicted []string
		for _, r := range f.Next {
			predicted = append(predicted, fmt.Sprintf("%s %d %s", r.Type, r.Size, r.Pool.Name))
		}
		is := create(n)
		t.Logf("tenant %d of %d: %s", n+1, first.Fits, is)
		if seen[is] = true; is != strings.Join(predicted, ", ") || f.Fits != first.Fits-n {
			t.Errorf("tenant %d has %q; predicted for %d tenants: %q", n+1, is, f.Fits, predicted)
		}
	}
	if len(seen) != 3 { // near and near, near and far, far and far
		t.Errorf("pools of the tenants: %v", seen)
	}
	if r := run(t, s.Kubeconfig(), "fit", "--provider", ns+"/lab"); r.code != 1 || !strings.HasSuffix(r.stdout, "none fits: no pool has room for nodes\n") {
		t.Errorf("full pools: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	if is := create(first.Fits); is != butlerv1.ReasonPoolExhausted {
		t.Errorf("one tenant more: %s", is)
	}

	// A TenantCluster waits for a paused pool, although the next pool has room.
	suite.Create(t, c, networkPool(s.Namespace(), "spare", "10.99.2.0/24", ""))
	suite.Change(t, c, near, func(p *butlerv1.NetworkPool) {
		p.Annotations = map[string]string{"cluster.x-k8s.io/paused": "true"}
		p.Spec.TenantAllocation.Ranges[0].End = "10.99.0.100"
	})
	suite.Create(t, c, &butlerv1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "paused"}, Spec: butlerv1.ProviderConfigSpec{
		Provider: "harvester", Network: &butlerv1.ProviderNetwork{Mode: butlerv1.NetworkModeIPAM, PoolRefs: []butlerv1.PoolReference{{Name: "near"}, {Name: "spare"}}},
	}})
	if r := run(t, s.Kubeconfig(), "fit", "--provider=paused"); r.code != 1 || !strings.Contains(r.stdout, "waits for addresses for nodes of NetworkPool "+s.Namespace()+"/near") {
		t.Errorf("a paused pool: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
	waiting := &butlerv1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "waiting"}, Spec: butlerv1.TenantClusterSpec{ProviderConfigRef: &butlerv1.ProviderReference{Name: "paused"}}}
	suite.Create(t, c, waiting)
	suite.AwaitObject(t, c, waiting, func(tenant *butlerv1.TenantCluster) string {
		if tenant.Status.IPAllocationRef == nil {
			return "no IPAllocation"
		}
		return ""
	})
	a := &butlerv1.IPAllocation{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace(), Name: waiting.Status.IPAllocationRef.Name}, a); err != nil || a.Spec.PoolRef.Name != "near" || a.Spec.PinnedRange != nil {
		t.Errorf("the IPAllocation of the paused pool: %+v, %v", a.Spec, err)
	}

	// The user has the viewer role, and the right to get ProviderConfigs, in the
	// namespace of tenants.
	suite.Create(t, c, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: "providers"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{butlerv1.GroupVersion.Group}, Resources: []string{"providerconfigs"}, Verbs: []string{"get"}},
	}})
	for name, kind := range map[string]string{"providers": "Role", "butler-ipam-viewer": "ClusterRole"} {
		suite.Create(t, c, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace(), Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind, Name: name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "one-namespace"}},
		})
	}
	viewer := kubeconfigIn(t, s, "one-namespace", ns)
	suite.Eventually(t, suite.Soon, func(context.Context) error { // wait until the roles have taken effect
		if r := run(t, viewer, "fit", "--provider=paused"); r.code != 1 || !strings.Contains(r.stdout, "near") {
			return errors.New(r.stdout + r.stderr)
		}
		return nil
	})
	if r := run(t, viewer, "fit", "--provider", ns+"/lab"); r.code != 2 || !strings.Contains(r.stderr, "ask for the right to get providerconfigs.butler.butlerlabs.dev in namespace "+ns) {
		t.Errorf("without the right: exit code %d: %s%s", r.code, r.stdout, r.stderr)
	}
}

// Each error of fit --provider names the remedy.
func TestFitProvider_Errors(t *testing.T) {
	for _, tc := range []struct {
		args string
		want string
	}{
		{"--provider=absent", "ProviderConfig butler-system/absent does not exist: list them with kubectl get providerconfigs"},
		{"--provider=absent -n team-1", "ProviderConfig team-1/absent does not exist"},
		{"--provider=../x", "write NAME or NAMESPACE/NAME"},
		{"--provider=a/b/c", "write NAME or NAMESPACE/NAME"},
		{"--provider=lab vlan40", `pool "vlan40" and --provider=lab: use one of them`},
		{"--provider=lab --count=3", "none of the others can be"},
		{"--provider=lab --domain=red", "--domain and --provider: use one of them"},
		{"--provider=lab --tenant=vips=3", "neither nodes=N nor loadbalancer=N"},
		{"vlan40", "name the size of a range with --count"},
		{"--count=3", "name a pool, or a ProviderConfig"},
		{"vlan40 --count=0", "use 1 or more addresses"},
	} {
		if r := run(t, cluster.Kubeconfig(), append([]string{"fit"}, strings.Fields(tc.args)...)...); r.code != 2 || !strings.Contains(r.stderr, tc.want) {
			t.Errorf("fit %s: exit code %d: %s%s, want %q", tc.args, r.code, r.stdout, r.stderr, tc.want)
		}
	}
}
