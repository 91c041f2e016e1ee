package tenants

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// queues are the work queues of the controllers.
type queues struct{ tenants, orphans, providers flow.Queue }

func newQueues() *queues {
	return &queues{
		tenants: flow.NewQueue("tenantcluster"), orphans: flow.NewQueue("orphan"),
		providers: flow.NewQueue("providerconfig"),
	}
}

// collectDelay is the time for which changes of pools are collected before capacity is
// computed.
const collectDelay = 500 * time.Millisecond

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// addEverything queues all objects. An error means that the allocations could not be
// listed, and nothing was queued.
func (q *queues) addEverything(ctx context.Context, d *deps) error {
	all := &v1alpha1.IPAllocationList{}
	if err := d.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range all.Items {
		q.orphans.Add(requestFor(&all.Items[i]))
	}
	q.addProviders(ctx, d)
	q.addTenants(ctx, d)
	return nil
}

// addTenants queues every TenantCluster. An error of the list means that the CRD is not
// installed yet.
func (q *queues) addTenants(ctx context.Context, d *deps) {
	all := &v1alpha1.TenantClusterList{}
	if d.platform.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.tenants.Add(requestFor(&all.Items[i]))
		}
	}
}

// addDeletedTenants queues the TenantClusters that are being deleted.
func (q *queues) addDeletedTenants(ctx context.Context, d *deps) {
	all := &v1alpha1.TenantClusterList{}
	if d.platform.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			if all.Items[i].DeletionTimestamp != nil {
				q.tenants.Add(requestFor(&all.Items[i]))
			}
		}
	}
}

// addProviders queues every ProviderConfig for its capacity.
func (q *queues) addProviders(ctx context.Context, d *deps) {
	all := &v1alpha1.ProviderConfigList{}
	if d.platform.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.providers.AddAfter(requestFor(&all.Items[i]), collectDelay)
		}
	}
}

// addAllocations queues the allocations that name a TenantCluster.
func (q *queues) addAllocations(ctx context.Context, d *deps, c *v1alpha1.TenantCluster) {
	all, err := d.allocations.ListOf(ctx, client.ObjectKeyFromObject(c))
	if err != nil {
		return
	}
	for i := range all {
		q.orphans.Add(requestFor(&all[i]))
	}
}
