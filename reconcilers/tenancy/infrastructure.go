package tenancy

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/infrastructure"
)

// +kubebuilder:rbac:groups="",resources=services;nodes,verbs=get;list;watch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/status,verbs=patch

// ownerInfrastructure is the field manager of what is written about the platform's own addresses.
const ownerInfrastructure = "butler-controller/infra-allocation"

// maxShown is how many addresses status.infrastructureAllocations has room for. Those that tenants could be given go first: the list keeps them.
const maxShown = 4096

var networkPoolKind = v1alpha1.GroupVersion.WithKind("NetworkPool")

// platformUse says of each NetworkPool which of its addresses the platform itself uses. Those among them that tenants could be given are not
// handed out while they stand there: the ledger reads them from the same status (butler.PoolOf).
type platformUse struct{ *desk }

func (r *platformUse) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Serving() {
		return reconcile.Result{}, nil
	}
	p := &v1alpha1.NetworkPool{}
	if err := r.client.Get(ctx, req.NamespacedName, p); err != nil || p.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	seen, err := r.sightings(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	declared := p.DeepCopy()
	declared.Status = v1alpha1.NetworkPoolStatus{} // what is written here must not decide on itself
	use := infrastructure.Of(declared, seen)
	avoided := r.Unheld(req.NamespacedName, use.Inside) // the addresses of a tenant's machines are held for their tenant
	all := slices.Concat(infrastructure.Entries(avoided, seen), use.Allocations)
	all = all[:min(len(all), maxShown)]
	infrastructure.Sort(all)
	if len(all) == 0 && len(p.Status.InfrastructureAllocations) == 0 || equality.Semantic.DeepEqual(all, p.Status.InfrastructureAllocations) {
		return reconcile.Result{}, nil
	}
	list := make([]any, len(all))
	for i := range all {
		if list[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&all[i]); err != nil {
			return reconcile.Result{}, err
		}
	}
	if err := r.applyStatus(ctx, networkPoolKind, p, ownerInfrastructure, map[string]any{
		"infrastructureAllocations": list, "infrastructureConsumedIPs": int64(len(use.Allocations) + len(avoided)),
	}); err != nil {
		return reconcile.Result{}, err
	}
	for _, a := range avoided {
		if !slices.ContainsFunc(p.Status.InfrastructureAllocations, func(e v1alpha1.InfrastructureAllocation) bool { return e.IP == a.String() }) {
			r.events.avoided(p, a)
		}
	}
	return reconcile.Result{}, nil
}

// sightings is every object of the platform that has addresses.
func (d *desk) sightings(ctx context.Context) ([]infrastructure.Sighting, error) {
	var seen []infrastructure.Sighting
	services, nodes := &corev1.ServiceList{}, &corev1.NodeList{}
	if err := d.List(ctx, services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range services.Items {
		seen = append(seen, infrastructure.OfService(&services.Items[i]))
	}
	if err := d.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		seen = append(seen, infrastructure.OfNode(&nodes.Items[i]))
	}
	machines, err := d.machines(ctx, d.Cache)
	for i := range machines {
		seen = append(seen, infrastructure.OfMachine(&machines[i]))
	}
	return seen, err
}

// shows is what an object of the platform has of addresses.
func shows(o client.Object) infrastructure.Sighting {
	switch o := o.(type) {
	case *corev1.Service:
		return infrastructure.OfService(o)
	case *corev1.Node:
		return infrastructure.OfNode(o)
	}
	return infrastructure.Sighting{}
}
