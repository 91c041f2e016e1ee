// Package flow controls how often reconcilers write.
package flow

import (
	"context"
	"errors"
	"hash/maphash"
	"math/bits"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger/fields"
)

// Pauses between the attempts on an object whose attempts fail, each twice the one before: short at first, and never so long that an outage is felt
// long after its end.
const (
	FirstPause   = 50 * time.Millisecond
	LongestPause = 30 * time.Second
)

// changedPause is the least time between a failed attempt and one that a change of the basis brings: another client may change an object all the time.
const changedPause = time.Second

// Backoff spaces the attempts on objects whose attempts fail, with one pause per object. Events do not shorten the pause, and neither does a requeue:
// a workqueue's rate limiter alone forgets the failures with each requeue after a delay, and events pass it. It is safe for concurrent use.
//
//	attempt failed                   ──▶ pause, twice as long as the one before
//	basis changed during the pause   ──▶ one attempt, at least changedPause after the last; the next pause is longer still
//	attempt succeeded                ──▶ no pause; the failures are forgotten
type Backoff struct {
	failures workqueue.TypedRateLimiter[types.NamespacedName]

	mu      sync.Mutex
	pending map[types.NamespacedName]pause // of the objects whose last attempt failed
}

// pause follows a failed attempt.
type pause struct {
	basis any // what the attempt was based on
	began time.Time
	ends  time.Time
}

// NewBackoff makes a Backoff whose first pause is as long.
func NewBackoff(first time.Duration) *Backoff {
	return &Backoff{
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](first, LongestPause),
		pending:  map[types.NamespacedName]pause{},
	}
}

// Wait returns the time until the next attempt on an object is due. The basis, a comparable value, identifies what the attempt would be based on.
func (b *Backoff) Wait(name types.NamespacedName, basis any) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	last, paused := b.pending[name]
	if !paused {
		return 0
	}
	ends := last.ends
	if soon := last.began.Add(changedPause); last.basis != basis && soon.Before(ends) {
		ends = soon
	}
	return max(0, time.Until(ends))
}

// Failed records a failed attempt and returns the time until the next one is due. The log has the failures that Telling names.
func (b *Backoff) Failed(ctx context.Context, name types.NamespacedName, basis any, err error) time.Duration {
	wait := b.failures.When(name)
	now := time.Now()
	b.mu.Lock()
	b.pending[name] = pause{basis, now, now.Add(wait)}
	b.mu.Unlock()
	if n := b.failures.NumRequeues(name); isTold(n) {
		ctrllog.FromContext(ctx).Info("Attempt failed, and is repeated", "subject", name.String(), "failures", n, "pause", wait.String(), "error", fields.OneLine(err.Error(), 1024))
	}
	return wait
}

// Failures returns how many attempts on an object have failed since the last success.
func (b *Backoff) Failures(name types.NamespacedName) int { return b.failures.NumRequeues(name) }

// Telling reports whether users are told of it if the attempt under way fails: the first failure of an object, the 8th, the 16th and so on, each time
// twice as many. A message that is worded anew each time would be one more write per attempt.
func (b *Backoff) Telling(name types.NamespacedName) bool { return isTold(b.Failures(name) + 1) }

// The second to the seventh failure come within seconds of the first.
func isTold(failures int) bool {
	return failures == 1 || failures >= 8 && bits.OnesCount(uint(failures)) == 1
}

// Succeeded ends the pause of an object and forgets its failures.
func (b *Backoff) Succeeded(name types.NamespacedName) {
	b.failures.Forget(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, name)
}

// Hasten makes the next attempt on an object due, changedPause after the last at the earliest: what the last one failed for may have ended. The failures count
// on.
func (b *Backoff) Hasten(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, paused := b.pending[name]; paused {
		if soon := last.began.Add(changedPause); soon.Before(last.ends) {
			last.ends = soon
			b.pending[name] = last
		}
	}
}

// ErrNothingToDo ends an attempt that has neither failed nor succeeded: something else is to happen first, and brings the object here again.
var ErrNothingToDo = errors.New("there is nothing to do yet")

// Attempt runs an attempt when it is due. An attempt that asks for a requeue, or ends with ErrNothingToDo, has neither failed nor succeeded.
func (b *Backoff) Attempt(ctx context.Context, name types.NamespacedName, basis any, attempt func() (reconcile.Result, error)) (reconcile.Result, error) {
	if wait := b.Wait(name, basis); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	result, err := attempt()
	switch {
	case errors.Is(err, ErrNothingToDo):
		return reconcile.Result{}, nil
	case err != nil && ctx.Err() == nil:
		return reconcile.Result{RequeueAfter: b.Failed(ctx, name, basis, err)}, nil
	case err == nil && result.RequeueAfter == 0:
		b.Succeeded(name)
	}
	return result, err
}

// Spaced is a reconciler whose attempts are spaced. Each is based on its object, as informers have it, without the annotations that the managers write.
func Spaced(r reconcile.Reconciler, informers client.Reader, empty func() client.Object, except ...string) reconcile.Reconciler {
	b := NewBackoff(FirstPause)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var basis Basis
		if o := empty(); informers.Get(ctx, req.NamespacedName, o, client.UnsafeDisableDeepCopy) == nil {
			basis = BasisOf(o, except...)
		}
		return b.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.Reconcile(ctx, req) })
	})
}

// Basis identifies what users decide of an object: everything but its status and what the managers write. The zero value is that of no object.
type Basis struct {
	UID        types.UID
	Generation int64
	Deleting   bool
	metadata   uint64 // digest of labels and annotations
}

var seed = maphash.MakeSeed()

// BasisOf returns the basis of an object, where the managers write the annotations with these keys.
func BasisOf(o client.Object, except ...string) Basis {
	b := Basis{UID: o.GetUID(), Generation: o.GetGeneration(), Deleting: o.GetDeletionTimestamp() != nil}
	for k, v := range o.GetLabels() {
		b.metadata += maphash.Comparable(seed, [3]string{"label", k, v})
	}
	for k, v := range o.GetAnnotations() {
		if !slices.Contains(except, k) {
			b.metadata += maphash.Comparable(seed, [3]string{"annotation", k, v})
		}
	}
	return b
}
