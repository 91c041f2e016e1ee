package reconcilers

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

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// parallelWrites is how many objects of one pool are written to at a time.
const parallelWrites = 8

// passLimit is how long one look at the claims of a pool takes: what is left waits for the next, so that other pools have their turn.
const passLimit = 5 * time.Second

// pending serves the claims of one pool that are stored without an answer: the pool appeared or grew after them, addresses came
// free, or the webhooks were not asked. Ranges are given in the order of creation, and written side by side. Those that cannot be written to
// come after the others: each may take as long as a webhook of somebody's.
type pending[T client.Object] struct {
	claims[T]
	poolKind string
}

func (r *pending[T]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	waiting, err := listIndexed[T](ctx, r.client, r.api.emptyList(), indexWaiting, req.Namespace, waitingFor(r.poolKind, req.Name))
	if err != nil || len(waiting) == 0 {
		return reconcile.Result{}, err
	}
	slices.SortFunc(waiting, func(x, y T) int {
		return cmp.Or(cmp.Compare(r.tries.pause(client.ObjectKeyFromObject(x)), r.tries.pause(client.ObjectKeyFromObject(y))), oldestFirst(x, y))
	})
	var (
		writes   errgroup.Group
		refusals []func() error
		again    reconcile.Result
	)
	writes.SetLimit(parallelWrites)
	began := time.Now()
	for _, stored := range waiting {
		if time.Since(began) > passLimit {
			again.RequeueAfter = time.Millisecond
			break
		}
		c := copied(stored)
		if !r.takes(ctx, c) {
			continue
		}
		if left := r.tries.wait(client.ObjectKeyFromObject(c), r.now()); left > 0 {
			if again.RequeueAfter == 0 || left < again.RequeueAfter {
				again.RequeueAfter = left
			}
			continue
		}
		wants, origin, err := r.api.wants(ctx, r.desk, c)
		if wait := (*metal3.WaitError)(nil); errors.As(err, &wait) {
			continue
		}
		var grant ledger.Grant
		if err == nil {
			grant, err = r.give(ctx, c, wants)
		}
		if down := (*ledger.NotServingError)(nil); errors.As(err, &down) {
			return reconcile.Result{RequeueAfter: max(down.RetryAfter, time.Second)}, writes.Wait()
		}
		if err != nil {
			refusals = append(refusals, func() error { return r.notServed(ctx, c, wants, err) })
			continue
		}
		writes.Go(func() error { return r.serve(ctx, c, grant, origin) })
	}
	for _, refusal := range refusals { // whoever gets addresses does not wait for that
		if time.Since(began) > passLimit {
			again.RequeueAfter = time.Millisecond
			break
		}
		writes.Go(refusal)
	}
	return again, writes.Wait()
}

// takes tells whether this reconciler is to serve a claim that has no answer. One that names its addresses it hands over to the reconciler of claims.
func (r *pending[T]) takes(ctx context.Context, c T) bool {
	switch {
	case r.api.held(c), r.api.unreadable(c) != nil: // to be adopted, or refused
		r.changes.claims.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(c)})
		return false
	case r.sent.has(c), r.ledger.Standing(string(c.GetUID())).Clash != nil: // what it has some of, others have: it is told so
		return false
	}
	return r.api.rests(ctx, r.desk, c, r.clusters) == nil
}

// serve writes what a claim is given.
func (r *pending[T]) serve(ctx context.Context, c T, grant ledger.Grant, origin string) error {
	if r.movable {
		if may, err := r.hold(ctx, c); err != nil || !may {
			r.ledger.Withdraw(grant.Token) // nothing that says it was written
			if err == nil {
				r.tries.failed(client.ObjectKeyFromObject(c), r.now()) // what the informer does not see yet keeps it: its own change would bring it back at once
			}
			return r.unwritten(ctx, c, err)
		}
	}
	return r.write(ctx, c, grant, origin)
}

// notServed says of a claim why there is nothing for it yet. Where that cannot be written it is left alone for a while.
func (r *pending[T]) notServed(ctx context.Context, c T, wants []ledger.Want, why error) error {
	err := errors.Join(r.letGo(ctx, c), r.refuse(ctx, c, wants, why))
	if name := client.ObjectKeyFromObject(c); err == nil {
		r.tries.forget(name)
	} else {
		r.tries.failed(name, r.now())
	}
	return err
}

// give asks the ledger first what it would grant: a request that is tried again and again should not count as failed each time.
func (r *pending[T]) give(ctx context.Context, c T, wants []ledger.Want) (ledger.Grant, error) {
	asks := r.api.claim(c)
	q := ledger.Request{Claim: asks.Key, UID: asks.UID, Version: asks.ResourceVersion, Pool: asks.Pool, Wants: wants}
	if _, err := r.ledger.Preview(ctx, q); err != nil {
		return ledger.Grant{}, heldIn(q.Pool, err)
	}
	g, err := r.ledger.Grant(ctx, q)
	return g, heldIn(q.Pool, err)
}

func oldestFirst[T client.Object](x, y T) int {
	created := x.GetCreationTimestamp()
	if c := created.Compare(y.GetCreationTimestamp().Time); c != 0 {
		return c
	}
	return strings.Compare(x.GetName(), y.GetName())
}
