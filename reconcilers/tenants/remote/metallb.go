package remote

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

const (
	// FieldManager is the field manager of every write to a tenant.
	FieldManager = "butler-controller/ipam"
	// AdvertisementName is the name of the L2Advertisement that announces the pool.
	AdvertisementName = "default"

	metallbNamespace = "metallb-system"
)

var (
	poolResource          = schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
	advertisementResource = schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "l2advertisements"}
)

// Pool returns the mirrored IPAddressPool; nil if the pool does not exist.
func (c *Connection) Pool() *unstructured.Unstructured { return c.pools.singleObject() }

// OtherRanges returns the ranges in the IPAddressPools of other names.
func (c *Connection) OtherRanges() (ranges []allocator.Range) {
	for _, o := range c.otherPools.List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			ranges = append(ranges, plan.ParsePoolEntries(PoolEntries(u))...)
		}
	}
	return ranges
}

// trimPool returns the part of an IPAddressPool that OtherRanges reads.
func trimPool(pool *unstructured.Unstructured) *unstructured.Unstructured {
	trimmed := &unstructured.Unstructured{}
	trimmed.SetGroupVersionKind(pool.GroupVersionKind())
	trimmed.SetNamespace(pool.GetNamespace())
	trimmed.SetName(pool.GetName())
	trimmed.SetUID(pool.GetUID())
	trimmed.SetResourceVersion(pool.GetResourceVersion())
	entries := PoolEntries(pool)
	_ = unstructured.SetNestedStringSlice(trimmed.Object, entries[:min(len(entries), maxPoolEntries)], "spec", "addresses") // spec is absent, so no error
	return trimmed
}

// WrittenByIPAM reports whether address management is a field manager of a pool.
func WrittenByIPAM(pool *unstructured.Unstructured) bool {
	return slices.ContainsFunc(pool.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == FieldManager })
}

// PoolVersion returns the highest resourceVersion of the pool that was observed.
func (c *Connection) PoolVersion() uint64 { return c.pools.version.Load() }

// Advertisement returns the mirrored L2Advertisement; nil if the advertisement does not
// exist.
func (c *Connection) Advertisement() *unstructured.Unstructured {
	return c.advertisements.singleObject()
}

// PoolEntries returns spec.addresses of an IPAddressPool.
func PoolEntries(pool *unstructured.Unstructured) []string {
	entries, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	return entries
}

// RestrictsServices reports whether a pool serves only some Services, which IPAM's pool
// must not.
func RestrictsServices(pool *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedFieldNoCopy(pool.Object, "spec", "serviceAllocation")
	return found
}

// ApplyPool applies the spec of the IPAddressPool and returns the stored object, without
// spec.serviceAllocation.
func (c *Connection) ApplyPool(ctx context.Context, spec map[string]any) (*unstructured.Unstructured, error) {
	stored, err := c.applyObject(ctx, poolResource, "IPAddressPool", plan.MetalLBPool, spec)
	if err == nil && RestrictsServices(stored) {
		stored, err = c.removeRestriction(ctx, stored)
	}
	return stored, err
}

// removeRestriction removes spec.serviceAllocation from this version of a pool. An apply
// leaves the field, because another field manager owns it.
func (c *Connection) removeRestriction(ctx context.Context, pool *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, c.WriteTimeout)
	defer cancel()
	patch := fmt.Appendf(nil, `[{"op":"test","path":"/metadata/resourceVersion","value":%q},{"op":"remove","path":"/spec/serviceAllocation"}]`, pool.GetResourceVersion())
	return c.dynamic.Resource(poolResource).Namespace(metallbNamespace).Patch(ctx, pool.GetName(), types.JSONPatchType, patch, metav1.PatchOptions{FieldManager: FieldManager})
}

// DeletePool deletes this version of a pool.
func (c *Connection) DeletePool(ctx context.Context, pool *unstructured.Unstructured) error {
	uid, version := pool.GetUID(), pool.GetResourceVersion()
	return c.dynamic.Resource(poolResource).Namespace(metallbNamespace).Delete(ctx, pool.GetName(), metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
	})
}

// AnnouncedPools returns the names of the pools that an L2Advertisement announces; all:
// it announces every pool.
func AnnouncedPools(advertisement *unstructured.Unstructured) (names []string, all bool) {
	names, _, _ = unstructured.NestedStringSlice(advertisement.Object, "spec", "ipAddressPools")
	selectors, _, _ := unstructured.NestedSlice(advertisement.Object, "spec", "ipAddressPoolSelectors")
	return names, len(names) == 0 && len(selectors) == 0
}

// ApplyAdvertisement makes the L2Advertisement name these pools. Which nodes and
// interfaces announce the addresses remains with the tenant.
func (c *Connection) ApplyAdvertisement(ctx context.Context, pools ...string) error {
	names := make([]any, len(pools))
	for i, name := range pools {
		names[i] = name
	}
	_, err := c.applyObject(ctx, advertisementResource, "L2Advertisement", AdvertisementName, map[string]any{"ipAddressPools": names})
	return err
}

func (c *Connection) applyObject(ctx context.Context, r schema.GroupVersionResource, kind, name string, spec map[string]any) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": r.GroupVersion().String(), "kind": kind, "metadata": map[string]any{"name": name, "namespace": metallbNamespace}, "spec": spec,
	}}
	ctx, cancel := context.WithTimeout(ctx, c.WriteTimeout)
	defer cancel()
	stored, err := c.dynamic.Resource(r).Namespace(metallbNamespace).Apply(ctx, name, o, metav1.ApplyOptions{FieldManager: FieldManager, Force: true})
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return stored, nil
}

// FindService returns the mirrored Service of a name; nil if the Service does not exist.
func (c *Connection) FindService(name types.NamespacedName) (*corev1.Service, error) {
	o, _, err := c.services.GetByKey(name.String())
	s, _ := o.(*corev1.Service)
	return s, err
}

// LabelPlatformService adds the label of the platform's Services, unless the UID of the
// stored Service differs.
func (c *Connection) LabelPlatformService(ctx context.Context, s *corev1.Service) error {
	patch := fmt.Sprintf(`{"metadata": {"uid": %q, "labels": {%q: "true"}}}`, s.UID, v1alpha1.LabelPlatformLB)
	ctx, cancel := context.WithTimeout(ctx, c.WriteTimeout)
	defer cancel()
	_, err := c.core.Services(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: FieldManager})
	return err
}
