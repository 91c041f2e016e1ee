package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// mutate allocates the ranges of a claim, or restores absent fields of a stored
// allocation. mutate warns of ignored parts of a new claim's references.
func (k *claims[T]) mutate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	return k.mutateWith(ctx, req, k.mutateManaged)
}

func (k *claims[T]) mutateManaged(ctx context.Context, req *admission.Request, c, old T) (admission.Response, error) {
	before := k.recordFields(c)
	if req.Operation != admissionv1.Update {
		if faults := append(findMetadataFaults(c), k.findFaults(old, c)...); len(faults) > 0 {
			return admission.Response{}, review.InvalidError(faults)
		}
		return k.mutateCreate(ctx, req, before, c)
	}
	unmet, err := k.isUnmetRequest(ctx, old)
	stored := old
	switch {
	case err != nil:
		return admission.Response{}, err
	case unmet && sameRequest(k.toClaim(old), k.toClaim(c)):
		return k.keepRequest(before, c, old)
	case unmet:
		old = k.adapter.withoutAddresses(old)
	}
	if k.adapter.hasAddresses(old) {
		k.adapter.restoreSpec(old, c)
		if faults := k.findFaults(old, c); len(faults) > 0 { // all faults; the rules of the schema report the first only
			return admission.Response{}, review.InvalidError(faults)
		}
		if err := k.checkStatusWritten(stored, c); err != nil {
			return admission.Response{}, err
		}
		if k.changesAddresses(old, c) { // the claim owns the old and the new addresses until the update is observed
			return k.mutateUpdate(ctx, req, before, c, old)
		}
		restoreAnnotations(old, c)
		return k.respond(before, c)
	}
	if faults := append(findMetadataFaults(c), k.findFaults(old, c)...); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	if err := k.checkStatusWritten(stored, c); err != nil {
		return admission.Response{}, err
	}
	asked, uid := k.toClaim(c), string(old.GetUID())
	if len(asked.Ranges) > 0 && !asked.Token.IsZero() {
		// An update by the reconciler that fulfils a Pending claim carries range and
		// token.
		err := k.ledger.CheckGrant(ctx, asked, uid, object.ResourceVersion(old))
		if err == nil {
			err = k.rememberAnswer(k.recordFields(old), before)
		}
		if !errors.Is(err, ledger.ErrForged) {
			return admission.Allowed(""), err
		}
	}
	return k.mutateUpdate(ctx, req, before, c, old)
}

// isUnmetRequest reports whether the ranges of a stored claim are only a request, since
// the claim does not own them. Examples are a claim for ranges outside its pool, a claim
// whose pool is missing, and the losing claim of a conflict. Such a request may be
// changed and removed.
//
// A claim with a token, or with an allocation in the status, owns its ranges unless the
// status denies them: this is known without the ledger, so a follower answers too. In
// every other case, as before the first status of a claim that was stored without a
// grant, the ledger decides.
func (k *claims[T]) isUnmetRequest(ctx context.Context, stored T) (bool, error) {
	named := k.toClaim(stored)
	allocated := (!named.Token.IsZero() || named.AllocatedEarlier) && !named.Flagged && !k.adapter.isDeniedByStatus(stored)
	if allocated || len(named.Ranges) == 0 && !k.adapter.hasAddresses(stored) {
		return false, nil
	}
	owns, err := k.ledger.OwnsAll(ctx, named.UID, named.ResourceVersion)
	return !owns, err
}

// checkStatusWritten returns a *ledger.NotServingError for an update that is allowed here
// and that a rule of the CRD would deny, only because the rule reads the status, whose
// first version is not written yet. Clients repeat the update.
func (k *claims[T]) checkStatusWritten(stored, c T) error {
	if k.statusRuled == nil || !k.statusRuled.awaitsStatus(stored, c) {
		return nil
	}
	return &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second,
		Reason: "the first status of this object is not written yet, and a rule of the API reads the status to permit this change"}
}

// sameRequest reports whether two versions of a claim request the same ranges of the same
// pool.
func sameRequest(old, updated ledger.Claim) bool {
	return slices.Equal(old.Ranges, updated.Ranges) && old.Pool == updated.Pool && (old.Pool != (ledger.Key{}) || old.RoutingDomain == updated.RoutingDomain)
}

// keepRequest allows an update that leaves an unmet request unchanged.
func (k *claims[T]) keepRequest(before fields, c, stored T) (admission.Response, error) {
	if faults := k.findFaults(k.adapter.withoutAddresses(stored), c); len(faults) > 0 {
		return admission.Response{}, review.InvalidError(faults)
	}
	if err := k.checkStatusWritten(stored, c); err != nil {
		return admission.Response{}, err
	}
	restoreAnnotations(stored, c)
	k.updateMetadata(stored, c)
	return k.respond(before, c)
}

// updateMetadata replaces metadata that the allocator derived from the old spec. The
// label of the old pool's routing domain is removed; completeMetadata adds the label of
// the new pool's.
func (k *claims[T]) updateMetadata(old, c T) {
	label := v1alpha1.LabelRoutingDomain
	if value, has := c.GetLabels()[label]; has && k.toClaim(old).Pool != k.toClaim(c).Pool && value == old.GetLabels()[label] {
		removeLabel(c, label)
	}
	if k.deriver != nil {
		k.deriver.updateMetadata(old, c)
	}
}

func removeLabel(o metav1.Object, label string) {
	labels := o.GetLabels()
	delete(labels, label)
	o.SetLabels(labels)
}

// mutateCreate allocates the ranges of a new claim whose name is not taken.
func (k *claims[T]) mutateCreate(ctx context.Context, req *admission.Request, before fields, c T) (admission.Response, error) {
	if err := k.checkNotStored(ctx, c); err != nil {
		return admission.Response{}, err
	}
	q := k.newRequest(req, c)
	annotations, routingDomain, warnings, err := k.fill(ctx, &q, c, isDryRun(req))
	if err != nil {
		return admission.Response{}, err
	}
	replaceRestoredLabel(c, annotations, routingDomain)
	setAnnotationsOfCreate(c, annotations)
	if k.origins != nil {
		var none T
		k.origins.setOrigin(none, c, q.Ranges)
	}
	k.adapter.completeMetadata(c, routingDomain)
	removeManagedFields(c)
	response, err := k.respond(before, c)
	return response.WithWarnings(append(warnings, k.warnWrongLabel(c, annotations, routingDomain)...)...), err
}

// replaceRestoredLabel removes the label of the routing domain from an object that is
// restored from a backup, if its addresses were granted in another routing domain: the
// allocator wrote the label in the cluster of the backup. completeMetadata adds the new
// label.
func replaceRestoredLabel(c metav1.Object, annotations map[string]string, routingDomain string) {
	if named, _ := object.RoutingDomain(c); annotations[v1alpha1.AnnotationGrant] != "" && c.GetAnnotations()[v1alpha1.AnnotationOrigin] != "" && named != routingDomain {
		removeLabel(c, v1alpha1.LabelRoutingDomain)
	}
}

// warnWrongLabel is warnLabel for a claim with a grant in a routing domain.
func (k *claims[T]) warnWrongLabel(c T, annotations map[string]string, routingDomain string) []string {
	if annotations[v1alpha1.AnnotationGrant] == "" {
		return nil
	}
	return warnLabel(c, routingDomain)
}

// mutateUpdate allocates the ranges of a stored claim without ranges, or the different
// ranges that an update requests.
func (k *claims[T]) mutateUpdate(ctx context.Context, req *admission.Request, before fields, c, stored T) (admission.Response, error) {
	q := k.newRequest(req, c)
	q.UID, q.Version = string(stored.GetUID()), object.ResourceVersion(stored)
	if was := k.toClaim(stored); was.RoutingDomainGranted && was.Pool == (ledger.Key{}) {
		q.RoutingDomain = was.RoutingDomain
	}
	annotations, routingDomain, warnings, err := k.fill(ctx, &q, c, isDryRun(req))
	if err != nil {
		return admission.Response{}, err
	}
	setAnnotations(c, annotations)
	if k.origins != nil {
		k.origins.setOrigin(stored, c, q.Ranges)
	}
	k.updateMetadata(stored, c)
	k.adapter.completeMetadata(c, routingDomain)
	response, err := k.respond(before, c)
	return response.WithWarnings(append(warnings, k.warnWrongLabel(c, annotations, routingDomain)...)...), err
}

// fill allocates the ranges of a claim and writes them into the claim. It returns the
// annotations of the grant and the routing domain; "" for a claim that is stored without
// a grant. Error: the claim is denied.
func (k *claims[T]) fill(ctx context.Context, q *ledger.Request, c T, dryRun bool) (annotations map[string]string, routingDomain string, warnings []string, err error) {
	grant, warnings, err := k.allocate(ctx, q, c, dryRun)
	if err != nil {
		return nil, "", nil, err
	}
	if annotations, err = k.buildAnnotations(ctx, grant, q.Ranges); err != nil || grant == nil {
		return annotations, "", warnings, err
	}
	return annotations, grant.RoutingDomain, append(warnings, k.adapter.fillSpec(c, grant.Ranges)...), nil
}

// allocate asks the ledger. The grant is nil for a claim that is stored without a grant:
// the reconciler serves it later. Error: the claim is denied.
func (k *claims[T]) allocate(ctx context.Context, q *ledger.Request, c T, dryRun bool) (grant *ledger.Grant, warnings []string, denial error) {
	g, err := k.requestRanges(ctx, q, c, dryRun)
	if err == nil {
		return &g, nil, nil
	}
	if !dryRun {
		k.ledger.CountDenied(q.Pool, err)
	}
	if missing := (*ledger.NoPoolError)(nil); errors.As(err, &missing) { // also of a request for an exact range
		return nil, []string{fmt.Sprintf("pool %s does not exist: the claim waits, and its request is served when the pool is created", missing.Pool)}, nil
	}
	warning, denial := k.admitPending(c, err)
	if denial != nil {
		return nil, nil, denial
	}
	return nil, []string{warning}, nil
}

const (
	// addressObjectWait bounds how long the create of a claim waits for the event of an
	// address object.
	addressObjectWait = 2 * time.Second
	addressObjectPoll = 50 * time.Millisecond
	// maxWaitingClaims bounds the waiting creates of one kind of claims: every author of
	// claims can write the annotations of a restored claim. Above the bound, a create is
	// denied at once.
	maxWaitingClaims = 16
)

// requestRanges asks the ledger for the ranges of a claim, again while an address object
// of the claim may be stored and not observed yet.
func (k *claims[T]) requestRanges(ctx context.Context, q *ledger.Request, c T, dryRun bool) (g ledger.Grant, err error) {
	ask := func() (ledger.Grant, error) {
		return k.askLedger(ctx, q, dryRun, func(pools client.Reader) ([]ledger.RangeRequest, error) { return k.adapter.requests(ctx, c, pools) })
	}
	if g, err = ask(); err == nil || k.awaiter == nil || !k.awaiter.awaitsAddressObject(c, err) {
		return g, err
	}
	select {
	case k.waiting <- struct{}{}:
		defer func() { <-k.waiting }()
	default:
		return g, err
	}
	for began := time.Now(); err != nil && k.awaiter.awaitsAddressObject(c, err) && time.Since(began) < addressObjectWait && journal.Pause(ctx, addressObjectPoll) == nil; {
		g, err = ask()
	}
	return g, err
}
