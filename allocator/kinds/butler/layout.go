package butler

import (
	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Layout is the division of a pool's network, without regard to owners. Counts are
// addresses and saturate at MaxInt64.
type Layout struct {
	Size     int64 // of spec.cidr, first and last address included
	Reserved int64 // each address once
	// Unmanaged is the part of the network that is neither reserved nor in a tenant
	// range, without the first and the last address. Without tenant ranges Unmanaged is
	// the whole unreserved part, although these addresses are allocatable: Butler's
	// console shows them under this name.
	Unmanaged []allocator.Range
}

// ComputeLayout computes the layout from the valid part of a pool's spec.
func ComputeLayout(p *v1alpha1.NetworkPool) Layout {
	read, _ := parseSpec(p)
	var tenants []allocator.Range
	for _, t := range read.tenants {
		tenants = append(tenants, t.Range)
	}
	return Layout{
		Size:      read.network.Size(),
		Reserved:  allocator.Total(read.blockedRanges()),
		Unmanaged: allocator.Unmanaged(read.network, read.blockedRanges(), tenants),
	}
}
