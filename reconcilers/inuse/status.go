package inuse

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/status,verbs=patch

var networkPoolKind = v1alpha1.GroupVersion.WithKind("NetworkPool")

// statusReconciler writes to each NetworkPool which of its addresses the platform uses:
// none outside the routing domain of the cluster's network.
// The addresses in the status are blocked too (butler.ConvertPool).
type statusReconciler struct {
	*Watcher
	status report.StatusWriter
	events report.Events
}

// Reconcile implements reconcile.Reconciler.
func (r *statusReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	p := &v1alpha1.NetworkPool{}
	if err := r.client.Get(ctx, req.NamespacedName, p); err != nil || p.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	sources, err := r.Platform.ListAddressSources(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !r.Ledger.AvoidsInUse(p.Spec.RoutingDomain) {
		sources = nil
	}
	declared := p.DeepCopy()
	declared.Status = v1alpha1.NetworkPoolStatus{} // the result must not depend on an earlier result
	usage := platform.UsageOf(declared, sources)
	avoided := r.Ledger.Unowned(butler.NetworkPoolKey(p.Namespace, p.Name), usage.Allocatable) // a tenant owns the addresses of its machines
	entries := slices.Concat(platform.EntriesFor(avoided, sources), usage.Allocations)
	total := len(entries)
	entries = slices.Clone(butler.BoundInfrastructure(entries)) // avoided addresses come first and so are within the bound
	platform.SortEntries(entries)
	before := p.Status.InfrastructureAllocations
	if (len(entries) == 0 && len(before) == 0 || equality.Semantic.DeepEqual(entries, before)) && p.Status.InfrastructureConsumedIPs == int64(total) {
		return reconcile.Result{}, nil
	}
	list := make([]any, len(entries))
	for i := range entries {
		if list[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&entries[i]); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.status.Apply(ctx, networkPoolKind, p, report.OwnerInfrastructure, map[string]any{
		"infrastructureAllocations": list, "infrastructureConsumedIPs": int64(total),
	}); err != nil {
		return reconcile.Result{}, err
	}
	if unlisted := total - len(entries); unlisted > 0 && butler.UnlistedInfrastructure(p) == 0 {
		r.events.RecordInfrastructureUnlisted(p, unlisted)
	}
	for _, e := range platform.EntriesFor(avoided, sources) {
		if !slices.ContainsFunc(before, func(known v1alpha1.InfrastructureAllocation) bool { return known.IP == e.IP }) {
			r.events.RecordAvoided(p, e)
		}
	}
	return reconcile.Result{}, nil
}
