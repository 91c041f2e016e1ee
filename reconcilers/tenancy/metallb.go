package tenancy

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// ownerMetalLB is the field manager of what is written to a tenant's MetalLB.
const ownerMetalLB = "butler-controller/ipam"

// written is what this process last wrote into the tenant's pool.
type written struct {
	entries []string
	version uint64 // resourceVersion of the pool then
}

// sync brings the tenant's MetalLB to offer exactly these ranges. Without any the pool goes, as MetalLB refuses an empty one, if it is ours.
func (s *session) sync(ctx context.Context, c *connection, cluster *v1alpha1.TenantCluster, ranges []allocator.Range) error {
	entries := tenants.PoolEntries(ranges)
	pool := c.pools.object()
	shown := c.pools.version.Load() >= s.wrote.version
	if drift := s.drift(pool, shown); drift != "" {
		s.metrics.drifted(s.name)
		s.events.drift(cluster, drift)
	}
	if len(entries) == 0 {
		return s.withdraw(ctx, c, cluster, pool)
	}
	if err := s.writePool(ctx, c, cluster, pool, entries, shown); err != nil {
		return err
	}
	return s.writeAdvertisement(ctx, c, cluster)
}

// drift is what somebody changed of what we wrote, once that is shown; "" for nothing.
func (s *session) drift(pool *unstructured.Unstructured, shown bool) string {
	switch {
	case s.wrote.entries == nil || !shown:
		return ""
	case pool == nil:
		s.wrote = written{}
		return "IPAddressPool " + tenants.MetalLBPool + " was deleted"
	}
	var changes []string
	if d := tenants.Drift(s.wrote.entries, addressesOf(pool)); d != "" {
		changes = append(changes, d)
	}
	for _, f := range poolFlags {
		if is, _, _ := unstructured.NestedBool(pool.Object, "spec", f.name); is != f.is {
			changes = append(changes, fmt.Sprintf("%s is %t", f.name, is))
		}
	}
	if limited(pool) {
		changes = append(changes, "serviceAllocation is set")
	}
	if len(changes) == 0 {
		return ""
	}
	s.wrote = written{}
	return "IPAddressPool " + tenants.MetalLBPool + " was changed: " + oneLine(strings.Join(changes, ", "))
}

// poolFlags are fields of the pool on which depends whether every Service can have every address.
var poolFlags = []struct {
	name string
	is   bool
}{{"autoAssign", true}, {"avoidBuggyIPs", false}}

// limited tells whether a pool is for some Services only.
func limited(pool *unstructured.Unstructured) bool {
	_, is, _ := unstructured.NestedFieldNoCopy(pool.Object, "spec", "serviceAllocation")
	return is
}

func (s *session) writePool(ctx context.Context, c *connection, cluster *v1alpha1.TenantCluster, pool *unstructured.Unstructured, entries []string, shown bool) error {
	asWanted := pool != nil && slices.Equal(sorted(addressesOf(pool)), sorted(entries)) && !limited(pool)
	for _, f := range poolFlags {
		if pool != nil {
			is, _, _ := unstructured.NestedBool(pool.Object, "spec", f.name)
			asWanted = asWanted && is == f.is
		}
	}
	switch {
	case asWanted && shown:
		s.wrote = written{entries, fields.ResourceVersion(pool)}
		return nil
	case !shown && slices.Equal(s.wrote.entries, entries):
		return nil // it is on its way here
	}
	list := make([]any, len(entries))
	for i, e := range entries {
		list[i] = e
	}
	spec := map[string]any{"addresses": list}
	for _, f := range poolFlags {
		spec[f.name] = f.is
	}
	stored, err := apply(ctx, c, poolResource, "IPAddressPool", tenants.MetalLBPool, spec)
	if err == nil && limited(stored) {
		stored, err = c.unlimit(ctx, stored)
	}
	if err != nil {
		return err
	}
	s.wrote = written{entries, fields.ResourceVersion(stored)}
	s.metrics.synced(s.name)
	s.events.synced(cluster, entries)
	return nil
}

// unlimit takes from a pool, in this version, what somebody else wrote and an apply leaves there: that it is for some Services only.
func (c *connection) unlimit(ctx context.Context, pool *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"remove","path":"/spec/serviceAllocation"}]`, pool.GetResourceVersion())
	return c.objects.Resource(poolResource).Namespace(metallbNamespace).Patch(ctx, pool.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: ownerMetalLB})
}

// writeAdvertisement has the pool's addresses announced. By which nodes and interfaces is the tenant's affair.
func (s *session) writeAdvertisement(ctx context.Context, c *connection, cluster *v1alpha1.TenantCluster) error {
	drift := "was deleted"
	if a := c.advertisements.object(); a != nil {
		if names, _, _ := unstructured.NestedStringSlice(a.Object, "spec", "ipAddressPools"); slices.Contains(names, tenants.MetalLBPool) {
			s.announced = true
			return nil
		}
		drift = "did not name pool " + tenants.MetalLBPool
	}
	if s.announced {
		s.announced = false // told once
		s.metrics.drifted(s.name)
		s.events.drift(cluster, fmt.Sprintf("L2Advertisement %s %s", advertisementName, drift))
	}
	_, err := apply(ctx, c, advertisementResource, "L2Advertisement", advertisementName, map[string]any{"ipAddressPools": []any{tenants.MetalLBPool}})
	return err
}

// withdraw deletes the pool, never one that we have no part in. The advertisement of a pool that is not there harms nobody.
func (s *session) withdraw(ctx context.Context, c *connection, cluster *v1alpha1.TenantCluster, pool *unstructured.Unstructured) error {
	if pool == nil || !slices.ContainsFunc(pool.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == ownerMetalLB }) {
		return nil
	}
	uid, version := pool.GetUID(), pool.GetResourceVersion()
	err := c.objects.Resource(poolResource).Namespace(metallbNamespace).Delete(ctx, pool.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil // the watch brings it here again
	}
	if err == nil {
		s.wrote = written{}
		s.metrics.synced(s.name)
		s.events.synced(cluster, nil)
	}
	return err
}

func apply(ctx context.Context, c *connection, r schema.GroupVersionResource, kind, name string, spec map[string]any) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": metallbNamespace}, "spec": spec,
	}}
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	stored, err := c.objects.Resource(r).Namespace(metallbNamespace).Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: ownerMetalLB, Force: true})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return stored, nil
}

func addressesOf(pool *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	return list
}

func sorted(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}
