package butler

import (
	"fmt"
	"net/netip"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// MaxReserved bounds the entries of spec.reserved.
const MaxReserved = 256

// ListReservations returns spec.reserved in its order, and the networks that cannot be
// parsed.
func ListReservations(p *v1alpha1.NetworkPool) (entries []object.Reservation, invalid []string) {
	for _, reserved := range p.Spec.Reserved {
		network, err := netip.ParsePrefix(reserved.CIDR)
		if err != nil {
			invalid = append(invalid, reserved.CIDR)
			continue
		}
		r := allocator.RangeOfPrefix(network.Masked())
		entries = append(entries, object.Reservation{Range: r, Description: reserved.Description})
	}
	return entries, invalid
}

// AddReservations returns a copy of a pool with further networks in spec.reserved.
func AddReservations(p *v1alpha1.NetworkPool, entries []object.Reservation) *v1alpha1.NetworkPool {
	p = p.DeepCopy()
	for _, e := range entries {
		p.Spec.Reserved = append(p.Spec.Reserved, v1alpha1.ReservedRange{CIDR: e.Range.Text(), Description: e.Description})
	}
	return p
}

// FindReservable returns the ranges of which spec.reserved may have networks: spec.cidr.
func FindReservable(p *v1alpha1.NetworkPool) []allocator.Range {
	cidr, err := netip.ParsePrefix(p.Spec.CIDR)
	if err != nil {
		return nil
	}
	return []allocator.Range{allocator.RangeOfPrefix(cidr)}
}

// FormatExampleClaim returns the manifest of an IPAllocation of the first address of a
// free range.
func FormatExampleClaim(p *v1alpha1.NetworkPool, free allocator.Range) string {
	return fmt.Sprintf(`apiVersion: butler.butlerlabs.dev/v1alpha1
kind: IPAllocation
metadata:
  name: my-claim
  namespace: %s
spec:
  poolRef:
    name: %s
  tenantClusterRef:
    namespace: my-team
    name: my-cluster
  type: nodes
  pinnedRange: # free up to %s
    startAddress: "%s"
    endAddress: "%[4]s"
`, p.Namespace, p.Name, free.Last, free.First)
}
