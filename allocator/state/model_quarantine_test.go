package state

import (
	"fmt"
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Lost journals. A person deletes the journal with its open grants, and perhaps restarts
// the managers. An earlier allocator, which knows nothing of the journal, stores claims
// with their address objects, before or after.

// loseJournal deletes the journal, as a person may do, with its open grants and the term
// of its leader.
func (w *world) loseJournal() {
	if w.lease.ResourceVersion == "" || w.settling {
		return
	}
	w.lease = journal.Revision{}
	w.tally.journalsLost++
	w.logf("journal: deleted")
}

// wasJournalLost reports whether a new leader that finds this revision has to expect
// grants that it does not know: the journal does not exist, although objects are stored.
// The pool counts as stored from the first journal on.
func (w *world) wasJournalLost(found journal.Revision) bool {
	return found.ResourceVersion == "" && (len(w.objects) > 0 || w.tally.journalsLost > 0)
}

// lacksVersions reports whether a revision does not show which events of a resource its
// leader had applied, as after the deletion of the journal.
func (w *world) lacksVersions(v journal.Revision) bool {
	return slices.ContainsFunc(w.events, func(e event) bool { return e.pool == nil && v.Applied[e.claim.Key.Resource] == 0 })
}

// readAll makes the copies of a replica equal to the stored objects, as a consistent list
// does.
func (w *world) readAll(r *replica) {
	for w.deliver(r) {
	}
	for _, resource := range modelResources {
		var all []ListedClaim
		for _, name := range slices.Sorted(maps.Keys(w.objects)) {
			if o := w.objects[name]; o.Key.Resource == resource {
				all = append(all, ListedClaim{UID: o.UID, ResourceVersion: o.ResourceVersion, Convert: func() Claim { return o.Claim }})
			}
		}
		if resource != modelPools {
			r.state.ReplaceClaims(w.now, resource, all)
		}
	}
}

// storeEarlier stores a claim whose status records an allocation, and its address object,
// as an earlier allocator does: without admission, on an address that no address object
// has.
func (w *world) storeEarlier(name string) {
	r := w.pickAddress()
	for _, o := range w.objects {
		if o.Key.Name == name || o.OwnerClaim != (Key{}) && (o.OwnerClaim.Name == name || overlap(o.Ranges, []allocator.Range{r})) {
			return
		}
	}
	claim := w.newObject(name)
	claim.unadmitted, claim.AllocatedEarlier = true, true
	w.store(claim, "earlier allocator")
	address := w.newObject(fmt.Sprintf("earlier-%s-%s", r.First, name))
	address.Key.Resource, address.OwnerClaim, address.Ranges, address.Ready, address.Flagged = modelAddresses, claim.Key, []allocator.Range{r}, true, true
	address.unadmitted = true
	w.store(address, "earlier allocator")
}
