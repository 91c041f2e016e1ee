package butler

import (
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Bounds of status.infrastructureAllocations of a NetworkPool: in bytes (package object),
// and by the schema.
const (
	maxInfrastructure      = 256 << 10
	maxInfrastructureCount = 4096
	// managedEntry is the size of an entry in metadata.managedFields: the list is
	// applied, and so has an entry there for each address.
	managedEntry = 200
)

// BoundInfrastructure returns the entries of status.infrastructureAllocations for which a
// NetworkPool has room, from the beginning of the list.
func BoundInfrastructure(entries []v1alpha1.InfrastructureAllocation) []v1alpha1.InfrastructureAllocation {
	entries = entries[:min(len(entries), maxInfrastructureCount)]
	return entries[:object.CountFitting(entries, maxInfrastructure, managedEntry)]
}

// UnlistedInfrastructure returns the number of addresses for which
// status.infrastructureAllocations has no room.
func UnlistedInfrastructure(p *v1alpha1.NetworkPool) int64 {
	return p.Status.InfrastructureConsumedIPs - int64(len(p.Status.InfrastructureAllocations))
}
