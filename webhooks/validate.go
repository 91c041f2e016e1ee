package webhooks

import (
	"context"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/webhooks/review"
)

// validate denies a claim that differs from its grant, and changes of a stored
// allocation.
func (k *claims[T]) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	c, old, err := k.decodeRequest(req)
	if err != nil || !storesObject(req) || !k.isManaged(c) {
		return admission.Allowed(""), err
	}
	if req.Operation == admissionv1.Update {
		return k.validateUpdate(ctx, req, c, old)
	}
	if faults := k.findFaults(old, c); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	return k.validateGrant(ctx, req, c, "", 0)
}

func (k *claims[T]) validateUpdate(ctx context.Context, req *admission.Request, c, old T) (admission.Response, error) {
	var (
		stored = old
		unmet  = false
		leaves = c.GetDeletionTimestamp() != nil || k.toClaim(c).MarkedMoved
		err    error
	)
	if !leaves {
		if unmet, err = k.isUnmetRequest(ctx, old); err != nil {
			return admission.Response{}, err
		}
	}
	if unmet {
		old = k.adapter.withoutAddresses(old)
	}
	if err := k.checkRoutingDomainUnchanged(ctx, old, c); err != nil {
		return admission.Response{}, err
	}
	if leaves {
		return admission.Allowed(""), k.checkAddsNothing(old, c)
	}
	faults := k.findFaults(old, c)
	unchanged := k.adapter.hasAddresses(old) && !k.changesAddresses(old, c)
	if unmet {
		unchanged = sameRequest(k.toClaim(stored), k.toClaim(c)) // nothing was granted
	}
	if unchanged {
		faults = append(faults, findAllocationFaults(stored, c)...)
	}
	if len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	if unchanged && !unmet {
		if err := k.checkRestored(stored, c); err != nil {
			return admission.Response{}, err
		}
	}
	if unchanged {
		return admission.Allowed(""), k.checkDomain(ctx, stored, c)
	}
	return k.validateGrant(ctx, req, c, string(old.GetUID()), object.ResourceVersion(old))
}

// validateGrant requires an open grant for the ranges of a claim. uid and version
// identify the stored claim; a create has "" and 0, since its UID is a candidate only.
func (k *claims[T]) validateGrant(ctx context.Context, req *admission.Request, c T, uid string, version uint64) (admission.Response, error) {
	claim := k.toClaim(c)
	if len(claim.Ranges) == 0 && claim.Token.IsZero() || isDryRun(req) {
		return admission.Allowed(""), nil
	}
	if claim.Token.IsZero() {
		if awaits, err := k.awaitsPool(claim); awaits {
			return admission.Allowed(""), err
		}
		// The mutating call was not made; or the pool appeared after it; or it let a
		// Metal3 or Cluster API claim with an address be stored without a grant, as its
		// pool or Cluster is paused (clusterpause.WaitError). In the last case the
		// adapter returns that error before the ledger is asked; every other error is
		// dropped, and the answer is the missing token. Any other error of the preview is
		// not reported here: the next create gets it from its mutating call.
		q := k.newRequest(req, c)
		if _, err := k.requestRanges(ctx, &q, c, true); err != nil {
			if warning, _ := k.admitPending(c, err); warning != "" {
				return admission.Allowed(""), nil
			}
		}
		return admission.Response{}, newMissingTokenError(claim)
	}
	if uid == "" && c.GetGenerateName() != "" && k.generated != nil {
		if err := k.generated.checkGeneratedName(ctx, c, k.cached); err != nil {
			return admission.Response{}, err
		}
	}
	if err := k.checkToken(ctx, claim, uid, version); err != nil {
		return admission.Response{}, err
	}
	if err := k.checkAnswer(c, claim.Token); err != nil {
		return admission.Response{}, err
	}
	if !k.adapter.hasAddresses(c) { // the mutating call answers with all addresses, or with none and without a token
		return admission.Response{}, &review.ChangedError{Field: field.NewPath("spec"), Is: "without some addresses", Answered: "all addresses"}
	}
	return admission.Allowed(""), nil
}
