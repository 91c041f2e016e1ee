package metal3

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// Cluster API's objects wait for a Cluster that is paused by its annotation, as for one
// that is paused by spec.paused. Metal3's wait for the field alone.
func TestPaused_ClusterByAnnotation(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	c := clusterNamed(ns, "c", false)
	c.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	pool := ten(ns, "pool")
	pool.Spec.ClusterName = ptr.To("c")
	suite.Create(t, admin, c, pool)
	ipClaims.gets(t, ipClaims.claim(ns, "metal3", "pool", ""), "10.0.0.1")

	waiting := ipAddressClaims.claim(ns, "waiting", "pool", "").(*ipamv1.IPAddressClaim)
	waiting.Spec.ClusterName = "c"
	unassigned(t, waiting)
	named := ipAddressClaims.claim(ns, "named", "pool", "10.0.0.7").(*ipamv1.IPAddressClaim)
	named.Spec.ClusterName = "c"
	suite.Create(t, admin, named)
	ipAddressClaims.gets(t, ipAddressClaims.claim(ns, "of-no-cluster", "pool", ""), "10.0.0.2")

	suite.Change(t, admin, c, func(c *clusterv1.Cluster) { delete(c.Annotations, clusterv1.PausedAnnotation) })
	if got := ipAddressClaims.bound(t, waiting); got.Address != "10.0.0.3" {
		t.Errorf("the claim that waited got %s", got.Address)
	}
	if got := ipAddressClaims.bound(t, named); got.Address != "10.0.0.7" {
		t.Errorf("the claim that named its address got %s", got.Address)
	}
}

// The annotation cluster.x-k8s.io/paused has the claims of a NetworkPool wait as those of
// an IPPool do.
func TestPaused_NetworkPool(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	pool := &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool", Annotations: map[string]string{clusterv1.PausedAnnotation: ""}},
		Spec:       butlerv1.NetworkPoolSpec{CIDR: "10.90.0.0/28", RoutingDomain: ns},
	}
	suite.Create(t, admin, pool)
	claim := func(name, asked string) *ipamv1.IPAddressClaim {
		return &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, asked), Spec: ipamv1.IPAddressClaimSpec{
			PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "pool"},
		}}
	}
	allocation := func(name string, pinned *butlerv1.PinnedIPRange) *butlerv1.IPAllocation {
		return &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: butlerv1.IPAllocationSpec{
			PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "t"},
			Type: butlerv1.TypeNodes, Count: ptr.To(int32(2)), PinnedRange: pinned,
		}}
	}
	waiting := claim("waiting", "")
	unassigned(t, waiting)
	block := allocation("block", nil)
	suite.Create(t, admin, block)
	if block.Spec.PinnedRange != nil {
		t.Errorf("a paused pool gave %v", block.Spec.PinnedRange)
	}
	suite.AwaitObject(t, admin, block, func(a *butlerv1.IPAllocation) string {
		for _, c := range a.Status.Conditions {
			if a.Status.Phase == butlerv1.PhasePending && c.Reason == butlerv1.ReasonPoolPaused && strings.Contains(c.Message, "is paused") {
				return ""
			}
		}
		return string(a.Status.Phase)
	})
	pinned := allocation("pinned", &butlerv1.PinnedIPRange{StartAddress: "10.90.0.8", EndAddress: "10.90.0.9"})
	suite.Create(t, admin, pinned) // it names its range
	suite.AwaitObject(t, admin, pinned, func(a *butlerv1.IPAllocation) string {
		if a.Status.Phase == butlerv1.PhaseAllocated {
			return ""
		}
		return string(a.Status.Phase)
	})
	suite.Delete(t, admin, pinned) // a delete waits for no pause
	suite.AwaitGone(t, admin, pinned)

	suite.Change(t, admin, pool, func(p *butlerv1.NetworkPool) { delete(p.Annotations, clusterv1.PausedAnnotation) })
	ipAddressClaims.bound(t, waiting)
	suite.AwaitObject(t, admin, block, func(a *butlerv1.IPAllocation) string {
		if a.Status.Phase == butlerv1.PhaseAllocated {
			return ""
		}
		return string(a.Status.Phase)
	})
	if a := stored(t, waiting).Annotations[v1alpha1.AnnotationIPAddress]; a == "" {
		t.Error("no address")
	}
}
