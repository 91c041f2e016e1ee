package butler

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator"
)

const (
	addressRule = "must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100"
	networkRule = "must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64"
)

// text is a value of an object, and where it stands.
type text struct {
	path  *field.Path
	value string
}

func (t text) invalid(format string, args ...any) *field.Error {
	return field.Invalid(t.path, t.value, fmt.Sprintf(format, args...))
}

// address reads an IPv4 or IPv6 address in any form.
func (t text) address() (netip.Addr, *field.Error) {
	a, err := netip.ParseAddr(t.value)
	switch {
	case err != nil:
		return a, t.invalid(addressRule)
	case a.Zone() != "":
		return a, t.invalid("must not have a zone: write %s", a.WithZone(""))
	case a.Is4In6():
		return a, t.invalid("must not be IPv4 written as IPv6: write %s", a.Unmap())
	}
	return a, nil
}

// prefix reads an IPv4 or IPv6 network in any form, host bits included.
func (t text) prefix() (netip.Prefix, *field.Error) {
	p, err := netip.ParsePrefix(t.value)
	switch {
	case err != nil:
		return p, t.invalid(networkRule)
	case p.Addr().Is4In6():
		return p, t.invalid("must not be IPv4 written as IPv6: write it as IPv4")
	case p.Bits() == 0 && p.Addr().Is6():
		return p, t.invalid("is more than a pool can hold: use a longer prefix")
	}
	return p, nil
}

// canonicalAddress finds fault with an address that could be written in another, canonical form.
func (t text) canonicalAddress() field.ErrorList {
	if a, err := t.address(); err == nil && a.String() != t.value {
		return field.ErrorList{t.invalid("must be in canonical form: write %s", a)}
	}
	return nil
}

// canonicalPrefix finds fault with host bits, and with a network that could be written in another, canonical form.
func (t text) canonicalPrefix() field.ErrorList {
	p, err := t.prefix()
	switch {
	case err != nil || p.Masked().String() == t.value:
		return nil
	case p != p.Masked():
		return field.ErrorList{t.invalid("has bits set after the prefix: write %s", p.Masked())}
	}
	return field.ErrorList{t.invalid("must be in canonical form: write %s", p)}
}

// readRange reads the range from first to last. path is that of both together.
func readRange(path *field.Path, first, last text) (allocator.Range, field.ErrorList) {
	var errs field.ErrorList
	a, err := first.address()
	if err != nil {
		errs = append(errs, err)
	}
	b, err := last.address()
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return allocator.Range{}, errs
	}
	r, bad := allocator.NewRange(a, b)
	if bad != nil {
		errs = append(errs, field.Invalid(path, first.value+"-"+last.value, bad.Error()))
	}
	return r, errs
}
