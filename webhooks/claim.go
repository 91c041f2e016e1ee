package webhooks

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// claimAdapter is what the generic path requires of a claim kind, whose objects are T.
// Optional interfaces, which only some kinds implement:
//
//	managedChecker          other providers serve the kind too
//	referenceWarner         references have ignored parts
//	addressChanger          a claim with addresses may request different addresses
//	pendingAdmitter         a claim whose request cannot be met may be stored without addresses
//	objectAwaiter           a denial may end as soon as an address object is observed
//	generatedNameChecker    the addresses of a claim may depend on its name
//	metadataDeriver         metadata is derived from spec, beside the label of the routing domain
//	originSetter            the addresses of a claim may have different origins
//	statusRuled             rules of the CRD for updates of spec read the status
type claimAdapter[T client.Object] interface {
	ownerAdapter[T]
	// hasAddresses reports whether a stored claim names its ranges, owned or not.
	hasAddresses(T) bool
	// isDeniedByStatus reports whether the status of a stored claim denies the claim its
	// ranges.
	isDeniedByStatus(T) bool
	// withoutAddresses returns a copy of a stored claim without ranges.
	withoutAddresses(T) T
	// requests returns the ranges that a claim requests. For an IPAllocation the pool is
	// read only if the claim has neither range nor count; for claims of an IPPool always.
	// Errors: *ledger.NoPoolError, *ledger.NotServingError, annotated.Failure,
	// *clusterpause.WaitError.
	requests(ctx context.Context, c T, pools client.Reader) ([]ledger.RangeRequest, error)
	// fillSpec writes granted ranges into absent fields of a claim, and warns of ignored
	// values in the other fields. ranges lacks those that the stored claim owns already.
	fillSpec(c T, ranges []allocator.Range) (warnings []string)
	// restoreSpec copies absent fields of the stored allocation to the updated claim.
	restoreSpec(stored, updated T)
	// completeMetadata adds the labels of a claim in a routing domain, and the finalizer
	// that keeps the claim until its release is recorded.
	completeMetadata(c T, routingDomain string)
}

// addressChanger is implemented by adapters of claims that may request different
// addresses after allocation.
type addressChanger[T client.Object] interface {
	// changesAddresses reports whether an update of a claim with ranges requests
	// different ranges. Absent fields have been restored before.
	changesAddresses(old, c T) bool
}

// pendingAdmitter is implemented by adapters of claims that may be stored without
// addresses.
type pendingAdmitter[T client.Object] interface {
	// admitPending decides about a claim whose request cannot be met: with a warning the
	// claim is stored without addresses, with a denial it is denied. Exactly one of the
	// two is set.
	admitPending(c T, err error) (warning string, denial error)
}

// generatedNameChecker is implemented by adapters of claims whose addresses may depend on
// their names.
type generatedNameChecker[T client.Object] interface {
	// checkGeneratedName returns an error if a claim with a generated name cannot keep
	// the addresses granted before its name was known.
	checkGeneratedName(ctx context.Context, c T, pools client.Reader) error
}

// objectAwaiter is implemented by adapters of claims with address objects.
type objectAwaiter[T client.Object] interface {
	// awaitsAddressObject reports whether the denial err of a claim may end as soon as an
	// address object is observed: a restore from a backup may create the claim right
	// after its address object.
	awaitsAddressObject(c T, err error) bool
}

// metadataDeriver is implemented by adapters of claims with metadata derived from spec.
type metadataDeriver[T client.Object] interface {
	// updateMetadata replaces labels and annotations that the allocator derived from the
	// old spec by those of the new spec.
	updateMetadata(old, c T)
}

// originSetter is implemented by adapters of claims whose addresses may have different
// origins.
type originSetter[T client.Object] interface {
	// setOrigin writes the origins of the addresses into the annotations of an answered
	// claim; stored is nil for a create.
	setOrigin(stored, answered T, requests []ledger.RangeRequest)
}

// statusRuled is implemented by adapters of claims whose CRD permits certain changes of
// spec only by the status.
type statusRuled[T client.Object] interface {
	// awaitsStatus reports whether a rule of the CRD denies an update that the webhooks
	// allow, until the first status is written.
	awaitsStatus(stored, c T) bool
}

// claims is the generic path of one claim kind. The optional interfaces are nil where the
// adapter does not implement them.
type claims[T client.Object] struct {
	ownerWebhooks[T]
	adapter     claimAdapter[T]
	changer     addressChanger[T]
	pending     pendingAdmitter[T]
	generated   generatedNameChecker[T]
	awaiter     objectAwaiter[T]
	waiting     chan struct{} // one element for each create that waits for an address object
	deriver     metadataDeriver[T]
	origins     originSetter[T]
	statusRuled statusRuled[T]
}

// newClaims resolves the optional interfaces of an adapter.
func newClaims[T client.Object](o Options, adapter claimAdapter[T], explainName string) *claims[T] {
	k := &claims[T]{ownerWebhooks: newOwnerWebhooks(o, adapter, explainName), adapter: adapter, waiting: make(chan struct{}, maxWaitingClaims)}
	k.changer, _ = adapter.(addressChanger[T])
	k.pending, _ = adapter.(pendingAdmitter[T])
	k.generated, _ = adapter.(generatedNameChecker[T])
	k.awaiter, _ = adapter.(objectAwaiter[T])
	k.deriver, _ = adapter.(metadataDeriver[T])
	k.origins, _ = adapter.(originSetter[T])
	k.statusRuled, _ = adapter.(statusRuled[T])
	return k
}

func (k *claims[T]) changesAddresses(old, c T) bool {
	return k.changer != nil && k.changer.changesAddresses(old, c)
}

func (k *claims[T]) admitPending(c T, err error) (warning string, denial error) {
	if k.pending == nil {
		return "", err
	}
	return k.pending.admitPending(c, err)
}
