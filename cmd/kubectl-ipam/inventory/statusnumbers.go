package inventory

import (
	"fmt"
)

// HiddenOwners reports whether claims that were not read may own addresses of a pool:
// resources were left out, and the status of the pool has fewer free addresses than the
// Inventory counts. free is the number in the status. A restricted Inventory counts the
// claims that its reader may not list, and has no hidden owners.
func (i *Inventory) HiddenOwners(p *Pool) (free int64, some bool) {
	if len(i.unread) == 0 || i.anonymous != nil {
		return 0, false
	}
	if p.Description.Free == nil {
		return 0, false
	}
	return *p.Description.Free, *p.Description.Free < i.Usage(p.Key).Available
}

// NoteOfHiddenOwners returns a note about a pool with hidden owners, see HiddenOwners; ""
// without hidden owners. The status counts addresses as granted until the manager writes
// the status again after it has observed the claim: so granted addresses may also have a
// hidden owner.
func (i *Inventory) NoteOfHiddenOwners(p *Pool) string {
	free, some := i.HiddenOwners(p)
	granted := p.Description.Granted
	switch {
	case !some:
		return ""
	case !i.knowsGrants && granted > 0 && free >= i.Usage(p.Key).Available-granted:
		return fmt.Sprintf("the status has %d free: %d are granted, or owned by claims that you may not list", free, granted)
	}
	return fmt.Sprintf("the status has %d free: claims that you may not list own the others", free)
}
