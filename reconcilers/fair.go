package reconcilers

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// fair keeps a namespace whose objects take long from having all workers: where somebody's webhook hangs for each write in one namespace, the
// claims of the others would wait for it. Such a namespace has a few of the workers until it has been quick for a while.
type fair struct {
	reconcile.Reconciler
	few int

	mu   sync.Mutex
	busy map[string]int       // namespace -> its workers
	slow map[string]time.Time // namespace -> until when it has but a few
}

const (
	slowAfter = time.Second      // for one object
	slowFor   = 30 * time.Second // after the last one that took long
	crowded   = time.Second      // until one is looked at again that found no worker
)

func newFair(r reconcile.Reconciler, workers int) *fair {
	return &fair{Reconciler: r, few: max(1, workers/4), busy: map[string]int{}, slow: map[string]time.Time{}}
}

func (f *fair) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	began := time.Now()
	if !f.enter(req.Namespace, began) {
		return reconcile.Result{RequeueAfter: crowded}, nil
	}
	defer func() { f.leave(req.Namespace, began, time.Now()) }()
	return f.Reconciler.Reconcile(ctx, req)
}

func (f *fair) enter(namespace string, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if until, slow := f.slow[namespace]; slow {
		if now.Before(until) && f.busy[namespace] >= f.few {
			return false
		}
		if !now.Before(until) {
			delete(f.slow, namespace)
		}
	}
	f.busy[namespace]++
	return true
}

func (f *fair) leave(namespace string, began, now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now.Sub(began) > slowAfter {
		f.slow[namespace] = now.Add(slowFor)
	}
	if f.busy[namespace]--; f.busy[namespace] == 0 {
		delete(f.busy, namespace)
	}
}
