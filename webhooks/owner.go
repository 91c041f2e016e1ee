package webhooks

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/webhooks/review"
)

// ownerAdapter is what the webhooks require of each kind whose objects own addresses:
// claims and address objects.
type ownerAdapter[T client.Object] interface {
	// subject returns the kind and its fields.
	subject() review.Subject
	// newObject returns an empty object.
	newObject() T
	// parts returns the metadata and a pointer to the spec of an object: the parts that a
	// webhook decodes and changes.
	parts(T) (metadata *metav1.ObjectMeta, spec any)
	// toClaim converts an object to the ledger's claim: key, pool, token, and owned or
	// exactly requested ranges.
	toClaim(T) ledger.Claim
	// findFaults returns violations of rules that need no other object, and of the rules
	// for updates; old is nil for a create.
	findFaults(old, o T) field.ErrorList
	// readLedgerPool reads a pool for the ledger. Errors: *ledger.NoPoolError,
	// *ledger.NotServingError.
	readLedgerPool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error)
}

// managedChecker is implemented by adapters of kinds that other providers serve too.
type managedChecker[T client.Object] interface {
	// isManaged reports whether an object requests or records an address of a pool of
	// this manager.
	isManaged(T) bool
}

// referenceWarner is implemented by adapters of kinds whose references have ignored
// parts.
type referenceWarner[T client.Object] interface {
	// findIgnored returns one warning for each ignored part of the references.
	findIgnored(T) []string
}

// ownerWebhooks is the part of the webhooks that claims and address objects, the owners
// of addresses, share.
type ownerWebhooks[T client.Object] struct {
	ownerAdapter[T]
	managed      managedChecker[T]  // nil if all objects are managed
	references   referenceWarner[T] // nil if no part of a reference is ignored
	explainName  string             // argument for kubectl explain, in messages
	ledger       *ledger.Ledger
	cached, live client.Reader
}

// newOwnerWebhooks resolves the optional interfaces of an adapter.
func newOwnerWebhooks[T client.Object](o Options, adapter ownerAdapter[T], explainName string) ownerWebhooks[T] {
	k := ownerWebhooks[T]{ownerAdapter: adapter, explainName: explainName, ledger: o.Ledger, cached: o.Cached, live: o.Live}
	k.managed, _ = adapter.(managedChecker[T])
	k.references, _ = adapter.(referenceWarner[T])
	return k
}

func (k *ownerWebhooks[T]) isManaged(o T) bool { return k.managed == nil || k.managed.isManaged(o) }

// decode decodes an object. The status of an object that is not stored yet is dropped, as
// the API server does.
func (k *ownerWebhooks[T]) decode(raw []byte, stored bool) (T, error) {
	o := k.newObject()
	if stored {
		return o, decode(raw, o, k.explainName)
	}
	metadata, spec := k.parts(o)
	return o, decode(raw, &struct {
		Metadata *metav1.ObjectMeta `json:"metadata"`
		Spec     any                `json:"spec"`
	}{metadata, spec}, k.explainName)
}

// decodeRequest decodes the objects of a create or update; old is nil for a create.
func (k *ownerWebhooks[T]) decodeRequest(req *admission.Request) (o, old T, err error) {
	if !storesObject(req) {
		return o, old, nil
	}
	if o, err = k.decode(req.Object.Raw, false); err != nil {
		return o, old, err
	}
	// An object that is not stored yet may lack its namespace and its name: the request
	// has both.
	o.SetNamespace(req.Namespace)
	if o.GetName() == "" {
		o.SetName(req.Name)
	}
	if req.Operation == admissionv1.Update {
		old, err = k.decode(req.OldObject.Raw, true)
	}
	return o, old, err
}

// storesObject reports whether a request is a create or an update.
func storesObject(req *admission.Request) bool {
	return req.Operation == admissionv1.Create || req.Operation == admissionv1.Update
}

func isDryRun(req *admission.Request) bool { return req.DryRun != nil && *req.DryRun }

// mutateWith answers a create or update of an object without deletionTimestamp: mutate
// answers for a managed object, and ignored parts of new references cause warnings.
func (k *ownerWebhooks[T]) mutateWith(
	ctx context.Context, req *admission.Request, mutate func(ctx context.Context, req *admission.Request, o, old T) (admission.Response, error),
) (admission.Response, error) {
	o, old, err := k.decodeRequest(req)
	if err != nil || !storesObject(req) || o.GetDeletionTimestamp() != nil {
		return admission.Allowed(""), err
	}
	var ignored []string
	if k.references != nil {
		if ignored = k.references.findIgnored(o); req.Operation == admissionv1.Update && slices.Equal(ignored, k.references.findIgnored(old)) {
			ignored = nil
		}
	}
	response := admission.Allowed("")
	if k.isManaged(o) {
		if response, err = mutate(ctx, req, o, old); err != nil {
			return response, err
		}
	}
	return response.WithWarnings(ignored...), nil
}

// checkNotStored denies the create of an object whose name is taken, as the API server
// would after a grant: the grant would stay open for two minutes. The denial is right
// whatever happens meanwhile, because a live read during the create has found the object.
// Objects that are applied are not checked: the API server turns the create into an
// update if the object has been stored since. Without an answer of the API server the
// create goes on. Only the leader, which would grant, checks.
func (k *ownerWebhooks[T]) checkNotStored(ctx context.Context, o T) error {
	key, stored := client.ObjectKeyFromObject(o), k.newObject()
	isApplied := func(m metav1.ManagedFieldsEntry) bool { return m.Operation == metav1.ManagedFieldsOperationApply }
	if key.Name == "" || !k.ledger.MayGrant() || slices.ContainsFunc(o.GetManagedFields(), isApplied) {
		return nil
	}
	if k.cached.Get(ctx, key, stored, client.UnsafeDisableDeepCopy) != nil {
		return nil
	}
	stored = k.newObject()
	if k.live.Get(ctx, key, stored) != nil {
		return nil
	}
	return &review.ExistsError{Deleting: stored.GetDeletionTimestamp() != nil}
}

// recordFields records the fields of an object before a webhook changes the object.
func (k *ownerWebhooks[T]) recordFields(o T) fields {
	_, spec := k.parts(o)
	return readFields(o, spec)
}

// respond allows a request with the patch from the recorded fields to those of the
// changed object, and remembers the answer.
func (k *ownerWebhooks[T]) respond(before fields, o T) (admission.Response, error) {
	after := k.recordFields(o)
	p, err := before.diff(after)
	if err == nil {
		err = k.rememberAnswer(before, after)
	}
	if err != nil {
		return admission.Response{}, err
	}
	return admission.Patched("", p...), nil
}

// newRequest returns the request of an object. Ranges is set by askLedger; for a stored
// claim the caller adds UID, Version and, without a pool, the routing domain. The routing
// domain that a created object records is of another cluster or of its author.
func (k *ownerWebhooks[T]) newRequest(req *admission.Request, o T) ledger.Request {
	c := k.toClaim(o)
	return ledger.Request{Claim: c.Key, OwnerClaim: c.OwnerClaim, RequestUID: string(req.UID), Pool: c.Pool, RoutingDomain: o.GetLabels()[v1alpha1.LabelRoutingDomain]}
}

// askLedger grants a request, or previews the grant in a dry run. It sets q.Ranges to the
// result of build. If a newer version of the pool could change a denial, or an admitted
// update of the pool has not been observed (the cached pool may be outdated), askLedger
// reads the pool from the API server and asks with that version.
func (k *ownerWebhooks[T]) askLedger(ctx context.Context, q *ledger.Request, dryRun bool, build func(pools client.Reader) ([]ledger.RangeRequest, error)) (ledger.Grant, error) {
	ask := func(pools client.Reader) (g ledger.Grant, err error) {
		if q.Ranges, err = build(pools); err != nil {
			return g, err
		}
		if dryRun {
			g, err = k.ledger.Preview(ctx, *q)
		} else {
			g, err = k.ledger.Grant(ctx, *q)
		}
		if owned := (*ledger.OwnedError)(nil); errors.As(err, &owned) && q.Pool.Name != "" {
			err = &ledger.PoolError{Pool: q.Pool, Err: err} // the message names the pool
		}
		return g, err
	}
	if !k.ledger.HasPendingUpdate(q.Pool) {
		g, err := ask(k.cached)
		if q.Pool == (ledger.Key{}) || !dependsOnPool(err) {
			return g, err
		}
	}
	pool, err := k.readLedgerPool(ctx, q.Pool, k.live)
	if err != nil {
		return ledger.Grant{}, err
	}
	k.ledger.AddReadPool(pool)
	return ask(k.live)
}

// dependsOnPool reports whether a newer version of the pool could change the result err.
// An owned address stays owned.
func dependsOnPool(err error) bool {
	var (
		missing  *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
		paused   *ledger.PoolPausedError
		faulty   *ledger.FaultyPoolError
		manual   *ledger.NotAutomaticError
		family   *ledger.FamilyError
		pool     *ledger.PoolError
		unfit    object.UnfitError
		owned    *ledger.OwnedError
	)
	if errors.As(err, &owned) {
		return false
	}
	return errors.As(err, &missing) || errors.As(err, &deleting) || errors.As(err, &paused) || errors.As(err, &faulty) || errors.As(err, &manual) || errors.As(err, &family) || errors.As(err, &pool) || errors.As(err, &unfit)
}

// buildAnnotations returns the annotations for a grant, "" for an annotation to remove.
// Without a grant, token, origin and routing domain are removed. The grant of a call that
// has ended is withdrawn: no object will have the token.
func (k *ownerWebhooks[T]) buildAnnotations(ctx context.Context, g *ledger.Grant, requests []ledger.RangeRequest) (map[string]string, error) {
	if g == nil {
		return map[string]string{v1alpha1.AnnotationGrant: "", v1alpha1.AnnotationOrigin: "", v1alpha1.AnnotationGrantedDomain: ""}, nil
	}
	if ctx.Err() != nil {
		k.ledger.Withdraw(g.Token)
		return nil, &ledger.NotServingError{Reason: "the call ended before the response was sent"}
	}
	origin := v1alpha1.OriginAuto
	if !slices.ContainsFunc(requests, func(w ledger.RangeRequest) bool { return !w.Exact.IsValid() }) {
		origin = v1alpha1.OriginPinned
	}
	return map[string]string{
		v1alpha1.AnnotationGrant: g.Token.String(), v1alpha1.AnnotationOrigin: origin, v1alpha1.AnnotationGrantedDomain: object.FormatDomain(g.RoutingDomain),
	}, nil
}

// setAnnotationsOfCreate sets the annotations of a created object. An object with an
// origin is restored from a backup: its TenantCluster or Service was restored with a new
// UID, so the annotations with the old UIDs are removed.
func setAnnotationsOfCreate(o metav1.Object, annotations map[string]string) {
	if kind := kinds.Of(o); kind != nil && o.GetAnnotations()[v1alpha1.AnnotationOrigin] != "" {
		for _, annotation := range kind.UIDAnnotations {
			annotations[annotation] = ""
		}
	}
	setAnnotations(o, annotations)
}

// restoreAnnotations restores absent annotations of a stored allocation. A token that an
// update adds is removed.
func restoreAnnotations(stored, updated metav1.Object) {
	annotations := findAbsent(updated, stored, v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin, v1alpha1.AnnotationChosen, v1alpha1.AnnotationGrantedDomain)
	if stored.GetAnnotations()[v1alpha1.AnnotationGrant] == "" {
		annotations[v1alpha1.AnnotationGrant] = ""
	}
	setAnnotations(updated, annotations)
}

// findAbsent returns annotations of stored that updated lacks.
func findAbsent(updated, stored metav1.Object, keys ...string) map[string]string {
	values := map[string]string{}
	for _, key := range keys {
		if value := stored.GetAnnotations()[key]; value != "" && updated.GetAnnotations()[key] == "" {
			values[key] = value
		}
	}
	return values
}

// checkAddsNothing denies an update by which a deleted or moved object would add ranges,
// a token, a pool or an owner. Such an object may give up ranges.
func (k *ownerWebhooks[T]) checkAddsNothing(old, o T) error {
	was, is := k.toClaim(old), k.toClaim(o)
	for _, r := range is.Ranges {
		if !slices.Contains(was.Ranges, r) {
			return review.InvalidError{field.Forbidden(k.subject().ExactPath(r), fmt.Sprintf(
				"%s cannot be requested by an object that is being deleted, or moved to another cluster: create another object", r))}
		}
	}
	if was.Token != is.Token && !is.Token.IsZero() {
		return review.InvalidError{field.Forbidden(field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationGrant), "is set by the allocator: keep the stored value, or omit the annotation")}
	}
	if is.RoutingDomainGranted && is.RoutingDomain != was.RoutingDomain {
		return review.InvalidError{field.Forbidden(domainPath, "is set by the allocator: keep the stored value, or omit the annotation")}
	}
	if is.Pool != was.Pool && is.Pool != (ledger.Key{}) || is.OwnerClaim != was.OwnerClaim {
		return review.InvalidError{field.Forbidden(field.NewPath("spec"), "an object that is being deleted, or moved to another cluster, keeps its pool and its claim: create another object")}
	}
	return nil
}

// domainPath is the path of the annotation that records the routing domain of the
// addresses of an object.
var domainPath = field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationGrantedDomain)

// checkDomain denies an update that changes the recorded routing domain of an object,
// unless it records the routing domain in which the object owns its addresses: a record
// may be missing, or changed while the webhooks were not installed.
func (k *ownerWebhooks[T]) checkDomain(ctx context.Context, old, o T) error {
	recorded := o.GetAnnotations()[v1alpha1.AnnotationGrantedDomain]
	if recorded == "" || recorded == old.GetAnnotations()[v1alpha1.AnnotationGrantedDomain] {
		return nil
	}
	domain, owns, err := k.ledger.DomainOf(ctx, string(old.GetUID()), object.ResourceVersion(old))
	switch {
	case err != nil:
		return err
	case !owns:
		return review.InvalidError{field.Invalid(domainPath, recorded, "is set by the allocator, which granted nothing to this object: omit the annotation")}
	case recorded != object.FormatDomain(domain):
		return review.InvalidError{field.Invalid(domainPath, recorded, fmt.Sprintf(
			"is the routing domain of the addresses and cannot be changed: omit the annotation, or write %q", object.FormatDomain(domain)))}
	}
	return nil
}

// warnLabel warns of a label that names another routing domain than that of the addresses
// of an object.
func warnLabel(o metav1.Object, domain string) []string {
	named, has := o.GetLabels()[v1alpha1.LabelRoutingDomain]
	if !has || named == domain {
		return nil
	}
	return []string{fmt.Sprintf("label %s is %q, and has no effect: the addresses are in routing domain %q, that of the pool: correct or omit the label", v1alpha1.LabelRoutingDomain, named, domain)}
}

// checkRoutingDomainUnchanged protects the label of an object with addresses and without
// a pool, which names the routing domain of its addresses to people and programs. The
// label cannot be changed, and an object that leaves its pool must have the label.
func (k *ownerWebhooks[T]) checkRoutingDomainUnchanged(ctx context.Context, old, o T) error {
	was, is := k.toClaim(old), k.toClaim(o)
	label := field.NewPath("metadata", "labels").Key(v1alpha1.LabelRoutingDomain)
	named := o.GetLabels()[v1alpha1.LabelRoutingDomain]
	switch {
	case len(was.Ranges) == 0 || is.Pool != (ledger.Key{}):
		return nil
	case was.Pool == (ledger.Key{}):
		if named != was.RoutingDomain && named != old.GetLabels()[v1alpha1.LabelRoutingDomain] {
			return review.InvalidError{field.Forbidden(label, fmt.Sprintf("cannot be changed while addresses of routing domain %q are owned without a pool: create another %s and delete this one",
				was.RoutingDomain, k.subject().Kind.Kind))}
		}
		return nil
	}
	domain, err := was.RoutingDomain, error(nil)
	if !was.RoutingDomainGranted {
		domain, err = k.readDomain(ctx, was)
	}
	if err == nil && named != domain {
		err = review.InvalidError{field.Invalid(label, named, fmt.Sprintf(
			"must be %q, the routing domain of the addresses, before the object may leave pool %s: correct the label in the same update", domain, was.Pool))}
	}
	return err
}

// readDomain returns the routing domain of an object that does not record it: that of its
// pool or, if the pool is missing, of its label.
func (k *ownerWebhooks[T]) readDomain(ctx context.Context, c ledger.Claim) (string, error) {
	pool, err := k.readLedgerPool(ctx, c.Pool, k.cached)
	missing := (*ledger.NoPoolError)(nil)
	if errors.As(err, &missing) {
		pool, err = k.readLedgerPool(ctx, c.Pool, k.live)
	}
	if errors.As(err, &missing) {
		return c.RoutingDomain, nil
	}
	return pool.RoutingDomain, err
}

// checkToken requires the open grant of an object with ranges and a token. uid and
// version identify the stored claim; a create has "" and 0, since the API server may
// store the object under another UID.
func (k *ownerWebhooks[T]) checkToken(ctx context.Context, c ledger.Claim, uid string, version uint64) error {
	err := k.ledger.CheckGrant(ctx, c, uid, version)
	switch {
	case uid == "" && errors.Is(err, ledger.ErrNoGrant):
		// The object was restored from a backup, with addresses and an old token. The
		// first mutating call failed, and the API server skipped the second call because
		// the object had addresses, token and origin already (review.Entry). A new create
		// may succeed.
		return &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second,
			Reason: fmt.Sprintf("%s comes with a token in annotation %s that has no open grant: the first call to the allocator failed, "+
				"or another webhook or client has changed the allocator's answer", describeRanges(c), v1alpha1.AnnotationGrant)}
	case errors.Is(err, ledger.ErrForged):
		return fmt.Errorf("%s: %w: another webhook or client has changed the allocator's answer: find and correct that webhook or client", describeRanges(c), err)
	}
	return err
}

// awaitsPool reports whether an object without a token may be stored because its pool is
// not observed yet: the pool may be new, and the object becomes an owner (package state,
// "Stored objects count") as soon as the pool is observed. Only the leader can tell,
// because it has observed each pool from which it has allocated. On another replica the
// error is a *ledger.NotServingError, upon which package review forwards the call to the
// leader.
func (k *ownerWebhooks[T]) awaitsPool(c ledger.Claim) (bool, error) {
	if c.Pool.Name == "" || k.ledger.HasObserved(c.Pool, 0) {
		return false, nil
	}
	return true, k.ledger.CheckLeads()
}

// newMissingTokenError returns the denial of an object with ranges and without a token:
// the pool appeared after the mutating call, or the mutating webhook was not called.
func newMissingTokenError(c ledger.Claim) error {
	return &ledger.NotServingError{NoOtherReplica: true, RetryAfter: time.Second,
		Reason: fmt.Sprintf("%s comes without annotation %s", describeRanges(c), v1alpha1.AnnotationGrant)}
}

// describeRanges names the ranges of a claim and its pool.
func describeRanges(c ledger.Claim) string {
	texts := make([]string, len(c.Ranges))
	for i, r := range c.Ranges {
		texts[i] = r.String()
	}
	what := "range " + strings.Join(texts, " and ")
	if c.Pool.Name != "" {
		what += " of pool " + c.Pool.String()
	}
	return what
}

// findAllocationFaults returns changes of the annotations of a stored allocation. A claim
// without origin has no allocation yet; the reconciler writes the origin "adopted" when
// the claim becomes an owner. A token is never added by an update.
func findAllocationFaults(old, updated metav1.Object) field.ErrorList {
	grant := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationGrant)
	if old.GetAnnotations()[v1alpha1.AnnotationGrant] == "" && updated.GetAnnotations()[v1alpha1.AnnotationGrant] != "" {
		return field.ErrorList{field.Forbidden(grant, "is set by the allocator, which granted nothing to this object: omit the annotation")}
	}
	if old.GetAnnotations()[v1alpha1.AnnotationOrigin] == "" {
		return nil
	}
	var faults field.ErrorList
	for _, key := range []string{v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin} {
		was, is := old.GetAnnotations()[key], updated.GetAnnotations()[key]
		if was != "" && is != "" && was != is {
			faults = append(faults, field.Invalid(field.NewPath("metadata", "annotations").Key(key), is, fmt.Sprintf("is part of the allocator's answer and cannot be changed: omit it, or write %q", was)))
		}
	}
	return faults
}
