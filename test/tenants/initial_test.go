package tenants

import (
	"context"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// The addresses are allocated upon the event of the tenant: without the event, the tenant
// would wait for the next resync.
func TestInitialAllocation_UponTheEvent(t *testing.T) {
	p := pool(t, "first", "10.1.0.0/24", "10.1.0.0", "10.1.0.255")
	provider(t, "first", `{mode: ipam, poolRefs: [{name: first}]}`, true)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "first", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	prefix := ns + "-one"
	has(t, c, prefix+"-lb 10.1.0.5-10.1.0.12", prefix+"-nodes 10.1.0.0-10.1.0.4")
	for _, suffix := range []string{"-lb", "-nodes"} {
		a := &v1alpha1.IPAllocation{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: cluster.Namespace(), Name: prefix + suffix}, a); err != nil {
			t.Fatal(err)
		}
		if a.Status.AllocatedAt == nil || a.Status.AllocatedAt.Sub(c.CreationTimestamp.Time) > 5*time.Second {
			t.Errorf("%s: allocated at %v, its tenant was created at %v", a.Name, a.Status.AllocatedAt, c.CreationTimestamp)
		}
		want := map[string]string{
			v1alpha1.LabelTeam: ns, v1alpha1.LabelTenant: "one", v1alpha1.LabelNetworkPool: "first", v1alpha1.LabelAllocationType: string(a.Spec.Type),
			v1alpha1.LabelAllocationRole: v1alpha1.RoleInitial, v1alpha1.LabelManagedBy: v1alpha1.ManagedByIPAM,
		}
		if diff := cmp.Diff(want, a.Labels); diff != "" {
			t.Errorf("labels of %s (-want +got):\n%s", a.Name, diff)
		}
		if a.Annotations[v1alpha1.AnnotationTenantUID] != string(c.UID) {
			t.Errorf("%s does not record its tenant: %v", a.Name, a.Annotations)
		}
	}
	if c.Status.IPAllocationRef == nil || c.Status.IPAllocationRef.Name != prefix+"-nodes" || c.Status.LBAllocationRef == nil || c.Status.LBAllocationRef.Name != prefix+"-lb" {
		t.Errorf("references %v and %v", c.Status.IPAllocationRef, c.Status.LBAllocationRef)
	}
	hears(t, c, "AddressesAllocated", "10.1.0.0-10.1.0.4 for nodes from pool first")
	hears(t, c, "AddressesAllocated", "10.1.0.5-10.1.0.12 for loadbalancer from pool first")

	suite.Delete(t, admin, c)
	has(t, c)
	free(t, p, 256)
}

// The operations guide's worked example: 32 addresses, elastic, two to begin with.
func TestInitialAllocation_OperationsGuide(t *testing.T) {
	p := pool(t, "guide", "10.92.90.0/23", "10.92.90.32", "10.92.90.63")
	provider(t, "guide", `{mode: ipam, poolRefs: [{name: guide}], loadBalancer: {allocationMode: elastic, initialPoolSize: 2, growthIncrement: 1}}`, false)
	ns := suite.CreateNamespace(t, admin)
	made := 0
	for _, row := range []struct {
		tenants         int
		allocated       int64
		percent, events string
		conditions      string
	}{
		{8, 16, "50%", "", ""},
		{12, 24, "75%", "PoolCapacityWarning", "CapacityWarning"},
		{14, 28, "88%", "PoolCapacityCritical", "CapacityWarning CapacityCritical"}, // the guide cuts 87.5 off
		{16, 32, "100%", "PoolCapacityExhausted", "CapacityWarning CapacityCritical CapacityExhausted"},
	} {
		for ; made < row.tenants; made++ {
			c := tenant(t, ns, fmt.Sprintf("tenant-%d", made+1), "guide", "")
			suite.CreateForTest(t, admin, c)
			networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
		}
		suite.AwaitObject(t, admin, p, func(p *v1alpha1.NetworkPool) string {
			var raised []string
			for _, kind := range []string{v1alpha1.ConditionCapacityWarning, v1alpha1.ConditionCapacityCritical, v1alpha1.ConditionCapacityExhausted} {
				is := meta.FindStatusCondition(p.Status.Conditions, kind)
				if is == nil || !strings.HasPrefix(is.Message, row.percent) {
					return fmt.Sprintf("%s is %+v, want %s", kind, is, row.percent)
				}
				if is.Status == metav1.ConditionTrue {
					raised = append(raised, kind)
				}
			}
			if p.Status.TotalIPs != 32 || p.Status.AllocatedIPs != row.allocated || strings.Join(raised, " ") != row.conditions {
				return fmt.Sprintf("%d of %d allocated, conditions %v", p.Status.AllocatedIPs, p.Status.TotalIPs, raised)
			}
			return ""
		})
		if row.events != "" {
			hears(t, p, row.events, "")
		}
	}
	late := tenant(t, ns, "tenant-17", "guide", "")
	suite.CreateForTest(t, admin, late)
	message := networkReady(t, late, metav1.ConditionFalse, v1alpha1.ReasonPoolExhausted)
	if !strings.Contains(message, "guide") || !strings.Contains(message, "2") {
		t.Errorf("the condition does not say what is missing where: %s", message)
	}
	hears(t, late, v1alpha1.ReasonPoolExhausted, "no pool has room")
	batch := tenant(t, ns, "batch", "guide", `, addons: {ingress: {enabled: false}}`)
	suite.CreateForTest(t, admin, batch)
	networkReady(t, batch, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, batch)

	first := tenant(t, ns, "tenant-1", "guide", "")
	suite.Delete(t, admin, first)
	networkReady(t, late, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, late, ns+"-tenant-17-lb 10.92.90.32-10.92.90.33")
}

func TestInitialAllocation_NextPool(t *testing.T) {
	pool(t, "small", "10.2.0.0/28", "10.2.0.0", "10.2.0.7")
	pool(t, "large", "10.2.1.0/24", "10.2.1.0", "10.2.1.255")
	// Five free addresses, but no three in a row.
	for _, address := range []string{"10.2.0.2", "10.2.0.3", "10.2.0.6"} {
		a := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: owned-%s}, spec: {poolRef: {name: small}, type: nodes,
			tenantClusterRef: {namespace: elsewhere, name: none}, pinnedRange: {startAddress: %s, endAddress: %s}}}`,
			cluster.Namespace(), strings.ReplaceAll(address, ".", "-"), address, address))
		suite.CreateForTest(t, admin, a)
	}
	// By priority small comes first, in the list large.
	provider(t, "two", `{mode: ipam, poolRefs: [{name: large, priority: 2}, {name: missing, priority: 0}, {name: small, priority: 1}], loadBalancer: {defaultPoolSize: 3}}`, false)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "fragmented", "two", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c, ns+"-fragmented-lb 10.2.1.0-10.2.1.2")
	fits := tenant(t, ns, "fits", "two", ", networking: {lbPoolSize: 2}")
	suite.CreateForTest(t, admin, fits)
	networkReady(t, fits, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, fits, ns+"-fits-lb 10.2.0.0-10.2.0.1")
}

func TestQuota_InitialAllocation(t *testing.T) {
	pool(t, "quota", "10.3.0.0/24", "10.3.0.0", "10.3.0.255")
	provider(t, "quota", `{mode: ipam, poolRefs: [{name: quota}], quotaPerTenant: {maxNodeIPs: 3, maxLoadBalancerIPs: 4}}`, true)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "quota", ", networking: {lbPoolSize: 20}")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c, ns+"-one-lb 10.3.0.3-10.3.0.6", ns+"-one-nodes 10.3.0.0-10.3.0.2")
}

func TestInitialAllocation_CloudProvider(t *testing.T) {
	provider(t, "cloud", `{mode: cloud}`, true)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "cloud", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c)
	if len(c.Finalizers) > 0 {
		t.Errorf("finalizers %v on a tenant without addresses", c.Finalizers)
	}
}

func TestInitialAllocation_ProviderOfAnotherTeam(t *testing.T) {
	pool(t, "team", "10.45.0.0/24", "10.45.0.0", "10.45.0.127")
	p := read[v1alpha1.ProviderConfig](t, fmt.Sprintf(`{metadata: {namespace: %s, name: team}, spec: {provider: harvester, scope: {type: team, teamRef: {name: blue}},
		network: {mode: ipam, poolRefs: [{name: team}]}}}`, cluster.Namespace()))
	suite.CreateForTest(t, admin, p)
	ns := suite.CreateNamespace(t, admin)
	red, nobody, blue := tenant(t, ns, "red", "team", ", teamRef: {name: red}"), tenant(t, ns, "nobody", "team", ""), tenant(t, ns, "blue", "team", ", teamRef: {name: blue}")
	suite.CreateForTest(t, admin, red, nobody, blue)
	networkReady(t, blue, metav1.ConditionTrue, v1alpha1.ReasonReady)
	const alone = "ProviderConfig team is for team blue alone (spec.scope), and the TenantCluster "
	for c, want := range map[*v1alpha1.TenantCluster]string{
		red:    alone + "is of team red: name another ProviderConfig in spec.providerConfigRef",
		nobody: alone + "names no team in spec.teamRef: name another ProviderConfig in spec.providerConfigRef",
	} {
		if got := networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotReady); got != want {
			t.Errorf("it says %q, want %q", got, want)
		}
		has(t, c)
	}
	suite.Change(t, admin, p, func(p *v1alpha1.ProviderConfig) { p.Spec.Scope = nil })
	networkReady(t, red, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestInitialAllocation_BeforeProviderAndPool(t *testing.T) {
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "early", "later", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotReady)
	provider(t, "later", `{mode: ipam, poolRefs: [{name: later}]}`, false)
	networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonPoolNotFound)
	pool(t, "later", "10.4.0.0/24", "10.4.0.0", "10.4.0.255")
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c, ns+"-early-lb 10.4.0.0-10.4.0.7")
}

func TestInitialAllocation_KeepsEarlierAllocations(t *testing.T) {
	pool(t, "before", "10.5.0.0/24", "10.5.0.0", "10.5.0.255")
	provider(t, "before", `{mode: ipam, poolRefs: [{name: before}]}`, false)
	ns := suite.CreateNamespace(t, admin)
	a := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: from-git}, spec: {poolRef: {name: before}, type: loadbalancer,
		tenantClusterRef: {namespace: %s, name: one}, pinnedRange: {startAddress: 10.5.0.100, endAddress: 10.5.0.103}}}`, cluster.Namespace(), ns))
	suite.CreateForTest(t, admin, a)
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
		c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
		if c == nil || c.Reason != v1alpha1.ReasonTenantNeverSeen {
			return fmt.Sprintf("TenantClusterMissing is %+v", c)
		}
		return ""
	})
	c := tenant(t, ns, "one", "before", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, c, "from-git 10.5.0.100-10.5.0.103")
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		if ref := c.Status.LBAllocationRef; ref == nil || ref.Name != "from-git" {
			return fmt.Sprintf("lbAllocationRef is %v", ref)
		}
		return ""
	})
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
		if uid := a.Annotations[v1alpha1.AnnotationTenantUID]; uid != string(c.UID) {
			return "records UID " + uid
		}
		if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing); c != nil {
			return fmt.Sprintf("TenantClusterMissing is %+v", c)
		}
		return ""
	})
}

func TestInitialAllocation_AmbiguousNames(t *testing.T) {
	pool(t, "names", "10.6.0.0/24", "10.6.0.0", "10.6.0.255")
	provider(t, "names", `{mode: ipam, poolRefs: [{name: names}], loadBalancer: {defaultPoolSize: 1}}`, false)
	short := suite.CreateNamespace(t, admin)
	long := short + "-x"
	suite.CreateForTest(t, admin, read[corev1.Namespace](t, "{metadata: {name: "+long+"}}"))
	a, b := tenant(t, short, "x-z", "names", ""), tenant(t, long, "z", "names", "")
	suite.CreateForTest(t, admin, a)
	networkReady(t, a, metav1.ConditionTrue, v1alpha1.ReasonReady)
	suite.CreateForTest(t, admin, b)
	networkReady(t, b, metav1.ConditionTrue, v1alpha1.ReasonReady)
	has(t, a, short+"-x-z-lb 10.6.0.0-10.6.0.0")
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		have, err := allocations(ctx, b)
		if err == nil && (len(have) != 1 || !strings.HasPrefix(have[0], short+"-x-z-") || !strings.HasSuffix(have[0], "-lb 10.6.0.1-10.6.0.1")) {
			err = fmt.Errorf("the other tenant has %q", have)
		}
		return err
	})
	endless := tenant(t, short, strings.Repeat("long", 60), "names", "")
	suite.CreateForTest(t, admin, endless)
	networkReady(t, endless, metav1.ConditionTrue, v1alpha1.ReasonReady)
}

func TestProviderConfig_EstimatedTenants(t *testing.T) {
	pool(t, "left", "10.7.0.0/26", "10.7.0.0", "10.7.0.63")
	p := provider(t, "left", `{mode: ipam, poolRefs: [{name: left}], loadBalancer: {allocationMode: elastic, initialPoolSize: 3}}`, true)
	says := func(want v1alpha1.ProviderCapacity) {
		t.Helper()
		suite.AwaitObject(t, admin, p, func(p *v1alpha1.ProviderConfig) string {
			if p.Status.Capacity == nil || *p.Status.Capacity != want || !meta.IsStatusConditionTrue(p.Status.Conditions, v1alpha1.ConditionPoolAvailable) {
				return fmt.Sprintf("%+v %+v", p.Status.Capacity, p.Status.Conditions)
			}
			return ""
		})
	}
	says(v1alpha1.ProviderCapacity{AvailableIPs: 64, EstimatedTenants: 8}) // 5 for nodes, 3 for load balancers
	suite.CreateForTest(t, admin, tenant(t, suite.CreateNamespace(t, admin), "one", "left", ""))
	says(v1alpha1.ProviderCapacity{AvailableIPs: 56, EstimatedTenants: 7})

	// 34 addresses are enough for 17 tenants of the pool "first". The addresses that both
	// pools offer count once.
	first := pool(t, "left-first", "10.57.0.0/24", "10.57.0.0", "10.57.0.1")
	suite.Change(t, admin, first, func(p *v1alpha1.NetworkPool) {
		p.Spec.TenantAllocation.Defaults = &v1alpha1.AllocationDefaults{NodesPerTenant: 1, LBPoolPerTenant: 1}
	})
	pool(t, "left-next", "10.57.0.0/24", "10.57.0.0", "10.57.0.33")
	p = provider(t, "left-several", `{mode: ipam, poolRefs: [{name: left-first}, {name: left-next}]}`, true)
	says(v1alpha1.ProviderCapacity{AvailableIPs: 34, EstimatedTenants: 3})
}

func TestProviderConfig_Denials(t *testing.T) {
	pool(t, "used", "10.8.0.0/26", "10.8.0.0", "10.8.0.63")
	p := provider(t, "used", `{mode: ipam, poolRefs: [{name: used}]}`, false)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "used", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	err := admin.Delete(t.Context(), p)
	if err == nil || !strings.Contains(err.Error(), "TenantClusters name the ProviderConfig ("+ns+"/one)") {
		t.Errorf("deleting a provider in use: %v", err)
	}
	// Where Butler is installed, its own CRD has no such rules.
	suite.RemoveRules(t, admin, "providerconfigs.butler.butlerlabs.dev")
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		bad := read[v1alpha1.ProviderConfig](t, fmt.Sprintf(`{metadata: {namespace: %s, name: bad}, spec: {provider: aws, scope: {type: team}, network: {mode: ipam}}}`, cluster.Namespace()))
		err := admin.Create(ctx, bad, client.DryRunAll)
		for _, part := range []string{
			"denied the request", "spec.aws: Required value: provider aws needs spec.aws with region", "spec.scope.teamRef: Required value",
			"spec.network.poolRefs: Required value: mode ipam needs at least one NetworkPool", "spec.network: Forbidden: mode ipam is not for the providers azure, aws and gcp",
		} {
			if err == nil || !strings.Contains(err.Error(), part) {
				return fmt.Errorf("no refusal with %q: %w", part, err)
			}
		}
		return nil
	})
	suite.Delete(t, admin, c)
	suite.Delete(t, admin, p)
}

func TestProviderConfig_DeletionWithItsNamespace(t *testing.T) {
	pool(t, "goes", "10.9.0.0/26", "10.9.0.0", "10.9.0.63")
	ns := suite.CreateNamespace(t, admin)
	p := read[v1alpha1.ProviderConfig](t, "{metadata: {namespace: "+ns+", name: goes}, spec: {provider: harvester, network: {mode: ipam, poolRefs: [{name: goes}]}}}")
	suite.CreateForTest(t, admin, p)
	c := read[v1alpha1.TenantCluster](t, "{metadata: {namespace: "+suite.CreateNamespace(t, admin)+", name: one}, spec: {providerConfigRef: {namespace: "+ns+", name: goes}}}")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	if err := admin.Delete(t.Context(), p); err == nil || !strings.Contains(err.Error(), "cannot be deleted while") {
		t.Fatalf("deleting a provider in use: %v", err)
	}
	if err := admin.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
		t.Fatal(err)
	}
	suite.Delete(t, admin, p)
	networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotReady)
	has(t, c, c.Namespace+"-one-lb 10.9.0.5-10.9.0.12", c.Namespace+"-one-nodes 10.9.0.0-10.9.0.4")
}

// Both names that its first block can have are somebody's: who looks at the tenant is
// told, and nobody asks all the time.
func TestInitialAllocation_NameTaken(t *testing.T) {
	pool(t, "taken", "10.53.0.0/24", "10.53.0.0", "10.53.0.63")
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "taken", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionFalse, v1alpha1.ReasonNetworkNotReady) // its ProviderConfig comes later
	sum := sha256.Sum256([]byte(ns + "/one/" + string(c.UID)))
	var others []client.Object
	for _, name := range []string{ns + "-one-lb", fmt.Sprintf("%s-one-%x-lb", ns, sum[:5])} {
		others = append(others, read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: %s}, spec: {poolRef: {name: taken}, type: nodes, count: 1,
			tenantClusterRef: {namespace: elsewhere, name: none}}}`, cluster.Namespace(), name)))
	}
	suite.CreateForTest(t, admin, others...)
	provider(t, "taken", `{mode: ipam, poolRefs: [{name: taken}]}`, false)
	suite.AwaitObject(t, admin, c, func(c *v1alpha1.TenantCluster) string {
		if ready := meta.FindStatusCondition(c.Status.Conditions, v1alpha1.ConditionNetworkReady); ready == nil || !strings.Contains(ready.Message, "every name for the allocation is in use") {
			return fmt.Sprintf("%+v", ready)
		}
		return ""
	})
	if err := admin.Delete(t.Context(), others[1]); err != nil {
		t.Fatal(err)
	}
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
