package butler

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Warnings about a NetworkPool.
const (
	warningDeprecated = "spec.tenantAllocation.start and end are deprecated: write ranges: [{start: %q, end: %q}] instead"
	warningIgnored    = "spec.tenantAllocation.start and end are ignored because ranges is set: remove them"
	warningRepeated   = "%s %s lies inside %s %s already: remove it"
	warningEdge       = "%s, the %s address of spec.cidr, can be allocated, and no machine can use it: add %s to spec.reserved, unless the pool is for load balancers alone"
	warningEdgeOwned  = "%s, the %s address of spec.cidr, which no machine can use, is owned %s: unless the pool is for load balancers alone, delete the owner, and add %s to spec.reserved then"
	warningMisplaced  = "%s %s counts for nothing on a NetworkPool: set %s instead"
	warningNothing    = "%s every address that spec offers to tenants: nothing can be allocated from this pool"
)

// ValidateNetworkPool checks every rule that needs no other object, including the rules
// of the schema.
func ValidateNetworkPool(p *v1alpha1.NetworkPool) field.ErrorList {
	_, errs := parseSpec(p)
	spec := field.NewPath("spec")
	errs = append(errs, fieldtext.At(spec.Child("cidr"), p.Spec.CIDR).CheckCanonicalPrefix()...)
	for i, r := range p.Spec.Reserved {
		errs = append(errs, fieldtext.At(spec.Child("reserved").Index(i).Child("cidr"), r.CIDR).CheckCanonicalPrefix()...)
	}
	if t := p.Spec.TenantAllocation; t != nil {
		path := spec.Child("tenantAllocation")
		errs = append(errs, fieldtext.At(path.Child("start"), t.Start).CheckCanonicalAddress()...)
		errs = append(errs, fieldtext.At(path.Child("end"), t.End).CheckCanonicalAddress()...)
		for i, r := range t.Ranges {
			at := path.Child("ranges").Index(i)
			errs = append(errs, fieldtext.At(at.Child("start"), r.Start).CheckCanonicalAddress()...)
			errs = append(errs, fieldtext.At(at.Child("end"), r.End).CheckCanonicalAddress()...)
		}
	}
	for _, rule := range validation.IsValidLabelValue(p.Spec.RoutingDomain) {
		errs = append(errs, field.Invalid(spec.Child("routingDomain"), p.Spec.RoutingDomain, rule))
	}
	if d := p.Spec.ReuseDelay; d != nil && (d.Duration < 0 || d.Duration > v1alpha1.MaxReuseDelay) {
		errs = append(errs, field.Invalid(spec.Child("reuseDelay"), d.Duration.String(), "must be a duration from 0s to 720h, such as 10m"))
	}
	return append(errs, gatewayText(p).CheckCanonicalAddress()...)
}

// ValidateNetworkPoolUpdate returns the errors of ValidateNetworkPool that the stored
// pool does not have, and an error if spec.cidr shrinks or moves. The ledger checks
// whether the update removes owned addresses.
func ValidateNetworkPoolUpdate(old, updated *v1alpha1.NetworkPool) field.ErrorList {
	errs := object.NewErrors(ValidateNetworkPool(old), ValidateNetworkPool(updated))
	before, _ := parseSpec(old)
	after, _ := parseSpec(updated)
	if before.network.IsValid() && after.network.IsValid() && !after.network.Covers(before.network) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "cidr"), fmt.Sprintf(
			"may grow but never shrink or move: %s does not contain the present %s; use a network that does, or add another pool",
			updated.Spec.CIDR, old.Spec.CIDR)))
	}
	return errs
}

// FindPoolWarnings returns warnings about valid but probably unintended fields of a pool,
// one line each. describeOwner returns the owner of an address in the pool's routing
// domain as "by ipallocations/web", or "" for a free address.
func FindPoolWarnings(p *v1alpha1.NetworkPool, describeOwner func(netip.Addr) string) []string {
	var warnings []string
	if domain, is := p.Labels[v1alpha1.LabelRoutingDomain]; is && domain != p.Spec.RoutingDomain {
		warnings = append(warnings, fmt.Sprintf(warningMisplaced, "label", v1alpha1.LabelRoutingDomain, "spec.routingDomain"))
	}
	if _, is := p.Annotations[v1alpha1.AnnotationReuseDelay]; is {
		warnings = append(warnings, fmt.Sprintf(warningMisplaced, "annotation", v1alpha1.AnnotationReuseDelay, "spec.reuseDelay"))
	}
	if t := p.Spec.TenantAllocation; t != nil && t.Start != "" && t.End != "" {
		if len(t.Ranges) > 0 {
			warnings = append(warnings, warningIgnored)
		} else {
			warnings = append(warnings, fmt.Sprintf(warningDeprecated, t.Start, t.End))
		}
	}
	read, errs := parseSpec(p)
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
	offered := allocator.Subtract(read.offeredRanges(), read.blockedRanges())
	if len(offered) == 0 {
		warnings = append(warnings, describeNothingOffered(read))
	}
	if first, last := read.network.First, read.network.Last; first.Is4() && read.network.Size() > 2 {
		for _, edge := range []struct {
			name    string
			address netip.Addr
		}{{"network", first}, {"broadcast", last}} {
			if !slices.ContainsFunc(offered, func(r allocator.Range) bool { return r.Contains(edge.address) }) {
				continue
			}
			alone := netip.PrefixFrom(edge.address, edge.address.BitLen())
			if by := describeOwner(edge.address); by != "" {
				warnings = append(warnings, fmt.Sprintf(warningEdgeOwned, edge.address, edge.name, by, alone))
			} else {
				warnings = append(warnings, fmt.Sprintf(warningEdge, edge.address, edge.name, alone))
			}
		}
	}
	return warnings
}

// describeNothingOffered names the fields that block every address of a pool.
func describeNothingOffered(r parsedSpec) string {
	if len(allocator.Subtract(r.offeredRanges(), parsedSpec{reserved: r.reserved}.blockedRanges())) == 0 {
		return fmt.Sprintf(warningNothing, "spec.reserved covers")
	}
	return fmt.Sprintf(warningNothing, "spec.reserved and spec.gateway cover")
}

// ExplainNothingOffered returns why no address of a pool can be allocated.
func ExplainNothingOffered(p *v1alpha1.NetworkPool) string {
	if read, errs := parseSpec(p); len(errs) == 0 && len(allocator.Subtract(read.offeredRanges(), read.blockedRanges())) == 0 {
		return describeNothingOffered(read)
	}
	return "pools of the routing domain, or the platform (status.infrastructureAllocations), reserve every address of spec: nothing can be allocated from this pool"
}
