package reconcilers

import (
	"context"
	"maps"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fair keeps namespaces whose objects take long from having all workers: where somebody's webhook hangs for each write in some of them, the claims of
// the others would wait for it. Such a namespace has a few of the workers, and all of them together have twice as many, however many there are.
type fair struct {
	reconcile.Reconciler
	few int

	mu   sync.Mutex
	busy map[string]int       // namespace -> its workers
	slow map[string]time.Time // namespace -> until when it has but a few, and then until it is quick: one that is turned away shows nothing
}

const (
	slowAfter = time.Second      // for one object
	slowFor   = 30 * time.Second // after the last one that took long
	crowded   = time.Second      // until one is looked at again that found no worker
	// slowForgotten is after how long without an object one is forgotten: it may be gone.
	slowForgotten = time.Hour
)

func newFair(r reconcile.Reconciler, workers int) *fair {
	return &fair{Reconciler: r, few: max(1, workers/4), busy: map[string]int{}, slow: map[string]time.Time{}}
}

func (f *fair) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	if !f.enter(req.Namespace) {
		return reconcile.Result{RequeueAfter: crowded}, nil
	}
	defer func() { f.leave(req.Namespace, began, time.Now()) }()
	return f.Reconciler.Reconcile(ctx, req)
}

func (f *fair) enter(namespace string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, slow := f.slow[namespace]; slow && (f.busy[namespace] >= f.few || f.crawling() >= 2*f.few) {
		return false
	}
	f.busy[namespace]++
	return true
}

func (f *fair) leave(namespace string, began, now time.Time) {
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

// crawling is how many workers are in namespaces that are slow.
func (f *fair) crawling() (workers int) {
	for namespace, busy := range f.busy {
		if _, slow := f.slow[namespace]; slow {
			workers += busy
		}
	}
	return workers
}
