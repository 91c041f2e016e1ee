package tenants

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/plane"
	"butlerlabs.dev/ipam/test/suite"
)

// elastic is a provider whose tenants start with two addresses.
func elastic(t *testing.T, name, more string) {
	t.Helper()
	provider(t, name, `{mode: ipam, poolRefs: [{name: `+name+`}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2, growthIncrement: 1}`+more+`}`, false)
}

func TestGrowth_ServiceBeyondThePool(t *testing.T) {
	pool(t, "beyond", "10.20.0.0/24", "10.20.0.0", "10.20.0.255")
	elastic(t, "beyond", "")
	c := live(t, "beyond", "beyond")
	offers(t, "10.20.0.0-10.20.0.1")
	for i := range 2 {
		served(t, balancer(t, fmt.Sprintf("initial-%d", i)))
	}
	const runs = 20
	var took []time.Duration
	for i := range runs {
		_, d := served(t, balancer(t, fmt.Sprintf("more-%02d", i)))
		took = append(took, d)
	}
	slices.Sort(took)
	t.Logf("from a Service's creation to its address, %d runs: p50 %s, p90 %s, max %s", runs, took[runs/2], took[runs*9/10], took[runs-1])
	if took[runs/2] > 2*time.Second {
		t.Errorf("p50 is %s, want at most 2s", took[runs/2])
	}
	hears(t, c, "LoadBalancerIPsAdded", "10.20.0.2 from pool beyond")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestCondition_WrittenAgain(t *testing.T) {
	pool(t, "says-again", "10.54.0.0/28", "10.54.0.0", "10.54.0.15")
	elastic(t, "says-again", "")
	c := live(t, "says-again", "says-again")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	time.Sleep(6 * time.Second) // what was written is seen by then
	if err := admin.Status().Patch(t.Context(), c, client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":null}}`))); err != nil {
		t.Fatal(err)
	}
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestGrowth_ServicesTogetherAndShrink(t *testing.T) {
	p := pool(t, "five", "10.21.0.0/24", "10.21.0.0", "10.21.0.255")
	elastic(t, "five", "")
	c := live(t, "five", "five")
	prefix := c.Namespace + "-five-lb"
	offers(t, "10.21.0.0-10.21.0.1")
	for i := range 2 {
		served(t, balancer(t, fmt.Sprintf("initial-%d", i)))
	}
	var five []*corev1.Service
	var creates errgroup.Group
	for i := range 5 {
		s := plane.Balancer(fmt.Sprintf("five-%d", i))
		five = append(five, s)
		creates.Go(func() error { return tenantPlane.Client.Create(t.Context(), s) })
	}
	if err := creates.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, s := range five {
		served(t, s)
	}
	grown := []string{prefix + " 10.21.0.0-10.21.0.1", prefix + "-1 10.21.0.2-10.21.0.6"}
	has(t, c, grown...)
	offers(t, "10.21.0.0-10.21.0.1", "10.21.0.2-10.21.0.6")
	if writes := poolWrites(t); writes != 2 { // the first blocks, and these
		t.Errorf("the tenant's pool was written %d times, want 2", writes)
	}

	// One that comes and goes keeps the block.
	for _, s := range five {
		dropService(t, s)
	}
	for range 4 {
		always(t, shrinkAfter/2, func(ctx context.Context) error { return holds(ctx, c, grown...) })
		s := balancer(t, "flapping")
		served(t, s)
		dropService(t, s)
	}
	idle := time.Now()
	always(t, shrinkAfter-500*time.Millisecond, func(ctx context.Context) error { return holds(ctx, c, grown...) })
	has(t, c, grown[0])
	t.Logf("released %s after the last use", time.Since(idle))
	if took := time.Since(idle); took < shrinkAfter {
		t.Errorf("released %s after the last use, want at least %s", took, shrinkAfter)
	}
	offers(t, "10.21.0.0-10.21.0.1")
	free(t, p, 254)
	hears(t, c, "LoadBalancerIPsReleased", "10.21.0.2-10.21.0.6 released to pool five")
	logged(t, c,
		`Initial allocation five [10.21.0.0-10.21.0.1] the tenant is new, or its initial addresses were missing`,
		`MetalLB pool written default-pool [10.21.0.0-10.21.0.1] added 10.21.0.0-10.21.0.1`,
		`Growth five [10.21.0.2-10.21.0.6] waiting Services need 5 addresses more`,
		`MetalLB pool written default-pool [10.21.0.0-10.21.0.1, 10.21.0.2-10.21.0.6] added 10.21.0.2-10.21.0.6`,
		`MetalLB pool written default-pool [10.21.0.0-10.21.0.1] removed 10.21.0.2-10.21.0.6`,
		`Shrink five [10.21.0.2-10.21.0.6] no Service has used the addresses for 10s`,
	)
}

// guideFilter is the filter of Butler's operations guide for log lines about addresses:
// grep -i -E "ipam|alloc|growth|shrink|metallb".
var guideFilter = regexp.MustCompile(`(?i)ipam|alloc|growth|shrink|metallb`)

// logged waits until the lines of the managers about a tenant's addresses that the filter
// of the operations guide passes are exactly these, in order: change, pool, range and
// reason.
func logged(t *testing.T, c *v1alpha1.TenantCluster, want ...string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(context.Context) error {
		type line struct{ TS, Logger, Msg, Pool, Tenant, Range, Reason string }
		var lines []line
		for _, m := range cluster.Managers() {
			text, err := os.ReadFile(m.LogPath())
			if err != nil {
				return err
			}
			for content := range bytes.Lines(text) {
				var l line
				if json.Unmarshal(content, &l) == nil && l.Logger == "tenants" && l.Tenant == c.Namespace+"/"+c.Name && guideFilter.Match(content) {
					lines = append(lines, l)
				}
			}
		}
		slices.SortStableFunc(lines, func(a, b line) int { return strings.Compare(a.TS, b.TS) })
		var got []string
		for _, l := range lines {
			got = append(got, fmt.Sprintf("%s %s [%s] %s", l.Msg, l.Pool, l.Range, l.Reason))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return fmt.Errorf("lines of %s/%s (-want +got):\n%s", c.Namespace, c.Name, diff)
		}
		return nil
	})
}

// poolWrites is how often the tenant's MetalLB pool was written.
func poolWrites(t *testing.T) int64 {
	t.Helper()
	p := metallbPool()
	if err := tenantPlane.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
		t.Fatal(err)
	}
	return p.GetGeneration()
}

func TestGrowth_FromNoAddresses(t *testing.T) {
	startPlane(t)
	theirs := metallbPool()
	_ = unstructured.SetNestedStringSlice(theirs.Object, []string{"192.0.2.0-192.0.2.0"}, "spec", "addresses")
	if err := tenantPlane.Client.Create(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	p := pool(t, "none", "10.19.0.0/24", "10.19.0.0", "10.19.0.255")
	elastic(t, "none", "")
	c := live(t, "none", "none", ", addons: {ingress: {enabled: false}}")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if err := offered(t.Context(), "192.0.2.0-192.0.2.0"); err != nil {
		t.Errorf("a pool that we have no part in: %v", err)
	}
	if err := tenantPlane.Client.Delete(t.Context(), theirs); err != nil {
		t.Fatal(err)
	}
	s := balancer(t, "first")
	if address, _ := served(t, s); address.String() != "10.19.0.0" {
		t.Errorf("the first Service has %s", address)
	}
	offers(t, "10.19.0.0-10.19.0.0")
	dropService(t, s)
	offers(t) // MetalLB refuses an empty pool
	has(t, c)
	free(t, p, 256)
}

func TestGrowth_ServicesOfOthers(t *testing.T) {
	pool(t, "never", "10.22.0.0/24", "10.22.0.0", "10.22.0.255")
	elastic(t, "never", "")
	c := live(t, "never", "never")
	offers(t, "10.22.0.0-10.22.0.1")
	other := "example.com/other"
	balancer(t, "class", func(s *corev1.Service) { s.Spec.LoadBalancerClass = &other })
	balancer(t, "address", func(s *corev1.Service) {
		s.Annotations = map[string]string{"metallb.io/loadBalancerIPs": "192.0.2.1"}
	})
	balancer(t, "pool", func(s *corev1.Service) {
		s.Annotations = map[string]string{"metallb.io/address-pool": "another"}
	})
	always(t, 4*time.Second, func(ctx context.Context) error { return holds(ctx, c, c.Namespace+"-never-lb 10.22.0.0-10.22.0.1") })
}

func TestPlatformIngress_IsLabelled(t *testing.T) {
	pool(t, "ingress", "10.39.0.0/24", "10.39.0.0", "10.39.0.255")
	elastic(t, "ingress", "")
	live(t, "ingress", "ingress")
	offers(t, "10.39.0.0-10.39.0.1")
	if err := tenantPlane.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "traefik"}}); err != nil {
		t.Fatal(err)
	}
	theirs := balancer(t, "traefik") // a tenant's own
	ours := balancer(t, "traefik", func(s *corev1.Service) {
		s.Namespace, s.Labels = "traefik", map[string]string{"app.kubernetes.io/name": "traefik"}
	})
	t.Cleanup(func() { _ = tenantPlane.Client.Delete(context.Background(), ours) })
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		err := tenantPlane.Client.Get(ctx, client.ObjectKeyFromObject(ours), ours)
		if err == nil && (ours.Labels[v1alpha1.LabelPlatformLB] != "true" || ours.Labels["app.kubernetes.io/name"] != "traefik") {
			err = fmt.Errorf("labels %v", ours.Labels)
		}
		return err
	})
	served(t, ours)
	served(t, theirs)
	if len(theirs.Labels) > 0 {
		t.Errorf("labels %v on a Service of the tenant's", theirs.Labels)
	}
	// Whoever says that it is not the platform's is believed.
	suite.Change(t, tenantPlane.Client, ours, func(s *corev1.Service) { s.Labels[v1alpha1.LabelPlatformLB] = "false" })
	always(t, time.Second, func(ctx context.Context) error {
		err := tenantPlane.Client.Get(ctx, client.ObjectKeyFromObject(ours), ours)
		if err == nil && ours.Labels[v1alpha1.LabelPlatformLB] != "false" {
			err = fmt.Errorf("labels %v", ours.Labels)
		}
		return err
	})
}

func TestQuota_AllowsAPart(t *testing.T) {
	pool(t, "part", "10.23.0.0/24", "10.23.0.0", "10.23.0.255")
	elastic(t, "part", ", quotaPerTenant: {maxLoadBalancerIPs: 3}")
	c := live(t, "part", "part")
	offers(t, "10.23.0.0-10.23.0.1")
	var all []*corev1.Service
	for i := range 5 {
		all = append(all, balancer(t, fmt.Sprintf("s-%d", i)))
	}
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		is := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionLoadBalancerIPsAvailable)
		if is == nil || is.Status != metav1.ConditionFalse || is.Reason != v1alpha1.ReasonQuotaExceeded ||
			!strings.Contains(is.Message, "2 addresses more") || !strings.Contains(is.Message, "maxLoadBalancerIPs 3") {
			return fmt.Sprintf("the condition does not say what is missing: %+v", is)
		}
		return ""
	})
	hears(t, c, v1alpha1.ReasonQuotaExceeded, "more than the quota allows") // of the first that were seen
	prefix := c.Namespace + "-part-lb"
	has(t, c, prefix+" 10.23.0.0-10.23.0.1", prefix+"-1 10.23.0.2-10.23.0.2")

	p := &v1alpha1.ProviderConfig{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: "part"}}
	raised := time.Now()
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) { *p.Spec.Network.QuotaPerTenant.MaxLoadBalancerIPs = 5 })
	for _, s := range all {
		served(t, s)
	}
	t.Logf("served %s after the quota was raised", time.Since(raised))
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestGrowth_NextPoolWhereOneIsFull(t *testing.T) {
	first := pool(t, "full", "10.24.0.0/28", "10.24.0.0", "10.24.0.2")
	provider(t, "full", `{mode: ipam, poolRefs: [{name: full}, {name: full-next, priority: 1}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2, growthIncrement: 1}}`, false)
	c := live(t, "full", "full")
	offers(t, "10.24.0.0-10.24.0.1")
	for i := range 4 {
		balancer(t, fmt.Sprintf("s-%d", i))
	}
	message := conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionFalse, v1alpha1.ReasonPoolExhausted)
	if !strings.Contains(message, "full") {
		t.Errorf("the condition does not name the pool: %s", message)
	}
	free(t, first, 0) // a part is better than nothing
	pool(t, "full-next", "10.24.1.0/24", "10.24.1.0", "10.24.1.255")
	offers(t, "10.24.0.0-10.24.0.1", "10.24.0.2-10.24.0.2", "10.24.1.0-10.24.1.0")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestMetalLBPool_EditIsReverted(t *testing.T) {
	pool(t, "edit", "10.25.0.0/24", "10.25.0.0", "10.25.0.255")
	elastic(t, "edit", "")
	c := live(t, "edit", "edit")
	offers(t, "10.25.0.0-10.25.0.1")
	edited := time.Now()
	suite.Change(t, tenantPlane.Client, metallbPool(), func(p *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(p.Object, []string{"10.25.0.0-10.25.0.1", "192.0.2.0-192.0.2.9"}, "spec", "addresses")
	})
	offers(t, "10.25.0.0-10.25.0.1")
	t.Logf("put right after %s", time.Since(edited))
	if took := time.Since(edited); took > 5*time.Second { // without the event of the edit, the next comparison is later
		t.Errorf("put right after %s, want at most 5s", took)
	}
	hears(t, c, "MetalLBDriftCorrected", "added 192.0.2.0-192.0.2.9")
	if err := tenantPlane.Client.Delete(t.Context(), metallbPool()); err != nil {
		t.Fatal(err)
	}
	offers(t, "10.25.0.0-10.25.0.1")
	hears(t, c, "MetalLBDriftCorrected", "IPAddressPool default-pool was deleted")

	// For some Services only, it would leave the others waiting, though it has addresses.
	suite.Change(t, tenantPlane.Client, metallbPool(), func(p *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(p.Object, []string{"nobody"}, "spec", "serviceAllocation", "namespaces")
	})
	suite.AwaitObject(t, tenantPlane.Client, metallbPool(), func(p *unstructured.Unstructured) string {
		if _, limited, _ := unstructured.NestedMap(p.Object, "spec", "serviceAllocation"); limited {
			return "the pool is for Services of namespace nobody"
		}
		return ""
	})
	hears(t, c, "MetalLBDriftCorrected", "serviceAllocation is set")

	advertisement := metallbPool()
	advertisement.SetKind("L2Advertisement")
	advertisement.SetName("default")
	suite.Change(t, tenantPlane.Client, advertisement, func(a *unstructured.Unstructured) {
		_ = unstructured.SetNestedStringSlice(a.Object, []string{"other"}, "spec", "ipAddressPools")
	})
	suite.AwaitObject(t, tenantPlane.Client, advertisement, func(a *unstructured.Unstructured) string {
		pools, _, _ := unstructured.NestedStringSlice(a.Object, "spec", "ipAddressPools")
		return cmp.Diff([]string{"default-pool"}, pools)
	})
	hears(t, c, "MetalLBDriftCorrected", "L2Advertisement default did not name pool default-pool")
}

func TestGrowth_ProviderWithoutPools(t *testing.T) {
	pool(t, "leaves", "10.55.0.0/24", "10.55.0.0", "10.55.0.255")
	p := provider(t, "leaves", `{mode: ipam, poolRefs: [{name: leaves}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2}}`, false)
	c := live(t, "leaves", "leaves")
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) { p.Spec.Network.PoolRefs = []v1alpha1.PoolReference{{Name: "left"}} })
	for i := range 3 {
		balancer(t, fmt.Sprintf("s-%d", i))
	}
	if said, want := conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionFalse, v1alpha1.ReasonPoolNotFound),
		"none of the NetworkPools of the ProviderConfig exists: create left"; said != want {
		t.Errorf("said %q, want %q", said, want)
	}
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) {
		p.Spec.Network = &v1alpha1.ProviderNetwork{Mode: v1alpha1.NetworkModeCloud}
	})
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		if meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionLoadBalancerIPsAvailable) != nil || c.Status.LBAllocationRef == nil {
			return fmt.Sprintf("reference %v, conditions %v", c.Status.LBAllocationRef, c.Status.Conditions)
		}
		return ""
	})
	suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProviderConfig) string {
		if p.Status.Capacity != nil || len(p.Status.Conditions) > 0 {
			return fmt.Sprintf("it has %+v and says %v", p.Status.Capacity, p.Status.Conditions)
		}
		return ""
	})
}

func TestAccess_RotatedKubeconfig(t *testing.T) {
	pool(t, "rotated", "10.27.0.0/24", "10.27.0.0", "10.27.0.255")
	elastic(t, "rotated", "")
	c := live(t, "rotated", "rotated")
	offers(t, "10.27.0.0-10.27.0.1")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Status.TenantNamespace, Name: c.Name + "-admin-kubeconfig"}}
	stranger, err := tenantPlane.ConfigFor("sandbox-admin-2", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	suite.Change(t, admin, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"admin.svc": kubeconfigOf(t, stranger)} })
	for i := range 4 {
		served(t, balancer(t, fmt.Sprintf("s-%d", i)))
	}
	always(t, time.Second, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		for _, is := range c.Status.Conditions {
			if is.Type == v1alpha1.ConditionLoadBalancerIPsAvailable && is.Status != metav1.ConditionTrue {
				return errors.New(is.Message)
			}
		}
		return nil
	})
}

// A kubeconfig whose user is gone is read anew when the tenant refuses it, not when its
// time has come.
func TestAccess_RejectedCredentialsAreReadAgain(t *testing.T) {
	pool(t, "refused", "10.37.0.0/24", "10.37.0.0", "10.37.0.255")
	elastic(t, "refused", "")
	startPlane(t)
	user := func(name string) (*corev1.ServiceAccount, *rest.Config) { // who may do everything
		t.Helper()
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
		rights := &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: name}},
		}
		token := &authenticationv1.TokenRequest{}
		if err := errors.Join(
			tenantPlane.Client.Create(t.Context(), account), tenantPlane.Client.Create(t.Context(), rights),
			tenantPlane.Client.SubResource("token").Create(t.Context(), account, token),
		); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = tenantPlane.Client.Delete(context.Background(), account)
			_ = tenantPlane.Client.Delete(context.Background(), rights)
		})
		config := rest.AnonymousClientConfig(tenantPlane.Config())
		config.BearerToken = token.Status.Token
		return account, config
	}
	account, before := user("before")
	_, after := user("after")
	c := liveAs(t, before, "refused", "refused")
	offers(t, "10.37.0.0-10.37.0.1")
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Status.TenantNamespace, Name: c.Name + "-admin-kubeconfig"}}
	suite.Change(t, admin, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"admin.conf": kubeconfigOf(t, after)} })
	if err := tenantPlane.Client.Delete(t.Context(), account); err != nil {
		t.Fatal(err)
	}
	gone, err := client.New(before, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { // API servers remember a token for a while
		if err := gone.List(ctx, &corev1.ServiceList{}); !apierrors.IsUnauthorized(err) {
			return fmt.Errorf("the user that is gone may still read: %v", err)
		}
		return nil
	})
	for i := range 3 {
		if _, took := served(t, balancer(t, fmt.Sprintf("s-%d", i))); took > 5*time.Second {
			t.Errorf("a Service had its address %s after the user of the kubeconfig was gone", took)
		}
	}
}

// outage is how long a tenant's API server is away: TENANTS_OUTAGE, as in 1m; else until
// that is said.
func outage() time.Duration {
	d, _ := time.ParseDuration(os.Getenv("TENANTS_OUTAGE"))
	return d
}

func TestAccess_TenantComesBack(t *testing.T) {
	pool(t, "back", "10.26.0.0/24", "10.26.0.0", "10.26.0.255")
	elastic(t, "back", "")
	c := live(t, "back", "back")
	offers(t, "10.26.0.0-10.26.0.1")
	takeDown(t)
	away := time.Now()
	// Meanwhile, another tenant comes and grows as if nothing were.
	elsewhere, err := plane.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := elsewhere.Stop(); err != nil {
			t.Error(err)
		}
	})
	other := tenant(t, c.Namespace, "other", "back", "")
	suite.CreateForTest(t, admin, other)
	networkReady(t, other, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, other, elsewhere.Config())
	var took []time.Duration
	grow := func() {
		t.Helper()
		s := plane.Balancer(fmt.Sprintf("other-%d", len(took)))
		if err := elsewhere.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		_, d := servedIn(t, elsewhere, s)
		took = append(took, d)
	}
	for range 4 {
		grow()
	}
	conditionIs(t, c, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionUnknown, v1alpha1.ReasonTenantUnreachable)
	for time.Since(away) < outage() {
		grow()
		time.Sleep(time.Second) // the load's own rhythm
	}
	t.Logf("another tenant's %d Services had their addresses after %s at most", len(took), slices.Max(took))
	conditionIs(t, other, v1alpha1.ConditionLoadBalancerIPsAvailable, metav1.ConditionTrue, v1alpha1.ReasonReady)
	// What changes here while it is away is brought there when it is back.
	a := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: by-hand}, spec: {poolRef: {name: back}, type: loadbalancer,
		tenantClusterRef: {namespace: %s, name: back}, pinnedRange: {startAddress: 10.26.0.100, endAddress: 10.26.0.101}}}`, cluster.Namespace(), c.Namespace))
	suite.CreateForTest(t, admin, a)
	bringUp(t, tenantPlane.APIServer())
	back := time.Now()
	offers(t, "10.26.0.0-10.26.0.1", "10.26.0.100-10.26.0.101")
	t.Logf("in sync %s after it was back, %s after it went", time.Since(back), time.Since(away))
	// One pause between attempts (1 s), one write that a starting API server holds until
	// its time limit (1 s), and the collected changes (0.4 s); the longest pause, without
	// a watch on the tenant's return, is 30 s.
	if took := time.Since(back); took > 5*time.Second {
		t.Errorf("in sync %s after it was back, want at most 5s", took)
	}
	hears(t, c, "TenantReachable", "")
}

// A control plane that was restored, or made anew, counts its versions from further back.
func TestMetalLBPool_OfANewControlPlane(t *testing.T) {
	pool(t, "anew", "10.39.0.0/24", "10.39.0.0", "10.39.0.255")
	elastic(t, "anew", "")
	startPlane(t)
	for range 500 {
		if err := tenantPlane.Client.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", GenerateName: "past-"}}); err != nil {
			t.Fatal(err)
		}
	}
	c := live(t, "anew", "anew")
	offers(t, "10.39.0.0-10.39.0.1")
	anew, err := plane.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := anew.Stop(); err != nil {
			t.Error(err)
		}
	})
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: c.Status.TenantNamespace, Name: c.Name + "-admin-kubeconfig"}}
	suite.Change(t, admin, secret, func(s *corev1.Secret) { s.Data = map[string][]byte{"admin.svc": kubeconfigOf(t, anew.Config())} })
	takeDown(t)
	suite.Eventually(t, time.Minute, func(ctx context.Context) error { return offeredIn(ctx, anew, "10.39.0.0-10.39.0.1") })
}
