package metal3

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// listClusters is the right of the managers to list Clusters of any namespace.
var listClusters = authorizationv1.ResourceAttributes{Verb: "list", Group: clusterv1.GroupVersion.Group, Resource: "clusters"}

// What is being deleted goes on where its Cluster is gone, and rests where that is
// paused: a manager that has not seen any Cluster yet knows neither.
func TestPaused_BeforeTheClustersAreListed(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns, other := suite.CreateNamespace(t, c), suite.CreateNamespace(t, c)
	going := ten(ns, "going")
	going.Spec.ClusterName = ptr.To("c")
	running, lost := clusterNamed(ns, "c", false), clusterNamed(other, "lost", false)
	suite.Create(t, c, running, lost, going, ten(ns, "pool"), ten(other, "pool"))
	ofCluster := func(ns, name, cluster string) client.Object {
		claim := ipAddressClaims.claim(ns, name, "pool", "").(*ipamv1.IPAddressClaim)
		claim.Spec.ClusterName = cluster
		return claim
	}
	own, ofPool, orphan := ofCluster(ns, "own", "c"), ipClaims.claim(ns, "of-pool", "going", ""), ofCluster(other, "orphan", "lost")
	claims := []client.Object{own, ofPool, orphan}
	suite.Create(t, c, claims...)
	for claim, k := range map[client.Object]claimKind{own: ipAddressClaims, ofPool: ipClaims, orphan: ipAddressClaims} {
		suite.AwaitObject(t, c, claim, func(c client.Object) string {
			if name, failure := k.address(c); name == "" {
				return fmt.Sprintf("it names no address: %q", failure)
			}
			return ""
		})
	}
	suite.AwaitObject(t, c, going, func(p *v1alpha1.IPPool) string {
		if len(p.Finalizers) == 0 {
			return "it has no finalizer"
		}
		return ""
	})

	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
		t.Fatal(err)
	}
	suite.Change(t, c, running, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	suite.Delete(t, c, lost)
	for _, o := range []client.Object{own, ofPool, orphan, going} {
		if err := c.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}}
	var was []rbacv1.PolicyRule
	suite.Change(t, c, role, func(r *rbacv1.ClusterRole) { // the manager goes without a list of Clusters, however slow
		was = r.Rules
		r.Rules = slices.DeleteFunc(slices.Clone(was), func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Resources, "clusters") })
		if len(r.Rules) != len(was)-1 {
			t.Fatalf("of %d rules, %d are left", len(was), len(r.Rules))
		}
	})
	suite.AwaitRight(t, c, listClusters, false)
	if err := errors.Join(manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	probe := ipClaims.claim(ns, "probe", "pool", "")
	suite.Create(t, c, probe)
	suite.AwaitObject(t, c, probe, func(c client.Object) string { // by then the manager has looked at what is going
		if name, _ := ipClaims.address(c); name == "" {
			return "it names no address"
		}
		return ""
	})
	for _, claim := range claims {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Errorf("before the manager knows any Cluster: %v", err)
		}
	}

	suite.Change(t, c, role, func(r *rbacv1.ClusterRole) { r.Rules = was })
	suite.AwaitGone(t, c, orphan)
	for _, claim := range []client.Object{own, ofPool} {
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(claim), claim); err != nil {
			t.Errorf("while its Cluster is paused: %v", err)
		}
	}
	suite.Change(t, c, running, func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
	for _, o := range []client.Object{own, ofPool, going} {
		suite.AwaitGone(t, c, o)
	}
}
