package reconcilers

import (
	"context"
	"errors"
	"math"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// refusedError is the ledger's answer to a request that cannot be met.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

// requestOf asks for the range of a stored allocation; Exact or Count is left to the caller.
func requestOf(a *v1alpha1.IPAllocation) ledger.Request {
	return ledger.Request{Claim: butler.IPAllocationKey(a.Namespace, a.Name), UID: string(a.UID), Pool: butler.PoolKeyOf(a)}
}

// grant asks the ledger. Errors: *refusedError, *ledger.NotServingError. What comes of the grant needs no further word: when the
// outcome of its write is unknown, the ledger keeps it until that write cannot land any more.
func (d *desk) grant(ctx context.Context, q ledger.Request) (ledger.Grant, error) {
	grant, err := d.ledger.Grant(ctx, q)
	return grant, asked(err)
}

// asked tells what the ledger refuses from what it cannot answer now.
func asked(err error) error {
	if err == nil || errors.As(err, new(*ledger.NotServingError)) {
		return err
	}
	return &refusedError{err}
}

// write puts an answer on an allocation, all that a create gets from the webhooks, in one write.
func (d *desk) write(ctx context.Context, a *v1alpha1.IPAllocation, grant ledger.Grant, origin string) error {
	if a.Spec.PinnedRange == nil {
		a.Spec.PinnedRange = butler.PinnedRange(grant.Range)
	}
	if size := grant.Range.Size(); a.Spec.Count == nil && size <= math.MaxInt32 {
		a.Spec.Count = ptr.To(int32(size))
	}
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationGrant, grant.Token.String())
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationOrigin, origin)
	complete(a, butler.MissingLabels(a, grant.Space))
	if err := d.client.Update(ctx, a); err != nil {
		return overtaken(err)
	}
	d.sent.add(client.ObjectKeyFromObject(a), a.UID)
	return nil
}

// settled ends an attempt to answer an allocation: a refusal goes into its status, and what may succeed later comes again.
func (d *desk) settled(ctx context.Context, a *v1alpha1.IPAllocation, count int64, err error) (reconcile.Result, error) {
	var (
		refused *refusedError
		down    *ledger.NotServingError
	)
	switch {
	case errors.As(err, &down):
		return reconcile.Result{RequeueAfter: max(down.RetryAfter, time.Second)}, nil
	case errors.As(err, &refused):
		return reconcile.Result{}, d.refuse(ctx, a, refusal(a, count, refused.error))
	default:
		return reconcile.Result{}, err
	}
}
