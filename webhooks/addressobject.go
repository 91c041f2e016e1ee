package webhooks

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// addressObjects is the generic path of one kind of address objects. An address object
// owns its address for its claim from its create, and requests no other address; an
// update cannot change the address.
type addressObjects[T client.Object] struct {
	ownerWebhooks[T]
}

// mutate grants the address of a new address object, or restores absent annotations of a
// stored allocation.
func (k *addressObjects[T]) mutate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	return k.mutateWith(ctx, req, k.mutateManaged)
}

func (k *addressObjects[T]) mutateManaged(ctx context.Context, req *admission.Request, o, old T) (admission.Response, error) {
	before := k.recordFields(o)
	if req.Operation == admissionv1.Update {
		if faults := k.findFaults(old, o); len(faults) > 0 {
			return admission.Response{}, review.InvalidError(faults)
		}
		restoreAnnotations(old, o)
		return k.respond(before, o)
	}
	if faults := append(findMetadataFaults(o), k.findFaults(old, o)...); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	if err := k.checkNotStored(ctx, o); err != nil {
		return admission.Response{}, err
	}
	q := k.newRequest(req, o)
	grant, owned, warnings, err := k.grant(ctx, &q, o, isDryRun(req))
	if err != nil {
		return admission.Response{}, err
	}
	annotations, err := k.buildAnnotations(ctx, grant, q.Ranges)
	if err != nil {
		return admission.Response{}, err
	}
	if owned != nil { // by the claim of the object, or kept for it
		annotations[v1alpha1.AnnotationGrantedDomain] = object.FormatDomain(owned.RoutingDomain)
	}
	setAnnotationsOfCreate(o, annotations)
	removeManagedFields(o)
	response, err := k.respond(before, o)
	return response.WithWarnings(warnings...), err
}

// grant asks the ledger. The grant is nil for an address object that is stored without a
// grant: its claim owns the address (owned), or its pool is missing. Error: the address
// object is denied.
func (k *addressObjects[T]) grant(ctx context.Context, q *ledger.Request, o T, dryRun bool) (grant *ledger.Grant, owned *ledger.OwnedError, warnings []string, denial error) {
	g, unoffered, err := k.ask(ctx, q, o, dryRun)
	if unoffered != "" {
		warnings = []string{unoffered}
	}
	if err == nil {
		return &g, nil, warnings, nil
	}
	if !dryRun {
		k.ledger.CountDenied(q.Pool, err)
	}
	if missing := (*ledger.NoPoolError)(nil); errors.As(err, &missing) {
		return nil, nil, []string{fmt.Sprintf("pool %s does not exist: the claim owns the address as soon as the pool is created, unless the address has another owner by then", missing.Pool)}, nil
	}
	warning, denial := decideUngranted(k.toClaim(o), err)
	if warning != "" {
		warnings = append(warnings, warning)
	}
	errors.As(err, &owned)
	return nil, owned, warnings, denial
}

// ask asks the ledger for the address of an address object. If the pool does not offer
// the address, ask asks again without the rules of the pool, and unoffered is the
// warning.
func (k *addressObjects[T]) ask(ctx context.Context, q *ledger.Request, o T, dryRun bool) (g ledger.Grant, unoffered string, err error) {
	claim := k.toClaim(o)
	request := func(client.Reader) ([]ledger.RangeRequest, error) { return metal3.BuildObjectRequest(claim), nil }
	if g, err = k.askLedger(ctx, q, dryRun, request); err == nil {
		return g, "", nil
	}
	if unoffered, _ = decideUngranted(claim, err); unoffered != "" {
		q.IgnorePoolRules = true
		g, err = k.askLedger(ctx, q, dryRun, request)
	}
	return g, unoffered, err
}

// decideUngranted decides about an address object whose address is not granted:
//
//	err                                            outcome
//	the address is owned by the object's claim     stored without a grant
//	the address is owned by another claim          denied
//	the pool does not offer the address            granted without the rules of the pool, with a warning
//	another error                                  denied
func decideUngranted(claim ledger.Claim, err error) (warning string, denial error) {
	var (
		owned    *ledger.OwnedError
		outside  *allocator.OutsideError
		deleting *ledger.PoolDeletingError
		faulty   *ledger.FaultyPoolError
	)
	switch {
	case errors.As(err, &owned) && (owned.Moved || owned.Owner == claim.OwnerClaim && (owned.Pool == claim.Pool || owned.Pool == (ledger.Key{}))):
		return "", nil
	case errors.As(err, &owned):
		return "", fmt.Errorf("%w: %w", annotated.FailureUnavailable, err)
	case errors.As(err, &outside), errors.As(err, &deleting), errors.As(err, &faulty):
		return err.Error() + ": the claim owns the address nevertheless", nil
	}
	return "", err
}

// validate denies an address object that differs from its grant, and changes of a stored
// allocation.
func (k *addressObjects[T]) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	o, old, err := k.decodeRequest(req)
	if err != nil || !storesObject(req) || !k.isManaged(o) {
		return admission.Allowed(""), err
	}
	if req.Operation == admissionv1.Update {
		return admission.Allowed(""), k.checkUpdate(ctx, old, o)
	}
	if faults := k.findFaults(old, o); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	claim := k.toClaim(o)
	if len(claim.Ranges) == 0 || isDryRun(req) {
		return admission.Allowed(""), nil
	}
	if !claim.Token.IsZero() {
		if err := k.checkToken(ctx, claim, "", 0); err != nil {
			return admission.Response{}, err
		}
		return admission.Allowed(""), k.checkAnswer(o, claim.Token)
	}
	if awaits, err := k.awaitsPool(claim); awaits {
		return admission.Allowed(""), err
	}
	q := k.newRequest(req, o)
	if _, _, err := k.ask(ctx, &q, o, true); err != nil {
		_, denial := decideUngranted(claim, err)
		if owned := (*ledger.OwnedError)(nil); denial == nil && errors.As(err, &owned) && claim.RoutingDomainGranted && claim.RoutingDomain != owned.RoutingDomain {
			denial = fmt.Errorf("%s: %w: another webhook or client has changed annotation %s: find and correct that webhook or client", describeRanges(claim), ledger.ErrForged, v1alpha1.AnnotationGrantedDomain)
		}
		return admission.Allowed(""), denial
	}
	return admission.Response{}, newMissingTokenError(claim)
}

func (k *addressObjects[T]) checkUpdate(ctx context.Context, old, o T) error {
	if err := k.checkRoutingDomainUnchanged(ctx, old, o); err != nil {
		return err
	}
	if o.GetDeletionTimestamp() != nil || k.toClaim(o).MarkedMoved {
		return k.checkAddsNothing(old, o)
	}
	if faults := append(k.findFaults(old, o), findAllocationFaults(old, o)...); len(faults) > 0 {
		return review.InvalidError(faults)
	}
	return k.checkDomain(ctx, old, o)
}

// unreadAddressFields are the fields of an address object that describe its network.
var unreadAddressFields = []string{"prefix", "gateway", "dnsServers"}

// exactAddressPath returns the field of the address in an address object.
func exactAddressPath(allocator.Range) *field.Path { return field.NewPath("spec", "address") }
