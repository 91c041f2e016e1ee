package novaedge

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Addresses are those of a VIP, one of a family at most; what it does not have is not valid.
type Addresses struct{ IPv4, IPv6 netip.Addr }

// Ranges is the addresses in the ledger's order, IPv4 first.
func (a Addresses) Ranges() []allocator.Range {
	var ranges []allocator.Range
	for _, one := range []netip.Addr{a.IPv4, a.IPv6} {
		if one.IsValid() {
			ranges = append(ranges, allocator.Range{First: one, Last: one})
		}
	}
	return ranges
}

// set puts an address in the place of its family, if that is free.
func (a *Addresses) set(one netip.Addr) {
	switch {
	case one.Is4() && !a.IPv4.IsValid():
		a.IPv4 = one
	case one.Is6() && !a.IPv6.IsValid():
		a.IPv6 = one
	}
}

// fill takes over the addresses of families that a has none of.
func (a *Addresses) fill(o Addresses) {
	for _, one := range []netip.Addr{o.IPv4, o.IPv6} {
		if one.IsValid() {
			a.set(one)
		}
	}
}

// Family of a VIP: ipv4 where it says none.
func Family(v *v1alpha1.ProxyVIP) v1alpha1.AddressFamily {
	if v.Spec.AddressFamily == "" {
		return v1alpha1.FamilyIPv4
	}
	return v.Spec.AddressFamily
}

// InSpec is the addresses that a VIP's spec names, and what of it cannot be read.
func InSpec(v *v1alpha1.ProxyVIP) (Addresses, field.ErrorList) {
	spec := field.NewPath("spec")
	return read(fields.At(spec.Child("address"), v.Spec.Address), fields.At(spec.Child("ipv6Address"), v.Spec.IPv6Address))
}

// Held is the addresses that a VIP has, or would have once stored: those of its spec, else those that an earlier allocator left in its
// status alone. What cannot be read counts as none.
func Held(v *v1alpha1.ProxyVIP) Addresses {
	named, _ := InSpec(v)
	if named != (Addresses{}) {
		return named
	}
	return mirrored(v)
}

// mirrored is the addresses that a VIP's status names.
func mirrored(v *v1alpha1.ProxyVIP) Addresses {
	a, _ := read(fields.Text{Value: v.Status.AllocatedAddress}, fields.Text{Value: v.Status.AllocatedIPv6Address})
	return a
}

// bound tells whether a VIP's status says that the addresses which it has are its own: one that was Bound with others is not Bound with these yet.
func bound(v *v1alpha1.ProxyVIP) bool {
	return vouched(v) && meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound)
}

// vouched tells whether a VIP's status names the addresses which it has.
func vouched(v *v1alpha1.ProxyVIP) bool {
	has, known := Held(v), mirrored(v)
	return (!has.IPv4.IsValid() || has.IPv4 == known.IPv4) && (!has.IPv6.IsValid() || has.IPv6 == known.IPv6)
}

func read(texts ...fields.Text) (Addresses, field.ErrorList) {
	var (
		a    Addresses
		errs field.ErrorList
	)
	for _, t := range texts {
		if t.Value == "" {
			continue
		}
		one, _, err := readAddress(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.set(one)
	}
	return a, errs
}

// WantsOf is what a VIP asks the ledger for: what it names, and any address of the families that it names none of.
func WantsOf(v *v1alpha1.ProxyVIP) []ledger.Want {
	var wants []ledger.Want
	named, family := Held(v), Family(v)
	want := func(one netip.Addr, bits int, of v1alpha1.AddressFamily) {
		switch {
		case one.IsValid():
			wants = append(wants, ledger.Want{Exact: allocator.Range{First: one, Last: one}})
		case family == of || family == v1alpha1.FamilyDual:
			wants = append(wants, ledger.Want{Count: 1, Bits: bits})
		}
	}
	want(named.IPv4, 32, v1alpha1.FamilyIPv4)
	want(named.IPv6, 128, v1alpha1.FamilyIPv6)
	return wants
}

// Complete tells whether these are all addresses that a VIP is to have. Which family a single one is of does not matter, so that an
// earlier allocator's answer, which cared for none, is one.
func (a Addresses) Complete(v *v1alpha1.ProxyVIP) bool {
	if Family(v) == v1alpha1.FamilyDual {
		return a.IPv4.IsValid() && a.IPv6.IsValid()
	}
	return a != (Addresses{})
}

// ClaimOf is what the ledger needs to know of a stored VIP. It holds its addresses wherever Held finds them, answered by us or not.
func ClaimOf(v *v1alpha1.ProxyVIP) ledger.Claim {
	claim := ledger.Claim{
		Key:             proxyVIPKey(v.Name),
		UID:             string(v.UID),
		ResourceVersion: fields.ResourceVersion(v),
		Created:         v.CreationTimestamp.Time,
		Pool:            poolKeyOf(v),
		Space:           v.Labels[butlerv1.LabelRoutingDomain],
		Ranges:          Held(v).Ranges(),
		Ready:           bound(v),
		Vouched:         vouched(v),
		Flagged:         Flagged(v),
		Deleting:        v.DeletionTimestamp != nil,
	}
	claim.Token, _ = journal.ParseToken(v.Annotations[butlerv1.AnnotationGrant])
	return claim
}

// Flagged tells whether a VIP is marked as one of whose addresses another has.
func Flagged(v *v1alpha1.ProxyVIP) bool {
	return meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionConflict)
}

// Text is an address as spec and status hold it, with its whole length for a prefix; "" for none.
func Text(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// Fill writes ranges of the ledger, and the addresses that the VIP has already, into the fields of spec that name none, and says into which:
// field -> value.
func Fill(v *v1alpha1.ProxyVIP, ranges []allocator.Range) map[string]string {
	filled := map[string]string{}
	set := func(name string, field *string, a netip.Addr) {
		if *field == "" && a.IsValid() {
			*field = Text(a)
			filled[name] = *field
		}
	}
	named, _ := InSpec(v)
	all := Held(v)
	for _, r := range ranges {
		all.set(r.First)
	}
	if !named.IPv4.IsValid() {
		set("address", &v.Spec.Address, all.IPv4)
	}
	switch {
	case named.IPv6.IsValid():
	case Family(v) == v1alpha1.FamilyIPv4: // an earlier allocator took what the pool had; it stands where that looked for it
		set("address", &v.Spec.Address, all.IPv6)
	default:
		set("ipv6Address", &v.Spec.IPv6Address, all.IPv6)
	}
	return filled
}

// Restore puts back what an update leaves out of the addresses that the stored VIP names, as far as the updated one is to have an address of
// that family and names no other, and says where: field -> value.
func Restore(stored, updated *v1alpha1.ProxyVIP) map[string]string {
	restored := map[string]string{}
	named, _ := InSpec(updated)
	family := Family(updated)
	wants := func(value string) bool {
		a, _, err := readAddress(fields.Text{Value: value})
		switch {
		case err != nil:
			return false
		case family == Family(stored):
			return a.Is4() && !named.IPv4.IsValid() || a.Is6() && !named.IPv6.IsValid()
		default:
			return a.Is4() && family != v1alpha1.FamilyIPv6 && !named.IPv4.IsValid() || a.Is6() && family != v1alpha1.FamilyIPv4 && !named.IPv6.IsValid()
		}
	}
	if updated.Spec.Address == "" && wants(stored.Spec.Address) {
		updated.Spec.Address = stored.Spec.Address
		restored["address"] = stored.Spec.Address
	}
	if updated.Spec.IPv6Address == "" && wants(stored.Spec.IPv6Address) {
		updated.Spec.IPv6Address = stored.Spec.IPv6Address
		restored["ipv6Address"] = stored.Spec.IPv6Address
	}
	return restored
}

// FitFamily adapts the addresses that the allocator filled into a VIP to the address family that an update chooses instead of the stored one, as a
// Service drops its second clusterIP: an address of a family that the VIP no longer has is removed, and an IPv6 address in spec.address moves to
// spec.ipv6Address of a dual VIP. Addresses that the update itself changes stay, and so do those that a person wrote: all of a VIP whose answer is
// pinned, and fields that were applied (kubectl apply, server-side apply). It changes the updated VIP and returns each changed field with its new
// value, "" where the field is removed.
func FitFamily(stored, updated *v1alpha1.ProxyVIP) map[string]string {
	changed := map[string]string{}
	family := Family(updated)
	if origin := stored.Annotations[butlerv1.AnnotationOrigin]; family == Family(stored) || origin == "" || origin == butlerv1.OriginPinned {
		return changed
	}
	applied := fields.AppliedIn(updated, "spec")
	set := func(name string, field *string, value string) {
		*field = value
		changed[name] = value
	}
	for _, f := range []struct {
		name        string
		was         string
		value       *string
		holdsEither bool // an address of IPv6 as well
	}{
		{"address", stored.Spec.Address, &updated.Spec.Address, true},
		{"ipv6Address", stored.Spec.IPv6Address, &updated.Spec.IPv6Address, false},
	} {
		a, _, err := readAddress(fields.Text{Value: *f.value})
		if err != nil || *f.value != f.was || applied[f.name] {
			continue
		}
		switch {
		case a.Is4() && family == v1alpha1.FamilyIPv6, a.Is6() && family == v1alpha1.FamilyIPv4:
			set(f.name, f.value, "")
		case a.Is6() && family == v1alpha1.FamilyDual && f.holdsEither && updated.Spec.IPv6Address == "":
			set(f.name, f.value, "")
			set("ipv6Address", &updated.Spec.IPv6Address, f.was)
		}
	}
	return changed
}

// MissingLabels is the labels that a VIP in a space should carry and does not: the routing domain, outside the default one.
func MissingLabels(v *v1alpha1.ProxyVIP, space string) map[string]string {
	if _, has := v.Labels[butlerv1.LabelRoutingDomain]; has || space == "" {
		return nil
	}
	return map[string]string{butlerv1.LabelRoutingDomain: space}
}

// Asks tells whether an update of a VIP that has its addresses asks for others, or for a family more.
func Asks(old, updated *v1alpha1.ProxyVIP) bool {
	named, _ := InSpec(updated)
	held := Held(old)
	has := named
	has.fill(held)
	switch changed := Family(old) != Family(updated); {
	case named.IPv4.IsValid() && named.IPv4 != held.IPv4, named.IPv6.IsValid() && named.IPv6 != held.IPv6:
		return true
	case Family(updated) == v1alpha1.FamilyDual:
		return !has.IPv4.IsValid() || !has.IPv6.IsValid()
	case changed && Family(updated) == v1alpha1.FamilyIPv4:
		return !has.IPv4.IsValid()
	case changed:
		return !has.IPv6.IsValid()
	default:
		return false
	}
}
