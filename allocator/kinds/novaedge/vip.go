package novaedge

import (
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Addresses are the addresses of a VIP, at most one per family; an absent address is not
// valid.
type Addresses struct{ IPv4, IPv6 netip.Addr }

// Ranges returns the addresses in the order of the ledger, IPv4 first.
func (a Addresses) Ranges() []allocator.Range {
	var ranges []allocator.Range
	for _, address := range []netip.Addr{a.IPv4, a.IPv6} {
		if address.IsValid() {
			ranges = append(ranges, allocator.Range{First: address, Last: address})
		}
	}
	return ranges
}

// setIfAbsent sets the address of a family unless the family has an address.
func (a *Addresses) setIfAbsent(address netip.Addr) {
	switch {
	case address.Is4() && !a.IPv4.IsValid():
		a.IPv4 = address
	case address.Is6() && !a.IPv6.IsValid():
		a.IPv6 = address
	}
}

// fillAbsent copies the addresses of families without an address.
func (a *Addresses) fillAbsent(o Addresses) {
	for _, address := range []netip.Addr{o.IPv4, o.IPv6} {
		if address.IsValid() {
			a.setIfAbsent(address)
		}
	}
}

// EffectiveFamily returns the address family of a VIP, ipv4 by default.
func EffectiveFamily(v *v1alpha1.ProxyVIP) v1alpha1.AddressFamily {
	if v.Spec.AddressFamily == "" {
		return v1alpha1.FamilyIPv4
	}
	return v.Spec.AddressFamily
}

// ParseSpecAddresses returns the addresses in a VIP's spec, and the errors of invalid
// fields.
func ParseSpecAddresses(v *v1alpha1.ProxyVIP) (Addresses, field.ErrorList) {
	spec := field.NewPath("spec")
	return parseAddresses(fieldtext.At(spec.Child("address"), v.Spec.Address), fieldtext.At(spec.Child("ipv6Address"), v.Spec.IPv6Address))
}

// FindAddresses returns the addresses that a VIP owns, or would own once stored: from
// spec, else from the status of an earlier allocator. Invalid fields count as absent.
func FindAddresses(v *v1alpha1.ProxyVIP) Addresses {
	named, _ := ParseSpecAddresses(v)
	if named != (Addresses{}) {
		return named
	}
	return parseStatusAddresses(v)
}

// parseStatusAddresses returns the addresses in a VIP's status.
func parseStatusAddresses(v *v1alpha1.ProxyVIP) Addresses {
	a, _ := parseAddresses(fieldtext.Text{Value: v.Status.AllocatedAddress}, fieldtext.Text{Value: v.Status.AllocatedIPv6Address})
	return a
}

// isBound reports whether condition Bound applies to the VIP's present addresses: a
// condition for other addresses does not count.
func isBound(v *v1alpha1.ProxyVIP) bool {
	return isAllocatedEarlier(v) && meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionBound)
}

// isAllocatedEarlier reports whether a VIP's status names its present addresses.
func isAllocatedEarlier(v *v1alpha1.ProxyVIP) bool {
	has, known := FindAddresses(v), parseStatusAddresses(v)
	return (!has.IPv4.IsValid() || has.IPv4 == known.IPv4) && (!has.IPv6.IsValid() || has.IPv6 == known.IPv6)
}

func parseAddresses(texts ...fieldtext.Text) (Addresses, field.ErrorList) {
	var (
		a    Addresses
		errs field.ErrorList
	)
	for _, t := range texts {
		if t.Value == "" {
			continue
		}
		address, _, err := parseAddress(t)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		a.setIfAbsent(address)
	}
	return a, errs
}

// BuildRequests returns the requests of a VIP: its named addresses, and a free address
// for each remaining family.
func BuildRequests(v *v1alpha1.ProxyVIP) []ledger.RangeRequest {
	var requests []ledger.RangeRequest
	addresses, family := FindAddresses(v), EffectiveFamily(v)
	request := func(named netip.Addr, bits int, of v1alpha1.AddressFamily) {
		switch {
		case named.IsValid():
			requests = append(requests, ledger.RangeRequest{Exact: allocator.Range{First: named, Last: named}})
		case family == of || family == v1alpha1.FamilyDual:
			requests = append(requests, ledger.RangeRequest{Count: 1, Bits: bits})
		}
	}
	request(addresses.IPv4, 32, v1alpha1.FamilyIPv4)
	request(addresses.IPv6, 128, v1alpha1.FamilyIPv6)
	return requests
}

// IsComplete reports whether a VIP has all its addresses. The family of a single address
// does not matter, so an answer of an earlier allocator, which ignored families, is
// complete.
func (a Addresses) IsComplete(v *v1alpha1.ProxyVIP) bool {
	if EffectiveFamily(v) == v1alpha1.FamilyDual {
		return a.IPv4.IsValid() && a.IPv6.IsValid()
	}
	return a != (Addresses{})
}

// ConvertClaim converts a stored VIP for the ledger. The VIP owns the result of
// FindAddresses, by whichever client it was written.
func ConvertClaim(v *v1alpha1.ProxyVIP) ledger.Claim {
	claim := ledger.Claim{
		Key:              proxyVIPKey(v.Name),
		UID:              string(v.UID),
		ResourceVersion:  object.ResourceVersion(v),
		Created:          v.CreationTimestamp.Time,
		Pool:             poolKey(v),
		Ranges:           FindAddresses(v).Ranges(),
		Ready:            isBound(v),
		AllocatedEarlier: isAllocatedEarlier(v),
		Altered:          parseStatusAddresses(v) != Addresses{} && !isAllocatedEarlier(v),
		Flagged:          IsFlagged(v),
		Deleting:         v.DeletionTimestamp != nil,
	}
	claim.RoutingDomain, claim.RoutingDomainGranted = object.RoutingDomain(v)
	claim.Token, _ = journal.ParseToken(v.Annotations[butlerv1.AnnotationGrant])
	return claim
}

// IsFlagged reports whether a VIP is marked as the loser of an address conflict.
func IsFlagged(v *v1alpha1.ProxyVIP) bool {
	return meta.IsStatusConditionTrue(v.Status.Conditions, v1alpha1.ConditionConflict)
}

// FormatAddress formats an address for spec and status, with the full length as prefix;
// "" for none.
func FormatAddress(a netip.Addr) string {
	if !a.IsValid() {
		return ""
	}
	return netip.PrefixFrom(a, a.BitLen()).String()
}

// FillSpec writes the VIP's addresses and ranges of the ledger into the absent fields of
// spec.
func FillSpec(v *v1alpha1.ProxyVIP, ranges []allocator.Range) {
	set := func(field *string, a netip.Addr) {
		if *field == "" && a.IsValid() {
			*field = FormatAddress(a)
		}
	}
	named, _ := ParseSpecAddresses(v)
	all := FindAddresses(v)
	for _, r := range ranges {
		all.setIfAbsent(r.First)
	}
	if !named.IPv4.IsValid() {
		set(&v.Spec.Address, all.IPv4)
	}
	switch {
	case named.IPv6.IsValid():
	case EffectiveFamily(v) == v1alpha1.FamilyIPv4: // an earlier allocator took what the pool had; it stands where that looked for it
		set(&v.Spec.Address, all.IPv6)
	default:
		set(&v.Spec.IPv6Address, all.IPv6)
	}
}

// RestoreSpec restores stored addresses that an update omits, if the updated VIP has the
// family and names no other address for the family.
func RestoreSpec(stored, updated *v1alpha1.ProxyVIP) {
	named, _ := ParseSpecAddresses(updated)
	family := EffectiveFamily(updated)
	isNeeded := func(value string) bool {
		a, _, err := parseAddress(fieldtext.Text{Value: value})
		switch {
		case err != nil:
			return false
		case family == EffectiveFamily(stored):
			return a.Is4() && !named.IPv4.IsValid() || a.Is6() && !named.IPv6.IsValid()
		default:
			return a.Is4() && family != v1alpha1.FamilyIPv6 && !named.IPv4.IsValid() || a.Is6() && family != v1alpha1.FamilyIPv4 && !named.IPv6.IsValid()
		}
	}
	if updated.Spec.Address == "" && isNeeded(stored.Spec.Address) {
		updated.Spec.Address = stored.Spec.Address
	}
	if updated.Spec.IPv6Address == "" && isNeeded(stored.Spec.IPv6Address) {
		updated.Spec.IPv6Address = stored.Spec.IPv6Address
	}
}

// isChosen reports whether the allocator, or an earlier allocator, chose an address of a
// stored VIP. A client chose the other addresses of the VIP. The origin decides about
// both families; if they differ, the origin is not auto, so that an earlier version of
// this program removes none of the addresses.
func isChosen(stored *v1alpha1.ProxyVIP, a netip.Addr) bool {
	if named, _ := ParseSpecAddresses(stored); a != named.IPv4 && a != named.IPv6 {
		return a == parseStatusAddresses(stored).IPv4 || a == parseStatusAddresses(stored).IPv6
	}
	return stored.Annotations[butlerv1.AnnotationOrigin] == butlerv1.OriginAuto ||
		slices.Contains(strings.Split(stored.Annotations[butlerv1.AnnotationChosen], ","), a.String())
}

// SetOrigin writes into the annotations of an answered VIP which of its addresses the
// allocator chose. requests led to the answer; stored is nil for a create. The origin
// becomes auto if the allocator chose all addresses, else pinned; the origin of an
// adopted VIP stays. A VIP without an origin has no answer.
func SetOrigin(stored, answered *v1alpha1.ProxyVIP, requests []ledger.RangeRequest) {
	delete(answered.Annotations, butlerv1.AnnotationChosen)
	origin := answered.Annotations[butlerv1.AnnotationOrigin]
	if origin == "" {
		return
	}
	byClient := Addresses{}
	for _, q := range requests {
		if a := q.Exact.First; a.IsValid() && (stored == nil || !isChosen(stored, a)) {
			byClient.setIfAbsent(a)
		}
	}
	if origin != butlerv1.OriginAdopted {
		if origin = butlerv1.OriginAuto; byClient != (Addresses{}) {
			origin = butlerv1.OriginPinned
		}
		answered.Annotations[butlerv1.AnnotationOrigin] = origin
	}
	var chosen []string
	for _, r := range FindAddresses(answered).Ranges() {
		if a := r.First; a != byClient.IPv4 && a != byClient.IPv6 {
			chosen = append(chosen, a.String())
		}
	}
	if origin != butlerv1.OriginAuto && len(chosen) > 0 {
		answered.Annotations[butlerv1.AnnotationChosen] = strings.Join(chosen, ",")
	}
}

// FitFamily adapts the addresses that the allocator chose for a VIP to the address family
// that an update chooses instead of the stored one, as a Service drops its second
// clusterIP: an address of a family that the VIP no longer has is removed, and an IPv6
// address in spec.address moves to spec.ipv6Address of a dual VIP. Addresses that the
// update itself changes stay, and so do those that a client chose: see isChosen, and
// fields that were applied (kubectl apply, server-side apply).
func FitFamily(stored, updated *v1alpha1.ProxyVIP) {
	family := EffectiveFamily(updated)
	if family == EffectiveFamily(stored) {
		return
	}
	applied := object.AppliedFields(updated, "spec")
	for _, f := range []struct {
		name        string
		was         string
		value       *string
		holdsEither bool // an address of IPv6 as well
	}{
		{"address", stored.Spec.Address, &updated.Spec.Address, true},
		{"ipv6Address", stored.Spec.IPv6Address, &updated.Spec.IPv6Address, false},
	} {
		a, _, err := parseAddress(fieldtext.Text{Value: *f.value})
		if err != nil || *f.value != f.was || applied[f.name] || !isChosen(stored, a) {
			continue
		}
		switch {
		case a.Is4() && family == v1alpha1.FamilyIPv6, a.Is6() && family == v1alpha1.FamilyIPv4:
			*f.value = ""
		case a.Is6() && family == v1alpha1.FamilyDual && f.holdsEither && updated.Spec.IPv6Address == "":
			*f.value, updated.Spec.IPv6Address = "", f.was
		}
	}
}

// CompleteMetadata adds the missing label of a VIP: the routing domain, outside the
// default routing domain. It reports whether the label was missing. No finalizer keeps a
// VIP, since its release is not recorded.
func CompleteMetadata(v *v1alpha1.ProxyVIP, routingDomain string) bool {
	return routingDomain != "" && object.AddLabels(v, map[string]string{butlerv1.LabelRoutingDomain: routingDomain})
}

// ChangesAddresses reports whether an update requests other addresses, or an additional
// family.
func ChangesAddresses(old, updated *v1alpha1.ProxyVIP) bool {
	named, _ := ParseSpecAddresses(updated)
	owned := FindAddresses(old)
	has := named
	has.fillAbsent(owned)
	switch changed := EffectiveFamily(old) != EffectiveFamily(updated); {
	case named.IPv4.IsValid() && named.IPv4 != owned.IPv4, named.IPv6.IsValid() && named.IPv6 != owned.IPv6:
		return true
	case EffectiveFamily(updated) == v1alpha1.FamilyDual:
		return !has.IPv4.IsValid() || !has.IPv6.IsValid()
	case changed && EffectiveFamily(updated) == v1alpha1.FamilyIPv4:
		return !has.IPv4.IsValid()
	case changed:
		return !has.IPv6.IsValid()
	default:
		return false
	}
}
