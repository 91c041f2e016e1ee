package pools

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Reasons of events about a pool.
const (
	eventCapacityWarning     = "PoolCapacityWarning"
	eventCapacityCritical    = "PoolCapacityCritical"
	eventCapacityExhausted   = "PoolCapacityExhausted"
	eventCapacityRecovered   = "PoolCapacityRecovered"
	eventReleasesWait        = "ReleasesWait" // on claims as well
	eventCooldownsUnrecorded = "CooldownsUnrecorded"
	eventCooldownsUnreadable = "CooldownsUnreadable"
	eventMovedUnlisted       = "MovedNotListed"
	eventMovedUnrecorded     = "MovedUnrecorded"
	eventStatusRefused       = "StatusRefused"
	eventStatusListFull      = "StatusListFull"
	eventStatusTooLarge      = "StatusTooLarge"
	eventWaitingForOwners    = "WaitingForOwners"
)

func (d *deps) reportCrossing(p *v1alpha1.NetworkPool, c crossing) {
	if c.reason == eventCapacityRecovered {
		d.Events.Normal(p, c.reason, c.message)
		return
	}
	d.Events.Warning(p, c.reason, c.message)
}

func (d *deps) reportCooldownsUnrecorded(p client.Object, n int) {
	d.Events.Warning(p, eventCooldownsUnrecorded, fmt.Sprintf(
		"%s in cooldown %s no record, as the pool's annotations have no room: %s would be free if all managers ended: shorten the reuse delay, or wait",
		allocator.Counted(n, "range"), allocator.Agree(n, "has", "have"), allocator.Agree(n, "it", "they")))
}

func (d *deps) reportCooldownsUnreadable(p client.Object) {
	d.Events.Warning(p, eventCooldownsUnreadable, fmt.Sprintf(
		"annotation %s cannot be read: ranges whose cooldown only this annotation records are free: correct it, or remove it", v1alpha1.AnnotationCooldown))
}

func (d *deps) reportMovedUnlisted(p client.Object, n int) {
	d.Events.Warning(p, eventMovedUnlisted, fmt.Sprintf(
		"%s that moved to other clusters %s not allocated again, and not listed in annotation %s, as the pool's annotations have no room: make room, so that all are listed and can be removed",
		allocator.Counted(n, "range"), allocator.Agree(n, "is", "are"), v1alpha1.AnnotationCooldown))
}

func (d *deps) reportMovedUnrecorded(p client.Object, err error) {
	d.Events.Warning(p, eventMovedUnrecorded, "ranges that moved to other clusters cannot be recorded in the manager's namespace, and are kept from being allocated only while a manager runs: "+fieldtext.Shorten(err.Error()))
}

func (d *deps) reportStatusRefused(p client.Object, err error) {
	d.Events.Warning(p, eventStatusRefused, "the API server denies the status, and the pool allocates nothing, until the spec is corrected: "+fieldtext.Shorten(err.Error()))
}

func (d *deps) reportIndexesUnlisted(p client.Object, unlisted int) {
	d.Events.Warning(p, eventStatusListFull, fmt.Sprintf(
		"status.indexes has no room for %s, which %s their addresses all the same: use several pools, or shorter names",
		allocator.Counted(unlisted, "more claim"), allocator.Agree(unlisted, "owns", "own")))
}

func (d *deps) reportStatusTooLarge(p client.Object, err error) {
	d.Events.Warning(p, eventStatusTooLarge, "the pool is too large for etcd, so its status is not written, and releases have no record in it: remove large labels and annotations, or shorten its spec: "+fieldtext.Shorten(err.Error()))
}

func (d *deps) reportWaitsForOwners(p client.Object, owners string) {
	d.Events.Warning(p, eventWaitingForOwners, owners+", and the pool is deleted")
}

func (d *deps) reportReleasesWait(p *v1alpha1.NetworkPool, waiting int) {
	d.Events.Warning(p, eventReleasesWait, fmt.Sprintf(
		"%s %s because %d released ranges are in cooldown and status.releases has no more room: shorten spec.reuseDelay, or wait",
		allocator.Counted(waiting, "release"), allocator.Agree(waiting, "waits", "wait"), len(p.Status.Releases)))
}
