package tenancy

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// lookAtMachines is how often it is looked whether machines hold the addresses of a tenant still: the end of one comes by itself.
const lookAtMachines = 10 * time.Second

// release gives back what a tenant has that is being deleted, once its machines are gone, and lets it go then. Annotation keep keeps a block.
func (r *network) release(ctx context.Context, c *v1alpha1.TenantCluster) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(c)
	r.sessions.stop(name) // what it has it keeps, and gets no more
	if !slices.Contains(c.Finalizers, v1alpha1.FinalizerTenantAddresses) {
		return reconcile.Result{}, nil
	}
	stored, err := r.allocationsOf(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	t, _ := tenants.TenantOf(c)
	why, err := r.holds(ctx, c, tenants.BlocksOf(t, stored))
	if err != nil {
		return reconcile.Result{}, err
	}
	if why != "" {
		if r.holding.news(name, why) {
			r.events.releaseWaits(c, why)
		}
		return reconcile.Result{RequeueAfter: min(lookAtMachines, max(time.Second, r.releaseIn(c)))}, nil
	}
	r.holding.news(name, "")
	left := false
	for i := range stored {
		a := &stored[i]
		if !tenants.Owns(t, a) || a.Annotations[v1alpha1.AnnotationKeep] == "true" {
			continue
		}
		left = true
		if a.DeletionTimestamp != nil {
			continue
		}
		dropped, err := r.drop(ctx, a)
		if err != nil {
			return reconcile.Result{}, err
		}
		if dropped {
			r.events.released(c, a)
		}
	}
	if left {
		return reconcile.Result{}, nil // the end of the last one brings the tenant here again
	}
	if unseen, err := r.unseen(ctx, t); err != nil || unseen {
		return reconcile.Result{}, err // the informers bring it
	}
	// Not by server-side apply, which takes away only what it has put there: ours may have come with a copy of the object.
	before := c.DeepCopy()
	controllerutil.RemoveFinalizer(c, v1alpha1.FinalizerTenantAddresses)
	err = r.client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(ownerNetwork))
	return reconcile.Result{}, overtaken.Ignore(ctx, r.live, before, err)
}

// unseen tells whether a tenant has a block that the informers, which show none, have yet to bring: one that was made a moment ago. Without its
// tenant it would be an orphan, whose range is free only some time later.
func (r *network) unseen(ctx context.Context, t tenants.Tenant) (bool, error) {
	all := &v1alpha1.IPAllocationList{}
	err := r.live.List(ctx, all, client.InNamespace(r.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByIPAM})
	return slices.ContainsFunc(all.Items, func(a v1alpha1.IPAllocation) bool {
		return tenants.Owns(t, &a) && a.Annotations[v1alpha1.AnnotationKeep] != "true"
	}), err
}
