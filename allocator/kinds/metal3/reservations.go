package metal3

import (
	"cmp"
	"fmt"
	"slices"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// MaxPreAllocations bounds the entries of spec.preAllocations.
const MaxPreAllocations = 49_152

// ListPreAllocations returns the entries of spec.preAllocations that can be parsed, by
// address and name.
func ListPreAllocations(p *v1alpha1.IPPool) (entries []object.Reservation) {
	pins, _ := parsePreAllocations(p)
	for _, pin := range pins {
		r := allocator.Range{First: pin.address, Last: pin.address}
		entries = append(entries, object.Reservation{Name: pin.claim, Range: r})
	}
	slices.SortFunc(entries, func(x, y object.Reservation) int {
		return cmp.Or(x.Range.First.Compare(y.Range.First), cmp.Compare(x.Name, y.Name))
	})
	return entries
}

// AddPreAllocations returns a copy of a pool with further entries in spec.preAllocations.
func AddPreAllocations(p *v1alpha1.IPPool, entries []object.Reservation) *v1alpha1.IPPool {
	p = p.DeepCopy()
	if p.Spec.PreAllocations == nil {
		p.Spec.PreAllocations = map[string]v1alpha1.IP{}
	}
	for _, e := range entries {
		p.Spec.PreAllocations[e.Name] = v1alpha1.IP(e.Range.First.String())
	}
	return p
}

// FormatExampleClaim returns the manifest of an IPClaim of the first address of a free
// range.
func FormatExampleClaim(p *v1alpha1.IPPool, free allocator.Range) string {
	return fmt.Sprintf(`apiVersion: ipam.metal3.io/v1alpha1
kind: IPClaim
metadata:
  name: my-claim
  namespace: %s
  annotations:
    ipAddress: "%s"
spec:
  pool:
    name: %s
`, p.Namespace, free.First, p.Name)
}
