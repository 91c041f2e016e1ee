package claims

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// parallelWrites is the number of objects of one pool that are written at a time.
const parallelWrites = 8

// passLimit bounds one pass over the claims of a pool: the remaining claims wait for the
// next pass, so that every pool gets workers.
const passLimit = 5 * time.Second

// Waiting serves the stored claims of one pool without an allocation: the pool appeared
// or grew after them, addresses were released, or the webhooks were not called. Ranges
// are granted in the order of creation, and written in parallel. Claims that record an
// address of an earlier allocator are served first: the ledger grants them this address
// also while it grants no other. Claims whose writes failed are served last: each may
// take as long as a slow foreign webhook.
type Waiting[T client.Object] struct {
	*Reconciler[T]
	poolResource string
}

// NewWaiting returns the reconciler of the claims that wait for pools of a resource.
func NewWaiting[T client.Object](r *Reconciler[T], poolResource string) *Waiting[T] {
	return &Waiting[T]{r, poolResource}
}

// pass is one pass over the waiting claims of a pool.
type pass[T client.Object] struct {
	*Waiting[T]
	pool    flow.Basis
	began   time.Time
	writes  errgroup.Group
	denials []func() error // to be written after the grants: claims that get addresses do not wait for the denials
	again   flow.Soonest
}

// Reconcile implements reconcile.Reconciler.
func (r *Waiting[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	waiting, err := ListIndexed[T](ctx, r.Client, r.api.NewList(), indexWaiting, req.Namespace, waitingKey(r.poolResource, req.Name))
	if err != nil || len(waiting) == 0 {
		return reconcile.Result{}, err
	}
	slices.SortFunc(waiting, func(x, y T) int {
		return cmp.Or(cmp.Compare(r.waitingBackoff.Failures(client.ObjectKeyFromObject(x)), r.waitingBackoff.Failures(client.ObjectKeyFromObject(y))), oldestFirst(x, y))
	})
	waiting = r.recordedFirst(waiting)
	pool := ledger.Key{Resource: r.poolResource, Namespace: req.Namespace, Name: req.Name}
	p := &pass[T]{Waiting: r, pool: r.poolBasis(ctx, pool), began: time.Now()}
	p.writes.SetLimit(parallelWrites)
	if r.waitingBackoff.Failures(client.ObjectKeyFromObject(waiting[len(waiting)-1])) > 0 {
		r.Queues.BeginRetry(pool)
		defer r.Queues.EndRetry(pool)
	}
	for _, stored := range waiting {
		if p.isOver() {
			break
		}
		if down := p.serveClaim(ctx, stored); down != nil {
			return reconcile.Result{RequeueAfter: max(down.RetryAfter, time.Second)}, p.writes.Wait()
		}
	}
	for _, deny := range p.denials {
		if p.isOver() {
			break
		}
		p.writes.Go(deny)
	}
	err = p.writes.Wait()
	return reconcile.Result{RequeueAfter: p.again.Wait}, err
}

// recordedFirst moves the claims whose status records an allocation to the front.
func (r *Waiting[T]) recordedFirst(waiting []T) []T {
	var recorded, others []T
	for _, c := range waiting {
		if r.api.ToClaim(c).AllocatedEarlier {
			recorded = append(recorded, c)
		} else {
			others = append(others, c)
		}
	}
	return append(recorded, others...)
}

// isOver reports whether the pass has reached its limit, and requeues the pool in that
// case.
func (p *pass[T]) isOver() bool {
	if time.Since(p.began) <= passLimit {
		return false
	}
	p.again.Add(time.Millisecond)
	return true
}

// serveClaim grants a range to a claim, and schedules the write of the grant or of the
// denial. It returns an error if the ledger does not serve.
func (p *pass[T]) serveClaim(ctx context.Context, stored T) *ledger.NotServingError {
	c := write.DeepCopy(stored)
	if !p.needsRange(ctx, c) {
		return nil
	}
	basis := claimBasis{claimBasisOf(c), p.pool}
	if left := p.waitingBackoff.Wait(client.ObjectKeyFromObject(c), basis); left > 0 {
		p.again.Add(left)
		return nil
	}
	requests, origin, err := p.api.Requests(ctx, p.Deps, c)
	if wait := (*clusterpause.WaitError)(nil); errors.As(err, &wait) {
		return nil
	}
	var grant ledger.Grant
	if err == nil {
		grant, err = p.grantRange(ctx, c, requests)
	}
	if down := (*ledger.NotServingError)(nil); errors.As(err, &down) {
		return down
	}
	if err != nil {
		p.denials = append(p.denials, func() error { return p.recordOutcome(ctx, c, basis, p.writeDenied(ctx, c, requests, err)) })
		return nil
	}
	p.writes.Go(func() error { return p.recordOutcome(ctx, c, basis, p.writeGranted(ctx, c, grant, origin)) })
	return nil
}

// recordOutcome records the outcome of an attempt on a claim. After a failure only the
// failed claim pauses, and not its whole pool.
func (p *pass[T]) recordOutcome(ctx context.Context, c T, basis claimBasis, err error) error {
	name := client.ObjectKeyFromObject(c)
	switch {
	case err == nil:
		p.waitingBackoff.Succeeded(name)
	case ctx.Err() != nil:
		return err
	default:
		p.again.Add(p.waitingBackoff.Failed(ctx, name, basis, err))
	}
	return nil
}

// errPaused is why a claim gets nothing if the API server shows a pause that the
// informers do not show yet.
var errPaused = errors.New("the API server shows that its Cluster, or its pool, is paused")

// needsRange reports whether this reconciler serves a claim without an allocation. A
// claim that names its addresses is left to Reconciler.
func (r *Waiting[T]) needsRange(ctx context.Context, c T) bool {
	switch {
	case r.api.HasAddresses(c), r.api.CheckReadable(c) != nil: // to be adopted, or denied
		r.Queues.Claims.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		return false
	case r.expected.IsStale(c), r.Ledger.OwnershipOf(string(c.GetUID())).Conflict != nil: // Reconciler flags a claim in conflict
		return false
	}
	return r.checkManaged(ctx, c, r.Clusters) == nil
}

// writeGranted writes a granted range to a claim.
func (r *Waiting[T]) writeGranted(ctx context.Context, c T, grant ledger.Grant, origin string) error {
	if r.pausable != nil {
		if may, err := r.blockMove(ctx, c); err != nil || !may {
			r.Ledger.Withdraw(grant.Token) // no write contains the range
			if err == nil {
				return errPaused // the event of the removed annotation would requeue the claim at once
			}
			return r.handleFailedWrite(ctx, c, r.waitingBackoff, err)
		}
	}
	return r.writeAllocation(ctx, c, grant, origin, r.waitingBackoff)
}

// writeDenied writes into the status why a claim has no addresses yet.
func (r *Waiting[T]) writeDenied(ctx context.Context, c T, requests []ledger.RangeRequest, why error) error {
	return errors.Join(r.unblockMove(ctx, c), r.denyClaim(ctx, c, requests, why))
}

// grantRange asks the ledger for the ranges of a claim.
func (r *Waiting[T]) grantRange(ctx context.Context, c T, requests []ledger.RangeRequest) (ledger.Grant, error) {
	claim := r.api.ToClaim(c)
	q := ledger.Request{Claim: claim.Key, UID: claim.UID, Version: claim.ResourceVersion, Pool: claim.Pool, Ranges: requests}
	g, err := r.Ledger.Grant(ctx, q)
	return g, inPool(q.Pool, err)
}

func oldestFirst[T client.Object](x, y T) int {
	created := x.GetCreationTimestamp()
	if c := created.Compare(y.GetCreationTimestamp().Time); c != 0 {
		return c
	}
	return strings.Compare(x.GetName(), y.GetName())
}
