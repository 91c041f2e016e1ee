package flow

import (
	"context"
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Fairness bounds the workers of namespaces whose objects take long: if a webhook delays each write in some namespaces, claims of the remaining namespaces
// would wait for a worker. A slow namespace has a quarter of the workers, and all slow namespaces together have half of them.
type Fairness struct {
	reconcile.Reconciler
	few int

	mu   sync.Mutex
	busy map[string]int       // namespace -> its workers
	slow map[string]time.Time // namespace -> end of its bound; later it stays slow until an object is quick
}

const (
	slowAfter = time.Second      // for one object
	slowFor   = 30 * time.Second // after the last slow object
	crowded   = time.Second      // pause of an object that found no worker
	// slowForgotten is the time without an object after which a namespace is not slow any more.
	slowForgotten = time.Hour
)

// NewFairness wraps a reconciler with this number of workers.
func NewFairness(r reconcile.Reconciler, workers int) *Fairness {
	return &Fairness{Reconciler: r, few: max(1, workers/4), busy: map[string]int{}, slow: map[string]time.Time{}}
}

// Reconcile implements reconcile.Reconciler.
func (f *Fairness) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	if !f.enterNamespace(req.Namespace) {
		return reconcile.Result{RequeueAfter: crowded}, nil
	}
	defer func() { f.leaveNamespace(req.Namespace, began, time.Now()) }()
	return f.Reconciler.Reconcile(ctx, req)
}

func (f *Fairness) enterNamespace(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, slow := f.slow[namespace]; slow && (f.busy[namespace] >= f.few || f.slowWorkers() >= 2*f.few) {
		return false
	}
	f.busy[namespace]++
	return true
}

func (f *Fairness) leaveNamespace(namespace string, began, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(began) > slowAfter {
		maps.DeleteFunc(f.slow, func(_ string, until time.Time) bool { return now.Sub(until) > slowForgotten })
		f.slow[namespace] = now.Add(slowFor)
	} else if !now.Before(f.slow[namespace]) {
		delete(f.slow, namespace)
	}
	if f.busy[namespace]--; f.busy[namespace] == 0 {
		delete(f.busy, namespace)
	}
}

// slowWorkers counts the workers in slow namespaces.
func (f *Fairness) slowWorkers() (workers int) {
	for namespace, busy := range f.busy {
		if _, slow := f.slow[namespace]; slow {
			workers += busy
		}
	}
	return workers
}
