// Package allocations lists, creates and deletes the IPAllocations of tenants, and lists
// the NetworkPools that tenants draw from.
//
// Creates go through the webhooks, and return allocations with addresses. Deletes name
// the UID and the resourceVersion on which the decision was based: an allocation that has
// changed meanwhile is not deleted.
package allocations

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// Store accesses the IPAllocations and NetworkPools of one namespace. Safe for concurrent
// use.
type Store struct {
	Client    client.Client // writes, and reads from the informers
	Live      client.Reader // reads from the API server
	Namespace string
}

// indexTenant is the name of an index of IPAllocations, by namespace/name of their
// TenantCluster.
const indexTenant = "tenant"

// IndexTenants adds the index that ListOf uses.
func IndexTenants(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &v1alpha1.IPAllocation{}, indexTenant, func(o client.Object) []string {
		ref := o.(*v1alpha1.IPAllocation).Spec.TenantClusterRef
		return []string{ref.Namespace + "/" + ref.Name}
	})
}

// ListOf returns the allocations that name a TenantCluster. The result belongs to the
// informer: copy an allocation before a change.
func (s Store) ListOf(ctx context.Context, tenant types.NamespacedName) ([]v1alpha1.IPAllocation, error) {
	all := &v1alpha1.IPAllocationList{}
	err := s.Client.List(ctx, all, client.InNamespace(s.Namespace), client.MatchingFields{indexTenant: tenant.String()}, client.UnsafeDisableDeepCopy)
	return all.Items, err
}

// ListPools returns the NetworkPools by name. The result belongs to the informer.
func (s Store) ListPools(ctx context.Context) (map[string]*v1alpha1.NetworkPool, error) {
	all := &v1alpha1.NetworkPoolList{}
	if err := s.Client.List(ctx, all, client.InNamespace(s.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	byName := map[string]*v1alpha1.NetworkPool{}
	for i := range all.Items {
		byName[all.Items[i].Name] = &all.Items[i]
	}
	return byName, nil
}

// HasReleasable reads the API server and reports whether the tenant has an allocation
// without annotation keep. The informers may not have observed an allocation created a
// moment ago; without a tenant the allocation would be an orphan, released only minutes
// later.
func (s Store) HasReleasable(ctx context.Context, t plan.Tenant) (bool, error) {
	all := &v1alpha1.IPAllocationList{}
	err := s.Live.List(ctx, all, client.InNamespace(s.Namespace), client.MatchingLabels{v1alpha1.LabelManagedBy: v1alpha1.ManagedByIPAM})
	return slices.ContainsFunc(all.Items, func(a v1alpha1.IPAllocation) bool {
		return plan.Owns(t, &a) && a.Annotations[v1alpha1.AnnotationKeep] != "true"
	}), err
}

// HasOthers reads the API server and reports whether the tenant has an allocation for
// load balancers, created here, that is not among the known blocks: the informers had not
// shown the allocation yet.
func (s Store) HasOthers(ctx context.Context, t plan.Tenant, known []plan.Block) (bool, error) {
	labels := plan.NewAllocation(t, v1alpha1.TypeLoadBalancer, v1alpha1.RoleInitial, s.Namespace, "", "", 0).Labels
	all := &v1alpha1.IPAllocationList{}
	err := s.Live.List(ctx, all, client.InNamespace(s.Namespace), client.MatchingLabels{
		v1alpha1.LabelManagedBy: v1alpha1.ManagedByIPAM, v1alpha1.LabelTenant: labels[v1alpha1.LabelTenant],
	})
	return slices.ContainsFunc(all.Items, func(a v1alpha1.IPAllocation) bool {
		return plan.Owns(t, &a) && a.Spec.Type == v1alpha1.TypeLoadBalancer && !slices.ContainsFunc(known, func(b plan.Block) bool { return b.Name == a.Name })
	}), err
}

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=delete

// Delete deletes this version of an allocation and reports the success. An allocation
// that has changed is not deleted, and the informers trigger the next attempt.
func (s Store) Delete(ctx context.Context, a *v1alpha1.IPAllocation) (deleted bool, err error) {
	err = s.Client.Delete(ctx, a, client.Preconditions{UID: &a.UID, ResourceVersion: &a.ResourceVersion})
	return err == nil, write.IgnoreStale(ctx, s.Live, a, err)
}
