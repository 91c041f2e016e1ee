package fields

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

// Text is a value of an object, and where it stands.
type Text struct {
	Path  *field.Path
	Value string
}

// At is the value of the field at a path.
func At(path *field.Path, value string) Text { return Text{path, value} }

// Invalid is a fault of the value.
func (t Text) Invalid(format string, args ...any) *field.Error {
	return field.Invalid(t.Path, t.Value, fmt.Sprintf(format, args...))
}

// Address reads an IPv4 or IPv6 address in any form.
func (t Text) Address() (netip.Addr, *field.Error) {
	a, err := netip.ParseAddr(t.Value)
	switch {
	case err != nil:
		return netip.Addr{}, t.Invalid("%s", addressFault(t.Value))
	case a.Zone() != "":
		return netip.Addr{}, t.Invalid("must not have a zone: write %s", a.WithZone(""))
	case a.Is4In6():
		return netip.Addr{}, t.Invalid("must not be IPv4 written as IPv6: write %s", a.Unmap())
	}
	return a, nil
}

// Prefix reads an IPv4 or IPv6 network in any form, host bits included.
func (t Text) Prefix() (netip.Prefix, *field.Error) {
	p, err := netip.ParsePrefix(t.Value)
	switch {
	case err != nil:
		return p, t.Invalid("%s", networkFault(t.Value))
	case p.Addr().Is4In6() && p.Bits() >= 96:
		return p, t.Invalid("must not be IPv4 written as IPv6: write %s", netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96))
	case p.Addr().Is4In6():
		return p, t.Invalid("must not be IPv4 written as IPv6: write it as IPv4")
	case p.Bits() == 0 && p.Addr().Is6():
		return p, t.Invalid("is more than a pool can hold: use a longer prefix")
	}
	return p, nil
}

// CanonicalAddress finds fault with an address that could be written in another, canonical form.
func (t Text) CanonicalAddress() field.ErrorList {
	if a, err := t.Address(); err == nil && a.String() != t.Value {
		return field.ErrorList{t.Invalid("must be in canonical form, %s: write %s", howCanonical(t.Value), a)}
	}
	return nil
}

// howCanonical says what of a text that can be read is not canonical.
func howCanonical(text string) string {
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

// addressFault says why a text is no address, and what to write where that is plain.
func addressFault(text string) string {
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

// networkFault says why a text is no network, and what to write where that is plain.
func networkFault(text string) string {
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
		return fmt.Sprintf("must have a prefix length from 0 to %d: %q is none", a.BitLen(), Short(bits))
	}
	return networkRule
}

// CanonicalPrefix finds fault with host bits, and with a network that could be written in another, canonical form.
func (t Text) CanonicalPrefix() field.ErrorList {
	p, err := t.Prefix()
	switch {
	case err != nil || p.Masked().String() == t.Value:
		return nil
	case p != p.Masked():
		return field.ErrorList{t.Invalid("has bits set after the prefix: write %s", p.Masked())}
	}
	return field.ErrorList{t.Invalid("must be in canonical form, %s: write %s", howCanonical(t.Value), p)}
}

// Range reads the range from first to last. path is that of both together.
func Range(path *field.Path, first, last Text) (allocator.Range, field.ErrorList) {
	var errs field.ErrorList
	a, err := first.Address()
	if err != nil {
		errs = append(errs, err)
	}
	b, err := last.Address()
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

// longestValue is how much of somebody's text is quoted, in bytes.
const longestValue = 1024

// Short is somebody else's text to be quoted: as it is where it is short, else as one line of 1024 bytes and an ellipsis.
func Short(text string) string {
	if len(text) <= longestValue {
		return text
	}
	return OneLine(text, longestValue)
}

// OneLine is somebody else's text to be passed on: valid UTF-8 without line breaks, of so many bytes and, where it was longer, an ellipsis.
func OneLine(text string, longest int) string {
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "?")), " ")
	if len(text) > longest {
		text = strings.ToValidUTF8(text[:longest], "") + "…"
	}
	return text
}
