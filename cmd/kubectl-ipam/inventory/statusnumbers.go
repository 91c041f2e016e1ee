package inventory

import (
	"fmt"

	"k8s.io/utils/ptr"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// HiddenOwners reports whether claims that were not read may own addresses of a pool:
// resources were left out, and the status of the pool has fewer free addresses than the
// Inventory counts. free is the number in the status. A restricted Inventory counts the
// claims that its reader may not list, and has no hidden owners.
func (i *Inventory) HiddenOwners(p *Pool) (free int64, some bool) {
	if len(i.unread) == 0 || i.anonymous != nil {
		return 0, false
	}
	free, known := freeInStatus(p)
	return free, known && free < i.Usage(p.Key).Available
}

// NoteOfHiddenOwners returns a note about a pool with hidden owners, see HiddenOwners; ""
// without hidden owners. The status counts addresses as granted until the manager writes
// the status again after it has observed the claim: so granted addresses may also have a
// hidden owner.
func (i *Inventory) NoteOfHiddenOwners(p *Pool) string {
	free, some := i.HiddenOwners(p)
	granted := grantedIn(p.Object)
	switch {
	case !some:
		return ""
	case !i.knowsGrants && granted > 0 && free >= i.Usage(p.Key).Available-granted:
		return fmt.Sprintf("the status has %d free: %d are granted, or owned by claims that you may not list", free, granted)
	}
	return fmt.Sprintf("the status has %d free: claims that you may not list own the others", free)
}

// freeInStatus returns the number of free addresses in the status of a pool; false if the
// manager has not yet written the number.
func freeInStatus(p *Pool) (free int64, known bool) {
	switch o := p.Object.(type) {
	case *butlerv1.NetworkPool:
		return o.Status.AvailableIPs, o.Status.TotalIPs > 0
	case *metal3v1.IPPool:
		return ptr.Deref(o.Status.AvailableIPCount, 0), o.Status.AvailableIPCount != nil
	case *novaedgev1.ProxyIPPool:
		return o.Status.Available, o.Status.Available+o.Status.Allocated > 0
	}
	return 0, false
}
