package butler

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// maxReuseDelay bounds spec.reuseDelay, as the schema does.
const maxReuseDelay = 720 * time.Hour

// Warnings about a NetworkPool.
const (
	warningDeprecated = "spec.tenantAllocation.start and end are deprecated: write ranges: [{start: %q, end: %q}] instead"
	warningIgnored    = "spec.tenantAllocation.start and end are ignored because ranges is set: remove them"
	warningRepeated   = "%s %s lies inside %s %s already: remove one of them"
	warningNothing    = "spec.reserved covers every address that spec offers to tenants: nothing can be allocated from this pool"
)

// ValidateNetworkPool holds a pool to every rule that needs no other object, those of the schema included.
func ValidateNetworkPool(p *v1alpha1.NetworkPool) field.ErrorList {
	_, errs := readPool(p)
	spec := field.NewPath("spec")
	errs = append(errs, text{spec.Child("cidr"), p.Spec.CIDR}.canonicalPrefix()...)
	for i, r := range p.Spec.Reserved {
		errs = append(errs, text{spec.Child("reserved").Index(i).Child("cidr"), r.CIDR}.canonicalPrefix()...)
	}
	if t := p.Spec.TenantAllocation; t != nil {
		path := spec.Child("tenantAllocation")
		errs = append(errs, text{path.Child("start"), t.Start}.canonicalAddress()...)
		errs = append(errs, text{path.Child("end"), t.End}.canonicalAddress()...)
		for i, r := range t.Ranges {
			at := path.Child("ranges").Index(i)
			errs = append(errs, text{at.Child("start"), r.Start}.canonicalAddress()...)
			errs = append(errs, text{at.Child("end"), r.End}.canonicalAddress()...)
		}
	}
	for _, rule := range validation.IsValidLabelValue(p.Spec.RoutingDomain) {
		errs = append(errs, field.Invalid(spec.Child("routingDomain"), p.Spec.RoutingDomain, rule))
	}
	if d := p.Spec.ReuseDelay; d != nil && (d.Duration < 0 || d.Duration > maxReuseDelay) {
		errs = append(errs, field.Invalid(spec.Child("reuseDelay"), d.Duration.String(), "must be a duration from 0s to 720h, such as 10m"))
	}
	return append(errs, gatewayOf(p).CanonicalAddress()...)
}

// ValidateNetworkPoolUpdate is ValidateNetworkPool without the faults that the stored pool has already, and its cidr may only
// grow. Whether an address that is held falls out of the pool only the ledger can tell.
func ValidateNetworkPoolUpdate(old, updated *v1alpha1.NetworkPool) field.ErrorList {
	errs := newFaults(ValidateNetworkPool(old), ValidateNetworkPool(updated))
	before, _ := readPool(old)
	after, _ := readPool(updated)
	if before.network.IsValid() && after.network.IsValid() && !after.network.Covers(before.network) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "cidr"), fmt.Sprintf(
			"may grow but never shrink or move: %s does not contain the present %s; use a network that does, or add another pool",
			updated.Spec.CIDR, old.Spec.CIDR)))
	}
	return errs
}

// newFaults is the errors of an update that its stored object does not have: whoever changes one field of an object that came
// in under older rules is not asked to mend the others.
func newFaults(old, updated field.ErrorList) field.ErrorList {
	known := map[string]bool{}
	for _, err := range old {
		known[err.Error()] = true
	}
	return slices.DeleteFunc(updated, func(err *field.Error) bool { return known[err.Error()] })
}

// WarningsFor says what of a valid pool is allowed but most likely not meant: one line each, no line breaks.
func WarningsFor(p *v1alpha1.NetworkPool) []string {
	var warnings []string
	if t := p.Spec.TenantAllocation; t != nil && t.Start != "" && t.End != "" {
		if len(t.Ranges) > 0 {
			warnings = append(warnings, warningIgnored)
		} else {
			warnings = append(warnings, fmt.Sprintf(warningDeprecated, t.Start, t.End))
		}
	}
	read, errs := readPool(p)
	if len(errs) > 0 {
		return warnings
	}
	for i, inner := range read.reserved {
		for j, outer := range read.reserved {
			if i != j && outer.Covers(inner.Range) && (outer.Range != inner.Range || j < i) {
				warnings = append(warnings, fmt.Sprintf(warningRepeated, inner.path, inner.Text(), outer.path, outer.Text()))
				break
			}
		}
	}
	if len(allocator.Subtract(read.window(), read.blocked())) == 0 {
		warnings = append(warnings, warningNothing)
	}
	return warnings
}
