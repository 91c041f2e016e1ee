package reconcilers

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"butlerlabs.dev/ipam/reconcilers/records"
)

// desk is what every reconciler of one API works with. Its client reads from the informers and writes to the API server.
type desk struct {
	client   client.Client
	ledger   *ledger.Ledger
	changes  *lane
	repeated *repeated
	now      func() time.Time
	wall     func() time.Time // see Options.Wall
	events   *events
	sent     *sent
	made     attempts  // to make addresses for claims
	orphans  orphans   // address objects without their claim
	unmarked firstSeen // address objects that lost their finalizer
	// orphanAge is how long an address object stays without its claim.
	orphanAge time.Duration
	spacing   *flow.Backoff // of what is written for claims
	tries     *flow.Backoff // of what is written for the claims of a pool, by its reconcilers
	recording *flow.Backoff // of what pools record of ranges at rest, and of those in other clusters
	live      client.Reader // the API server itself
	// overtaken tells a write that came too late from one that is refused.
	overtaken *overtaken.Checker
	statuses  statuses
	clusters  *Clusters
	records   *records.Store // of what went to other clusters
	mirrors   *turns         // of what the answer to the create has said already
	whole     bool           // see api.wholeStatus
	movable   bool           // clusterctl moves them to other clusters
}

// claims brings one claim to what the ledger says of it.
//
//	going                              ──▶ release
//	no addresses, or not all           ──▶ pending, with the others of its pool
//	others have some of its addresses  ──▶ flagged
//	not confirmed by a commit yet      ──▶ the commit brings it back
//	addresses not answered by us       ──▶ adoption
//	else                               ──▶ mirrored, Ready
type claims[T client.Object] struct {
	*desk
	api claimAPI[T]
}

func (r *claims[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	c := r.api.empty()
	if err := r.client.Get(ctx, req.NamespacedName, c); err != nil {
		r.sent.forget(req.NamespacedName)
		r.mirrors.forget(req.NamespacedName)
		r.made.forget(req.NamespacedName)
		r.tries.Succeeded(req.NamespacedName)
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, err
		}
		r.unmarked.observe(req.NamespacedName, r.now(), nil)
		return r.spacing.Attempt(ctx, req.NamespacedName, flow.Basis{}, func() (reconcile.Result, error) {
			after, err := r.api.gone(ctx, r.desk, req.NamespacedName)
			return reconcile.Result{RequeueAfter: after}, err
		})
	}
	standing := r.ledger.Standing(string(c.GetUID()))
	basis := struct {
		claimBasis
		clashes, barred bool
	}{r.basis(ctx, c), standing.Clash != nil, standing.Barred != nil}
	return r.spacing.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.attempt(ctx, c, standing) })
}

// claimBasis is what an attempt on a claim is based on. A change of either object may end the cause of a failure.
type claimBasis struct{ claim, pool flow.Basis }

func (r *claims[T]) basis(ctx context.Context, c T) claimBasis {
	return claimBasis{claimBasisOf(c), r.poolBasis(ctx, r.api.claim(c).Pool)}
}

func claimBasisOf(c client.Object) flow.Basis {
	return flow.BasisOf(c, v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin, annotationTouched, metal3.AnnotationBlockMove)
}

// poolBasis is the zero value where the pool does not exist.
func (d *desk) poolBasis(ctx context.Context, pool ledger.Key) flow.Basis {
	reading, known := poolReadings[pool.Kind]
	if !known {
		return flow.Basis{}
	}
	p := reading.empty()
	if d.client.Get(ctx, request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return flow.Basis{}
	}
	return flow.BasisOf(p, v1alpha1.AnnotationResting)
}

// attempt brings a claim to what the ledger says of it.
func (r *claims[T]) attempt(ctx context.Context, c T, standing ledger.Standing) (reconcile.Result, error) {
	if standing.Clash != nil && !r.api.flagged(c) { // whatever else is true of it: who has the addresses waits for this
		return reconcile.Result{}, r.flag(ctx, c, standing.Clash)
	}
	if why := r.api.rests(ctx, r.desk, c, r.clusters); why != nil {
		if r.isNews(c) && c.GetDeletionTimestamp() == nil {
			r.events.waits(c, r.api.claim(c).Pool, why)
		}
		if errors.Is(why, errForeign) { // a claim of that name before it may have been ours
			after, err := r.api.strays(ctx, r.desk, c)
			return reconcile.Result{RequeueAfter: after}, err
		}
		return reconcile.Result{}, r.letGo(ctx, c)
	}
	if c.GetDeletionTimestamp() != nil {
		after, err := r.api.release(ctx, r.desk, c)
		if refused := (*metal3.AddressError)(nil); errors.As(err, &refused) && r.spacing.Telling(client.ObjectKeyFromObject(c)) {
			r.events.stays(c, refused.Error())
		}
		return reconcile.Result{RequeueAfter: after}, err
	}
	after, err := r.api.strays(ctx, r.desk, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.settle(ctx, c, standing)
	if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
		result.RequeueAfter = after
	}
	return result, err
}

// settle brings a claim that stays to what the ledger says of it.
func (r *claims[T]) settle(ctx context.Context, c T, standing ledger.Standing) (reconcile.Result, error) {
	if err := r.api.unreadable(c); err != nil {
		return reconcile.Result{}, r.refuse(ctx, c, nil, err)
	}
	if standing.Clash != nil {
		return reconcile.Result{}, r.flag(ctx, c, standing.Clash)
	}
	if !r.api.held(c) {
		pool := r.api.claim(c).Pool
		if pool.Name == "" {
			return reconcile.Result{}, r.refuse(ctx, c, nil, errors.New("it names neither all its addresses nor a pool to take them from"))
		}
		r.changes.wait(pool)
		return reconcile.Result{}, flow.ErrNothingToDo
	}
	switch {
	case standing.Barred != nil:
		return reconcile.Result{}, r.refuse(ctx, c, nil, standing.Barred)
	case !standing.Confirmed:
		return reconcile.Result{}, flow.ErrNothingToDo
	case !r.api.answered(c):
		return reconcile.Result{}, r.adopt(ctx, c, standing.Space)
	case r.isNews(c) && !standing.Granted: // whoever wrote the answer on it
		if _, yes, err := r.entitled(ctx, c); !yes {
			return reconcile.Result{}, err
		}
	}
	return r.mirror(ctx, c, standing.Space)
}

// later is the error of what has to wait for this long, though nothing is wrong with it.
type later time.Duration

func (l later) Error() string { return "to be looked at again in " + time.Duration(l).String() }

// mirror writes the status of a claim that has its addresses. What somebody took off the object is put back first; the event of that write
// brings the claim here again.
func (r *claims[T]) mirror(ctx context.Context, c T, space string) (reconcile.Result, error) {
	isNews := r.isNews(c)
	if isNews {
		if wait := r.mirrors.wait(client.ObjectKeyFromObject(c), r.now()); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	before := copied(c)
	if r.api.complete(c, space) {
		return reconcile.Result{}, r.overtaken.Ignore(ctx, before, r.save(ctx, before, c))
	}
	done, err := r.api.allocated(ctx, r.desk, c)
	if wait := later(0); errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	if refused := (*metal3.AddressError)(nil); errors.As(err, &refused) {
		return reconcile.Result{}, errors.Join(err, r.unmade(ctx, c, r.spacing, refused))
	}
	if err != nil || !done {
		return reconcile.Result{}, err
	}
	was, is := r.api.condition(before), r.api.condition(c)
	written, err := r.saveStatus(ctx, before, c)
	switch {
	case !written || !isNews && is.Message == was.Message: // else it has other addresses now
	case is.Status == metav1.ConditionTrue:
		r.events.allocated(c, r.api.claim(c).Pool, is.Message)
	default:
		r.events.failed(c, is.Message)
	}
	return reconcile.Result{}, err
}

// adopt answers a claim that holds addresses nobody here gave it: one of an earlier allocator, where they may stand in status alone, or one
// that was stored around the webhooks or before its pool. The ledger has held them since it first saw the object and has confirmed that they
// are this one's; nothing is granted, this writes down how it is.
func (r *claims[T]) adopt(ctx context.Context, c T, space string) error {
	if r.sent.has(c) {
		return nil
	}
	others, yes, err := r.entitled(ctx, c)
	if !yes {
		return err
	}
	return r.write(ctx, c, ledger.Grant{Space: space, Ranges: others}, v1alpha1.OriginAdopted, r.spacing)
}

// entitled tells whether a claim which nobody here gave its addresses may have them, and says so in its status where it may not: an earlier allocator
// says that they, or others, are its own, or its pool offers them.
func (r *claims[T]) entitled(ctx context.Context, c T) (others []allocator.Range, yes bool, err error) {
	others, vouched, err := r.api.vouched(ctx, r.desk, c)
	if err != nil || vouched {
		return others, err == nil, err
	}
	wants, _, err := r.api.wants(ctx, r.desk, c)
	if err == nil {
		var kept []allocator.Range
		for _, w := range wants {
			if w.Kept {
				kept = append(kept, w.Exact)
			}
		}
		err = r.ledger.Offered(string(c.GetUID()), kept)
	}
	if err != nil {
		return nil, false, r.refuse(ctx, c, wants, err)
	}
	return nil, true, nil
}

// write puts an answer on a stored claim: all that a create gets from the webhooks, in one write. What is adopted comes without a
// token: nobody granted it.
func (r *claims[T]) write(ctx context.Context, c T, g ledger.Grant, origin string, b *flow.Backoff) error {
	before := copied(c)
	r.api.fill(c, g.Ranges)
	annotations := c.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	if !g.Token.IsZero() {
		annotations[v1alpha1.AnnotationGrant] = g.Token.String()
	}
	annotations[v1alpha1.AnnotationOrigin] = origin
	c.SetAnnotations(annotations)
	r.api.complete(c, g.Space)
	ctx, requests := counted(ctx)
	err := r.save(ctx, before, c)
	if err == nil {
		r.sent.add(c)
		return nil
	}
	if !g.Token.IsZero() && neverStored(err, requests.Load()) {
		r.ledger.Withdraw(g.Token)
	}
	return r.unwritten(ctx, before, b, err)
}

// neverStored tells whether a write that took so many requests is not stored and never will be. Else the ledger keeps its grant until it cannot land
// any more, or the object is seen to be gone. A client repeats a write that the API server could not decide on: a refusal is the answer to the last
// request only.
func neverStored(err error, requests int32) bool { return refused(err) && requests == 1 }

// unwritten returns the error of a write to a claim in this version, nil where the version was overtaken, and tells people where the write is refused.
func (r *claims[T]) unwritten(ctx context.Context, c T, b *flow.Backoff, err error) error {
	if err = r.overtaken.Ignore(ctx, c, err); !refused(err) {
		return err
	}
	return errors.Join(err, r.unmade(ctx, c, b, &unwritableError{err}))
}

// flag marks a claim some of whose addresses others have. It keeps its spec: nobody is moved.
func (r *claims[T]) flag(ctx context.Context, c T, clash *ledger.HeldError) error {
	before := copied(c)
	where := ""
	if pool := r.api.claim(c).Pool; pool != (ledger.Key{}) {
		where = fmt.Sprintf("pool %s: ", pool)
	}
	message := where + clash.SeenFrom(c.GetNamespace()) + ": ask for other addresses, leave them out to get free ones, or delete the other owner"
	r.api.clashing(c, message)
	written, err := r.saveStatus(ctx, before, c)
	if written && !r.api.flagged(before) {
		r.events.conflict(c, message)
	}
	return err
}

// refuse writes why a claim has no addresses, and tells of a failure once.
func (r *claims[T]) refuse(ctx context.Context, c T, wants []ledger.Want, refusal error) error {
	before := copied(c)
	r.api.refused(c, wants, refusal)
	was, is := r.api.condition(before), r.api.condition(c)
	isNew := is != nil && (was == nil || was.Reason != is.Reason)
	written, err := r.saveStatus(ctx, before, c)
	switch {
	case is == nil:
		r.events.waitsForPool(c, r.api.claim(c).Pool, refusal)
	case written && isNew && r.api.failed(c):
		r.events.failed(c, is.Message)
	}
	return err
}

// heldIn names the pool whose address a claim asked for that another owner has.
func heldIn(pool ledger.Key, err error) error {
	if held := (*ledger.HeldError)(nil); errors.As(err, &held) && pool != (ledger.Key{}) {
		return &ledger.PoolError{Pool: pool, Err: err}
	}
	return err
}

// heldText says who has an address, as far as a namespace may know, and in which pool it was asked for.
func heldText(err error, held *ledger.HeldError, namespace string) string {
	if in := (*ledger.PoolError)(nil); errors.As(err, &in) {
		return fmt.Sprintf("pool %s: %s", in.Pool, held.SeenFrom(namespace))
	}
	return held.SeenFrom(namespace)
}

// unmade tells people of a write for a claim that is refused, at growing distances. Where the claim was Ready before, somebody uses the addresses: its
// status stays.
func (r *claims[T]) unmade(ctx context.Context, c T, b *flow.Backoff, why error) error {
	if !b.Telling(client.ObjectKeyFromObject(c)) {
		return nil
	}
	if r.isNews(c) {
		return r.refuse(ctx, c, nil, why)
	}
	r.events.failed(c, why.Error())
	return nil
}

// isNews tells whether a claim's status does not say yet that it has its addresses.
func (r *claims[T]) isNews(c T) bool {
	was := r.api.condition(c)
	return was == nil || was.Status != metav1.ConditionTrue
}

// copied is a claim as it is now.
func copied[T client.Object](c T) T { return c.DeepCopyObject().(T) }

// save writes what has changed of an object, on top of the version that it was decided on. What this release does not know of it stays.
func (d *desk) save(ctx context.Context, before, after client.Object) error {
	return d.client.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// saveStatus writes the status of a claim if it differs, and says whether it did.
func (d *desk) saveStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if d.whole {
		return d.replaceStatus(ctx, before, after)
	}
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	err := d.client.Status().Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return err == nil, d.overtaken.Ignore(ctx, before, err)
}

// replaceStatus writes the whole status of an object that is known whole, zeros included, if it differs, and says whether it did.
func (d *desk) replaceStatus(ctx context.Context, before, after client.Object) (bool, error) {
	if equality.Semantic.DeepEqual(before, after) {
		return false, nil
	}
	err := d.statuses.put(ctx, d.client, after)
	return err == nil, d.overtaken.Ignore(ctx, before, err)
}
