package tenancy

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=providerconfigs/status,verbs=patch

// providers says of each ProviderConfig how much its pools have left.
type providers struct{ *desk }

func (r *providers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Serving() {
		return reconcile.Result{}, nil
	}
	p := &v1alpha1.ProviderConfig{}
	if err := r.Get(ctx, req.NamespacedName, p); err != nil || p.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	policy := tenants.PolicyOf(p)
	if !policy.IPAM {
		return reconcile.Result{}, r.withdraw(ctx, p)
	}
	pools, err := r.pools(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, name := range tenants.PoolsFor(policy, pools) {
		if pools[name].Status.ObservedGeneration == 0 {
			return reconcile.Result{}, nil // it is new, and brings its providers here again when it says what it has
		}
	}
	capacity, available := tenants.Capacity(policy, pools)
	fields, changed := condition(p.Status.Conditions, available, r.Wall())
	if !changed && p.Status.Capacity != nil && *p.Status.Capacity == capacity {
		return reconcile.Result{}, nil
	}
	was := meta.FindStatusCondition(p.Status.Conditions, available.Type)
	err = r.applyStatus(ctx, providerConfigKind, p, ownerNetwork, map[string]any{
		"conditions": []any{fields},
		"capacity":   map[string]any{"availableIPs": int64(capacity.AvailableIPs), "estimatedTenants": int64(capacity.EstimatedTenants)},
	})
	if err == nil && available.Reason == v1alpha1.ReasonPoolExhausted && (was == nil || was.Reason != available.Reason) {
		r.events.poolsExhausted(p, available.Message)
	}
	return reconcile.Result{}, err
}

// withdraw takes away what was said while addresses came from pools.
func (r *providers) withdraw(ctx context.Context, p *v1alpha1.ProviderConfig) error {
	if p.Status.Capacity == nil && meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionPoolAvailable) == nil {
		return nil
	}
	// The list stays, empty: a status of which nothing is left would be null, which the schema refuses.
	return r.applyStatus(ctx, providerConfigKind, p, ownerNetwork, map[string]any{"conditions": []any{}})
}
