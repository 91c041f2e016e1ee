package reconcilers

import (
	"context"
	"math"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// write puts an answer on a stored allocation: all that a create gets from the webhooks, in one write. What is adopted comes without a
// token: nobody granted it. A write whose outcome is unknown needs no word: the ledger keeps the grant until it cannot land any more.
func (d *desk) write(ctx context.Context, a *v1alpha1.IPAllocation, g ledger.Grant, origin string) error {
	if a.Spec.PinnedRange == nil {
		a.Spec.PinnedRange = butler.PinnedRange(g.Range)
	}
	if size := g.Range.Size(); a.Spec.Count == nil && size <= math.MaxInt32 {
		a.Spec.Count = ptr.To(int32(size))
	}
	if !g.Token.IsZero() {
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationGrant, g.Token.String())
	}
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationOrigin, origin)
	complete(a, butler.MissingLabels(a, g.Space))
	if err := d.client.Update(ctx, a); err != nil {
		return overtaken(err)
	}
	d.answers.add(client.ObjectKeyFromObject(a), a.UID)
	return nil
}
