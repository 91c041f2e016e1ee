package metal3

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
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

// ValidateIPPool holds a pool to every rule that needs no other object, those of the schema included.
func ValidateIPPool(p *v1alpha1.IPPool) field.ErrorList {
	spec := field.NewPath("spec")
	errs := validateSettings(spec, p.Spec.Prefix, p.Spec.Gateway, p.Spec.DNSServers)
	if p.Spec.NamePrefix == "" {
		errs = append(errs, field.Required(spec.Child("namePrefix"), "say what the names of the pool's IPAddress objects begin with"))
	}
	random := p.Spec.AllocationStrategy == v1alpha1.StrategyRandom
	if s := p.Spec.AllocationStrategy; s != "" && s != v1alpha1.StrategySequential && !random {
		errs = append(errs, field.NotSupported(spec.Child("allocationStrategy"), s, []v1alpha1.AllocationStrategy{v1alpha1.StrategySequential, v1alpha1.StrategyRandom}))
	}
	if _, err := reuseDelay(p); err != nil {
		errs = append(errs, err)
	}
	var spoken []stretch // of by entries
	for i, declared := range p.Spec.Pools {
		path := entryPath(i)
		read, bad := readEntry(i, declared)
		errs = append(append(errs, bad...), validateSettings(path, declared.Prefix, declared.Gateway, servers(declared))...)
		switch {
		case declared.Start == nil && declared.End == nil && declared.Subnet == nil:
			errs = append(errs, field.Required(path, "an entry of pools needs addresses: set start and end, or subnet"))
		case len(bad) > 0:
		default:
			spoken = append(spoken, read.enclosed())
			if _, countable := read.size(); random && !countable {
				errs = append(errs, field.Invalid(path, text(declared),
					`cannot be used with allocationStrategy "random", which needs an end and no more than 2^63-1 addresses: set end, or a longer prefix`))
			}
		}
	}
	return append(errs, validatePins(p, newStretches(spoken))...)
}

func validatePins(p *v1alpha1.IPPool, spoken stretches) field.ErrorList {
	pins, errs := readPins(p)
	fault := func(claim, format string, args ...any) {
		errs = append(errs, fields.At(pinPath(claim), string(p.Spec.PreAllocations[claim])).Invalid(format, args...))
	}
	keeper := map[netip.Addr]string{} // address -> first claim that it is kept for
	for _, pin := range pins {
		if first, kept := keeper[pin.address]; kept {
			fault(pin.claim, "IP address is already pre-allocated to claim %q: keep it for one of the two", first)
			continue
		}
		keeper[pin.address] = pin.claim
		if !spoken.have(pin.address) {
			fault(pin.claim, "is out of bounds of the pools given: correct it, or add an entry to spec.pools that has it")
		}
	}
	return errs
}

func validateSettings(path *field.Path, prefix int, gateway *v1alpha1.IP, dns []v1alpha1.IP) field.ErrorList {
	var errs field.ErrorList
	check := func(path *field.Path, value v1alpha1.IP) {
		if _, err := fields.At(path, string(value)).Address(); err != nil {
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

// ValidateIPPoolUpdate is ValidateIPPool without the faults that the stored pool has already, and namePrefix and allocationStrategy may not
// change. Whether an address that is held falls out of the pool only the ledger can tell.
func ValidateIPPoolUpdate(old, updated *v1alpha1.IPPool) field.ErrorList {
	errs := fields.NewFaults(ValidateIPPool(old), ValidateIPPool(updated))
	if old.Spec.NamePrefix != updated.Spec.NamePrefix {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "namePrefix"), fmt.Sprintf(
			"cannot be changed, the IPAddress objects of the pool are named after it: it is %q; create another IPPool", old.Spec.NamePrefix)))
	}
	if was := strategyOf(old); was != strategyOf(updated) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "allocationStrategy"), fmt.Sprintf("cannot be changed: it is %q; create another IPPool", was)))
	}
	return errs
}

func strategyOf(p *v1alpha1.IPPool) v1alpha1.AllocationStrategy {
	if p.Spec.AllocationStrategy == "" {
		return v1alpha1.StrategySequential
	}
	return p.Spec.AllocationStrategy
}

// WarningsFor says what of a valid pool is allowed but most likely not meant: one line each, no line breaks.
func WarningsFor(p *v1alpha1.IPPool) []string {
	var warnings []string
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	parts, errs := PartsOf(p)
	pins, bad := readPins(p)
	if len(errs)+len(bad) > 0 {
		return nil
	}
	kept := map[netip.Addr]bool{}
	for _, pin := range pins {
		kept[pin.address] = true
	}
	handedOut := func(part Part, a netip.Addr) bool { return part.Contains(a) && !kept[a] }
	var reached []stretch
	if len(parts) == 0 {
		warn(warningEmpty)
	}
	for i, part := range parts {
		path := entryPath(i)
		read, _ := readEntry(i, p.Spec.Pools[i])
		switch {
		case read.end.IsValid() && !read.start.IsValid() && read.subnet.IsValid():
			warn(warningEnd, path)
		case read.end.IsValid() && read.start.IsValid() && !read.bounded():
			warn(warningFamilies, path)
		}
		if !part.IsValid() {
			warn(warningNothing, path)
			continue
		}
		reached = append(reached, stretch{part.First, part.Last})
		if part.Settings.Gateway != nil {
			gateway, err := fields.At(path, string(*part.Settings.Gateway)).Address()
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
	given := newStretches(reached)
	for _, pin := range pins {
		if !given.have(pin.address) {
			warn(warningUnreachable, pinPath(pin.claim), pin.address)
		}
	}
	return warnings
}

// text is what an entry of spec.pools says of its addresses, in one line.
func text(p v1alpha1.Pool) string {
	switch {
	case p.Start != nil && p.End != nil:
		return string(*p.Start) + "-" + string(*p.End)
	case p.Start != nil && p.Subnet != nil:
		return string(*p.Start) + " in " + string(*p.Subnet)
	case p.Start != nil:
		return "from " + string(*p.Start)
	case p.Subnet != nil:
		return string(*p.Subnet)
	}
	return "to " + string(*p.End)
}
