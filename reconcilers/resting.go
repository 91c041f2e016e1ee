package reconcilers

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
)

// recordResting writes into a pool which of its ranges rest, so that a restart knows it. It tells whether there was anything to write: the pool
// comes back then.
func (d *desk) recordResting(ctx context.Context, p client.Object, resting []ledger.Cooling, memory *poolMemory) (written bool, err error) {
	if _, readable := fields.Resting(p); !readable && len(resting) == 0 { // as after a restart: somebody may still correct it
		if memory.mayTell(eventRestsIllegible, d.now()) {
			d.events.restsIllegible(p)
		}
		return false, nil
	}
	text, lacking := fields.RestingText(p, resting)
	if lacking > 0 && memory.mayTell(eventRestsUnrecorded, d.now()) {
		d.events.restsUnrecorded(p, lacking)
	}
	if p.GetAnnotations()[butlerv1.AnnotationResting] == text {
		return false, nil
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
	err = overtaken.Ignore(ctx, d.live, p, d.save(ctx, p, after))
	return err == nil, err
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
