package novaedge

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Warnings about a ProxyIPPool.
const (
	warningHostBits = "%s: %s has bits set after the prefix, which do not count: it is %s, addresses %s to %s"
	warningPrefix   = "%s: %s is the single address %s: its prefix length is ignored"
)

// ConvertPool converts a ProxyIPPool for the ledger. A pool that breaks a rule offers no
// addresses; the errors name the rules.
func ConvertPool(p *v1alpha1.ProxyIPPool) (ledger.Pool, field.ErrorList) {
	window, errs := parseWindow(p)
	fault, readable := object.Summarize(errs), []allocator.Range(nil)
	if fault != "" {
		window, readable = nil, window
	}
	return ledger.Pool{
		Key:             ProxyIPPoolKey(p.Name),
		ResourceVersion: object.ResourceVersion(p),
		RoutingDomain:   p.Labels[butlerv1.LabelRoutingDomain],
		Window:          window,
		Fault:           fault,
		Readable:        readable,
		Policy:          allocator.Sequential,
		Manual:          !p.Spec.AutoAssign,
		UID:             string(p.UID),
		Deleting:        p.DeletionTimestamp != nil,
		WhyOutside:      func(r allocator.Range) string { return explainOutside(p, r) },
	}, errs
}

// ValidateProxyIPPool checks every rule that needs no other object, including the rules
// of the schema.
func ValidateProxyIPPool(p *v1alpha1.ProxyIPPool) field.ErrorList {
	_, errs := parseWindow(p)
	if len(p.Spec.CIDRs)+len(p.Spec.Addresses) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec"), "name at least one network in cidrs or one address in addresses"))
	}
	domain := p.Labels[butlerv1.LabelRoutingDomain]
	for _, rule := range validation.IsValidLabelValue(domain) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "labels").Key(butlerv1.LabelRoutingDomain), domain, rule))
	}
	return errs
}

// ValidateProxyIPPoolUpdate returns the errors of ValidateProxyIPPool that the stored
// pool does not have. The ledger checks whether the update removes owned addresses.
func ValidateProxyIPPoolUpdate(old, updated *v1alpha1.ProxyIPPool) field.ErrorList {
	return object.NewErrors(ValidateProxyIPPool(old), ValidateProxyIPPool(updated))
}

// FindPoolWarnings returns warnings about valid but probably unintended fields of a pool,
// one line each.
func FindPoolWarnings(p *v1alpha1.ProxyIPPool) []string {
	var warnings []string
	for i, value := range p.Spec.CIDRs {
		t := cidrText(i, value)
		if network, err := t.ParsePrefix(); err == nil && network != network.Masked() {
			offered := offeredRange(network)
			warnings = append(warnings, fmt.Sprintf(warningHostBits, t.Path, value, network.Masked(), offered.First, offered.Last))
		}
	}
	for i, value := range p.Spec.Addresses {
		t := addressText(i, value)
		if a, bits, err := parseAddress(t); err == nil && bits != a.BitLen() {
			warnings = append(warnings, fmt.Sprintf(warningPrefix, t.Path, value, a))
		}
	}
	return warnings
}

func cidrText(i int, value string) fieldtext.Text {
	return fieldtext.At(field.NewPath("spec", "cidrs").Index(i), value)
}

func addressText(i int, value string) fieldtext.Text {
	return fieldtext.At(field.NewPath("spec", "addresses").Index(i), value)
}

// parseWindow returns the addresses that a pool declares.
func parseWindow(p *v1alpha1.ProxyIPPool) ([]allocator.Range, field.ErrorList) {
	var (
		window []allocator.Range
		errs   field.ErrorList
	)
	for i, value := range p.Spec.CIDRs {
		network, err := cidrText(i, value).ParsePrefix()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		window = append(window, offeredRange(network))
	}
	for i, value := range p.Spec.Addresses {
		a, _, err := parseAddress(addressText(i, value))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		window = append(window, allocator.Range{First: a, Last: a})
	}
	return allocator.Union(window), errs
}

// offeredRange returns the addresses that a pool offers of a network:
//
//	IPv4  /32, /31    all              larger   without the first (network) and the last (broadcast)
//	IPv6  /128, /127  all              larger   without the first (subnet-router anycast, RFC 4291 2.6.1)
func offeredRange(network netip.Prefix) allocator.Range {
	r := allocator.RangeOfPrefix(network)
	if network.Bits() >= network.Addr().BitLen()-1 {
		return r
	}
	r.First = r.First.Next()
	if r.First.Is4() {
		r.Last = r.Last.Prev()
	}
	return r
}

// explainOutside returns why a pool does not offer a range; "" if no network of the pool
// contains the range.
func explainOutside(p *v1alpha1.ProxyIPPool, r allocator.Range) string {
	for i, value := range p.Spec.CIDRs {
		t := cidrText(i, value)
		network, err := t.ParsePrefix()
		if err != nil || r.First != r.Last || !network.Contains(r.First) || offeredRange(network).Contains(r.First) {
			continue
		}
		what := "the network address"
		switch {
		case r.First.Is6():
			what = "the subnet-router anycast address"
		case r.First != network.Masked().Addr():
			what = "the broadcast address"
		}
		return fmt.Sprintf("%s of %s %s, which is offered only where spec.addresses names it", what, t.Path, network.Masked())
	}
	return ""
}

// parseAddress parses a single address with or without a prefix length, and returns the
// prefix length; the full length by default.
func parseAddress(t fieldtext.Text) (netip.Addr, int, *field.Error) {
	if p, err := netip.ParsePrefix(t.Value); err == nil {
		a, bad := fieldtext.At(t.Path, p.Addr().String()).ParseAddress()
		return a, p.Bits(), bad
	}
	a, err := t.ParseAddress()
	return a, a.BitLen(), err
}
