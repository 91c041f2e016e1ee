package butler

import (
	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Layout is how a pool's network is divided, whatever is held of it. Counts are addresses and saturate at MaxInt64.
type Layout struct {
	Size     int64 // of spec.cidr, first and last address included
	Reserved int64 // each address once
	// Unmanaged is what is neither reserved nor in a tenant range, without the first and the last address. Without tenant ranges it
	// is all that is not reserved, although that can be allocated: Butler's console shows it so.
	Unmanaged []allocator.Range
}

// LayoutOf reads what is readable of a pool's spec.
func LayoutOf(p *v1alpha1.NetworkPool) Layout {
	read, _ := readPool(p)
	var tenants []allocator.Range
	for _, t := range read.tenants {
		tenants = append(tenants, t.Range)
	}
	return Layout{
		Size:      read.network.Size(),
		Reserved:  allocator.Total(read.blocked()),
		Unmanaged: allocator.Unmanaged(read.network, read.blocked(), tenants),
	}
}
