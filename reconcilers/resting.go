package reconcilers

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// recordResting writes into a pool which of its ranges rest, so that a restart knows it. It tells whether there was anything to write: the pool
// comes back then.
func (d *desk) recordResting(ctx context.Context, before, p client.Object, resting []ledger.Cooling) (written bool, err error) {
	text := fields.RestingText(resting)
	annotations := p.GetAnnotations()
	if annotations[butlerv1.AnnotationResting] == text {
		return false, nil
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	if annotations[butlerv1.AnnotationResting] = text; text == "" {
		delete(annotations, butlerv1.AnnotationResting)
	}
	p.SetAnnotations(annotations)
	return true, overtaken(d.save(ctx, before, p))
}

// away is those that went to another cluster: the others a NetworkPool records in its status.
func away(resting []ledger.Cooling) []ledger.Cooling {
	return slices.DeleteFunc(resting, func(c ledger.Cooling) bool { return !c.Until.IsZero() })
}
