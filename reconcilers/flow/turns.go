package flow

import (
	"maps"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	slowAfter = time.Second      // for one object
	slowFor   = 30 * time.Second // after the last slow object
	// slowForgotten is the time without an object after which a namespace is not slow any
	// more.
	slowForgotten = time.Hour
	// keepsPlace is the longest pause after which a request keeps its place: a Pacer has
	// postponed the request.
	keepsPlace = 500 * time.Millisecond
)

// turns decides which waiting request the next free worker gets:
//
//   - Namespaces with waiting requests take turns, one request each.
//   - In a namespace, the oldest request comes first. A request that was postponed for
//     keepsPlace at most keeps its place.
//   - All requests together use the regular workers. A namespace without rivals uses all
//     of them.
//   - While a slow namespace has requests at work, the spare workers work too. The slow
//     namespaces together use at most as many workers as there are regular workers: the
//     spare workers are left for the other namespaces.
//
// A namespace is slow if one of its objects took longer than slowAfter, as when a webhook
// delays each write in the namespace.
//
// The rules decide when a worker is free, and queue no request again: each waiting
// request costs nothing, and is served in its order. A worker that has finished a request
// asks for the next request itself, so a place that becomes free needs no signal.
type turns struct {
	mu             sync.Mutex
	regular, spare int
	requests       int               // number of waiting requests
	waiting        []*namespaceQueue // the first has the next turn. Invariant: each has a request
	byName         map[string]*namespaceQueue
	began          map[reconcile.Request]time.Time // requests at work
	busy           map[string]int                  // namespace -> its requests at work
	slow           map[string]time.Time            // namespace -> end of its slowness; later it stays slow until an object is quick
	postponed      map[reconcile.Request]struct{}  // requests that keep their places
}

var _ workqueue.Queue[reconcile.Request] = (*turns)(nil)

// namespaceQueue has the waiting requests of a namespace, the oldest first.
type namespaceQueue struct {
	namespace string
	postponed []reconcile.Request // each is older than every request in fresh
	fresh     []reconcile.Request
}

func newTurns() *turns {
	return &turns{
		regular: 1, byName: map[string]*namespaceQueue{}, began: map[reconcile.Request]time.Time{}, busy: map[string]int{}, slow: map[string]time.Time{},
		postponed: map[reconcile.Request]struct{}{},
	}
}

// setWorkers sets the number of regular workers, and returns the number of all workers.
func (t *turns) setWorkers(regular int) (all int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.regular, t.spare = regular, max(1, regular/4)
	return t.regular + t.spare
}

// Touch implements workqueue.Queue.
func (*turns) Touch(reconcile.Request) {}

// Push implements workqueue.Queue.
func (t *turns) Push(r reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.requests++
	q := t.byName[r.Namespace]
	if q == nil {
		q = &namespaceQueue{namespace: r.Namespace}
		t.byName[r.Namespace] = q
		t.waiting = append(t.waiting, q)
	}
	if _, keeps := t.postponed[r]; keeps {
		delete(t.postponed, r)
		q.postponed = append(q.postponed, r)
	} else {
		q.fresh = append(q.fresh, r)
	}
}

// Len implements workqueue.Queue: the number of waiting requests; 0 while no request may
// be served.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.next() < 0 {
		return 0
	}
	return t.requests
}

// Pop implements workqueue.Queue.
func (t *turns) Pop() (r reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := max(0, t.next()) // done may have made a namespace slow since Len
	q := t.waiting[at]
	if from := &q.postponed; len(*from) > 0 {
		r, *from = (*from)[0], (*from)[1:]
	} else {
		r, q.fresh = q.fresh[0], q.fresh[1:]
	}
	copy(t.waiting[1:], t.waiting[:at]) // the namespaces before keep their turns
	t.waiting = t.waiting[1:]
	if len(q.postponed)+len(q.fresh) > 0 {
		t.waiting = append(t.waiting, q)
	} else {
		delete(t.byName, r.Namespace)
	}
	t.requests--
	t.began[r] = time.Now()
	t.busy[r.Namespace]++
	return r
}

// next returns the index in waiting of the namespace whose request may be served next; -1
// if no request may be served. The caller holds mu.
func (t *turns) next() int {
	busy, busySlow := len(t.began), 0
	for namespace, n := range t.busy {
		if t.isSlow(namespace) {
			busySlow += n
		}
	}
	for i, q := range t.waiting {
		limit, slow := t.regular, t.isSlow(q.namespace)
		if slow || busySlow > 0 {
			limit += t.spare
		}
		if busy < limit && (!slow || busySlow < t.regular) {
			return i
		}
	}
	return -1
}

func (t *turns) isSlow(namespace string) bool {
	_, slow := t.slow[namespace]
	return slow
}

// postpone records that a request at work will be pushed again after a pause.
func (t *turns) postpone(r reconcile.Request, pause time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, works := t.began[r]; works && pause <= keepsPlace {
		t.postponed[r] = struct{}{}
	}
}

// done records the end of the work on a request.
func (t *turns) done(r reconcile.Request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, namespace := time.Now(), r.Namespace
	if now.Sub(t.began[r]) > slowAfter {
		maps.DeleteFunc(t.slow, func(_ string, until time.Time) bool { return now.Sub(until) > slowForgotten })
		t.slow[namespace] = now.Add(slowFor)
	} else if !now.Before(t.slow[namespace]) {
		delete(t.slow, namespace)
	}
	delete(t.began, r)
	if t.busy[namespace]--; t.busy[namespace] == 0 {
		delete(t.busy, namespace)
	}
}
