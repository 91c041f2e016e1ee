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

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// adapter is what the generic path needs to know of one claim API, whose objects are T.
type adapter[T metav1.Object] interface {
	// subject of its webhooks.
	subject() subject
	// decode reads an object. One that is not stored yet has no status: the API server drops what it brings.
	decode(raw []byte, stored bool) (T, error)
	// claim is what the ledger would make of the object: key, pool, token, and the ranges that it has or asks for exactly.
	claim(T) ledger.Claim
	// answered tells whether a stored claim has its ranges, whatever they are worth.
	answered(T) bool
	// failed reports whether the status of a stored claim denies it the ranges that it names.
	failed(T) bool
	// unanswered is a copy of a stored claim that names no ranges.
	unanswered(T) T
	// follow removes what the allocator wrote on a stored claim as its old spec demanded, and writes what the new one demands.
	follow(p *patch, old, c T)
	// moves tells whether an update of a claim that has its ranges asks for others. What it leaves out has been put back.
	moves(old, c T) bool
	// faults of an object about to be stored, by the rules that need no other object, and by what an update may change of the stored
	// one; old is nil for a create.
	faults(old, c T) field.ErrorList
	// ours tells whether a claim is one that we answer at all.
	ours(T) bool
	// unmet is what becomes of a claim that cannot be given what it wants: it is stored all the same, without addresses, where hint says why;
	// else it is refused with the error.
	unmet(c T, err error) (hint string, refusal error)
	// renamed tells why a claim cannot be given what it got while its name was to be generated, now that it is.
	renamed(ctx context.Context, c T, pools client.Reader) error
	// wants is what a claim asks for. It reads the pool only where the claim leaves that to it; *ledger.NoPoolError where that does not
	// exist.
	wants(ctx context.Context, c T, pools client.Reader) ([]ledger.Want, error)
	// pool is one as the ledger knows it; *ledger.NoPoolError where it does not exist.
	pool(ctx context.Context, k ledger.Key, pools client.Reader) (ledger.Pool, error)
	// fill writes ranges, one for each want that is not met yet, into the fields of a claim that are absent, and warns of those that say
	// something else.
	fill(p *patch, c T, ranges []allocator.Range) (warnings []string)
	// restore writes what of the stored answer the updated claim leaves out, into the patch and the claim.
	restore(p *patch, stored, updated T)
	// complete writes the labels that a claim in a space should carry and does not, and the finalizer that keeps it until its release
	// is recorded.
	complete(p *patch, c T, space string)
}

// claims answers for one claim API.
type claims[T metav1.Object] struct {
	adapter[T]
	ledger       *ledger.Ledger
	cached, live client.Reader
}

// referring is an adapter whose claims have references of which a part does not count.
type referring[T metav1.Object] interface {
	// ignored says what of the references does not count: one warning each.
	ignored(T) []string
}

// mutate gives a claim its range, and gives one back what it leaves out of the answer it has. It warns of what does not count in a new claim's references.
func (k *claims[T]) mutate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	c, old, err := k.read(req)
	if err != nil || !stores(req) || c.GetDeletionTimestamp() != nil {
		return admission.Allowed(""), err
	}
	var ignored []string
	if refers, may := k.adapter.(referring[T]); may {
		if ignored = refers.ignored(c); req.Operation == admissionv1.Update && slices.Equal(ignored, refers.ignored(old)) {
			ignored = nil
		}
	}
	response := admission.Allowed("")
	if k.ours(c) {
		if response, err = k.answer(ctx, req, c, old); err != nil {
			return response, err
		}
	}
	return response.WithWarnings(ignored...), nil
}

func (k *claims[T]) answer(ctx context.Context, req *admission.Request, c, old T) (admission.Response, error) {
	update := req.Operation == admissionv1.Update
	var p patch
	if update {
		wish, err := k.wish(ctx, old)
		switch {
		case err != nil:
			return admission.Response{}, err
		case wish && sameRequest(k.claim(old), k.claim(c)):
			return k.keep(p, c, old)
		case wish:
			old = k.unanswered(old)
		}
	}
	if update && k.answered(old) {
		k.restore(&p, old, c)
		if faults := k.faults(old, c); len(faults) > 0 { // all of them, where the rules of the schema name the first
			return admission.Response{}, invalid(faults)
		}
		if k.moves(old, c) { // it is given what it asks for beside what it has, until the update is seen
			return k.give(ctx, req, p, c, old)
		}
		restoreAnswer(&p, old, c)
		return admission.Patched("", p...), nil
	}
	if faults := append(metadataFaults(c), k.faults(old, c)...); len(faults) > 0 {
		return admission.Response{}, invalid(faults)
	}
	if !update {
		return k.give(ctx, req, p, c, nil)
	}
	asked, uid := k.claim(c), string(old.GetUID())
	if len(asked.Ranges) > 0 && !asked.Token.IsZero() {
		// A Pending claim that is fulfilled by the reconciler brings range and token with it.
		if err := k.ledger.Granted(ctx, asked.Key, uid, fields.ResourceVersion(old), asked.Ranges, asked.Token); !errors.Is(err, ledger.ErrForged) {
			return admission.Allowed(""), err
		}
	}
	return k.give(ctx, req, p, c, old)
}

// wish reports whether the ranges that a stored claim names are only a wish: its status denies it them, and it does not own them. So it is with a claim that
// names what its pool does not offer, and with the loser of a conflict. A wish may be changed and removed.
func (k *claims[T]) wish(ctx context.Context, stored T) (bool, error) {
	names := k.claim(stored)
	if names.For != (ledger.Key{}) || len(names.Ranges) == 0 && !k.answered(stored) || !names.Flagged && !k.failed(stored) {
		return false, nil // on any replica
	}
	owns, err := k.ledger.Owns(ctx, names.UID, names.ResourceVersion)
	return !owns, err
}

// sameRequest reports whether two versions of a claim ask for the same ranges of the same pool.
func sameRequest(old, updated ledger.Claim) bool {
	return slices.Equal(old.Ranges, updated.Ranges) && old.Pool == updated.Pool && (old.Pool != (ledger.Key{}) || old.Space == updated.Space)
}

// keep lets a claim whose wish waits keep that, whatever else of it changes.
func (k *claims[T]) keep(p patch, c, stored T) (admission.Response, error) {
	if faults := k.faults(k.unanswered(stored), c); len(faults) > 0 {
		return admission.Response{}, invalid(faults)
	}
	restoreAnswer(&p, stored, c)
	k.follow(&p, stored, c)
	return admission.Patched("", p...), nil
}

// restoreAnswer writes the annotations of the stored answer that the updated claim leaves out.
func restoreAnswer(p *patch, stored, updated metav1.Object) {
	answer := absent(updated, stored, v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin)
	if stored.GetAnnotations()[v1alpha1.AnnotationGrant] == "" {
		answer[v1alpha1.AnnotationGrant] = "" // whoever wrote one now
	}
	p.annotations(updated, answer)
}

// give answers a claim that has no range yet, or asks for others. stored is the claim as it is, nil for a create; p is part of the answer.
func (k *claims[T]) give(ctx context.Context, req *admission.Request, p patch, c T, stored metav1.Object) (admission.Response, error) {
	asked := k.claim(c)
	q := ledger.Request{Claim: asked.Key, ID: string(req.UID), Pool: asked.Pool, Space: asked.Space}
	if stored != nil {
		q.UID, q.Version = string(stored.GetUID()), fields.ResourceVersion(stored)
	}
	var (
		hints  []string
		token  string
		origin string
	)
	grant, unoffered, err := k.allocate(ctx, &q, c, isDryRun(req))
	if unoffered != "" {
		hints = append(hints, unoffered)
	}
	if err != nil && !isDryRun(req) {
		k.ledger.CountRefused(q.Pool, err)
	}
	if missing := (*ledger.NoPoolError)(nil); errors.As(err, &missing) {
		// Without a range, or with one that it has only then: in both cases the reconciler answers.
		hint := "the claim waits, and gets what it asks for when the pool appears"
		if asked.For != (ledger.Key{}) {
			hint = "the address is held for its claim as soon as the pool appears, unless another holds it by then"
		}
		hints = []string{fmt.Sprintf("pool %s does not exist: %s", missing.Pool, hint)}
	} else if err != nil {
		hint, refusal := k.unmet(c, err)
		if refusal != nil {
			return admission.Response{}, refusal
		}
		if hint != "" {
			hints = append(hints, hint)
		}
	} else {
		if ctx.Err() != nil {
			k.ledger.Withdraw(grant.Token)
			return admission.Response{}, &ledger.NotServingError{Reason: "the call ended before its answer could leave"}
		}
		token, origin = grant.Token.String(), v1alpha1.OriginAuto
		if !slices.ContainsFunc(q.Wants, func(w ledger.Want) bool { return !w.Exact.IsValid() }) {
			origin = v1alpha1.OriginPinned
		}
		hints = append(hints, k.fill(&p, c, grant.Ranges)...)
	}
	answer := map[string]string{v1alpha1.AnnotationGrant: token, v1alpha1.AnnotationOrigin: origin}
	if stored == nil && c.GetAnnotations()[v1alpha1.AnnotationOrigin] != "" {
		for _, uid := range []string{v1alpha1.AnnotationTenantUID, novaedgev1.AnnotationServiceUID} {
			answer[uid] = "" // it is restored, and whoever it is for is too, as another object
		}
	}
	p.annotations(c, answer)
	if old, update := stored.(T); update {
		k.follow(&p, old, c)
	}
	k.complete(&p, c, grant.Space)
	if stored == nil {
		p.unowned(c)
	}
	return admission.Patched("", p...).WithWarnings(hints...), nil
}

// allocate asks the ledger. What stands in for a claim holds what its pool does not offer as well, unless another does: then the hint says so.
func (k *claims[T]) allocate(ctx context.Context, q *ledger.Request, c T, dryRun bool) (g ledger.Grant, hint string, err error) {
	g, err = k.ask(ctx, q, c, dryRun)
	if k.claim(c).For == (ledger.Key{}) {
		return g, "", err
	}
	if hint, _ = k.unmet(c, err); hint != "" {
		q.Unoffered = true
		g, err = k.ask(ctx, q, c, dryRun)
	}
	return g, hint, err
}

// ask asks the ledger, and where the answer rests on what it knows of the pool, once more with the pool as it is stored now.
func (k *claims[T]) ask(ctx context.Context, q *ledger.Request, c T, dryRun bool) (ledger.Grant, error) {
	from := func(pools client.Reader) (g ledger.Grant, err error) {
		if q.Wants, err = k.wants(ctx, c, pools); err != nil {
			return g, err
		}
		if dryRun {
			g, err = k.ledger.Preview(ctx, *q)
		} else {
			g, err = k.ledger.Grant(ctx, *q)
		}
		if held := (*ledger.HeldError)(nil); errors.As(err, &held) && q.Pool.Name != "" {
			err = &ledger.PoolError{Pool: q.Pool, Err: err}
		}
		return g, err
	}
	if !k.ledger.Changing(q.Pool) {
		g, err := from(k.cached)
		if q.Pool == (ledger.Key{}) || !restsOnPool(err) {
			return g, err
		}
	}
	pool, err := k.pool(ctx, q.Pool, k.live)
	if err != nil {
		return ledger.Grant{}, err
	}
	k.ledger.LearnPool(pool)
	return from(k.live)
}

// restsOnPool tells whether another version of the pool could give another answer than err.
func restsOnPool(err error) bool {
	var (
		missing  *ledger.NoPoolError
		deleting *ledger.PoolDeletingError
		paused   *ledger.PoolPausedError
		faulty   *ledger.FaultyPoolError
		manual   *ledger.NotAutomaticError
		family   *ledger.FamilyError
		pool     *ledger.PoolError
		held     *ledger.HeldError
	)
	return errors.As(err, &missing) || errors.As(err, &deleting) || errors.As(err, &paused) || errors.As(err, &faulty) || errors.As(err, &manual) || errors.As(err, &family) || errors.As(err, &pool) && !errors.As(err, &held)
}

// validate sees to it that what is about to be stored is what was granted, and that what is stored stays.
func (k *claims[T]) validate(ctx context.Context, req *admission.Request) (admission.Response, error) {
	c, old, err := k.read(req)
	if err != nil || !stores(req) || !k.ours(c) {
		return admission.Allowed(""), err
	}
	before, wish := old, false
	if req.Operation == admissionv1.Update {
		leaves := c.GetDeletionTimestamp() != nil || k.claim(c).Away
		if !leaves {
			if wish, err = k.wish(ctx, old); err != nil {
				return admission.Response{}, err
			}
		}
		if wish {
			old = k.unanswered(old)
		}
		if err := k.staysInSpace(ctx, old, c); err != nil {
			return admission.Response{}, err
		}
		if leaves {
			return admission.Allowed(""), k.takesNothing(old, c)
		}
	}
	var (
		faults   = k.faults(old, c)
		uid      string // of a claim that is stored: that of a create is a candidate only
		version  uint64
		answered bool
	)
	if req.Operation == admissionv1.Update {
		uid, version, answered = string(old.GetUID()), fields.ResourceVersion(old), k.answered(old) && !k.moves(old, c)
		if wish {
			answered = sameRequest(k.claim(before), k.claim(c)) // nothing was granted
		}
		if answered {
			faults = append(faults, answerFaults(before, c)...)
		}
	}
	if len(faults) > 0 {
		return admission.Response{}, invalid(faults)
	}
	stored := k.claim(c)
	if answered || len(stored.Ranges) == 0 || isDryRun(req) {
		return admission.Allowed(""), nil
	}
	if stored.Token.IsZero() && stored.Pool.Name != "" && !k.ledger.Knows(stored.Pool, 0) {
		_, err := k.ledger.Term()         // the pool may be new: the holder of the journal knows it if it has given of it
		return admission.Allowed(""), err // else it waits for its pool, and is adopted then
	}
	if stored.Token.IsZero() {
		q := ledger.Request{Claim: stored.Key, ID: string(req.UID), Pool: stored.Pool, Space: stored.Space}
		if _, _, err := k.allocate(ctx, &q, c, true); err != nil {
			if hint, refusal := k.unmet(c, err); hint != "" || stored.For != (ledger.Key{}) {
				return admission.Allowed(""), refusal
			}
		}
		// The pool may have appeared since the range was looked at, or nobody looked.
		return admission.Response{}, &ledger.NotServingError{Here: true, RetryAfter: time.Second,
			Reason: fmt.Sprintf("%s comes without annotation %s", described(stored), v1alpha1.AnnotationGrant)}
	}
	create := req.Operation == admissionv1.Create
	if create && c.GetGenerateName() != "" {
		if err := k.renamed(ctx, c, k.cached); err != nil {
			return admission.Response{}, err
		}
	}
	err = k.ledger.Granted(ctx, stored.Key, uid, version, stored.Ranges, stored.Token)
	switch {
	case create && errors.Is(err, ledger.ErrNoGrant):
		// Its answer is one that it had before, as a backup's has, and the first call came to nothing: the second was not made. A new create may fare better.
		err = &ledger.NotServingError{Here: true, RetryAfter: time.Second,
			Reason: fmt.Sprintf("%s comes with a token in annotation %s that was not given just now: the allocator's first call was lost, "+
				"or another webhook or client has changed what it answered", described(stored), v1alpha1.AnnotationGrant)}
	case errors.Is(err, ledger.ErrForged):
		err = fmt.Errorf("%s: %w: another webhook or client has changed what the allocator answered, find and correct it", described(stored), err)
	}
	return admission.Allowed(""), err
}

// described names what a claim is about to have.
func described(c ledger.Claim) string {
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

// answerFaults are changes to the annotations of an answer that is stored. One without origin nobody gave: it may still be adopted. A token comes with
// the answer or never.
func answerFaults(old, updated metav1.Object) field.ErrorList {
	grant := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationGrant)
	if old.GetAnnotations()[v1alpha1.AnnotationGrant] == "" && updated.GetAnnotations()[v1alpha1.AnnotationGrant] != "" {
		return field.ErrorList{field.Forbidden(grant, "is the allocator's, which did not grant what this object names: leave it out")}
	}
	if old.GetAnnotations()[v1alpha1.AnnotationOrigin] == "" {
		return nil
	}
	var faults field.ErrorList
	for _, key := range []string{v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin} {
		was, is := old.GetAnnotations()[key], updated.GetAnnotations()[key]
		if was != "" && is != "" && was != is {
			faults = append(faults, field.Invalid(field.NewPath("metadata", "annotations").Key(key), is, fmt.Sprintf("is part of the allocator's answer and cannot be changed: leave it out, or write %q", was)))
		}
	}
	return faults
}

// read decodes the objects of a request that stores one. old is nil for a create.
func (k *claims[T]) read(req *admission.Request) (c, old T, err error) {
	if !stores(req) {
		return c, old, nil
	}
	if c, err = k.decode(req.Object.Raw, false); err != nil {
		return c, old, err
	}
	// The request is right where the object is silent: before it is stored it may lack both.
	c.SetNamespace(req.Namespace)
	if c.GetName() == "" {
		c.SetName(req.Name)
	}
	if req.Operation == admissionv1.Update {
		old, err = k.decode(req.OldObject.Raw, true)
	}
	return c, old, err
}

// strict is the part of an adapter whose claims are all ours, and refused where they cannot be given what they want; their names do not matter.
type strict[T metav1.Object] struct{}

func (strict[T]) ours(T) bool { return true }

func (strict[T]) unmet(_ T, err error) (hint string, refusal error) { return "", err }

func (strict[T]) renamed(context.Context, T, client.Reader) error { return nil }

// followPool removes the label of the routing domain of a claim's old pool: that of the new one takes its place.
func followPool(p *patch, old, c metav1.Object, was, is ledger.Key) {
	label := v1alpha1.LabelRoutingDomain
	if value, has := c.GetLabels()[label]; has && was != is && value == old.GetLabels()[label] {
		p.unlabel(c, label)
	}
}

// stores tells whether a request writes an object.
func stores(req *admission.Request) bool {
	return req.Operation == admissionv1.Create || req.Operation == admissionv1.Update
}

func isDryRun(req *admission.Request) bool { return req.DryRun != nil && *req.DryRun }

// absent is what old says under the annotations and updated does not.
func absent(updated, old metav1.Object, keys ...string) map[string]string {
	values := map[string]string{}
	for _, key := range keys {
		if was := old.GetAnnotations()[key]; was != "" && updated.GetAnnotations()[key] == "" {
			values[key] = was
		}
	}
	return values
}
