package metal3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	deleteForMove = "clusterctl.cluster.x-k8s.io/delete-for-move"
	moveLabel     = "clusterctl.cluster.x-k8s.io/move"
)

// mark writes what clusterctl writes to an object before it deletes it: all other
// annotations go.
func mark(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	if err := tryMark(t, c, o); err != nil {
		t.Fatal(err)
	}
}

func tryMark(t *testing.T, c client.Client, o client.Object) error {
	t.Helper()
	patch := fmt.Sprintf(`[{"op": "add", "path": "/metadata/annotations", "value": {%q: ""}}]`, deleteForMove)
	return c.Patch(t.Context(), o, client.RawPatch(types.JSONPatchType, []byte(patch)))
}

// takeAway does what clusterctl does to an object that it has created in another cluster.
func takeAway(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := tryMark(t, c, o); apierrors.IsNotFound(err) {
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		forceDelete(t, c, o)
	}
}

// forceDelete deletes an object without its finalizers, if it is there.
func forceDelete(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	err := c.Delete(t.Context(), o)
	if client.IgnoreNotFound(err) == nil {
		err = c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(`{"metadata": {"finalizers": []}}`)))
	}
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// moves takes a claim away, and its address objects.
func (k claimKind) moves(t *testing.T, c client.Client, claim client.Object) {
	t.Helper()
	addresses := k.addressesOf(t, c, claim)
	takeAway(t, c, claim)
	for _, o := range append(addresses, k.addressesOf(t, c, claim)...) {
		forceDelete(t, c, o)
	}
}

// addressesOf lists the address objects of a claim.
func (k claimKind) addressesOf(t *testing.T, c client.Client, claim client.Object) (all []client.Object) {
	t.Helper()
	list := &v1alpha1.IPAddressList{}
	others := &ipamv1.IPAddressList{}
	if err := errors.Join(c.List(t.Context(), list, client.InNamespace(claim.GetNamespace())), c.List(t.Context(), others, client.InNamespace(claim.GetNamespace()))); err != nil {
		t.Fatal(err)
	}
	for i := range list.Items {
		if list.Items[i].Spec.Claim.Name == claim.GetName() && k.name == ipClaims.name {
			all = append(all, &list.Items[i])
		}
	}
	for i := range others.Items {
		if others.Items[i].Spec.ClaimRef.Name == claim.GetName() && k.name == ipAddressClaims.name {
			all = append(all, &others.Items[i])
		}
	}
	return all
}

// recordsMove waits until a pool records that an address is in another cluster.
func recordsMove(t *testing.T, c client.Client, pool client.Object, address string) {
	t.Helper()
	suite.AwaitObject(t, c, pool, func(p client.Object) string {
		if record := p.GetAnnotations()[butlerv1.AnnotationCooldown]; !strings.Contains(record, `"`+address+`"`) {
			return fmt.Sprintf("it records %q", record)
		}
		return ""
	})
}

// labelled has a claim say which Cluster it belongs to.
func labelled(cluster string) func(client.Object) {
	return func(o client.Object) { o.SetLabels(map[string]string{clusterv1.ClusterNameLabel: cluster}) }
}

func ownedBy(ns, cluster string) func(client.Object) {
	return func(o client.Object) {
		o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: cluster, UID: types.UID("uid-of-" + ns)}})
	}
}

func TestMove_MarkedClaims(t *testing.T) {
	t.Parallel()
	type situation struct {
		name     string
		clusters map[string]bool // name -> paused when the claim is taken away
		gone     string          // the Cluster that is deleted before that
		claim    func(ns string) func(client.Object)
		pool     string // its Cluster
		kept     bool
	}
	none := func(string) func(client.Object) { return func(client.Object) {} }
	label := func(cluster string) func(string) func(client.Object) {
		return func(string) func(client.Object) { return labelled(cluster) }
	}
	for _, tc := range []situation{
		{name: "no Cluster", claim: none},
		{name: "Cluster is gone", claim: label("a"), clusters: map[string]bool{"a": false}, gone: "a"},
		{name: "Cluster is gone, another is paused", claim: label("a"), clusters: map[string]bool{"a": false, "b": true}, gone: "a"},
		{name: "Cluster runs", claim: label("a"), clusters: map[string]bool{"a": false}},
		{name: "Cluster runs, another is paused", claim: label("a"), clusters: map[string]bool{"a": false, "b": true}},
		{name: "Cluster runs, by owner", claim: func(ns string) func(client.Object) { return ownedBy(ns, "a") }, clusters: map[string]bool{"a": false, "b": true}},
		{name: "Cluster of the pool runs", claim: none, pool: "a", clusters: map[string]bool{"a": false, "b": true}},
		{name: "no Cluster, label move", claim: func(string) func(client.Object) {
			return func(o client.Object) { o.SetLabels(map[string]string{moveLabel: ""}) }
		}},
		{name: "Cluster is paused", claim: label("a"), clusters: map[string]bool{"a": true}, kept: true},
		{name: "Cluster is paused, by owner", claim: func(ns string) func(client.Object) { return ownedBy(ns, "a") }, clusters: map[string]bool{"a": true}, kept: true},
		{name: "a Cluster of the namespace is paused", claim: none, clusters: map[string]bool{"a": true}, kept: true},
	} {
		for _, k := range bothKinds {
			t.Run(k.name+"/"+tc.name, func(t *testing.T) {
				t.Parallel()
				ns := suite.CreateNamespace(t, admin)
				pool := single(ns, "pool")
				if tc.pool != "" {
					pool.Spec.ClusterName = &tc.pool
				}
				for name := range tc.clusters {
					suite.Create(t, admin, clusterNamed(ns, name, false))
				}
				claim := k.claim(ns, "web", "pool", "")
				tc.claim(ns)(claim)
				suite.Create(t, admin, pool, claim)
				k.bound(t, claim)
				for name, paused := range tc.clusters {
					if paused {
						suite.Change(t, admin, clusterNamed(ns, name, false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
					}
				}
				if tc.gone != "" {
					suite.Delete(t, admin, clusterNamed(ns, tc.gone, false))
				}
				k.moves(t, admin, claim)
				next := k.claim(ns, "next", "pool", "")
				if tc.kept {
					recordsMove(t, admin, pool, "10.0.0.1")
					unassigned(t, next)
					return
				}
				suite.Create(t, admin, next)
				if got := k.bound(t, next); got.Address != "10.0.0.1" {
					t.Errorf("the next claim has %s", got.Address)
				}
			})
		}
	}
	for _, k := range bothKinds {
		t.Run(k.name+"/spec and finalizers as they were", func(t *testing.T) { // whoever marks and deletes a claim has it released
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			claim := k.claim(ns, "web", "pool", "")
			suite.Create(t, admin, single(ns, "pool"), claim)
			k.bound(t, claim)
			mark(t, admin, claim)
			suite.Delete(t, admin, claim)
			next := k.claim(ns, "next", "pool", "")
			suite.Create(t, admin, next)
			k.bound(t, next)
		})
	}
	t.Run("IPAddressClaim/by spec.clusterName", func(t *testing.T) {
		t.Parallel()
		for cluster, paused := range map[string]bool{"runs": false, "paused": true} {
			ns := suite.CreateNamespace(t, admin)
			claim := ipAddressClaims.claim(ns, "web", "pool", "").(*ipamv1.IPAddressClaim)
			claim.Spec.ClusterName = cluster
			pool := single(ns, "pool")
			suite.Create(t, admin, clusterNamed(ns, cluster, false), pool, claim)
			ipAddressClaims.bound(t, claim)
			suite.Change(t, admin, clusterNamed(ns, cluster, false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(paused) })
			ipAddressClaims.moves(t, admin, claim)
			next := ipAddressClaims.claim(ns, "next", "pool", "")
			if paused {
				recordsMove(t, admin, pool, "10.0.0.1")
				unassigned(t, next)
				continue
			}
			suite.Create(t, admin, next)
			ipAddressClaims.bound(t, next)
		}
	})
}

// clusterctl does not move these kinds: neither is owned by a Cluster, and their
// definitions do not have its label.
func TestMove_KindsThatStay(t *testing.T) {
	t.Parallel()
	ns := suite.CreateNamespace(t, admin)
	network := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "pool"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.70.0.0/32", RoutingDomain: ns}}
	allocation := func(name string) *butlerv1.IPAllocation {
		return &butlerv1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: map[string]string{moveLabel: "", clusterv1.ClusterNameLabel: "a"}},
			Spec: butlerv1.IPAllocationSpec{
				PoolRef: butlerv1.LocalObjectReference{Name: "pool"}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "web"},
				Type: butlerv1.TypeNodes, Count: ptr.To[int32](1),
			}}
	}
	vips := &novaedgev1.ProxyIPPool{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{butlerv1.LabelRoutingDomain: ns}},
		Spec: novaedgev1.ProxyIPPoolSpec{AutoAssign: true, Addresses: []string{"10.70.1.1"}}}
	vip := func(name string) *novaedgev1.ProxyVIP {
		return &novaedgev1.ProxyVIP{ObjectMeta: metav1.ObjectMeta{Name: ns + "-" + name, Labels: map[string]string{moveLabel: ""}}, Spec: novaedgev1.ProxyVIPSpec{
			PoolRef: &novaedgev1.PoolReference{Name: ns}, Mode: novaedgev1.ModeBGP, Ports: []int32{80}}}
	}
	suite.Create(t, admin, clusterNamed(ns, "a", true), network, vips)
	for _, claim := range []func(string) client.Object{
		func(name string) client.Object { return allocation(name) }, func(name string) client.Object { return vip(name) },
	} {
		first := claim("first")
		suite.Create(t, admin, first)
		takeAway(t, admin, first)
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return admin.Create(ctx, claim("second")) })
	}
}

// The managers may see all of a move when it is over and its Clusters are gone, and not
// be able to read any.
func TestMove_ObservedLate(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 2, ClusterAPI: true})
	ns, other := suite.CreateNamespace(t, c), suite.CreateNamespace(t, c)
	pool, pool2 := single(ns, "pool"), single(other, "pool")
	moved, released := ipClaims.claim(ns, "moved", "pool", ""), ipClaims.claim(other, "released", "pool", "")
	labelled("a")(moved)
	labelled("a")(released)
	suite.Create(t, c, clusterNamed(ns, "a", false), clusterNamed(other, "a", false), pool, pool2, moved, released)
	for _, claim := range []client.Object{moved, released} {
		suite.AwaitObject(t, c, claim, func(o client.Object) string {
			if name, failure := ipClaims.address(o); name == "" {
				return "no address: " + failure
			}
			return ""
		})
	}
	each := func(do func(*sandbox.Manager) error) {
		for _, m := range box.Managers() {
			if err := do(m); err != nil {
				t.Fatal(err)
			}
		}
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "butler-ipam"}}
	var was []rbacv1.PolicyRule
	each(func(m *sandbox.Manager) error { return m.Freeze() })
	suite.Change(t, c, role, func(r *rbacv1.ClusterRole) {
		was = r.Rules
		r.Rules = slices.DeleteFunc(slices.Clone(was), func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Resources, "clusters") })
	})
	suite.AwaitRight(t, c, listClusters, false)
	suite.Change(t, c, clusterNamed(ns, "a", false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	ipClaims.moves(t, c, moved)
	suite.Delete(t, c, clusterNamed(ns, "a", false))
	ipClaims.moves(t, c, released)
	each(func(m *sandbox.Manager) error { return m.Thaw() })

	for _, namespace := range []string{ns, other} { // nothing is decided yet
		next := ipClaims.claim(namespace, "next", "pool", "")
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return c.Create(ctx, next) }) // connections to managers that were frozen may break
		suite.AwaitObject(t, c, next, func(o client.Object) string {
			if name, failure := ipClaims.address(o); name != "" || failure == "" {
				return fmt.Sprintf("address %q, failure %q", name, failure)
			}
			return ""
		})
	}
	suite.Change(t, c, role, func(r *rbacv1.ClusterRole) { r.Rules = was })
	recordsMove(t, c, pool, "10.0.0.1")
	suite.AwaitObject(t, c, ipClaims.claim(other, "next", "pool", ""), func(o client.Object) string {
		if answer(o) != "10.0.0.1" {
			return "it has no address"
		}
		return ""
	})
	if next := suite.Read(t, c, ipClaims.claim(ns, "next", "pool", "")); answer(next) != "" {
		t.Errorf("%s has %s, which was moved", next.GetName(), answer(next))
	}
}
