package claims

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// Reconciler reconciles one claim. The first row that matches decides:
//
//	claim                                                action
//	in conflict, and not flagged yet                     conflict flagged
//	not to be managed, as when its Cluster is paused     none
//	being deleted                                        release continued
//	addresses cannot be read                             denied
//	in conflict                                          conflict flagged
//	no addresses, or not all                             served by Waiting, with all claims of the pool
//	deferred                                             denied
//	not confirmed by a commit                            none: the commit requeues the claim
//	addresses not allocated by this manager              adopted, or denied (isEntitled)
//	not Ready yet, and no grant known to this leader     denied unless the pool offers the addresses (isEntitled)
//	else                                                 status mirrored, Ready
type Reconciler[T client.Object] struct {
	*Deps
	api Adapter[T]
	// Optional interfaces; nil for an adapter without them.
	pausable   Pausable[T]
	releaser   Releaser[T]
	dependents Dependents[T]
	origins    OriginSetter[T]
}

// New returns the reconciler of a claim kind.
func New[T client.Object](d *Deps, api Adapter[T]) *Reconciler[T] {
	r := &Reconciler[T]{Deps: d, api: api}
	r.pausable, _ = api.(Pausable[T])
	r.releaser, _ = api.(Releaser[T])
	r.dependents, _ = api.(Dependents[T])
	r.origins, _ = api.(OriginSetter[T])
	return r
}

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	c := r.api.NewObject()
	if err := r.Client.Get(ctx, req.NamespacedName, c); err != nil {
		return r.forgetClaim(ctx, req, err)
	}
	ownership := r.Ledger.OwnershipOf(string(c.GetUID()))
	basis := struct {
		claimBasis
		inConflict, deferred bool
	}{r.basis(ctx, c), ownership.Conflict != nil, ownership.Deferred != nil}
	return r.claimBackoff.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.attemptClaim(ctx, c, ownership) })
}

// forgetClaim removes all memory of a claim that the informers do not have, and deletes
// the dependents of the claim.
func (r *Reconciler[T]) forgetClaim(ctx context.Context, req reconcile.Request, err error) (reconcile.Result, error) {
	r.expected.Forget(req.NamespacedName)
	r.MirrorPacer.Forget(req.NamespacedName)
	r.waitingBackoff.Succeeded(req.NamespacedName)
	if !apierrors.IsNotFound(err) {
		return reconcile.Result{}, err
	}
	if r.dependents != nil {
		r.dependents.Forget(r.Deps, req.NamespacedName)
	}
	return r.claimBackoff.Attempt(ctx, req.NamespacedName, flow.Basis{}, func() (reconcile.Result, error) {
		if r.dependents == nil {
			return reconcile.Result{}, nil
		}
		after, err := r.dependents.CleanUp(ctx, r.Deps, req.NamespacedName)
		return reconcile.Result{RequeueAfter: after}, err
	})
}

// claimBasis is the basis of an attempt on a claim. A change of the claim or of its pool
// may end the cause of a failure.
type claimBasis struct{ claim, pool flow.Basis }

func (r *Reconciler[T]) basis(ctx context.Context, c T) claimBasis {
	return claimBasis{claimBasisOf(c), r.poolBasis(ctx, r.api.ToClaim(c).Pool)}
}

func claimBasisOf(c client.Object) flow.Basis {
	return flow.BasisOf(c, v1alpha1.AnnotationGrant, v1alpha1.AnnotationOrigin, v1alpha1.AnnotationGrantedDomain, write.AnnotationFenced, clusterpause.AnnotationBlockMove)
}

// poolBasis returns the basis of a pool; the zero value if the pool does not exist.
func (d *Deps) poolBasis(ctx context.Context, pool ledger.Key) flow.Basis {
	p := d.NewPool(pool.Resource)
	if p == nil || d.Client.Get(ctx, feed.Request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return flow.Basis{}
	}
	return flow.BasisOf(p, v1alpha1.AnnotationCooldown)
}

// attemptClaim reconciles a claim once.
func (r *Reconciler[T]) attemptClaim(ctx context.Context, c T, ownership ledger.Ownership) (reconcile.Result, error) {
	if ownership.Conflict != nil && !r.api.IsFlagged(c) { // before every other check: the owner of the addresses becomes Ready only after the flag
		return reconcile.Result{}, r.flagConflict(ctx, c, ownership.Conflict)
	}
	if why := r.checkManaged(ctx, c, r.Clusters); why != nil {
		return r.leaveUnmanaged(ctx, c, why)
	}
	if c.GetDeletionTimestamp() != nil {
		return r.releaseClaim(ctx, c)
	}
	after, err := r.deleteStrays(ctx, c)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.reconcileClaim(ctx, c, ownership)
	if after > 0 && (result.RequeueAfter == 0 || after < result.RequeueAfter) {
		result.RequeueAfter = after
	}
	return result, err
}

// checkManaged returns why the manager must not write to a claim; nil if the manager may
// write.
func (r *Reconciler[T]) checkManaged(ctx context.Context, c T, clusters clusterpause.Clusters) error {
	if r.pausable == nil {
		return nil
	}
	return r.pausable.CheckManaged(ctx, r.Deps, c, clusters)
}

// leaveUnmanaged handles a claim that must not be managed.
func (r *Reconciler[T]) leaveUnmanaged(ctx context.Context, c T, why error) (reconcile.Result, error) {
	if !r.isMirrored(c) && c.GetDeletionTimestamp() == nil {
		r.Events.Waits(c, r.api.ToClaim(c).Pool, why)
	}
	if errors.Is(why, ErrForeign) { // an earlier claim with this name may have been managed
		after, err := r.deleteStrays(ctx, c)
		return reconcile.Result{RequeueAfter: after}, err
	}
	return reconcile.Result{}, r.unblockMove(ctx, c)
}

func (r *Reconciler[T]) deleteStrays(ctx context.Context, c T) (time.Duration, error) {
	if r.dependents == nil {
		return 0, nil
	}
	return r.dependents.DeleteStrays(ctx, r.Deps, c)
}

// releaseClaim continues the release of a claim that is being deleted. Claims without a
// Releaser, ProxyVIPs, have no finalizer: nothing needs to be recorded or deleted before
// the object is gone.
func (r *Reconciler[T]) releaseClaim(ctx context.Context, c T) (reconcile.Result, error) {
	if r.releaser == nil {
		return reconcile.Result{}, nil
	}
	after, err := r.releaser.Release(ctx, r.Deps, c)
	if denied := (*DeniedError)(nil); errors.As(err, &denied) && r.claimBackoff.ShouldReport(client.ObjectKeyFromObject(c)) {
		r.reportReleaseFailed(c, denied.Error())
	}
	return reconcile.Result{RequeueAfter: after}, err
}

// reconcileClaim reconciles a claim that is not being deleted.
func (r *Reconciler[T]) reconcileClaim(ctx context.Context, c T, ownership ledger.Ownership) (reconcile.Result, error) {
	if err := r.api.CheckReadable(c); err != nil {
		return reconcile.Result{}, r.denyClaim(ctx, c, nil, err)
	}
	if ownership.Conflict != nil {
		return reconcile.Result{}, r.flagConflict(ctx, c, ownership.Conflict)
	}
	if !r.api.HasAddresses(c) {
		pool := r.api.ToClaim(c).Pool
		if pool.Name == "" {
			return reconcile.Result{}, r.denyClaim(ctx, c, nil, errors.New("the claim names neither all its addresses nor a pool"))
		}
		r.Queues.RequeueWaiting(pool)
		return reconcile.Result{}, flow.ErrNothingToDo
	}
	switch {
	case ownership.Deferred != nil:
		return reconcile.Result{}, r.denyClaim(ctx, c, nil, ownership.Deferred)
	case !ownership.Confirmed:
		return reconcile.Result{}, flow.ErrNothingToDo
	case !r.api.AllocatedByUs(c):
		return reconcile.Result{}, r.adoptClaim(ctx, c, ownership.RoutingDomain)
	case !r.isMirrored(c) && !ownership.Granted: // the allocation on the claim may be a user's
		if _, yes, err := r.isEntitled(ctx, c); !yes {
			return reconcile.Result{}, err
		}
	}
	return r.mirrorStatus(ctx, c, ownership.RoutingDomain)
}

// mirrorStatus writes the status of a claim that owns its addresses. Metadata removed by
// a client is restored first; the event of the metadata write requeues the claim.
func (r *Reconciler[T]) mirrorStatus(ctx context.Context, c T, routingDomain string) (reconcile.Result, error) {
	isNew := !r.isMirrored(c)
	if isNew {
		if wait := r.MirrorPacer.Wait(client.ObjectKeyFromObject(c), r.Now()); wait > 0 {
			return reconcile.Result{RequeueAfter: wait}, nil
		}
	}
	before := write.DeepCopy(c)
	if incomplete, unrecorded := r.api.CompleteMetadata(c, routingDomain), object.RecordDomain(c, routingDomain); incomplete || unrecorded {
		return reconcile.Result{}, r.IgnoreStale(ctx, before, r.SaveObject(ctx, before, c))
	}
	lost := r.Ledger.FindNotOffered(string(c.GetUID()))
	isNews := r.api.SetNotOffered(c, lost)
	if isNews && !isNew { // written first: an address object that is missing may wait for a pool that is gone
		written, err := r.SaveStatus(ctx, before, c)
		if lost != nil && err == nil {
			r.reportNotOffered(c, lost)
		}
		if written || err != nil {
			return reconcile.Result{}, err // the event of the write requeues the claim
		}
	}
	err := r.api.SetAllocated(ctx, r.Deps, c)
	if wait := RequeueError(0); errors.As(err, &wait) {
		return reconcile.Result{RequeueAfter: time.Duration(wait)}, nil
	}
	if denied := (*DeniedError)(nil); errors.As(err, &denied) {
		return reconcile.Result{}, errors.Join(err, r.reportDenied(ctx, c, r.claimBackoff, denied))
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	was, is := r.api.OwnershipCondition(before), r.api.OwnershipCondition(c)
	written, err := r.SaveStatus(ctx, before, c)
	switch {
	case !written || !isNew && is.Message == was.Message: // only a new message reports a new allocation
	case is.Status == metav1.ConditionTrue:
		r.reportAllocated(c, r.api.ToClaim(c).Pool, is.Message)
	default:
		r.reportFailed(c, is.Message)
	}
	if written && isNew && lost != nil {
		r.reportNotOffered(c, lost)
	}
	return reconcile.Result{}, err
}

// adoptClaim completes a claim that owns addresses without a grant: a claim of an earlier
// allocator, whose addresses may be in status alone, or a claim stored without admission
// or before its pool. The ledger has counted the addresses since the first event of the
// object, and has confirmed them; nothing is granted.
func (r *Reconciler[T]) adoptClaim(ctx context.Context, c T, routingDomain string) error {
	if r.expected.IsStale(c) {
		return nil
	}
	others, yes, err := r.isEntitled(ctx, c)
	if !yes {
		return err
	}
	return r.writeAllocation(ctx, c, ledger.Grant{RoutingDomain: routingDomain, Ranges: others}, v1alpha1.OriginAdopted, r.claimBackoff)
}

// isEntitled reports whether a claim without a grant may own its addresses, and otherwise
// writes the reason into the status. A claim is entitled if an earlier allocator recorded
// addresses for the claim (others, if they differ from the present ones), or if the pool
// offers the addresses.
func (r *Reconciler[T]) isEntitled(ctx context.Context, c T) (others []allocator.Range, yes bool, err error) {
	others, earlier, err := r.api.AllocatedEarlier(ctx, r.Deps, c)
	if err != nil || earlier {
		return others, err == nil, err
	}
	requests, _, err := r.api.Requests(ctx, r.Deps, c)
	if err == nil {
		var reserved []allocator.Range // for this claim
		for _, w := range requests {
			if w.IgnorePoolBlocks {
				reserved = append(reserved, w.Exact)
			}
		}
		err = r.Ledger.CheckOffered(string(c.GetUID()), reserved)
	}
	if err != nil {
		return nil, false, r.denyClaim(ctx, c, requests, err)
	}
	return nil, true, nil
}

// flagConflict marks a claim whose addresses belong to another claim, in whole or in
// part. The spec stays: the claim gets no other addresses.
//
// A former leader that was cut off may observe the claims of its successor before it
// observes that earlier owners of their addresses are gone. So a replica proves that it
// led when it had observed the claim, and looks again.
func (r *Reconciler[T]) flagConflict(ctx context.Context, c T, conflict *ledger.OwnedError) error {
	if !r.api.IsFlagged(c) {
		if err := r.Ledger.ProveLeads(ctx); err != nil {
			return err
		}
		if conflict = r.Ledger.OwnershipOf(string(c.GetUID())).Conflict; conflict == nil {
			return flow.ErrNothingToDo // the event of the other owner requeues the claim
		}
	}
	before := write.DeepCopy(c)
	where := ""
	if pool := r.api.ToClaim(c).Pool; pool != (ledger.Key{}) {
		where = fmt.Sprintf("pool %s: ", pool)
	}
	message := where + conflict.SeenFrom(r.api.ToClaim(c).Key.StatusPlace()) + ": ask for other addresses, leave them out to get free ones, or delete the other owner"
	r.api.SetConflict(c, message)
	r.api.SetNotOffered(c, nil)
	written, err := r.SaveStatus(ctx, before, c)
	if written && !r.api.IsFlagged(before) {
		r.reportConflict(c, message)
	}
	return err
}

// denyClaim writes into the status why a claim has no addresses, and records one event.
func (r *Reconciler[T]) denyClaim(ctx context.Context, c T, requests []ledger.RangeRequest, why error) error {
	before := write.DeepCopy(c)
	r.api.SetDenied(c, requests, why)
	r.api.SetNotOffered(c, nil)
	was, is := r.api.OwnershipCondition(before), r.api.OwnershipCondition(c)
	isNew := is != nil && (was == nil || was.Reason != is.Reason)
	written, err := r.SaveStatus(ctx, before, c)
	switch {
	case is == nil:
		r.reportWaitsForPool(c, r.api.ToClaim(c).Pool, why)
	case written && isNew && r.api.HasFailed(c):
		r.reportFailed(c, is.Message)
	}
	return err
}

// reportDenied reports a denied write for a claim, in growing intervals. The status of a
// Ready claim stays, since its addresses are in use.
func (r *Reconciler[T]) reportDenied(ctx context.Context, c T, b *flow.Backoff, denied *DeniedError) error {
	if !b.ShouldReport(client.ObjectKeyFromObject(c)) {
		return nil
	}
	if !r.isMirrored(c) {
		return r.denyClaim(ctx, c, nil, denied.Err)
	}
	r.reportFailed(c, denied.Error())
	return nil
}

// isMirrored reports whether a claim's status shows that the claim owns its addresses.
func (r *Reconciler[T]) isMirrored(c T) bool {
	is := r.api.OwnershipCondition(c)
	return is != nil && is.Status == metav1.ConditionTrue
}

// NotOfferedText describes addresses that the pool of their owner does not offer, for the
// status and the events of the owner.
func NotOfferedText(e *ledger.NotOfferedError) string {
	return e.Error() + ": this object still owns its addresses. Make the pool offer them again, or delete this object when nothing uses them"
}

// inPool adds the pool of the request to an error about an owned address.
func inPool(pool ledger.Key, err error) error {
	if owned := (*ledger.OwnedError)(nil); errors.As(err, &owned) && pool != (ledger.Key{}) {
		return &ledger.PoolError{Pool: pool, Err: err}
	}
	return err
}

// OwnedText names the owner of an address, as far as a reader in a place may know the
// owner, and the pool of the request.
func OwnedText(err error, owned *ledger.OwnedError, place string) string {
	if in := (*ledger.PoolError)(nil); errors.As(err, &in) {
		return in.SeenFrom(place)
	}
	return owned.SeenFrom(place)
}

// PromisedText returns a text for the end of the status of a claim that waits for a full
// pool: addresses of the pool are promised to creates in progress; "" if none is. The
// text has no numbers and no times, so that a waiting claim is not written for every
// create.
func PromisedText(err error) string {
	if in := (*ledger.PoolError)(nil); errors.As(err, &in) && in.Promised > 0 {
		return "; some addresses are promised to creates in progress, those of failed creates are free again soon"
	}
	return ""
}
