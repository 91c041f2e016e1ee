package fieldtext

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
)

const (
	addressRule = "must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100"
	networkRule = "must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64"
)

// Text is the value of a field, and its path.
type Text struct {
	Path  *field.Path
	Value string
}

// At returns the Text of the field at a path.
func At(path *field.Path, value string) Text { return Text{path, value} }

// Invalid returns an error about the value.
func (t Text) Invalid(format string, args ...any) *field.Error {
	return field.Invalid(t.Path, t.Value, fmt.Sprintf(format, args...))
}

// ParseAddress parses an IPv4 or IPv6 address in any notation.
func (t Text) ParseAddress() (netip.Addr, *field.Error) {
	a, err := netip.ParseAddr(t.Value)
	switch {
	case err != nil:
		return netip.Addr{}, t.Invalid("%s", explainAddress(t.Value))
	case a.Zone() != "":
		return netip.Addr{}, t.Invalid("must not have a zone: write %s", a.WithZone(""))
	case a.Is4In6():
		return netip.Addr{}, t.Invalid("must not be IPv4 written as IPv6: write %s", a.Unmap())
	}
	return a, nil
}

// ParsePrefix parses an IPv4 or IPv6 network in any notation, also with host bits.
func (t Text) ParsePrefix() (netip.Prefix, *field.Error) {
	p, err := netip.ParsePrefix(t.Value)
	switch {
	case err != nil:
		return p, t.Invalid("%s", explainNetwork(t.Value))
	case p.Addr().Is4In6() && p.Bits() >= 96:
		return p, t.Invalid("must not be IPv4 written as IPv6: write %s", netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96))
	case p.Addr().Is4In6():
		return p, t.Invalid("must not be IPv4 written as IPv6: write it as IPv4")
	case p.Bits() == 0 && p.Addr().Is6():
		return p, t.Invalid("is more than a pool can hold: use a longer prefix")
	}
	return p, nil
}

// CheckCanonicalAddress returns an error for an address that is not in canonical
// notation. It accepts a text that is not an address: ParseAddress reports the fault.
func (t Text) CheckCanonicalAddress() field.ErrorList {
	if a, err := t.ParseAddress(); err == nil && a.String() != t.Value {
		return field.ErrorList{t.Invalid("must be in canonical form, %s: write %s", describeCanonical(t.Value), a)}
	}
	return nil
}

// describeCanonical returns the rule of canonical notation that a valid text violates.
func describeCanonical(text string) string {
	switch lower := strings.ToLower(text); {
	case lower == text:
		return "as short as can be"
	case isCanonical(lower):
		return "in lower case"
	}
	return "in lower case and as short as can be"
}

func isCanonical(text string) bool {
	a, err := netip.ParseAddr(text)
	p, bad := netip.ParsePrefix(text)
	return err == nil && a.String() == text || bad == nil && p.String() == text
}

var leadingZeros = regexp.MustCompile(`(^|\.)0+([0-9])`)

// explainAddress returns why a text is not an address, with a correction if the
// correction is obvious.
func explainAddress(text string) string {
	trimmed := strings.TrimSpace(text)
	if a, err := netip.ParseAddr(trimmed); err == nil {
		return fmt.Sprintf("must have no blanks around it: write %s", a)
	}
	if a, err := netip.ParseAddr(leadingZeros.ReplaceAllString(trimmed, "$1$2")); err == nil && a.Is4() {
		return fmt.Sprintf("must have no leading zeros: write %s", a)
	}
	if p, err := netip.ParsePrefix(trimmed); err == nil {
		return fmt.Sprintf("must be an address without a prefix length: write %s", p.Addr())
	}
	return addressRule
}

// explainNetwork returns why a text is not a network, with a correction if the correction
// is obvious.
func explainNetwork(text string) string {
	trimmed := strings.TrimSpace(text)
	if p, err := netip.ParsePrefix(trimmed); err == nil {
		return fmt.Sprintf("must have no blanks around it: write %s", p)
	}
	if p, err := netip.ParsePrefix(leadingZeros.ReplaceAllString(trimmed, "$1$2")); err == nil && p.Addr().Is4() {
		return fmt.Sprintf("must have no leading zeros: write %s", p)
	}
	if a, err := netip.ParseAddr(trimmed); err == nil && a.Zone() == "" {
		return fmt.Sprintf("must have a prefix length: write %s for this address alone, a smaller one for a network", netip.PrefixFrom(a, a.BitLen()))
	}
	address, bits, _ := strings.Cut(trimmed, "/")
	if a, err := netip.ParseAddr(address); err == nil && a.Zone() == "" {
		return fmt.Sprintf("must have a prefix length from 0 to %d: %q is none", a.BitLen(), Shorten(bits))
	}
	return networkRule
}

// CheckCanonicalPrefix returns an error for a network with host bits, or not in canonical
// notation. It accepts a text that is not a network: ParsePrefix reports the fault.
func (t Text) CheckCanonicalPrefix() field.ErrorList {
	p, err := t.ParsePrefix()
	switch {
	case err != nil || p.Masked().String() == t.Value:
		return nil
	case p != p.Masked():
		return field.ErrorList{t.Invalid("has bits set after the prefix: write %s", p.Masked())}
	}
	return field.ErrorList{t.Invalid("must be in canonical form, %s: write %s", describeCanonical(t.Value), p)}
}

// ParseRange parses the range from first to last. path is the path of the object with
// both fields.
func ParseRange(path *field.Path, first, last Text) (allocator.Range, field.ErrorList) {
	var errs field.ErrorList
	a, err := first.ParseAddress()
	if err != nil {
		errs = append(errs, err)
	}
	b, err := last.ParseAddress()
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return allocator.Range{}, errs
	}
	r, bad := allocator.NewRange(a, b)
	if bad != nil {
		errs = append(errs, field.Invalid(path, first.Value+"-"+last.Value, bad.Error()))
	}
	return r, errs
}

// MaxQuoted bounds the quoted bytes of a text of another author.
const MaxQuoted = 1024

// Shorten returns a text for quotation: unchanged up to MaxQuoted bytes, otherwise one
// line of MaxQuoted bytes and an ellipsis.
func Shorten(text string) string {
	if len(text) <= MaxQuoted {
		return text
	}
	return SingleLine(text, MaxQuoted)
}

// SingleLine returns a text of another author as valid UTF-8 without line breaks, cut
// after longest bytes with an ellipsis.
func SingleLine(text string, longest int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}

// CheckName returns an error for a reference without a name, or with a name that is not a
// valid object name.
func CheckName(path *field.Path, name string, check func(string) []string) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "name the object that is meant")}
	}
	var errs field.ErrorList
	for _, rule := range check(name) {
		errs = append(errs, field.Invalid(path, name, rule))
	}
	return errs
}
