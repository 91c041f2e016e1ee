package reconcilers

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// pace is how often one pool is written to at most. A change while all is quiet is written at once; under load the last state always follows.
type pace struct {
	every time.Duration
	// perRecord is added for each entry of a list in the status: it costs the API server a quarter of a millisecond with each write of the pool.
	perRecord time.Duration
}

var (
	relaxed = pace{500 * time.Millisecond, 2 * time.Millisecond}
	urgent  = pace{25 * time.Millisecond, time.Millisecond} // while claims wait for a write
)

// perLook is how long a pool is left alone, for each of these entries, once it was looked at: that costs this process a few percent of it.
const perLook = 100 * time.Microsecond

// pools keeps a pool's status and finalizer, and whatever else is recorded in it: all in one place, as they share one object.
type pools[P client.Object] struct {
	*desk
	api     poolAPI[P]
	metrics *ledger.Metrics
	wake    func(namespace string) // the claims of a kind of pool, after a rest or a change of one
	backoff *flow.Backoff

	mu    sync.Mutex
	known map[types.NamespacedName]*poolMemory
}

// poolMemory is what is remembered of a pool between two looks at it. It belongs to the goroutine that handles the pool.
type poolMemory struct {
	looked   time.Time            // when it was last looked at
	written  time.Time            // when its status was last written
	recorded time.Time            // when its record of what went to other clusters was last written
	records  int                  // entries of its lists
	told     map[string]time.Time // event -> when it was last sent
	resting  bool                 // it was left alone
	spec     int64                // its generation then; 0 where it was never looked at
}

// recordEvery is how often the record of the ranges of one pool that went to other clusters is written at most.
const recordEvery = 500 * time.Millisecond

func (r *pools[P]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	wait, unrecorded := r.record(ctx, req)
	result, err := r.look(ctx, req)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, errors.Join(unrecorded, err)
}

// record stores which ranges of a pool went to other clusters, whether the pool is paused or not, and says for how long that is to wait.
func (r *pools[P]) record(ctx context.Context, req reconcile.Request) (wait time.Duration, err error) {
	p := r.api.empty()
	if err := r.client.Get(ctx, req.NamespacedName, p, client.UnsafeDisableDeepCopy); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	memory := r.remember(req.NamespacedName)
	if wait := memory.recorded.Add(recordEvery).Sub(r.now()); wait > 0 {
		return wait, nil
	}
	pool, _ := r.api.pool(p)
	return 0, r.recordMoved(ctx, p, pool.Key, nil, memory)
}

func (r *pools[P]) look(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before := r.api.empty()
	if err := r.client.Get(ctx, req.NamespacedName, before, client.UnsafeDisableDeepCopy); err != nil {
		r.backoff.Succeeded(req.NamespacedName)
		r.recording.Succeeded(req.NamespacedName)
		return reconcile.Result{}, r.gone(ctx, req, err)
	}
	basis := flow.BasisOf(before, v1alpha1.AnnotationResting)
	return r.backoff.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.attempt(ctx, req, before) })
}

// attempt brings a pool to what the ledger says of it.
func (r *pools[P]) attempt(ctx context.Context, req reconcile.Request, before P) (reconcile.Result, error) {
	memory := r.remember(req.NamespacedName)
	if why := r.api.rests(r.desk, before); why != nil { // however short: claims may have seen it
		memory.resting = true
		pool, _ := r.api.pool(before)
		r.events.waits(before, pool.Key, why)
		return reconcile.Result{}, nil
	}
	due := relaxed
	waiting, err := r.api.urgent(ctx, r.desk, req)
	if err != nil {
		return reconcile.Result{}, err
	}
	if waiting {
		due = urgent
	}
	if wait := memory.wait(due, r.now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	pool, _ := r.api.pool(before)
	if !waiting && r.repeated.under(pool.Key) {
		return reconcile.Result{RequeueAfter: relaxed.every}, nil
	}
	p, rested := copied(before), memory.resting
	memory.resting = metal3.Paused(before) // claims of a paused pool wait
	changed := memory.spec != 0 && memory.spec != before.GetGeneration()
	memory.spec = before.GetGeneration()
	if rested && !memory.resting || changed { // what stands in its spec may have kept a claim that holds an address from being Ready
		r.wake(req.Namespace)
	}
	usage, known := r.ledger.Usage(pool.Key)
	if !known {
		return reconcile.Result{}, flow.ErrNothingToDo // the ledger hears of it in a moment, and brings it back
	}
	if done, err := r.finalizer(ctx, before, p, usage); done || err != nil {
		return reconcile.Result{}, err
	}
	memory.looked = r.now()
	return r.api.status(ctx, r.desk, before, p, usage, memory)
}

// finalizer keeps the pool from going while addresses of it are held. It reports whether there is nothing more to do for now.
func (r *pools[P]) finalizer(ctx context.Context, before, p P, usage ledger.Usage) (done bool, err error) {
	finalizer := r.api.finalizer()
	has := controllerutil.ContainsFinalizer(p, finalizer)
	switch going := p.GetDeletionTimestamp() != nil; {
	case going && has && usage.Claims == 0:
		controllerutil.RemoveFinalizer(p, finalizer)
		return true, r.overtaken.Ignore(ctx, before, r.save(ctx, before, p))
	case !going && !has:
		controllerutil.AddFinalizer(p, finalizer)
		return true, r.overtaken.Ignore(ctx, before, r.save(ctx, before, p)) // which brings it here again
	default:
		return false, nil
	}
}

// gone forgets a pool.
func (r *pools[P]) gone(ctx context.Context, req reconcile.Request, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	r.mu.Lock()
	delete(r.known, req.NamespacedName)
	r.mu.Unlock()
	p := r.api.empty()
	p.SetNamespace(req.Namespace)
	p.SetName(req.Name)
	pool, _ := r.api.pool(p)
	r.metrics.ForgetPool(pool.Key)
	return errors.Join(r.dropRecord(ctx, pool.Key), r.api.gone(ctx, r.desk, req))
}

func (r *pools[P]) remember(name types.NamespacedName) *poolMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[name]
	if m == nil {
		m = &poolMemory{told: map[string]time.Time{}}
		r.known[name] = m
	}
	return m
}

// wait is for how long a pool is still left alone.
func (m *poolMemory) wait(p pace, now time.Time) time.Duration {
	records := time.Duration(m.records)
	return max(m.written.Add(p.every+records*p.perRecord).Sub(now), m.looked.Add(records*perLook).Sub(now))
}

// tellEvery is how often people hear of one thing about one pool at most.
const tellEvery = 10 * time.Minute

// mayTell says whether an event may be sent now, and takes it as sent.
func (m *poolMemory) mayTell(event string, now time.Time) bool {
	if last, ok := m.told[event]; ok && now.Sub(last) < tellEvery {
		return false
	}
	m.told[event] = now
	return true
}
