package tenancy

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// queues are those of the controllers.
type queues struct{ network, orphans, providers, platform work.Queue }

func request(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// watchPlatform feeds the queue of what the platform uses itself.
func (d *desk) watchPlatform(ctx context.Context, shared cache.Cache, q *queues) error {
	for _, o := range []client.Object{&corev1.Service{}, &corev1.Node{}} {
		if err := on(ctx, d.Cache, o, func(before, o client.Object) {
			if before == nil || !shows(before).Equal(shows(o)) {
				q.addPools(ctx, d)
				q.addLeaving(ctx, d)
			}
		}); err != nil {
			return err
		}
	}
	return on(ctx, shared, &v1alpha1.NetworkPool{}, func(before, o client.Object) {
		if before == nil || before.GetUID() != o.GetUID() || changesUse(before.(*v1alpha1.NetworkPool), o.(*v1alpha1.NetworkPool)) {
			q.platform.Add(request(o))
		}
	})
}

// changesUse tells whether the platform may use other addresses of a pool than before: those that a node has, and a claim had until now, become
// the platform's, whatever that claim was. What is written to a pool first shows that the ledger knows it.
func changesUse(was, is *v1alpha1.NetworkPool) bool {
	return was.Generation != is.Generation || was.Status.ObservedGeneration != is.Status.ObservedGeneration || is.Status.AllocatedIPs < was.Status.AllocatedIPs
}

// watch feeds the queues of tenants.
func (d *desk) watch(ctx context.Context, shared cache.Cache, q *queues, short ...*names) error {
	if err := on(ctx, d.Cache, &v1alpha1.TenantCluster{}, func(before, o client.Object) {
		if before == nil || !reworded(before.(*v1alpha1.TenantCluster), o.(*v1alpha1.TenantCluster)) {
			q.network.Add(request(o))
		}
		if before == nil || before.GetUID() != o.GetUID() {
			q.addAllocations(ctx, d, o.(*v1alpha1.TenantCluster))
		}
	}); err != nil {
		return err
	}
	if err := on(ctx, d.Cache, &v1alpha1.ProviderConfig{}, func(before, o client.Object) {
		q.providers.Add(request(o))
		nodes := func(o client.Object) string { return o.GetAnnotations()[v1alpha1.AnnotationNodeAddresses] }
		if before == nil || before.GetUID() != o.GetUID() || before.GetGeneration() != o.GetGeneration() || nodes(before) != nodes(o) {
			q.addTenants(ctx, d)
		}
	}); err != nil {
		return err
	}
	if err := on(ctx, shared, &v1alpha1.IPAllocation{}, func(_, o client.Object) {
		q.orphans.Add(request(o))
		if a := o.(*v1alpha1.IPAllocation); a.DeletionTimestamp != nil { // what a node keeps of it becomes the platform's
			q.platform.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.PoolRef.Name}}, gather)
		}
		if ref := o.(*v1alpha1.IPAllocation).Spec.TenantClusterRef; ref.Name != "" {
			q.network.Add(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}})
		}
	}); err != nil {
		return err
	}
	return on(ctx, shared, &v1alpha1.NetworkPool{}, func(before, o client.Object) {
		q.addProviders(ctx, d)
		was, _ := before.(*v1alpha1.NetworkPool)
		if is := o.(*v1alpha1.NetworkPool); was == nil || was.Generation != is.Generation ||
			was.Status.AvailableIPs < is.Status.AvailableIPs || was.Status.LargestFreeBlock < is.Status.LargestFreeBlock {
			for _, waiting := range short {
				for _, name := range waiting.all() {
					q.network.Add(reconcile.Request{NamespacedName: name})
				}
			}
		}
	})
}

// reworded tells whether nothing has changed but the words in which we say that the network is not ready. They may differ with each try, as an error
// may name the port of a connection: looking at them would be a loop, past all pauses.
func reworded(was, is *v1alpha1.TenantCluster) bool {
	other := was.DeepCopy()
	said, says := meta.FindStatusCondition(other.Status.Conditions, v1alpha1.ConditionNetworkReady), meta.FindStatusCondition(is.Status.Conditions, v1alpha1.ConditionNetworkReady)
	if said == nil || says == nil || said.Message == says.Message {
		return false
	}
	said.Message, other.ResourceVersion, other.ManagedFields = says.Message, is.ResourceVersion, is.ManagedFields
	return equality.Semantic.DeepEqual(other, is)
}

// addLeaving has the tenants looked at that are being deleted.
func (q *queues) addLeaving(ctx context.Context, d *desk) {
	all := &v1alpha1.TenantClusterList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			if all.Items[i].DeletionTimestamp != nil {
				q.network.Add(request(&all.Items[i]))
			}
		}
	}
}

// addAll has everything looked at.
func (q *queues) addAll(ctx context.Context, d *desk) error {
	all := &v1alpha1.IPAllocationList{}
	if err := d.client.List(ctx, all, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	for i := range all.Items {
		q.orphans.Add(request(&all.Items[i]))
	}
	q.addPools(ctx, d)
	q.addProviders(ctx, d)
	q.addTenants(ctx, d)
	return nil
}

// addPools has it looked at what of each pool the platform uses.
func (q *queues) addPools(ctx context.Context, d *desk) {
	all := &v1alpha1.NetworkPoolList{}
	if d.client.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.platform.AddAfter(request(&all.Items[i]), gather)
		}
	}
}

func (q *queues) addTenants(ctx context.Context, d *desk) {
	all := &v1alpha1.TenantClusterList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil { // an error says that there are none, yet
		for i := range all.Items {
			q.network.Add(request(&all.Items[i]))
		}
	}
}

// gather is how long changes of pools come together before the capacity is written.
const gather = 500 * time.Millisecond

func (q *queues) addProviders(ctx context.Context, d *desk) {
	all := &v1alpha1.ProviderConfigList{}
	if d.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			q.providers.AddAfter(request(&all.Items[i]), gather)
		}
	}
}

// addAllocations has those looked at that name a tenant.
func (q *queues) addAllocations(ctx context.Context, d *desk, c *v1alpha1.TenantCluster) {
	all, err := d.allocationsOf(ctx, client.ObjectKeyFromObject(c))
	if err != nil {
		return
	}
	for i := range all {
		q.orphans.Add(request(&all[i]))
	}
}
