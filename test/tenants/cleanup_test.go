package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// released is how many releases of a range a pool has recorded.
func released(p *v1alpha1.NetworkPool, start string) (n int) {
	for _, r := range p.Status.Releases {
		if r.StartAddress == start {
			n++
		}
	}
	return n
}

// freeOnce waits until a pool is free, and fails the test unless one range was released
// exactly once.
func freeOnce(t *testing.T, p *v1alpha1.NetworkPool, want int64, start string) {
	t.Helper()
	free(t, p, want)
	if n := released(p, start); n != 1 {
		t.Errorf("the range from %s was released %d times, want once: %+v", start, n, p.Status.Releases)
	}
}

func TestRelease_AfterTheMachines(t *testing.T) {
	installMachines(t)
	p := pool(t, "machines", "10.30.0.0/24", "10.30.0.0", "10.30.0.31")
	provider(t, "machines", `{mode: ipam, poolRefs: [{name: machines}]}`, true)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "machines", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, cluster.Config()) // its namespace matters here
	m := machine(c, "worker-0")
	suite.CreateForTest(t, admin, m)
	if err := admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	hears(t, c, "AddressReleaseWaits", "1 machine of the tenant is left")
	always(t, 3*time.Second, func(ctx context.Context) error {
		have, err := allocations(ctx, c)
		if err == nil && len(have) != 2 {
			err = fmt.Errorf("while a machine is left the tenant has %q", have)
		}
		return err
	})
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	suite.AwaitGone(t, admin, c)
	freeOnce(t, p, 32, "10.30.0.0")
	hears(t, c, "AddressesReleased", "10.30.0.0-10.30.0.4 released to pool machines")
}

func TestRelease_WaitsForNodes(t *testing.T) {
	p := pool(t, "nodes", "10.31.0.0/24", "10.31.0.0", "10.31.0.31")
	provider(t, "nodes", `{mode: ipam, poolRefs: [{name: nodes}]}`, true)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "nodes", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	node := nodeWith(t, "node-of-one", "10.31.0.3")
	if err := admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	hears(t, c, "AddressReleaseWaits", "10.31.0.3 of IPAllocation")
	if err := admin.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	suite.AwaitGone(t, admin, c)
	freeOnce(t, p, 32, "10.31.0.0")
}

func TestInitialAllocation_ReplacedWhenDeleted(t *testing.T) {
	p := pool(t, "by-hand", "10.32.0.0/24", "10.32.0.0", "10.32.0.31")
	provider(t, "by-hand", `{mode: ipam, poolRefs: [{name: by-hand}]}`, false)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "by-hand", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: c.Namespace + "-one-lb"}}
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(a), a); err != nil {
		t.Fatal(err)
	}
	first := a.UID
	if err := admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
			return err
		}
		if a.UID == first || a.Spec.PinnedRange == nil {
			return errors.New("it is not replaced yet")
		}
		return nil
	})
	free(t, p, 24)
	suite.Delete(t, admin, c)
	free(t, p, 32)
	// Records of one name and one second are one.
	if released(p, "10.32.0.0") < 1 || released(p, a.Spec.PinnedRange.StartAddress) < 1 {
		t.Errorf("two allocations were there, from 10.32.0.0 and from %s; released were %+v", a.Spec.PinnedRange.StartAddress, p.Status.Releases)
	}
}

// A webhook of somebody's may refuse with the codes by which the API server says that an
// object has changed, or is gone. No event brings back one that has not.
func TestDeniedWrite_IsRepeated(t *testing.T) {
	pool(t, "refused", "10.47.0.0/24", "10.47.0.0", "10.47.0.127")
	provider(t, "refused", `{mode: ipam, poolRefs: [{name: refused}]}`, false)
	for _, code := range []int32{http.StatusNotFound, http.StatusConflict} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			ns := suite.CreateNamespace(t, admin)
			c := tenant(t, ns, "one", "refused", "")
			suite.CreateForTest(t, admin, c)
			networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)

			t.Run("the record of a tenant", func(t *testing.T) {
				first := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: ns + "-one-lb"}}
				end := refusing(t, code, "ipallocations", fmt.Sprintf("object.spec.tenantClusterRef.namespace == %q && %q in object.metadata.?annotations.orValue({})", ns, v1alpha1.AnnotationTenantUID),
					first, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationTenantUID, c.UID))
				more := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: more-%s}, spec: {poolRef: {name: refused},
					type: nodes, count: 1, tenantClusterRef: {namespace: %s, name: one}}}`, cluster.Namespace(), ns, ns))
				suite.CreateForTest(t, admin, more)
				end()
				suite.AwaitObject(t, admin, more, func(a *v1alpha1.IPAllocation) string {
					if a.Annotations[v1alpha1.AnnotationTenantUID] != string(c.UID) {
						return "its tenant is not recorded"
					}
					return ""
				})
			})
			t.Run("the end of a tenant", func(t *testing.T) {
				end := refusing(t, code, "tenantclusters", fmt.Sprintf("object.metadata.namespace == %q && !has(object.metadata.finalizers)", ns), c, `{"metadata":{"finalizers":null}}`)
				if err := admin.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				end()
				suite.AwaitGone(t, admin, c)
			})
		})
	}
}

// refusing has updates for which a condition holds refused with a code, as soon as this
// patch of an object is. The function waits until that has happened several times more,
// and ends it.
func refusing(t *testing.T, code int32, resource, condition string, o client.Object, patch string) (end func()) {
	t.Helper()
	var asked atomic.Int32
	hook := suite.RegisterWebhook(t, admin, fmt.Sprintf("%s-%s", o.GetName(), resource), suite.DenyingWebhook(t, code, func(context.Context) { asked.Add(1) }), condition,
		suite.RulesFor([]admissionregistrationv1.OperationType{admissionregistrationv1.Update}, resource, v1alpha1.GroupVersion.Group))
	suite.Eventually(t, time.Minute, func(ctx context.Context) error {
		if err := admin.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll); err == nil {
			return errors.New("nothing refuses an update yet")
		}
		return nil
	})
	asked.Store(0)
	return func() {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			if n := asked.Load(); n < 3 {
				return fmt.Errorf("%d updates of %s were refused: it is not tried again", n, resource)
			}
			return nil
		})
		suite.Delete(t, admin, hook)
	}
}

// orphan has a tenant vanish without its addresses, as when its finalizer is taken off by
// hand.
func orphan(t *testing.T, c *v1alpha1.TenantCluster) {
	t.Helper()
	m := machine(c, "left-"+c.Name)
	suite.CreateForTest(t, admin, m)
	if err := admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	hears(t, c, "AddressReleaseWaits", "")
	suite.Change(t, admin, c, func(c *v1alpha1.TenantCluster) { c.Finalizers = nil })
	suite.AwaitGone(t, admin, c)
	if err := admin.Delete(t.Context(), m); err != nil {
		t.Fatal(err)
	}
}

func TestOrphan_IsReleasedLater(t *testing.T) {
	installMachines(t)
	p := pool(t, "orphan", "10.33.0.0/24", "10.33.0.0", "10.33.0.31")
	provider(t, "orphan", `{mode: ipam, poolRefs: [{name: orphan}]}`, false)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "orphan", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, cluster.Config())
	kept := read[v1alpha1.IPAllocation](t, fmt.Sprintf(`{metadata: {namespace: %s, name: kept, annotations: {butler.butlerlabs.dev/keep: "true"}}, spec: {poolRef: {name: orphan},
		type: nodes, count: 1, tenantClusterRef: {namespace: %s, name: one}}}`, cluster.Namespace(), ns))
	suite.CreateForTest(t, admin, kept)
	suite.AwaitObject(t, admin, kept, func(a *v1alpha1.IPAllocation) string {
		if a.Annotations[v1alpha1.AnnotationTenantUID] != string(c.UID) {
			return "its tenant is not recorded"
		}
		return ""
	})
	orphan(t, c)
	since := time.Now()
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: ns + "-one-lb"}}
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
		if is := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing); is == nil || is.Reason != v1alpha1.ReasonTenantGone {
			return fmt.Sprintf("TenantClusterMissing is %+v", is)
		}
		return ""
	})
	hears(t, a, "TenantClusterMissing", "released after 4s")

	// A new tenant of the same name gets addresses of its own.
	again := tenant(t, ns, "one", "orphan", "")
	suite.CreateForTest(t, admin, again)
	networkReady(t, again, metav1.ConditionTrue, v1alpha1.ReasonReady)
	own := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: again.Status.LBAllocationRef.Name}}
	if suite.Read(t, admin, own); own.UID == a.UID || own.Annotations[v1alpha1.AnnotationTenantUID] != string(again.UID) {
		t.Errorf("the new tenant has %s, allocated for the tenant %s", own.Name, own.Annotations[v1alpha1.AnnotationTenantUID])
	}
	suite.AwaitGone(t, admin, a)
	t.Logf("released %s after its tenant was gone", time.Since(since))
	if took := time.Since(since); took < orphanAfter-time.Second { // times in a condition are whole seconds
		t.Errorf("released %s after its tenant was gone, want at least %s", took, orphanAfter)
	}
	freeOnce(t, p, 32-8-1, "10.33.0.0")
	hears(t, p, "OrphanedAllocationGC", ns+"-one-lb")
	suite.Delete(t, admin, again)
	free(t, p, 31)
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(kept), kept); err != nil || kept.DeletionTimestamp != nil {
		t.Errorf("the allocation that was to be kept: %v", err)
	}
}

// Whoever made it away, its machines run on.
func TestOrphan_WaitsForNodes(t *testing.T) {
	installMachines(t)
	p := pool(t, "orphan-used", "10.36.0.0/24", "10.36.0.0", "10.36.0.31")
	provider(t, "orphan-used", `{mode: ipam, poolRefs: [{name: orphan-used}]}`, false)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "orphan-used", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, cluster.Config())
	node := nodeWith(t, "node-of-orphan", "10.36.0.2")
	orphan(t, c)
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: c.Namespace + "-one-lb"}}
	hears(t, suite.Read(t, admin, a), "TenantClusterMissing", "10.36.0.2 of IPAllocation "+a.Name+" is still in use by a node: the allocation is released after that use ends")
	always(t, orphanAfter, func(ctx context.Context) error { return admin.Get(ctx, client.ObjectKeyFromObject(a), a) })

	// Deleted by hand, what the node keeps is the platform's, and nobody else's.
	if err := admin.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	uses(t, p, v1alpha1.InfrastructureAllocation{IP: "10.36.0.2", Source: "node", NodeRef: &v1alpha1.NodeReference{Name: node.Name}})
	free(t, p, 31)
}

// As who stores a copy of it has: another field manager then owns the finalizer.
func TestRelease_FinalizerOfAnotherFieldManager(t *testing.T) {
	pool(t, "copied", "10.44.0.0/24", "10.44.0.0", "10.44.0.31")
	provider(t, "copied", `{mode: ipam, poolRefs: [{name: copied}]}`, false)
	c := tenant(t, suite.CreateNamespace(t, admin), "one", "copied", "")
	c.Finalizers = []string{v1alpha1.FinalizerTenantAddresses}
	suite.Create(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	suite.Delete(t, admin, c)
}

// A backup brings objects of the same names, and other UIDs.
func TestRestore_TenantKeepsItsAddresses(t *testing.T) {
	installMachines(t)
	p := pool(t, "restored", "10.43.0.0/24", "10.43.0.0", "10.43.0.31")
	provider(t, "restored", `{mode: ipam, poolRefs: [{name: restored}]}`, false)
	ns := suite.CreateNamespace(t, admin)
	c := tenant(t, ns, "one", "restored", "")
	suite.CreateForTest(t, admin, c)
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, cluster.Config())
	a := suite.Read(t, admin, &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: ns + "-one-lb"}})
	orphan(t, c)
	suite.AwaitGone(t, admin, a)
	free(t, p, 32)

	a.ObjectMeta = metav1.ObjectMeta{Namespace: a.Namespace, Name: a.Name, Labels: a.Labels, Annotations: a.Annotations, Finalizers: a.Finalizers}
	if a.Annotations[v1alpha1.AnnotationTenantUID] != string(c.UID) {
		t.Fatalf("the backup names no tenant: %v", a.Annotations)
	}
	suite.Create(t, admin, a)
	again := tenant(t, ns, "one", "restored", "")
	suite.CreateForTest(t, admin, again)
	suite.AwaitObject(t, admin, a, func(a *v1alpha1.IPAllocation) string {
		if got := a.Annotations[v1alpha1.AnnotationTenantUID]; got != string(again.UID) {
			return fmt.Sprintf("its tenant is %q, want %q", got, again.UID)
		}
		return ""
	})
	networkReady(t, again, metav1.ConditionTrue, v1alpha1.ReasonReady)
	always(t, orphanAfter+time.Second, func(ctx context.Context) error { return holds(ctx, again, a.Name+" 10.43.0.0-10.43.0.7") })
	free(t, p, 24)
}

// installMachines has the Machines of Cluster API served, and waits until the managers
// know.
func installMachines(t *testing.T) {
	t.Helper()
	if err := cluster.InstallCRDs(t.Context(), "bin/clusterapi/cluster.x-k8s.io_machines.yaml"); err != nil {
		t.Fatal(err)
	}
}

// machine is one in the namespace of a tenant's control plane.
func machine(c *v1alpha1.TenantCluster, name string) *unstructured.Unstructured {
	return machineAt(c.Status.TenantNamespace, name)
}

func machineAt(namespace, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Machine",
		"metadata": map[string]any{"namespace": namespace, "name": name},
		"spec": map[string]any{
			"clusterName":       "any",
			"bootstrap":         map[string]any{"dataSecretName": "none"},
			"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "Any", "name": name},
		},
	}}
}
