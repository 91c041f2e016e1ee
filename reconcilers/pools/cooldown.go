package pools

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// writeCooldownList writes the cooldown list of a pool, cooldowns and moved ranges, into
// the annotation of the pool, for the next leader, and reports whether the annotation was
// written: the event of the write requeues the pool. If the list has changed, the moved
// record is written first: moved ranges without room in the list are recorded with
// IgnoreListsUntil. After a failure, again is the time until the next write: the pool's
// status, on which releases depend, does not wait.
//
// One fact has three stores:
//
//	store                            contains                     written by         read by
//	annotation of the pool (list)    cooldowns, moved ranges      this function      people, who may edit it; every replica, as an event
//	ConfigMaps (moved record)        moved ranges, all of them    recordMoved        a new leader, before it grants
//	ledger                           both, as observed and        events             this function
//	                                 decided
//
// allocator/state/movedrecord.go explains the revision of a cooldown list, ListedSince
// and IgnoreListsUntil.
func (d *deps) writeCooldownList(ctx context.Context, p client.Object, pool ledger.Key, ranges []ledger.RecordedRange, m *memory) (written bool, again time.Duration) {
	list := poolrecord.ReadList(p)
	// A process that has just started knows none of the ranges in an annotation that it
	// cannot read. The text stays, as a user may still correct it.
	if !list.Readable && len(ranges) == 0 {
		if m.mayReport(eventCooldownsUnreadable, d.Now()) {
			d.reportCooldownsUnreadable(p)
		}
		return false, 0
	}
	// First with the revision of the stored list: the text contains the revision, and an
	// unchanged list must not be written again. A list that has changed gets the present
	// resourceVersion of the pool as its revision.
	text, unlisted := poolrecord.FormatList(p, ranges, list.StoredRevision())
	same := p.GetAnnotations()[butlerv1.AnnotationCooldown] == text
	if !same {
		text, unlisted = poolrecord.FormatList(p, ranges, object.ResourceVersion(p))
	}
	unlistedMoved := map[ledger.Moved]bool{}
	for _, c := range unlisted {
		if c.IsMoved() {
			unlistedMoved[ledger.Moved{Range: c.Range, Claim: c.Claim, MovedUID: c.MovedUID}] = true
		}
	}
	if n := len(unlisted) - len(unlistedMoved); n > 0 && m.mayReport(eventCooldownsUnrecorded, d.Now()) {
		d.reportCooldownsUnrecorded(p, n)
	}
	if len(unlistedMoved) > 0 && m.mayReport(eventMovedUnlisted, d.Now()) {
		d.reportMovedUnlisted(p, len(unlistedMoved))
	}
	name, basis := client.ObjectKeyFromObject(p), flow.BasisOf(p, butlerv1.AnnotationCooldown)
	if same {
		d.recordBackoff.Succeeded(name)
		return false, 0
	}
	if wait := d.recordBackoff.Wait(name, basis); wait > 0 {
		return false, wait
	}
	if err := d.recordMoved(ctx, p, pool, unlistedMoved, m); err != nil {
		return false, d.recordBackoff.Failed(ctx, name, basis, err)
	}
	// A list without a moved range that an earlier list shows tells every replica that
	// the range is free. A former leader that was suspended may not know the moves that
	// its successor has listed.
	if leavesOutMoved(list, ranges) {
		if err := d.Ledger.ProveLeads(ctx); err != nil {
			return false, d.recordBackoff.Failed(ctx, name, basis, err)
		}
	}
	after := write.DeepCopy(p)
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[butlerv1.AnnotationCooldown] = text; text == "" {
		delete(annotations, butlerv1.AnnotationCooldown)
	}
	after.SetAnnotations(annotations)
	if err := d.IgnoreStale(ctx, p, d.SaveObject(ctx, p, after)); err != nil {
		return false, d.recordBackoff.Failed(ctx, name, basis, err)
	}
	d.recordBackoff.Succeeded(name)
	return true, 0
}

// leavesOutMoved reports whether a stored cooldown list shows a moved range that the next
// list does not contain.
func leavesOutMoved(stored poolrecord.List, next []ledger.RecordedRange) bool {
	return slices.ContainsFunc(stored.Ranges, func(c ledger.RecordedRange) bool {
		return c.IsMoved() && !slices.ContainsFunc(next, func(n ledger.RecordedRange) bool { return n.IsMoved() && n.Range == c.Range && n.Claim == c.Claim })
	})
}

// recordMoved stores the moved ranges of a pool in the moved record of the pool
// (allocator/state/movedrecord.go). The next cooldown list, whose revision is the
// resourceVersion of p, will not show the unlisted ranges. On an error the caller must
// not write the list: a replica that reads list and moved record would conclude that a
// person removed the unlisted range, and free it.
func (d *deps) recordMoved(ctx context.Context, p client.Object, pool ledger.Key, unlisted map[ledger.Moved]bool, m *memory) error {
	moved, stored, known := d.Ledger.MovedOf(pool, string(p.GetUID()))
	if stored.UID != "" && stored.UID != string(p.GetUID()) {
		return d.deleteMovedRecord(ctx, pool)
	}
	if !known {
		return nil // the ledger observes the pool soon, and requeues it
	}
	mustRecord := false
	for i := range moved {
		// Once IgnoreListsUntil covers the stored list, further lists without the range
		// need no write of the moved record.
		if unlisted[moved[i].Identity()] && d.Ledger.MayBeListed(pool, object.ResourceVersion(p), moved[i]) {
			moved[i].ListedSince, moved[i].IgnoreListsUntil = 0, object.ResourceVersion(p)
			mustRecord = true
		}
	}
	cannot := stored.Fault // some parts of the moved record are unknown
	if _, err := d.Ledger.Term(); err != nil {
		cannot = err // the next leader has read the stored moved record
	}
	switch {
	case cannot != nil && mustRecord:
		return fmt.Errorf("the cooldown list has no room for all moved ranges, and the moved record cannot be written: %w", cannot)
	case cannot != nil:
		return nil
	}
	var recorded []ledger.Moved
	for _, part := range stored.Parts {
		recorded = append(recorded, part.Moved...)
	}
	slices.SortFunc(recorded, ledger.Moved.Compare)
	if slices.Equal(recorded, moved) {
		return nil
	}
	m.movedWritten = d.Now()
	stored.Pool, stored.UID = pool, string(p.GetUID())
	after, err := d.movedRecords.SavePool(ctx, stored, moved)
	d.Ledger.MovedRecordSaved(after)
	if err == nil {
		return nil
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // an earlier leader, or a user, wrote the moved record
		read, failed := d.movedRecords.ReadPool(ctx, pool, string(p.GetUID()))
		if failed == nil {
			d.Ledger.SetMovedRecord(read)
		}
		return errors.Join(err, failed)
	}
	if m.mayReport(eventMovedUnrecorded, d.Now()) {
		d.reportMovedUnrecorded(p, err)
	}
	return err
}

// deleteMovedRecord deletes the moved record of a pool that is gone.
func (d *deps) deleteMovedRecord(ctx context.Context, pool ledger.Key) error {
	_, stored, _ := d.Ledger.MovedOf(pool, "")
	if len(stored.Parts) == 0 && stored.Fault == nil {
		return nil
	}
	o := d.NewPool(pool.Resource)
	err := d.Live.Get(ctx, feed.Request(pool).NamespacedName, o)
	if client.IgnoreNotFound(err) != nil || err == nil && string(o.GetUID()) == stored.UID {
		return client.IgnoreNotFound(err)
	}
	if err := d.movedRecords.DeletePool(ctx, stored.UID); err != nil {
		return err
	}
	d.Ledger.MovedRecordSaved(ledger.MovedRecord{Pool: pool, UID: stored.UID})
	return nil
}

// rangesForList returns the ranges for the cooldown list of a NetworkPool: the moved
// ranges, and the cooldowns without a release record. Such cooldowns are of kinds that
// are not claims.ReleaseRecorded, of flagged allocations, and of allocations whose
// finalizer a user removed. Release records of earlier cooldowns of a range do not count.
func rangesForList(ranges []ledger.RecordedRange, releases []butlerv1.Release, now time.Time) []ledger.RecordedRange {
	recorded := map[[2]string]bool{}
	for _, r := range releases {
		if isInCooldown(r, now) {
			recorded[[2]string{r.StartAddress, r.EndAddress}] = true
		}
	}
	return slices.DeleteFunc(ranges, func(c ledger.RecordedRange) bool {
		return !c.IsMoved() && recorded[[2]string{c.Range.First.String(), c.Range.Last.String()}]
	})
}

// countInCooldown counts the addresses in cooldown that a pool offers.
func (d *deps) countInCooldown(p *butlerv1.NetworkPool) int64 {
	pool, _ := butler.ConvertPool(p)
	var ranges []allocator.Range
	for _, r := range d.Ledger.RangesToRecord(pool.Key) {
		if !r.Until.IsZero() { // not moved
			ranges = append(ranges, r.Range)
		}
	}
	return allocator.Total(ranges) - allocator.Total(allocator.Subtract(ranges, allocator.Subtract(pool.Window, pool.Blocked)))
}
