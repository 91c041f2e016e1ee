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

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
)

// Pauses after failed attempts on an object, each twice the one before: short at first,
// and bounded, so that an outage has no effect long after its end.
const (
	FirstPause   = 50 * time.Millisecond
	LongestPause = 30 * time.Second
)

// changedPause is the least time between a failed attempt and an attempt after a change
// of the basis: another client may change an object all the time.
const changedPause = time.Second

// Backoff spaces the attempts on objects whose attempts fail, with one pause per object.
// Neither events nor requeues shorten the pause: the rate limiter of a workqueue forgets
// the failures with each requeue after a delay, and does not hold events back. Backoff is
// safe for concurrent use.
//
//	attempt failed                   ──▶ pause, twice as long as the last one
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

// NewBackoff returns a Backoff whose first pause is given.
func NewBackoff(first time.Duration) *Backoff {
	return &Backoff{
		failures: workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](first, LongestPause),
		pending:  map[types.NamespacedName]pause{},
	}
}

// Wait returns the time until the next attempt on an object is due. basis, a comparable
// value, identifies what the attempt would be based on.
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

// Failed records a failed attempt and returns the time until the next attempt is due. The
// failures of ShouldReport are logged.
func (b *Backoff) Failed(ctx context.Context, name types.NamespacedName, basis any, err error) time.Duration {
	wait := b.failures.When(name)
	now := time.Now()
	b.mu.Lock()
	b.pending[name] = pause{basis, now, now.Add(wait)}
	b.mu.Unlock()
	if n := b.failures.NumRequeues(name); isReported(n) {
		ctrllog.FromContext(ctx).Info("Attempt failed, and is repeated", "subject", name.String(), "failures", n, "pause", wait.String(), "error", fieldtext.SingleLine(err.Error(), 1024))
	}
	return wait
}

// Failures returns how many attempts on an object have failed since the last success.
func (b *Backoff) Failures(name types.NamespacedName) int { return b.failures.NumRequeues(name) }

// ShouldReport reports whether users get a message if the current attempt fails: for the
// first failure of an object, the 8th, the 16th and so on, each time twice as many. A new
// message for each attempt would be one more write per attempt. The second to the seventh
// failure follow within seconds of the first.
func (b *Backoff) ShouldReport(name types.NamespacedName) bool {
	return isReported(b.Failures(name) + 1)
}

// isReported reports whether the failure with this number is reported. The second to the
// seventh failure follow within seconds of the first.
func isReported(failures int) bool {
	return failures == 1 || failures >= 8 && bits.OnesCount(uint(failures)) == 1
}

// Succeeded ends the pause of an object and forgets its failures.
func (b *Backoff) Succeeded(name types.NamespacedName) {
	b.failures.Forget(name)
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pending, name)
}

// RetrySoon makes the next attempt on an object due, at the earliest changedPause after
// the last attempt: the cause of the last failure may have ended. The failures still
// count.
func (b *Backoff) RetrySoon(name types.NamespacedName) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if last, paused := b.pending[name]; paused {
		if soon := last.began.Add(changedPause); soon.Before(last.ends) {
			last.ends = soon
			b.pending[name] = last
		}
	}
}

// ErrNothingToDo ends an attempt that has neither failed nor succeeded: a later event
// must come first, and requeues the object.
var ErrNothingToDo = errors.New("there is nothing to do yet")

// Attempt runs an attempt when the attempt is due. An attempt that requests a requeue, or
// ends with ErrNothingToDo, has neither failed nor succeeded.
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

// WithBackoff wraps a reconciler so that attempts on each object are spaced. An attempt
// is based on the object as informers show it, without the annotations of the managers.
func WithBackoff(r reconcile.Reconciler, informers client.Reader, empty func() client.Object, except ...string) reconcile.Reconciler {
	b := NewBackoff(FirstPause)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		var basis Basis
		if o := empty(); informers.Get(ctx, req.NamespacedName, o, client.UnsafeDisableDeepCopy) == nil {
			basis = BasisOf(o, except...)
		}
		return b.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.Reconcile(ctx, req) })
	})
}

// Basis identifies what users decide about an object: everything but the status and the
// fields that managers write. The zero value stands for no object.
type Basis struct {
	UID        types.UID
	Generation int64
	Deleting   bool
	metadata   uint64 // digest of labels and annotations
}

var seed = maphash.MakeSeed()

// BasisOf returns the basis of an object. Managers write the annotations with these keys.
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
