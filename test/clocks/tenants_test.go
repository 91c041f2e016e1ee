package clocks

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// patience of the manager with machines of tenants, and with allocations whose tenant is
// gone.
const patience = 4 * time.Second

// tenantPool creates a NetworkPool for tenants, whose addresses are 10.71.N.0-31, and the
// provider of its name.
func tenantPool(t *testing.T, name string, n int) {
	t.Helper()
	suite.CreateForTest(t, admin, &butlerv1.NetworkPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: name},
		Spec: butlerv1.NetworkPoolSpec{
			CIDR: fmt.Sprintf("10.71.%d.0/24", n), TenantAllocation: &butlerv1.TenantAllocation{Start: fmt.Sprintf("10.71.%d.0", n), End: fmt.Sprintf("10.71.%d.31", n)},
		},
	}, &butlerv1.ProviderConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: name},
		Spec: butlerv1.ProviderConfigSpec{Provider: "harvester", Network: &butlerv1.ProviderNetwork{
			Mode: butlerv1.NetworkModeIPAM, PoolRefs: []butlerv1.PoolReference{{Name: name}},
		}},
	})
}

// The API server's clock says when a tenant was deleted, and the manager's what is now.
func TestTenant_MachinesHoldItsAddressesForTheLimit(t *testing.T) {
	at := 0
	for name, off := range map[string]time.Duration{"a_clock_that_is_ahead": 2 * time.Hour, "a_clock_that_is_behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			defer setClock(t, 0)
			setClock(t, off)
			restart(t, cluster.Managers()[0])
			at++
			pool, ns := fmt.Sprintf("limit-%d", at), suite.CreateNamespace(t, admin)
			tenantPool(t, pool, at)
			c := &butlerv1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "one"}}
			c.Spec.ProviderConfigRef = &butlerv1.ProviderReference{Name: pool}
			suite.Create(t, admin, c)
			suite.AwaitObject(t, admin, c, func(c *butlerv1.TenantCluster) string {
				if !meta.IsStatusConditionTrue(c.Status.Conditions, butlerv1.ConditionNetworkReady) {
					return fmt.Sprintf("%+v", c.Status.Conditions)
				}
				return ""
			})
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pool}}
			suite.CreateForTest(t, admin, node)
			node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.71.%d.1", at)}}
			if err := admin.Status().Update(t.Context(), node); err != nil {
				t.Fatal(err)
			}
			deleted := time.Now()
			suite.Delete(t, admin, c)
			if took := time.Since(deleted); took < patience {
				t.Errorf("released after %s, while a node has an address: want %s at least", took, patience)
			}
		})
	}
}

func TestTenant_OrphansStayForTheirTime(t *testing.T) {
	at := 10
	for name, off := range map[string]time.Duration{"written_by_a_clock_that_was_ahead": 2 * time.Hour, "written_by_a_clock_that_was_behind": -2 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			at++
			pool, ns := fmt.Sprintf("orphan-%d", at), suite.CreateNamespace(t, admin)
			tenantPool(t, pool, at)
			one := int32(1)
			a := &butlerv1.IPAllocation{
				ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace(), Name: pool, Annotations: map[string]string{butlerv1.AnnotationTenantUID: "gone"}},
				Spec: butlerv1.IPAllocationSpec{
					PoolRef: butlerv1.LocalObjectReference{Name: pool}, TenantClusterRef: butlerv1.NamespacedObjectReference{Namespace: ns, Name: "one"}, Type: butlerv1.TypeNodes, Count: &one,
				},
			}
			suite.CreateForTest(t, admin, a)
			var written time.Time
			suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
				if err := admin.Get(ctx, client.ObjectKeyFromObject(a), a); err != nil {
					return err
				}
				missing := meta.FindStatusCondition(a.Status.Conditions, butlerv1.ConditionTenantClusterMissing)
				if missing == nil {
					return errors.New("the end of its tenant is not noticed")
				}
				missing.LastTransitionTime = metav1.NewTime(time.Now().Add(off))
				written = time.Now()
				return admin.Status().Update(ctx, a)
			})
			suite.AwaitGone(t, admin, a)
			if took := time.Since(written); took < patience {
				t.Errorf("released after %s, want %s at least", took, patience)
			}
		})
	}
}

// A restore brings an address before its claim.
func TestAddressWithoutClaim_StaysWhereTheClockIsAhead(t *testing.T) {
	ns, k := suite.CreateNamespace(t, admin), kinds["IPPool"]
	defer setClock(t, 0)
	setClock(t, 2*time.Hour)
	restart(t, cluster.Managers()[0])
	suite.CreateForTest(t, admin, k.pool(ns, "10.70.0.1", 0))
	c := k.claim(ns, "first").(*metal3v1.IPClaim)
	suite.Create(t, admin, c)
	suite.AwaitObject(t, admin, c, func(c *metal3v1.IPClaim) string {
		if !k.served(c) {
			return "not served"
		}
		return ""
	})
	address := &metal3v1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: c.Status.Address.Name}}
	suite.Change(t, admin, address, func(a *metal3v1.IPAddress) { a.OwnerReferences = nil })
	suite.Change(t, admin, c, func(c *metal3v1.IPClaim) { c.Finalizers = append(c.Finalizers, "example.com/keeper") }) // so that the manager does not release it
	if err := admin.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	suite.Change(t, admin, c, func(c *metal3v1.IPClaim) { c.Finalizers = nil })
	suite.AwaitGone(t, admin, c)
	// What comes later than its end has been served: so has that.
	other := suite.CreateNamespace(t, admin)
	suite.CreateForTest(t, admin, k.pool(other, "10.70.0.1", 0))
	later := k.claim(other, "later")
	suite.Create(t, admin, later)
	suite.AwaitObject(t, admin, later, func(c client.Object) string {
		if !k.served(c) {
			return "not served"
		}
		return ""
	})
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(address), address); err != nil || address.DeletionTimestamp != nil {
		t.Errorf("the address is deleted, not found %t: %+v", apierrors.IsNotFound(err), address.ObjectMeta)
	}
}
