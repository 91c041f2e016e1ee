package reconcilers

import (
	"context"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// recordResting writes into a pool which of its ranges rest, so that a restart knows it. It tells whether there was anything to write: the pool
// comes back then. What the list of a pool cannot show of its ranges in other clusters is recorded as hidden before. Where the write fails again is
// when the next is due: the pool's status, by which releases go on, does not wait for it.
func (d *desk) recordResting(ctx context.Context, p client.Object, pool ledger.Key, resting []ledger.Cooling, memory *poolMemory) (written bool, again time.Duration) {
	list := fields.Resting(p)
	if !list.Readable && len(resting) == 0 { // as after a restart: somebody may still correct it
		if memory.mayTell(eventRestsIllegible, d.now()) {
			d.events.restsIllegible(p)
		}
		return false, 0
	}
	text, lacking := fields.RestingText(p, resting, list.Based())
	same := p.GetAnnotations()[butlerv1.AnnotationResting] == text
	if !same {
		text, lacking = fields.RestingText(p, resting, fields.ResourceVersion(p))
	}
	hidden := map[ledger.Moved]bool{}
	for _, c := range lacking {
		if c.Until.IsZero() {
			hidden[ledger.Moved{Range: c.Range, Claim: c.Claim, Left: c.Left}] = true
		}
	}
	if n := len(lacking) - len(hidden); n > 0 && memory.mayTell(eventRestsUnrecorded, d.now()) {
		d.events.restsUnrecorded(p, n)
	}
	if len(hidden) > 0 && memory.mayTell(eventMovedHidden, d.now()) {
		d.events.movedHidden(p, len(hidden))
	}
	name, basis := client.ObjectKeyFromObject(p), flow.BasisOf(p, butlerv1.AnnotationResting)
	if same {
		d.recording.Succeeded(name)
		return false, 0
	}
	if wait := d.recording.Wait(name, basis); wait > 0 {
		return false, wait
	}
	if err := d.recordMoved(ctx, p, pool, hidden, memory); err != nil {
		return false, d.recording.Failed(ctx, name, basis, err)
	}
	after := copied(p)
	annotations := after.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[butlerv1.AnnotationResting] = text; text == "" {
		delete(annotations, butlerv1.AnnotationResting)
	}
	after.SetAnnotations(annotations)
	if err := d.overtaken.Ignore(ctx, p, d.save(ctx, p, after)); err != nil {
		return false, d.recording.Failed(ctx, name, basis, err)
	}
	d.recording.Succeeded(name)
	return true, 0
}

// recordMoved stores which ranges of a pool went to other clusters. Those that are hidden the next list of the pool, based on this version of it, will
// not show.
func (d *desk) recordMoved(ctx context.Context, p client.Object, pool ledger.Key, hidden map[ledger.Moved]bool, memory *poolMemory) error {
	moved, stored, known := d.ledger.MovedOf(pool, string(p.GetUID()))
	if stored.UID != "" && stored.UID != string(p.GetUID()) {
		return d.dropRecord(ctx, pool)
	}
	if !known {
		return nil // in a moment
	}
	if stored.Fault != nil { // its parts are not all known
		return nil
	}
	for i, m := range moved {
		if hidden[m.Identity()] && (m.Shown > 0 || m.Hidden == 0) {
			moved[i].Shown, moved[i].Hidden = 0, fields.ResourceVersion(p)
		}
	}
	var recorded []ledger.Moved
	for _, part := range stored.Parts {
		recorded = append(recorded, part.Moved...)
	}
	slices.SortFunc(recorded, ledger.Moved.Compare)
	if slices.Equal(recorded, moved) {
		return nil
	}
	if _, err := d.ledger.Term(); err != nil {
		return nil // the next holder of the journal has read what is stored
	}
	memory.recorded = d.now()
	stored.Pool, stored.UID = pool, string(p.GetUID())
	after, err := d.records.Save(ctx, stored, moved)
	d.ledger.RecordSaved(after)
	if err == nil {
		return nil
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) { // a holder of before, or a person, wrote it
		read, failed := d.records.Of(ctx, pool, string(p.GetUID()))
		if failed == nil {
			d.ledger.TakeRecord(read)
		}
		return errors.Join(err, failed)
	}
	if memory.mayTell(eventMovedUnrecorded, d.now()) {
		d.events.movedUnrecorded(p, err)
	}
	return err
}

// dropRecord ends the record of a pool that is gone.
func (d *desk) dropRecord(ctx context.Context, pool ledger.Key) error {
	_, stored, _ := d.ledger.MovedOf(pool, "")
	if len(stored.Parts) == 0 {
		return nil
	}
	there, err := poolExists(ctx, d.live, pool, stored.UID)
	if there || err != nil {
		return err
	}
	after, err := d.records.Save(ctx, stored, nil)
	d.ledger.RecordSaved(after)
	return err
}

// poolExists asks the API server whether the pool with this UID is stored.
func poolExists(ctx context.Context, live client.Reader, pool ledger.Key, uid string) (bool, error) {
	reading, known := poolReadings[pool.Kind]
	if !known {
		return true, nil
	}
	o := reading.empty()
	if err := live.Get(ctx, request(pool).NamespacedName, o); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return string(o.GetUID()) == uid, nil
}

// unrecorded is those that rest without a record in the status of their NetworkPool: of claims that write none, of allocations whose finalizer
// somebody took off, and those that went to another cluster. The record of an earlier rest of the same range says nothing.
func unrecorded(resting []ledger.Cooling, releases []butlerv1.Release, now time.Time) []ledger.Cooling {
	recorded := map[[2]string]bool{}
	for _, r := range releases {
		if rests(r, now) {
			recorded[[2]string{r.StartAddress, r.EndAddress}] = true
		}
	}
	return slices.DeleteFunc(resting, func(c ledger.Cooling) bool {
		return !c.Until.IsZero() && recorded[[2]string{c.Range.First.String(), c.Range.Last.String()}]
	})
}
