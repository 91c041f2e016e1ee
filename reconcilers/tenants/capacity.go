package tenants

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=providerconfigs/status,verbs=patch

// capacityReconciler writes to each ProviderConfig how many addresses its pools have
// left.
type capacityReconciler struct{ *deps }

// Reconcile implements reconcile.Reconciler.
func (r *capacityReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	p := &v1alpha1.ProviderConfig{}
	if err := r.platform.Get(ctx, req.NamespacedName, p); err != nil || p.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policy := plan.PolicyOf(p)
	if !policy.IPAM {
		return reconcile.Result{}, r.removeCapacity(ctx, p)
	}
	pools, err := r.allocations.ListPools(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	free := map[string][]allocator.Range{}
	for _, name := range plan.UsablePools(policy, pools) {
		known := false
		if free[name], known = r.Ledger.FreeIn(butler.NetworkPoolKey(r.Namespace, name)); !known {
			return reconcile.Result{}, nil // the first status of a new pool queues its ProviderConfigs again
		}
	}
	capacity, available := plan.EstimateCapacity(policy, pools, free)
	content, changed := report.ConditionFields(p.Status.Conditions, available, r.Wall())
	if !changed && p.Status.Capacity != nil && *p.Status.Capacity == capacity {
		return reconcile.Result{}, nil
	}
	before := meta.FindStatusCondition(p.Status.Conditions, available.Type)
	err = r.status.Apply(ctx, platform.ProviderConfigKind, p, report.OwnerNetwork, map[string]any{
		"conditions": []any{content},
		"capacity":   map[string]any{"availableIPs": int64(capacity.AvailableIPs), "estimatedTenants": int64(capacity.EstimatedTenants)},
	})
	if err == nil && available.Reason == v1alpha1.ReasonPoolExhausted && (before == nil || before.Reason != available.Reason) {
		r.events.RecordPoolsExhausted(p, available.Message)
	}
	return reconcile.Result{}, err
}

// removeCapacity removes capacity and condition of a ProviderConfig whose addresses no
// longer come from pools.
func (r *capacityReconciler) removeCapacity(ctx context.Context, p *v1alpha1.ProviderConfig) error {
	if p.Status.Capacity == nil && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPoolAvailable) == nil {
		return nil
	}
	// The empty list stays: without it the status would become null, which the schema
	// rejects.
	return r.status.Apply(ctx, platform.ProviderConfigKind, p, report.OwnerNetwork, map[string]any{"conditions": []any{}})
}
