package metal3

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// recordOf reads the record of a pool in the manager's namespace: the ConfigMaps' texts.
func recordOf(ctx context.Context, c client.Client, pool client.Object) (text string, err error) {
	list := &corev1.ConfigMapList{}
	err = c.List(ctx, list, client.InNamespace(sandbox.ManagerNamespace), client.MatchingLabels{"butler.butlerlabs.dev/moved-ranges-of": string(pool.GetUID())})
	for _, m := range list.Items {
		text += m.Data["moved"]
	}
	return text, err
}

// recorded waits until the record of a pool has this many ranges, of which so many were
// seen listed on the pool.
func recorded(t *testing.T, c client.Client, pool client.Object, n, shown int) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		text, err := recordOf(ctx, c, pool)
		if err != nil || strings.Count(text, `"range"`) != n || strings.Count(text, `"shown"`) != shown {
			return fmt.Errorf("the record is %s: %v", text, err)
		}
		return nil
	})
}

// movedPool is a pool of one kind with one address, whose claim went to another cluster.
type movedPool struct {
	pool  client.Object
	claim func(name string) client.Object
	kind  claimKind
}

func movedPools(ns string) map[string]movedPool {
	network := &butlerv1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "net"}, Spec: butlerv1.NetworkPoolSpec{CIDR: "10.0.0.1/32", RoutingDomain: ns + "-net"}}
	return map[string]movedPool{
		"IPPool": {single(ns, "pool"), func(name string) client.Object { return ipClaims.claim(ns, name, "pool", "") }, ipClaims},
		"NetworkPool": {network, func(name string) client.Object {
			return &ipamv1.IPAddressClaim{ObjectMeta: asking(ns, name, ""), Spec: ipamv1.IPAddressClaimSpec{
				PoolRef: ipamv1.IPPoolReference{APIGroup: butlerv1.GroupVersion.Group, Kind: "NetworkPool", Name: "net"},
			}}
		}, ipAddressClaims},
	}
}

// depart has the only claim of each pool taken to another cluster.
func depart(t *testing.T, c client.Client, ns string, pools map[string]movedPool) {
	t.Helper()
	suite.Create(t, c, clusterNamed(ns, "a", false))
	for _, p := range pools {
		claim := p.claim("web")
		suite.Create(t, c, p.pool, claim)
		suite.AwaitObject(t, c, claim, func(o client.Object) string {
			if name, failure := p.kind.address(o); name == "" {
				return "no address: " + failure
			}
			return ""
		})
		suite.Change(t, c, clusterNamed(ns, "a", false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
		p.kind.moves(t, c, claim)
		recordsMove(t, c, p.pool, "10.0.0.1")
		recorded(t, c, p.pool, 1, 1)
		suite.Change(t, c, clusterNamed(ns, "a", false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(false) })
	}
}

// owned fails the test where a pool gives its address away.
func (p movedPool) owned(t *testing.T, c client.Client, name string) {
	t.Helper()
	claim := p.claim(name)
	suite.Create(t, c, claim)
	if answer(claim) != "" {
		t.Errorf("%s got %s, which is in use in another cluster", name, answer(claim))
	}
	suite.Delete(t, c, claim)
}

// withoutEntries writes the list of a pool without its entries.
func withoutEntries(t *testing.T, o client.Object) {
	t.Helper()
	var entries []map[string]any
	annotations := o.GetAnnotations()
	if err := json.Unmarshal([]byte(annotations[butlerv1.AnnotationCooldown]), &entries); err != nil {
		t.Fatal(err)
	}
	entries = slices.DeleteFunc(entries, func(e map[string]any) bool { return e["range"] == "10.0.0.1" })
	text, err := json.Marshal(entries)
	if err != nil {
		t.Fatal(err)
	}
	annotations[butlerv1.AnnotationCooldown] = string(text)
	o.SetAnnotations(annotations)
}

// replaceWithout does what kubectl replace and apply --force do with a manifest of the
// pool.
func replaceWithout(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	suite.Change(t, c, o, func(o client.Object) { o.SetAnnotations(nil) })
}

func TestMovedRecord_OutlivesTheAnnotation(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	pools := movedPools(ns)
	depart(t, c, ns, pools)
	manager := box.Managers()[0]
	down := func(t *testing.T) {
		t.Helper()
		if err := errors.Join(manager.Terminate(), manager.Wait(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	up := func(t *testing.T) {
		t.Helper()
		if err := errors.Join(manager.Start(), manager.Ready(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	lists := map[string]string{}
	for name, p := range pools {
		lists[name] = p.pool.GetAnnotations()[butlerv1.AnnotationCooldown]
	}
	broken := func(o client.Object) {
		annotations := o.GetAnnotations()
		annotations[butlerv1.AnnotationCooldown] = annotations[butlerv1.AnnotationCooldown][:20]
		o.SetAnnotations(annotations)
	}
	remove := func(o client.Object) {
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`, butlerv1.AnnotationCooldown)
		if err := c.Patch(t.Context(), o, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	for i, change := range []func(client.Object){
		func(o client.Object) { replaceWithout(t, c, o) },
		remove,
		func(o client.Object) { suite.Change(t, c, o, broken) },
		func(o client.Object) { // an older list, as in a stale manifest
			suite.Change(t, c, o, func(o client.Object) {
				metav1.SetMetaDataAnnotation(o.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta), butlerv1.AnnotationCooldown,
					fmt.Sprintf(`[{"range": "", "pool": %q, "revision": "1"}]`, o.GetUID()))
			})
		},
	} {
		for _, p := range pools {
			change(p.pool)
			recordsMove(t, c, p.pool, "10.0.0.1")
			p.owned(t, c, fmt.Sprintf("running-%d", i))
		}
		recordedAll(t, c, pools)
		down(t)
		for _, p := range pools {
			change(p.pool)
		}
		up(t)
		for _, p := range pools {
			p.owned(t, c, fmt.Sprintf("down-%d", i))
			recordsMove(t, c, p.pool, "10.0.0.1")
		}
		recordedAll(t, c, pools)
	}

	t.Run("taken out by a person", func(t *testing.T) {
		p := pools["IPPool"]
		suite.Change(t, c, p.pool, func(o client.Object) { withoutEntries(t, o) })
		next := p.claim("next")
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return gets(ctx, c, next) })
		recorded(t, c, p.pool, 0, 0)
	})
	t.Run("taken out while no manager runs", func(t *testing.T) {
		p := pools["NetworkPool"]
		down(t)
		suite.Change(t, c, p.pool, func(o client.Object) { withoutEntries(t, o) })
		up(t)
		next := p.claim("next")
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return gets(ctx, c, next) })
		recorded(t, c, p.pool, 0, 0)
	})
}

func recordedAll(t *testing.T, c client.Client, pools map[string]movedPool) {
	t.Helper()
	for _, p := range pools {
		recorded(t, c, p.pool, 1, 1)
	}
}

// gets creates a claim until it has an address.
func gets(ctx context.Context, c client.Client, claim client.Object) error {
	o := claim.DeepCopyObject().(client.Object)
	if err := c.Create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
		return err
	}
	if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		return err
	}
	if answer(o) == "" {
		return errors.New("it has no address")
	}
	return nil
}

// addLargeAnnotation leaves no room for a cooldown list.
func addLargeAnnotation(o client.Object) {
	annotations := o.GetAnnotations()
	annotations["example.com/large"] = strings.Repeat("x", 246<<10)
	o.SetAnnotations(annotations)
}

// A list without room, and a record that cannot be written, block: the pool says so.
func TestMovedRecord_WithoutRoom(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	p := movedPools(ns)["IPPool"]
	depart(t, c, ns, map[string]movedPool{"IPPool": p})
	suite.Change(t, c, p.pool, addLargeAnnotation)
	suite.AwaitObject(t, c, p.pool, func(o client.Object) string { return o.GetAnnotations()[butlerv1.AnnotationCooldown] })
	toldOf(t, c, p.pool, "MovedNotListed", "1 range that moved to other clusters is not allocated again")
	p.owned(t, c, "running")
	recorded(t, c, p.pool, 1, 0)
	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	p.owned(t, c, "restarted")
	suite.Change(t, c, p.pool, func(o client.Object) { o.SetAnnotations(nil) }) // there is room again
	recordsMove(t, c, p.pool, "10.0.0.1")
	recorded(t, c, p.pool, 1, 1)
	p.owned(t, c, "room")

	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: sandbox.ManagerNamespace, Name: "butler-ipam-journal"}}
	var was []rbacv1.PolicyRule
	suite.Change(t, c, role, func(r *rbacv1.Role) {
		was = r.Rules
		r.Rules = slices.DeleteFunc(slices.Clone(was), func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Resources, "configmaps") })
	})
	suite.AwaitRight(t, c, authorizationv1.ResourceAttributes{Namespace: sandbox.ManagerNamespace, Verb: "create", Resource: "configmaps"}, false)
	other := single(ns, "other")
	other.Labels[butlerv1.LabelRoutingDomain] = ns + "-other"
	claim := ipClaims.claim(ns, "other", "other", "")
	suite.Create(t, c, other, claim)
	suite.AwaitObject(t, c, claim, func(o client.Object) string { _, failure := ipClaims.address(o); return failure })
	suite.Change(t, c, clusterNamed(ns, "a", false), func(c *clusterv1.Cluster) { c.Spec.Paused = ptr.To(true) })
	ipClaims.moves(t, c, claim)
	toldOf(t, c, other, "MovedUnrecorded", "cannot be recorded")
	next := movedPool{claim: func(name string) client.Object { return ipClaims.claim(ns, name, "other", "") }}
	next.owned(t, c, "unrecorded")
	suite.Change(t, c, role, func(r *rbacv1.Role) { r.Rules = was })
	recordsMove(t, c, other, "10.0.0.1")
	recorded(t, c, other, 1, 1)

	// A record ends with its pool.
	suite.Delete(t, c, other)
	recorded(t, c, other, 0, 0)
	again := single(ns, "other")
	again.Labels[butlerv1.LabelRoutingDomain] = ns + "-other"
	suite.Create(t, c, again)
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return gets(ctx, c, ipClaims.claim(ns, "fresh", "other", "")) })
}

// toldOf is told for a control plane of its own.
func toldOf(t *testing.T, c client.Client, o client.Object, reason, part string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		all := &corev1.EventList{}
		if err := c.List(ctx, all, client.InNamespace(o.GetNamespace())); err != nil {
			return err
		}
		for _, e := range all.Items {
			if e.InvolvedObject.UID == o.GetUID() && e.Reason == reason && strings.Contains(e.Message, part) {
				return nil
			}
		}
		return fmt.Errorf("no event %s that says %q", reason, part)
	})
}

// A record that somebody broke stops its own pool, whose ranges are not known, and no
// other; a replica that starts meanwhile serves.
func TestMovedRecord_Broken(t *testing.T) {
	t.Parallel()
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	p := movedPools(ns)["IPPool"]
	depart(t, c, ns, map[string]movedPool{"IPPool": p})
	other := single(ns, "other")
	other.Labels[butlerv1.LabelRoutingDomain] = ns + "-other"
	suite.Create(t, c, other)
	list := &corev1.ConfigMapList{}
	if err := c.List(t.Context(), list, client.InNamespace(sandbox.ManagerNamespace), client.MatchingLabels{"butler.butlerlabs.dev/moved-ranges-of": string(p.pool.GetUID())}); err != nil || len(list.Items) != 1 {
		t.Fatalf("%d parts: %v", len(list.Items), err)
	}
	record := &list.Items[0]
	text := record.Data["moved"]
	suite.Change(t, c, record, func(m *corev1.ConfigMap) { m.Data["moved"] = text[:len(text)/2] })
	manager := box.Managers()[0]
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	claim := ipClaims.claim(ns, "of-other", "other", "")
	suite.Create(t, c, claim)
	if answer(claim) == "" {
		t.Error("a broken record of one pool stops another")
	}
	_, _, err := box.Kubectl(t.Context(), fmt.Sprintf("{apiVersion: ipam.metal3.io/v1alpha1, kind: IPClaim, metadata: {namespace: %s, name: stopped}, spec: {pool: {name: pool}}}", ns),
		"create", "--request-timeout=3s", "-f", "-")
	if err == nil {
		t.Error("a pool gives addresses whose record cannot be read")
	}
	// While the record cannot be read, no list is written that lacks a range which was
	// listed before: the corrected record would take it as removed by a person.
	suite.Change(t, c, p.pool, addLargeAnnotation)
	toldOf(t, c, p.pool, "MovedNotListed", "1 range that moved to other clusters is not allocated again")
	suite.Change(t, c, record, func(m *corev1.ConfigMap) { m.Data["moved"] = text })
	p.owned(t, c, "corrected") // stored without an address, as the only one is in use in another cluster
	suite.AwaitObject(t, c, p.pool, func(o client.Object) string { return o.GetAnnotations()[butlerv1.AnnotationCooldown] })
	recorded(t, c, p.pool, 1, 0)
	p.owned(t, c, "unlisted")

	// A record that cannot be read goes with its pool too.
	suite.Change(t, c, record, func(m *corev1.ConfigMap) { m.Data["moved"] = text[:len(text)/2] })
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	suite.Delete(t, c, p.pool)
	suite.AwaitGone(t, c, record)
}
