package novaedge

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// ValidateProxyVIP checks every rule on addresses that needs no other object, including
// the rules of the schema: a mutating webhook runs before schema validation, and an
// invalid object should cost no grant.
func ValidateProxyVIP(v *v1alpha1.ProxyVIP) field.ErrorList {
	spec := field.NewPath("spec")
	_, errs := ParseSpecAddresses(v)
	if v.Spec.PoolRef != nil {
		errs = append(errs, fieldtext.CheckName(spec.Child("poolRef", "name"), v.Spec.PoolRef.Name, validation.IsDNS1123Subdomain)...)
	}
	if v.Spec.Address == "" && v.Spec.IPv6Address == "" && v.Spec.PoolRef == nil {
		errs = append(errs, field.Required(spec, "name an address (address, ipv6Address), or the pool to take one from (poolRef)"))
	}
	switch v.Spec.AddressFamily {
	case "", v1alpha1.FamilyIPv4, v1alpha1.FamilyIPv6, v1alpha1.FamilyDual:
	default:
		errs = append(errs, field.NotSupported(spec.Child("addressFamily"), v.Spec.AddressFamily, []v1alpha1.AddressFamily{v1alpha1.FamilyIPv4, v1alpha1.FamilyIPv6, v1alpha1.FamilyDual}))
	}
	switch v.Spec.Mode {
	case v1alpha1.ModeL2ARP, v1alpha1.ModeBGP, v1alpha1.ModeOSPF:
	default:
		errs = append(errs, field.NotSupported(spec.Child("mode"), v.Spec.Mode, []v1alpha1.VIPMode{v1alpha1.ModeL2ARP, v1alpha1.ModeBGP, v1alpha1.ModeOSPF}))
	}
	if len(v.Spec.Ports) == 0 {
		errs = append(errs, field.Required(spec.Child("ports"), "at least one port"))
	}
	if len(errs) == 0 {
		errs = checkFamilies(v)
	}
	return errs
}

// checkFamilies requires each address in the field of its family, and a family that the
// VIP has. An IPv6-only VIP may name its address in spec.address.
func checkFamilies(v *v1alpha1.ProxyVIP) field.ErrorList {
	var (
		errs   field.ErrorList
		spec   = field.NewPath("spec")
		family = EffectiveFamily(v)
	)
	fault := func(name, value, format string, args ...any) {
		errs = append(errs, field.Invalid(spec.Child(name), value, fmt.Sprintf(format, args...)))
	}
	is4 := func(value string) bool {
		a, _, _ := parseAddress(fieldtext.Text{Value: value})
		return a.Is4()
	}
	address, six := v.Spec.Address, v.Spec.IPv6Address
	switch {
	case address == "":
	case family == v1alpha1.FamilyIPv6 && is4(address):
		fault("address", address, "must be IPv6 with addressFamily ipv6: write an IPv6 address, or choose ipv4 or dual")
	case family == v1alpha1.FamilyIPv6 && six != "":
		fault("address", address, "is one address too many with addressFamily ipv6: leave address or ipv6Address out")
	case family == v1alpha1.FamilyIPv4 && !is4(address):
		fault("address", address, "must be IPv4 with addressFamily ipv4: choose addressFamily ipv6, or write an IPv4 address")
	case family == v1alpha1.FamilyDual && !is4(address):
		fault("address", address, "must be IPv4 with addressFamily dual: the IPv6 address goes to ipv6Address")
	}
	switch {
	case six == "":
	case is4(six):
		fault("ipv6Address", six, "must be IPv6: an IPv4 address goes to address")
	case family == v1alpha1.FamilyIPv4:
		fault("ipv6Address", six, "must not be set with addressFamily ipv4: choose ipv6 or dual, or leave it out")
	}
	if v.Spec.PoolRef == nil && family == v1alpha1.FamilyDual && (address == "" || six == "") {
		errs = append(errs, field.Required(spec.Child("poolRef"), "addressFamily dual takes two addresses: write address and ipv6Address, or name the pool to take the other one from"))
	}
	return errs
}

// ValidateProxyVIPUpdate returns the errors of ValidateProxyVIP that the stored VIP does
// not have. While addresses are owned, poolRef may be removed but not changed.
// RestoreSpec has restored omitted addresses before.
func ValidateProxyVIPUpdate(old, updated *v1alpha1.ProxyVIP) field.ErrorList {
	adopted := old.DeepCopy()
	FillSpec(adopted, FindAddresses(old).Ranges())
	errs := object.NewErrors(append(ValidateProxyVIP(old), ValidateProxyVIP(adopted)...), ValidateProxyVIP(updated))
	pool := poolKey(updated)
	if FindAddresses(old) != (Addresses{}) && pool.Name != "" && pool != poolKey(old) {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "poolRef"),
			"cannot be changed while addresses are owned: create another ProxyVIP in the other pool and delete this one"))
	}
	return errs
}

// AwaitsStatus reports whether the rule of the CRD for updates denies an update until the
// first status is written: the rule reads from the condition Bound whether a VIP that
// names an address owns the address.
func AwaitsStatus(stored, updated *v1alpha1.ProxyVIP) bool {
	pool, names := poolKey(updated), stored.Spec.Address != "" || stored.Spec.IPv6Address != ""
	return names && pool.Name != "" && pool != poolKey(stored) && meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionBound) == nil
}

// FindIgnoredPrefixes returns the addresses of a VIP with a prefix length shorter than
// the full length.
func FindIgnoredPrefixes(v *v1alpha1.ProxyVIP) []fieldtext.Text {
	var texts []fieldtext.Text
	spec := field.NewPath("spec")
	for _, t := range []fieldtext.Text{fieldtext.At(spec.Child("address"), v.Spec.Address), fieldtext.At(spec.Child("ipv6Address"), v.Spec.IPv6Address)} {
		if a, bits, err := parseAddress(t); err == nil && bits != a.BitLen() {
			texts = append(texts, t)
		}
	}
	return texts
}
