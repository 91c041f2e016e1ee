package metal3

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Warnings about an IPPool.
const (
	warningEnd         = "%s: end counts only where start is set: set start as well, or the whole of subnet can be handed out"
	warningFamilies    = "%s: start and end are of two address families, so that end bounds nothing: use one family in an entry"
	warningNothing     = "%s has no address: nothing can be handed out of it"
	warningEmpty       = "spec.pools has no entry: nothing can be handed out of this pool"
	warningUnreachable = "%s: no entry of spec.pools reaches %s: a claim of this name gets no address"
	warningGateway     = "%s: the gateway %s can be handed out: keep it with preAllocations, under a name that no claim can have, such as _gateway"
	warningOtherKind   = "%s: the gateway %s is of another address family than the addresses: name one of theirs"
	warningBroadcast   = "%s: %s, the broadcast address of %s, can be handed out: keep it with preAllocations, under a name that no claim can have, such as _broadcast"
	warningPrefix      = "%s: prefix %d is none of an %s address: use one from 0 to %d"
	warningNames       = "spec.namePrefix: with it the names of some IPAddresses, or of all, are none that Kubernetes takes, and claims do not get those: create the pool with a prefix of lower case letters, digits, '-' and '.'" +
		" instead, a letter or digit first, no more than %d characters"
)

// ValidateIPPool checks every rule that needs no other object, including the rules of the
// schema.
func ValidateIPPool(p *v1alpha1.IPPool) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateSettings(spec, p.Spec.Prefix, p.Spec.Gateway, p.Spec.DNSServers)
	if p.Spec.NamePrefix == "" {
		errs = append(errs, field.Required(spec.Child("namePrefix"), "set the prefix of the names of the pool's IPAddress objects"))
	}
	random := p.Spec.AllocationStrategy == v1alpha1.StrategyRandom
	if s := p.Spec.AllocationStrategy; s != "" && s != v1alpha1.StrategySequential && !random {
		errs = append(errs, field.NotSupported(spec.Child("allocationStrategy"), s, []v1alpha1.AllocationStrategy{v1alpha1.StrategySequential, v1alpha1.StrategyRandom}))
	}
	if _, err := parseReuseDelay(p); err != nil {
		errs = append(errs, err)
	}
	var spoken []span // of by entries
	for i, declared := range p.Spec.Pools {
		path := entryPath(i)
		read, bad := parseEntry(i, declared)
		errs = append(append(errs, bad...), validateSettings(path, declared.Prefix, declared.Gateway, convertDNSServers(declared))...)
		switch {
		case declared.Start == nil && declared.End == nil && declared.Subnet == nil:
			errs = append(errs, field.Required(path, "an entry of pools needs addresses: set start and end, or subnet"))
		case len(bad) > 0:
		default:
			spoken = append(spoken, read.enclosedSpan())
			if _, countable := read.countAddresses(); random && !countable {
				errs = append(errs, field.Invalid(path, describeEntry(declared),
					`cannot be used with allocationStrategy "random", which needs an end and no more than 2^63-1 addresses: set end, or a longer prefix`))
			}
		}
	}
	return append(errs, validatePreAllocations(p, newSpanSet(spoken))...)
}

func validatePreAllocations(p *v1alpha1.IPPool, spoken spanSet) field.ErrorList {
	pins, errs := parsePreAllocations(p)
	fault := func(claim, format string, args ...any) {
		errs = append(errs, fieldtext.At(preAllocationPath(claim), string(p.Spec.PreAllocations[claim])).Invalid(format, args...))
	}
	keeper := map[netip.Addr]string{} // address -> first claim that it is kept for
	for _, pin := range pins {
		if first, kept := keeper[pin.address]; kept {
			fault(pin.claim, "IP address is already pre-allocated to claim %q: keep it for one of the two", first)
			continue
		}
		keeper[pin.address] = pin.claim
		if !spoken.contains(pin.address) {
			fault(pin.claim, "is out of bounds of the pools given: correct it, or add an entry to spec.pools that has it")
		}
	}
	return errs
}

func validateSettings(path *field.Path, prefix int, gateway *v1alpha1.IP, dns []v1alpha1.IP) field.ErrorList {
	var errs field.ErrorList
	check := func(path *field.Path, value v1alpha1.IP) {
		if _, err := fieldtext.At(path, string(value)).ParseAddress(); err != nil {
			errs = append(errs, err)
		}
	}
	if prefix > 128 {
		errs = append(errs, field.Invalid(path.Child("prefix"), prefix, "must be at most 128"))
	}
	if gateway != nil {
		check(path.Child("gateway"), *gateway)
	}
	for i, value := range dns {
		check(path.Child("dnsServers").Index(i), value)
	}
	return errs
}

// ValidateIPPoolUpdate returns the errors of ValidateIPPool that the stored pool does not
// have, and errors for a changed namePrefix or allocationStrategy. The ledger checks
// whether the update removes owned addresses.
func ValidateIPPoolUpdate(old, updated *v1alpha1.IPPool) field.ErrorList {
	errs := object.NewErrors(ValidateIPPool(old), ValidateIPPool(updated))
	if old.Spec.NamePrefix != updated.Spec.NamePrefix {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "namePrefix"), fmt.Sprintf(
			"cannot be changed, the IPAddress objects of the pool are named after it: it is %q; create another IPPool", old.Spec.NamePrefix)))
	}
	if was := effectiveStrategy(old); was != effectiveStrategy(updated) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "allocationStrategy"), fmt.Sprintf("cannot be changed: it is %q; create another IPPool", was)))
	}
	return errs
}

func effectiveStrategy(p *v1alpha1.IPPool) v1alpha1.AllocationStrategy {
	if p.Spec.AllocationStrategy == "" {
		return v1alpha1.StrategySequential
	}
	return p.Spec.AllocationStrategy
}

// FindPoolWarnings returns warnings about valid but probably unintended fields of a pool,
// one line each.
func FindPoolWarnings(p *v1alpha1.IPPool) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	parts, errs := ListOfferedRanges(p)
	pins, bad := parsePreAllocations(p)
	if len(errs)+len(bad) > 0 {
		return nil
	}
	kept := map[netip.Addr]bool{}
	for _, pin := range pins {
		kept[pin.address] = true
	}
	handedOut := func(part OfferedRange, a netip.Addr) bool { return part.Contains(a) && !kept[a] }
	var reached []span
	if len(parts) == 0 {
		warn(warningEmpty)
	}
	for i, part := range parts {
		path := entryPath(i)
		read, _ := parseEntry(i, p.Spec.Pools[i])
		switch {
		case read.end.IsValid() && !read.start.IsValid() && read.subnet.IsValid():
			warn(warningEnd, path)
		case read.end.IsValid() && read.start.IsValid() && !read.hasEffectiveEnd():
			warn(warningFamilies, path)
		}
		if !part.IsValid() {
			warn(warningNothing, path)
			continue
		}
		reached = append(reached, span{part.First, part.Last})
		if part.Settings.Gateway != nil {
			gateway, err := fieldtext.At(path, string(*part.Settings.Gateway)).ParseAddress()
			switch {
			case err != nil:
			case gateway.BitLen() != part.First.BitLen():
				warn(warningOtherKind, path, gateway)
			case handedOut(part, gateway):
				warn(warningGateway, path, gateway)
			}
		}
		if network := read.subnet; network.IsValid() && network.Addr().Is4() && network.Bits() <= 30 {
			if broadcast := allocator.RangeOfPrefix(network).Last; handedOut(part, broadcast) {
				warn(warningBroadcast, path, broadcast, network.Masked())
			}
		}
		if prefix, bits := part.Settings.Prefix, part.First.BitLen(); prefix < 0 || prefix > bits {
			warn(warningPrefix, path, prefix, ledger.FamilyName(bits), bits)
		}
	}
	if len(reached) > 0 {
		if name := AddressName(p, reached[0].last); len(validation.IsDNS1123Subdomain(name)) > 0 {
			warn(warningNames, validation.DNS1123SubdomainMaxLength-len(name)+len(p.Spec.NamePrefix))
		}
	}
	given := newSpanSet(reached)
	for _, pin := range pins {
		if !given.contains(pin.address) {
			warn(warningUnreachable, preAllocationPath(pin.claim), pin.address)
		}
	}
	return warnings
}

// describeEntry returns the addresses of an entry of spec.pools in one line.
func describeEntry(p v1alpha1.Pool) string {
	switch {
	case p.Start != nil && p.End != nil:
		return string(*p.Start) + "-" + string(*p.End)
	case p.Start != nil && p.Subnet != nil:
		return string(*p.Start) + " in " + *p.Subnet
	case p.Start != nil:
		return "from " + string(*p.Start)
	case p.Subnet != nil:
		return *p.Subnet
	}
	return "to " + string(*p.End)
}
