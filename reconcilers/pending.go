package reconcilers

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
)

// parallelWrites is how many objects of one pool are written to at a time.
const parallelWrites = 8

// secondTry comes so long after the first: each try costs a commit of the journal, and a grant that stays open for its life where nobody knows what became
// of the write.
const secondTry = time.Second

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
		return cmp.Or(cmp.Compare(r.tries.Failures(client.ObjectKeyFromObject(x)), r.tries.Failures(client.ObjectKeyFromObject(y))), oldestFirst(x, y))
	})
	var (
		writes   errgroup.Group
		refusals []func() error
		soonest  soonest
	)
	writes.SetLimit(parallelWrites)
	began := time.Now()
	key := ledger.Key{Kind: r.poolKind, Namespace: req.Namespace, Name: req.Name}
	pool := r.poolBasis(ctx, key)
	if r.tries.Failures(client.ObjectKeyFromObject(waiting[len(waiting)-1])) > 0 {
		r.repeated.begin(key)
		defer r.repeated.end(key)
	}
	for _, stored := range waiting {
		if time.Since(began) > passLimit {
			soonest.add(time.Millisecond)
			break
		}
		c := copied(stored)
		if !r.takes(ctx, c) {
			continue
		}
		basis := claimBasis{claimBasisOf(c), pool}
		if left := r.tries.Wait(client.ObjectKeyFromObject(c), basis); left > 0 {
			soonest.add(left)
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
			refusals = append(refusals, func() error { return r.settle(ctx, c, basis, &soonest, r.notServed(ctx, c, wants, err)) })
			continue
		}
		writes.Go(func() error { return r.settle(ctx, c, basis, &soonest, r.serve(ctx, c, grant, origin)) })
	}
	for _, refusal := range refusals { // whoever gets addresses does not wait for that
		if time.Since(began) > passLimit {
			soonest.add(time.Millisecond)
			break
		}
		writes.Go(refusal)
	}
	err = writes.Wait()
	return reconcile.Result{RequeueAfter: soonest.wait}, err
}

// settle takes note of how an attempt on a claim ended. A failure is that claim's alone: the other claims of its pool do not wait for it.
func (r *pending[T]) settle(ctx context.Context, c T, basis claimBasis, again *soonest, err error) error {
	name := client.ObjectKeyFromObject(c)
	switch {
	case err == nil:
		r.tries.Succeeded(name)
	case ctx.Err() != nil:
		return err
	default:
		again.add(r.tries.Failed(ctx, name, basis, err))
	}
	return nil
}

// soonest is the shortest of several waits, zero for none. It is safe for concurrent use until it is read.
type soonest struct {
	mu   sync.Mutex
	wait time.Duration
}

func (s *soonest) add(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wait == 0 || wait < s.wait {
		s.wait = wait
	}
}

// errPaused is why a claim gets nothing that the informers do not show as paused yet.
var errPaused = errors.New("the API server shows that its Cluster, or its pool, is paused")

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
				return errPaused // its own change would bring it back at once
			}
			return r.unwritten(ctx, c, r.tries, err)
		}
	}
	return r.write(ctx, c, grant, origin, r.tries)
}

// notServed says of a claim why there is nothing for it yet.
func (r *pending[T]) notServed(ctx context.Context, c T, wants []ledger.Want, why error) error {
	return errors.Join(r.letGo(ctx, c), r.refuse(ctx, c, wants, why))
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
