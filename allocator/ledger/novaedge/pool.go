package novaedge

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Warnings about a ProxyIPPool.
const (
	warningHostBits = "%s: %s has bits set after the prefix, which do not count: it is %s, addresses %s to %s"
	warningPrefix   = "%s: %s is the one address %s; its prefix length says nothing"
)

// PoolOf is what the ledger needs to know of a pool. Of one that breaks a rule the errors say which; it then offers nothing.
func PoolOf(p *v1alpha1.ProxyIPPool) (ledger.Pool, field.ErrorList) {
	window, errs := readWindow(p)
	fault, readable := fields.Fault(errs), []allocator.Range(nil)
	if fault != "" {
		window, readable = nil, window
	}
	return ledger.Pool{
		Key:             ProxyIPPoolKey(p.Name),
		ResourceVersion: fields.ResourceVersion(p),
		Space:           p.Labels[butlerv1.LabelRoutingDomain],
		Window:          window,
		Fault:           fault,
		Readable:        readable,
		Policy:          allocator.Sequential,
		Manual:          !p.Spec.AutoAssign,
		UID:             string(p.UID),
		Deleting:        p.DeletionTimestamp != nil,
		WhyOutside:      func(r allocator.Range) string { return whyOutside(p, r) },
	}, errs
}

// ValidateProxyIPPool holds a pool to every rule that needs no other object, those of the schema included.
func ValidateProxyIPPool(p *v1alpha1.ProxyIPPool) field.ErrorList {
	_, errs := readWindow(p)
	if len(p.Spec.CIDRs)+len(p.Spec.Addresses) == 0 {
		errs = append(errs, field.Required(field.NewPath("spec"), "name at least one network in cidrs or one address in addresses"))
	}
	domain := p.Labels[butlerv1.LabelRoutingDomain]
	for _, rule := range validation.IsValidLabelValue(domain) {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "labels").Key(butlerv1.LabelRoutingDomain), domain, rule))
	}
	return errs
}

// ValidateProxyIPPoolUpdate is ValidateProxyIPPool without the faults that the stored pool has already. Whether an address that is held
// falls out of the pool only the ledger can tell.
func ValidateProxyIPPoolUpdate(old, updated *v1alpha1.ProxyIPPool) field.ErrorList {
	return fields.NewFaults(ValidateProxyIPPool(old), ValidateProxyIPPool(updated))
}

// WarningsFor says what of a valid pool is allowed but most likely not meant: one line each, no line breaks.
func WarningsFor(p *v1alpha1.ProxyIPPool) []string {
	var warnings []string
	for i, value := range p.Spec.CIDRs {
		t := cidrAt(i, value)
		if network, err := t.Prefix(); err == nil && network != network.Masked() {
			offered := usable(network)
			warnings = append(warnings, fmt.Sprintf(warningHostBits, t.Path, value, network.Masked(), offered.First, offered.Last))
		}
	}
	for i, value := range p.Spec.Addresses {
		t := addressAt(i, value)
		if a, bits, err := readAddress(t); err == nil && bits != a.BitLen() {
			warnings = append(warnings, fmt.Sprintf(warningPrefix, t.Path, value, a))
		}
	}
	return warnings
}

func cidrAt(i int, value string) fields.Text {
	return fields.At(field.NewPath("spec", "cidrs").Index(i), value)
}

func addressAt(i int, value string) fields.Text {
	return fields.At(field.NewPath("spec", "addresses").Index(i), value)
}

// readWindow is the addresses of a pool as they are declared.
func readWindow(p *v1alpha1.ProxyIPPool) ([]allocator.Range, field.ErrorList) {
	var (
		window []allocator.Range
		errs   field.ErrorList
	)
	for i, value := range p.Spec.CIDRs {
		network, err := cidrAt(i, value).Prefix()
		if err != nil {
			errs = append(errs, err)
			continue
		}
		window = append(window, usable(network))
	}
	for i, value := range p.Spec.Addresses {
		a, _, err := readAddress(addressAt(i, value))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		window = append(window, allocator.Range{First: a, Last: a})
	}
	return allocator.Union(window), errs
}

// usable is the addresses of a network that a pool offers:
//
//	IPv4  /32, /31    all              larger   without the first (network) and the last (broadcast)
//	IPv6  /128, /127  all              larger   without the first (subnet-router anycast, RFC 4291 2.6.1)
func usable(network netip.Prefix) allocator.Range {
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

// whyOutside is why a pool leaves a range out, "" where no network of it contains the range.
func whyOutside(p *v1alpha1.ProxyIPPool, r allocator.Range) string {
	for i, value := range p.Spec.CIDRs {
		t := cidrAt(i, value)
		network, err := t.Prefix()
		if err != nil || r.First != r.Last || !network.Contains(r.First) || usable(network).Contains(r.First) {
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

// readAddress reads a single address, with a prefix length or without, which is the whole address then.
func readAddress(t fields.Text) (netip.Addr, int, *field.Error) {
	if p, err := netip.ParsePrefix(t.Value); err == nil {
		a, bad := fields.At(t.Path, p.Addr().String()).Address()
		return a, p.Bits(), bad
	}
	a, err := t.Address()
	return a, a.BitLen(), err
}
