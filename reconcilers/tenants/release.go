package tenants

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Kinship is how an IPAllocation and the TenantCluster it names stand to each other.
type Kinship int

const (
	// Related: the tenant exists and the allocation is its own.
	Related Kinship = iota
	// Unrecorded: the same, but for the UID, which is to be recorded.
	Unrecorded
	// Unknown: there is no such tenant and never was one, as far as is recorded. It may come yet: the allocation stays.
	Unknown
	// Orphaned: the recorded tenant is gone. That is to be said, and the allocation stays for a while.
	Orphaned
	// Abandoned: the tenant has been gone for long, and the allocation goes, once nothing uses it.
	Abandoned
	// Kept: the tenant is gone, and the allocation stays because its annotation says so.
	Kept
)

// KinshipOf compares an allocation with the UID of the TenantCluster that its tenantClusterRef names: "" where the API server has said
// that there is none. Where it could not say, there is no kinship to ask for. The time is when an Orphaned one becomes Abandoned.
func KinshipOf(a *v1alpha1.IPAllocation, uid string, orphanAfter time.Duration, now time.Time) (Kinship, time.Time) {
	recorded := a.Annotations[v1alpha1.AnnotationTenantUID]
	switch {
	case uid != "" && recorded == uid:
		return Related, time.Time{}
	case uid != "" && recorded == "":
		return Unrecorded, time.Time{}
	case recorded == "":
		return Unknown, time.Time{}
	case a.Annotations[v1alpha1.AnnotationKeep] == "true":
		return Kept, time.Time{}
	}
	missing := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	if missing == nil || missing.Status != "True" {
		return Orphaned, now.Add(orphanAfter)
	}
	if at := missing.LastTransitionTime.Add(orphanAfter); now.Before(at) {
		return Orphaned, at
	}
	return Abandoned, time.Time{}
}

// Holds says why the blocks of a tenant that is being deleted may not be released yet; "" when they may. Nodes announce the addresses of
// load balancers too, so any Machine that is left holds every block; and so does an address of a block that is still seen on a Node or
// Machine, whoever's it is.
func Holds(blocks []Block, machines int, seen []netip.Addr) string {
	if machines > 0 {
		return fmt.Sprintf("%s of the tenant %s left", allocator.Counted(machines, "machine"), allocator.Agree(machines, "is", "are"))
	}
	for _, b := range blocks {
		if why := b.inUse(seen); why != "" {
			return why
		}
	}
	return ""
}

// InUse says why an allocation whose tenant is gone may not be released yet, going by the addresses that are seen on Nodes and Machines; "" when it may.
func InUse(a *v1alpha1.IPAllocation, seen []netip.Addr) string { return blockOf(a).inUse(seen) }

// inUse names the first address, as what is seen comes in no order, and what is said is to stay the same.
func (b Block) inUse(seen []netip.Addr) string {
	used := slices.DeleteFunc(slices.Clone(seen), func(a netip.Addr) bool { return !b.Range.Contains(a) })
	if len(used) == 0 {
		return ""
	}
	return fmt.Sprintf("%s of IPAllocation %s is still in use by a node", slices.MinFunc(used, netip.Addr.Compare), b.Name)
}
