package reconcilers

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools,verbs=update
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/status,verbs=update

// Pace of writes to one pool. A change while all is quiet is written at once; under load the last state always follows.
const (
	countersEvery = 500 * time.Millisecond
	releasesEvery = 25 * time.Millisecond // while allocations wait for their release to be recorded
	// perRecord is added for each record in status.releases: it costs the API server a quarter of that with each write of the pool.
	perRecord = time.Millisecond
)

// pools keeps a NetworkPool's status, finalizer and record of releases: all in one place, as they share one object.
type pools struct {
	desk
	metrics *ledger.Metrics

	mu    sync.Mutex
	known map[types.NamespacedName]*poolMemory
}

// poolMemory is what is remembered of a pool between two looks at it. It belongs to the goroutine that handles the pool.
type poolMemory struct {
	written time.Time            // when its status was last written
	records int                  // in status.releases then
	usage   ledger.Usage         // as last mirrored; guarded by pools.mu, for the neighbours
	told    map[string]time.Time // event -> when it was last sent
}

func (r *pools) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	memory := r.remember(req.NamespacedName)
	leaving, err := r.listIndexed(ctx, indexReleased, req.Namespace, req.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	pace := countersEvery
	if len(leaving) > 0 {
		pace = releasesEvery
	}
	pace += time.Duration(memory.records) * perRecord
	if wait := memory.written.Add(pace).Sub(r.now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	p := &v1alpha1.NetworkPool{}
	if err := r.client.Get(ctx, req.NamespacedName, p); err != nil {
		return reconcile.Result{}, r.gone(req, leaving, err)
	}
	usage, known := r.ledger.Usage(butler.NetworkPoolKey(p.Namespace, p.Name))
	if !known {
		return reconcile.Result{}, nil // the ledger hears of it in a moment, and brings it back
	}
	if done, err := r.finalizer(ctx, p, usage); done || err != nil {
		return reconcile.Result{}, err
	}
	return r.status(ctx, p, usage, leaving, memory)
}

// finalizer keeps the pool from going while addresses of it are held. It reports whether there is nothing more to do.
func (r *pools) finalizer(ctx context.Context, p *v1alpha1.NetworkPool, usage ledger.Usage) (done bool, err error) {
	has := controllerutil.ContainsFinalizer(p, v1alpha1.FinalizerNetworkPool)
	switch going := p.DeletionTimestamp != nil; {
	case going && !has:
		return true, nil
	case going && usage.Claims == 0:
		controllerutil.RemoveFinalizer(p, v1alpha1.FinalizerNetworkPool)
		return true, overtaken(r.client.Update(ctx, p))
	case !going && !has:
		controllerutil.AddFinalizer(p, v1alpha1.FinalizerNetworkPool)
		err := r.client.Update(ctx, p)
		return err != nil, overtaken(err)
	default:
		return false, nil
	}
}

// status writes counters, conditions and releases in one, and lets go of the allocations whose release is recorded then.
func (r *pools) status(ctx context.Context, p *v1alpha1.NetworkPool, usage ledger.Usage, leaving []v1alpha1.IPAllocation, memory *poolMemory) (reconcile.Result, error) {
	pool, faults := butler.PoolOf(p)
	want := poolStatus(p, usage, faults)
	releases := recordReleases(p, leaving, r.now())
	want.Releases = releases.records
	before := p.Status
	if !equality.Semantic.DeepEqual(&before, want) {
		p.Status = *want
		if err := r.client.Status().Update(ctx, p); err != nil {
			return reconcile.Result{}, overtaken(err)
		}
		memory.written, memory.records = r.now(), len(want.Releases)
		logReleases(ctx, releases)
	}
	r.mu.Lock()
	memory.usage = usage
	r.mu.Unlock()
	if c, ok := crossingOf(before.Conditions, want.Conditions); ok && memory.mayTell(c.reason+c.condition, r.now()) {
		r.events.crossed(p, c)
	}
	if releases.room > 0 && memory.mayTell(eventReleasesWait, r.now()) {
		r.events.releasesWait(p, releases.left)
	}
	r.tellNeighbours(pool)
	if err := r.dropFinalizers(ctx, p, leaving); err != nil {
		return reconcile.Result{}, err
	}
	switch {
	case releases.room > 0:
		return reconcile.Result{RequeueAfter: releases.room}, nil
	case releases.left > 0:
		return reconcile.Result{RequeueAfter: releasesEvery}, nil
	default:
		return reconcile.Result{}, nil
	}
}

// tellNeighbours looks at the pools that share addresses with this one, where their status is behind: the ledger says of a change
// only whose it is.
func (r *pools) tellNeighbours(pool ledger.Pool) {
	for _, k := range r.ledger.Overlapping(pool) {
		usage, known := r.ledger.Usage(k)
		req := request(k)
		r.mu.Lock()
		memory := r.known[req.NamespacedName]
		behind := known && memory != nil && memory.usage != usage
		r.mu.Unlock()
		if behind {
			r.changes.pool(req)
		}
	}
}

// gone forgets a pool. Allocations that waited for it to record their release need not any more.
func (r *pools) gone(req reconcile.Request, leaving []v1alpha1.IPAllocation, err error) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	r.mu.Lock()
	delete(r.known, req.NamespacedName)
	r.mu.Unlock()
	key := butler.NetworkPoolKey(req.Namespace, req.Name)
	r.metrics.ForgetPool(key)
	r.events.forget(key)
	for i := range leaving {
		r.changes.allocations.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&leaving[i])})
	}
	return nil
}

func (r *pools) remember(name types.NamespacedName) *poolMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.known[name]
	if m == nil {
		m = &poolMemory{told: map[string]time.Time{}}
		r.known[name] = m
	}
	return m
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
