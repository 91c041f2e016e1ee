// Package pools reconciles pools of every kind: it writes the status with counters and
// conditions, keeps the finalizer while addresses are owned, and writes release records,
// cooldown list and moved record (package state, Cooldown). Only this package writes a
// pool, on the leader, except for status.infrastructureAllocations and
// infrastructureConsumedIPs of a NetworkPool (package inuse).
package pools

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

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// pace bounds how often one pool is written. A change in a quiet time is written at once;
// under load the last state is always written.
type pace struct {
	every time.Duration
	// perRecord is added for each entry of a list in the status: an entry costs the API
	// server a quarter of a millisecond with each write of the pool.
	perRecord time.Duration
}

var (
	relaxed = pace{500 * time.Millisecond, 2 * time.Millisecond}
	// urgent is the pace while released allocations wait for their release records.
	// Claims that wait for the cooldown list are not urgent: their wait
	// (state.BeginCooldown: 5 s, and 2 ms for each owner of the pool) is longer than the
	// relaxed pace, and grows as the relaxed pace does.
	urgent = pace{25 * time.Millisecond, time.Millisecond}
)

// reconcilePause is the pause for each list entry after a pool was reconciled: it bounds
// the reconciles to a few percent of the process's time.
const reconcilePause = 100 * time.Microsecond

// deps has the dependencies of the reconciler and of the adapters.
type deps struct {
	*claims.Deps
	movedRecords  *movedrecords.Store
	recordBackoff *flow.Backoff // of writes of the cooldown list, with the moved record before the list
}

// Config has the dependencies of a Reconciler.
type Config struct {
	Claims       *claims.Deps        // of the claims of the same API
	MovedRecords *movedrecords.Store // nil if no moved records are kept
	// RequeueClaims requeues the claims of a namespace that may request addresses from
	// pools of this kind.
	RequeueClaims func(namespace string)
}

// Reconciler reconciles one pool. Status, finalizer and records have one reconciler,
// since they share an object.
type Reconciler[P client.Object] struct {
	*deps
	api Adapter[P]
	// Optional interfaces; nil for an adapter without them.
	pausable pausable[P]
	releases releaseRecorder[P]

	requeueClaims func(namespace string)
	backoff       *flow.Backoff

	mu       sync.Mutex
	memories map[types.NamespacedName]*memory
}

// New returns the reconciler of a pool kind.
func New[P client.Object](c Config, api Adapter[P]) *Reconciler[P] {
	r := &Reconciler[P]{
		deps: &deps{c.Claims, c.MovedRecords, flow.NewBackoff(flow.FirstPause)}, api: api,
		requeueClaims: c.RequeueClaims, backoff: flow.NewBackoff(flow.FirstPause), memories: map[types.NamespacedName]*memory{},
	}
	r.pausable, _ = api.(pausable[P])
	r.releases, _ = api.(releaseRecorder[P])
	return r
}

// memory is remembered of a pool between two reconciles. The goroutine that reconciles
// the pool owns it.
type memory struct {
	reconciled    time.Time            // last reconcile
	statusWritten time.Time            // last write of the status
	movedWritten  time.Time            // last write of the moved record
	statusEntries int                  // entries of the lists in the status
	reported      map[string]time.Time // event -> when it was last recorded
	owners        ownersReport         // of a pool that is being deleted
	unmanaged     bool                 // the pool was not managed, or paused
	generation    int64                // of the last reconcile; 0 before the first
}

// recordMovedEvery is the least time between two writes of a pool's moved record.
const recordMovedEvery = 500 * time.Millisecond

// Reconcile implements reconcile.Reconciler.
func (r *Reconciler[P]) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() {
		return reconcile.Result{}, nil
	}
	wait, movedErr := r.recordMovedRanges(ctx, req)
	result, err := r.reconcilePool(ctx, req)
	if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
		result.RequeueAfter = wait
	}
	return result, errors.Join(movedErr, err)
}

// recordMovedRanges writes the moved record of a pool, paused or not, and returns for how
// long the write has to wait.
func (r *Reconciler[P]) recordMovedRanges(ctx context.Context, req reconcile.Request) (wait time.Duration, err error) {
	p := r.api.NewObject()
	if err := r.Client.Get(ctx, req.NamespacedName, p, client.UnsafeDisableDeepCopy); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	m := r.memoryOf(req.NamespacedName)
	if wait := m.movedWritten.Add(recordMovedEvery).Sub(r.Now()); wait > 0 {
		return wait, nil
	}
	pool, _ := r.api.ToPool(p)
	return 0, r.recordMoved(ctx, p, pool.Key, nil, m)
}

func (r *Reconciler[P]) reconcilePool(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	before := r.api.NewObject()
	if err := r.Client.Get(ctx, req.NamespacedName, before, client.UnsafeDisableDeepCopy); err != nil {
		r.backoff.Succeeded(req.NamespacedName)
		r.recordBackoff.Succeeded(req.NamespacedName)
		return reconcile.Result{}, r.forgetPool(ctx, req, err)
	}
	basis := flow.BasisOf(before, v1alpha1.AnnotationCooldown)
	return r.backoff.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) { return r.attemptPool(ctx, req, before) })
}

// attemptPool reconciles a pool once.
func (r *Reconciler[P]) attemptPool(ctx context.Context, req reconcile.Request, before P) (reconcile.Result, error) {
	m := r.memoryOf(req.NamespacedName)
	if why := r.checkManaged(before); why != nil {
		m.unmanaged = true // however short the pause is: claims may have seen it
		pool, _ := r.api.ToPool(before)
		r.Events.Waits(before, pool.Key, why)
		return reconcile.Result{}, nil
	}
	due, hasReleased, err := relaxed, false, error(nil)
	if r.releases != nil {
		if hasReleased, err = r.releases.hasReleasedAllocations(ctx, r.deps, req.NamespacedName); err != nil {
			return reconcile.Result{}, err
		}
	}
	if hasReleased {
		due = urgent
	}
	if wait := m.wait(due, r.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	pool, _ := r.api.ToPool(before)
	// A retry of waiting claims (claims.Waiting) changes the counters, and changes them
	// back if its writes fail: the pool would be written twice. Released allocations do
	// not wait for the end of the retry.
	if !hasReleased && r.Queues.IsRetrying(pool.Key) {
		return reconcile.Result{RequeueAfter: relaxed.every}, nil
	}
	if m.recordManaged(before) {
		r.requeueClaims(req.Namespace)
	}
	// What the ledger knows must include what this version of the pool records: a list
	// that is written from less would free a range. The ledger observes the version soon,
	// and requeues the pool.
	if !r.Ledger.HasObserved(pool.Key, object.ResourceVersion(before)) {
		return reconcile.Result{}, flow.ErrNothingToDo
	}
	p := write.DeepCopy(before)
	usage, awaited := r.needs(before)
	// A former leader that was suspended may observe the deletion of the pool before the
	// claims that its successor has stored. So a replica proves that it led when it had
	// observed the deletion, and then looks again.
	if before.GetDeletionTimestamp() != nil && controllerutil.ContainsFinalizer(before, r.api.finalizerName()) && usage.Claims == 0 && awaited == 0 {
		if err := r.Ledger.ProveLeads(ctx); err != nil {
			return reconcile.Result{}, err
		}
		usage, awaited = r.needs(before)
	}
	if done, err := r.ensureFinalizer(ctx, before, p, usage.Claims > 0 || awaited > 0); done || err != nil {
		return reconcile.Result{}, err
	}
	ownersWait := time.Duration(0)
	if before.GetDeletionTimestamp() != nil {
		ownersWait = r.reportOwners(before, pool.Key, usage.Claims, m)
	}
	m.reconciled = r.Now()
	result, err := r.api.writeStatus(ctx, r.deps, before, p, usage, m)
	for _, wait := range []time.Duration{awaited, ownersWait} {
		if wait > 0 && (result.RequeueAfter == 0 || wait < result.RequeueAfter) {
			result.RequeueAfter = wait
		}
	}
	return result, err
}

// checkManaged returns why the manager must not write to a pool now; nil if the manager
// may write.
func (r *Reconciler[P]) checkManaged(p P) error {
	if r.pausable == nil {
		return nil
	}
	return r.pausable.checkManaged(r.deps, p)
}

// recordManaged records the pause and the generation of a managed pool, and reports
// whether claims must be reconciled: a pause that has ended, or the former spec, may have
// kept a claim that owns an address from becoming Ready.
func (m *memory) recordManaged(p client.Object) (requeueClaims bool) {
	wasUnmanaged := m.unmanaged
	m.unmanaged = clusterpause.IsPaused(p) // claims of a paused pool wait
	changed := m.generation != 0 && m.generation != p.GetGeneration()
	m.generation = p.GetGeneration()
	return wasUnmanaged && !m.unmanaged || changed
}

// needs returns the usage of a pool that the ledger has observed, and for how long a
// create of a claim is awaited if the pool is being deleted.
func (r *Reconciler[P]) needs(p P) (usage ledger.Usage, awaited time.Duration) {
	pool, _ := r.api.ToPool(p)
	if p.GetDeletionTimestamp() != nil {
		awaited = r.Ledger.AwaitsCreate(pool.Key) // before Usage, which counts a claim that is observed in between
	}
	usage, _ = r.Ledger.Usage(pool.Key)
	return usage, awaited
}

// ensureFinalizer keeps the pool stored while needed: addresses are owned, or a create is
// awaited. It reports whether this attempt is complete.
func (r *Reconciler[P]) ensureFinalizer(ctx context.Context, before, p P, needed bool) (done bool, err error) {
	finalizer := r.api.finalizerName()
	has := controllerutil.ContainsFinalizer(p, finalizer)
	switch deleting := p.GetDeletionTimestamp() != nil; {
	case deleting && has && !needed:
		controllerutil.RemoveFinalizer(p, finalizer)
	case !deleting && !has:
		controllerutil.AddFinalizer(p, finalizer) // the event of this write requeues the pool
	default:
		return false, nil
	}
	return true, r.IgnoreStale(ctx, before, r.SaveObject(ctx, before, p))
}

// forgetPool removes all memory of a pool that is gone, deletes the moved record of the
// pool, and requeues the released allocations that wait for the pool.
func (r *Reconciler[P]) forgetPool(ctx context.Context, req reconcile.Request, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	r.mu.Lock()
	delete(r.memories, req.NamespacedName)
	r.mu.Unlock()
	p := r.api.NewObject()
	p.SetNamespace(req.Namespace)
	p.SetName(req.Name)
	pool, _ := r.api.ToPool(p)
	err = r.deleteMovedRecord(ctx, pool.Key)
	if r.releases != nil {
		err = errors.Join(err, r.releases.requeueReleasedAllocations(ctx, r.deps, req.NamespacedName))
	}
	return err
}

func (r *Reconciler[P]) memoryOf(pool types.NamespacedName) *memory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.memories[pool]
	if m == nil {
		m = &memory{reported: map[string]time.Time{}}
		r.memories[pool] = m
	}
	return m
}

// wait returns for how long the pool must not be written.
func (m *memory) wait(p pace, now time.Time) time.Duration {
	records := time.Duration(m.statusEntries)
	return max(m.statusWritten.Add(p.every+records*p.perRecord).Sub(now), m.reconciled.Add(records*reconcilePause).Sub(now))
}

// reportEvery is the least time between two events with the same reason about one pool.
const reportEvery = 10 * time.Minute

// mayReport reports whether an event may be recorded now, and counts it as recorded.
func (m *memory) mayReport(event string, now time.Time) bool {
	if last, ok := m.reported[event]; ok && now.Sub(last) < reportEvery {
		return false
	}
	m.reported[event] = now
	return true
}
