package tenants

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
)

// watchAddressSources queues the TenantClusters being deleted when addresses of the
// platform change.
func (d *deps) watchAddressSources(ctx context.Context, q *queues) error {
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Node{}} {
		if err := platform.HandleEvents(ctx, d.platform.Cache, o, func(before, o client.Object) {
			if before == nil || !platform.SourceOf(before).Equal(platform.SourceOf(o)) {
				q.addDeletedTenants(ctx, d)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// watchTenants queues what a change of a TenantCluster, ProviderConfig, IPAllocation or
// NetworkPool affects. waiting are the tenants to queue when a pool gets room.
func (d *deps) watchTenants(ctx context.Context, shared cache.Cache, q *queues, waiting ...*allocations.WaitingTenants) error {
	if err := platform.HandleEvents(ctx, d.platform.Cache, &v1alpha1.TenantCluster{}, func(before, o client.Object) {
		if before == nil || !changesOnlyMessage(before.(*v1alpha1.TenantCluster), o.(*v1alpha1.TenantCluster)) {
			q.tenants.Add(requestFor(o))
		}
		if before == nil || before.GetUID() != o.GetUID() || !equality.Semantic.DeepEqual(before.(*v1alpha1.TenantCluster).Spec.TeamRef, o.(*v1alpha1.TenantCluster).Spec.TeamRef) {
			q.addAllocations(ctx, d, o.(*v1alpha1.TenantCluster))
		}
	}); err != nil {
		return err
	}
	if err := platform.HandleEvents(ctx, d.platform.Cache, &v1alpha1.ProviderConfig{}, func(before, o client.Object) {
		q.providers.Add(requestFor(o))
		if before == nil || changesPolicy(before, o) {
			q.addTenants(ctx, d)
		}
	}); err != nil {
		return err
	}
	if err := platform.HandleEvents(ctx, shared, &v1alpha1.IPAllocation{}, func(_, o client.Object) {
		a := o.(*v1alpha1.IPAllocation)
		q.orphans.Add(requestFor(a))
		if ref := a.Spec.TenantClusterRef; ref.Name != "" {
			q.tenants.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
		}
	}); err != nil {
		return err
	}
	return platform.HandleEvents(ctx, shared, &v1alpha1.NetworkPool{}, func(before, o client.Object) {
		q.addProviders(ctx, d)
		if pool, _ := before.(*v1alpha1.NetworkPool); pool == nil || mayHaveMoreRoom(pool, o.(*v1alpha1.NetworkPool)) {
			for _, set := range waiting {
				for _, name := range set.List() {
					q.tenants.Add(reconcile.Request{NamespacedName: name})
				}
			}
		}
	})
}

// changesOnlyMessage reports whether two versions differ only in the message of
// NetworkReady. The message of an error may differ at each attempt, for example in the
// port of a connection: reconciling such a change would be a loop without pauses.
func changesOnlyMessage(before, after *v1alpha1.TenantCluster) bool {
	adjusted := before.DeepCopy()
	old, current := meta.FindStatusCondition(adjusted.Status.Conditions, v1alpha1.ConditionNetworkReady), meta.FindStatusCondition(after.Status.Conditions, v1alpha1.ConditionNetworkReady)
	if old == nil || current == nil || old.Message == current.Message {
		return false
	}
	old.Message, adjusted.ResourceVersion, adjusted.ManagedFields = current.Message, after.ResourceVersion, after.ManagedFields
	return equality.Semantic.DeepEqual(adjusted, after)
}

// changesPolicy reports whether a ProviderConfig may mean another policy than before.
func changesPolicy(before, after client.Object) bool {
	return before.GetUID() != after.GetUID() || before.GetGeneration() != after.GetGeneration() ||
		slices.ContainsFunc(plan.PolicyAnnotations, func(name string) bool { return before.GetAnnotations()[name] != after.GetAnnotations()[name] })
}

// mayHaveMoreRoom reports whether a pool may have room for tenants that wait.
func mayHaveMoreRoom(before, after *v1alpha1.NetworkPool) bool {
	return before.Generation != after.Generation || before.Status.AvailableIPs < after.Status.AvailableIPs || before.Status.LargestFreeBlock < after.Status.LargestFreeBlock
}
