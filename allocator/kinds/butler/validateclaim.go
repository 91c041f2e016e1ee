package butler

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// ValidateIPAllocation checks every rule that needs no other object, including the rules
// of the schema: a mutating webhook runs before schema validation, and an invalid object
// should cost no grant.
func ValidateIPAllocation(a *v1alpha1.IPAllocation) field.ErrorList {
	var (
		errs   field.ErrorList
		spec   = field.NewPath("spec")
		tenant = spec.Child("tenantClusterRef")
	)
	errs = append(errs, fieldtext.CheckName(spec.Child("poolRef", "name"), a.Spec.PoolRef.Name, validation.IsDNS1123Subdomain)...)
	errs = append(errs, fieldtext.CheckName(tenant.Child("name"), a.Spec.TenantClusterRef.Name, validation.IsDNS1123Subdomain)...)
	errs = append(errs, fieldtext.CheckName(tenant.Child("namespace"), a.Spec.TenantClusterRef.Namespace, validation.IsDNS1123Label)...)
	switch a.Spec.Type {
	case v1alpha1.TypeNodes, v1alpha1.TypeLoadBalancer:
	case "":
		errs = append(errs, field.Required(spec.Child("type"), `what the addresses are for: "nodes" or "loadbalancer"`))
	default:
		errs = append(errs, field.NotSupported(spec.Child("type"), a.Spec.Type, []v1alpha1.IPAllocationType{v1alpha1.TypeNodes, v1alpha1.TypeLoadBalancer}))
	}
	if a.Spec.Count != nil && *a.Spec.Count < 1 {
		errs = append(errs, field.Invalid(spec.Child("count"), *a.Spec.Count, "must be at least 1: leave it out to get the pool's default"))
	}
	if p := a.Spec.PinnedRange; p != nil {
		_, bad := parsePinnedRange(p)
		errs = append(errs, bad...)
		path := spec.Child("pinnedRange")
		errs = append(errs, fieldtext.At(path.Child("startAddress"), p.StartAddress).CheckCanonicalAddress()...)
		errs = append(errs, fieldtext.At(path.Child("endAddress"), p.EndAddress).CheckCanonicalAddress()...)
	}
	return errs
}

// ValidateIPAllocationUpdate returns the errors of ValidateIPAllocation that the stored
// allocation does not have. Once the allocation owns a range, in spec or in an earlier
// allocator's status, an update may only add absent fields of spec, and correct a count
// that differs from the size of the range.
func ValidateIPAllocationUpdate(old, updated *v1alpha1.IPAllocation) field.ErrorList {
	errs := object.NewErrors(ValidateIPAllocation(old), ValidateIPAllocation(updated))
	owned, source, err := FindRange(old)
	if source == RangeMissing || err != nil && source == RangeInStatus {
		return errs
	}
	forbid := func(name, wayOut string) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", name), "cannot be changed while addresses are owned: "+wayOut))
	}
	o, u := old.Spec, updated.Spec
	if u.PoolRef != o.PoolRef {
		forbid("poolRef", "create another IPAllocation in the other pool and delete this one")
	}
	if u.TenantClusterRef != o.TenantClusterRef {
		forbid("tenantClusterRef", "create another IPAllocation for the other cluster and delete this one")
	}
	if u.Type != o.Type {
		forbid("type", "create another IPAllocation of the other type and delete this one")
	}
	size := FindCount(old) // what the count is corrected to, where it differs from the pinned range and was ignored
	if o.Count != nil && (u.Count == nil || *u.Count != *o.Count && *u.Count != *size) {
		forbid("count", "create another IPAllocation for more addresses, or a smaller one and delete this one")
	}
	was := o.PinnedRange
	if source == RangeInStatus {
		was = FormatPinnedRange(owned)
	}
	switch {
	case u.PinnedRange == nil && source == RangeInSpec:
		forbid("pinnedRange", "delete the IPAllocation to release them")
	case u.PinnedRange != nil && *u.PinnedRange != *was:
		forbid("pinnedRange", fmt.Sprintf("they are %s-%s; create another IPAllocation to move to others, and delete this one", was.StartAddress, was.EndAddress))
	}
	return errs
}

// AwaitsStatus reports whether the rule of the CRD for updates denies an update until the
// first status is written: the rule reads from the status whether the allocation owns the
// range that it names, and to which number the count may be corrected.
func AwaitsStatus(stored, updated *v1alpha1.IPAllocation) bool {
	o, u := stored.Spec, updated.Spec
	if o.PinnedRange == nil || stored.Status.Phase != "" {
		return false
	}
	return u.PinnedRange == nil || *u.PinnedRange != *o.PinnedRange || u.PoolRef != o.PoolRef || u.TenantClusterRef != o.TenantClusterRef || u.Type != o.Type ||
		o.Count != nil && !ptr.Equal(u.Count, o.Count)
}
