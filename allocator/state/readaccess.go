package state

import (
	"maps"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// A replica counts the objects of every resource of this release, also of APIs that are
// switched off. A resource that the replica cannot count stops the remaining APIs for a
// grant life at most:
//
//	the journal lists for a resource            API server               this replica
//	objects stored, resource counted here       serves them              counts them
//	objects stored                              does not serve them      knows that no object exists
//	objects stored                              denies the right         leads if it has observed the listed version; otherwise it waits for a grant life
//	                                                                     since it first found the resource listed, and then leads without them
//	objects stored, resource of a later release serves some              does not lead: this release cannot read their addresses
//	open grants only                            any                      leads: the ranges are kept for a grant life
//
// A leader that loses the right to read a resource grants nothing that depends on the
// resource from then on. The leader keeps its knowledge of the resource, so that no
// address known as owned is allocated again; after a grant life, the leader's journal
// stops listing the resource.

// maxUnobserved bounds the time between two observations of a denial that count as
// uninterrupted: while the replica was frozen for longer, the resource may have been
// readable.
const maxUnobserved = 10 * time.Second

// UnreadableResources records which resources the journal lists with objects and this
// replica cannot read: resource -> listed version, and since when this replica has found
// it listed.
type UnreadableResources map[string]finding

// finding is a listed resource that this replica cannot read.
type finding struct {
	version  uint64 // Snapshot.Applied of the resource
	since    time.Time
	observed time.Time // time of the last observation
}

// Update applies a snapshot of the journal. The time of a resource begins anew if the
// listed version changed, or if the resource was readable meanwhile or may have been.
func (c UnreadableResources) Update(now time.Time, r journal.Snapshot, cannotCount func(resource string, version uint64) bool) {
	maps.DeleteFunc(c, func(resource string, _ finding) bool {
		return r.Applied[resource] == 0 || !cannotCount(resource, r.Applied[resource])
	})
	for resource, version := range r.Applied {
		if version == 0 || !cannotCount(resource, version) {
			continue
		}
		f := c[resource]
		if f.version != version || now.Sub(f.observed) > maxUnobserved {
			f = finding{version: version, since: now}
		}
		f.observed = now
		c[resource] = f
	}
}

// HasExpired reports whether the journal has listed this version of a resource for the
// life of a grant while this replica could not read it.
func (c UnreadableResources) HasExpired(now time.Time, resource string, version uint64, life time.Duration) bool {
	f, found := c[resource]
	return found && f.version == version && now.Sub(f.since) >= life
}

// Since returns since when this replica has found the resource listed in its current
// version.
func (c UnreadableResources) Since(resource string) time.Time { return c[resource].since }
