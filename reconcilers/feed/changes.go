package feed

import (
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// Delays of the debouncers.
const (
	// changeDelay leaves the moment after a change to the create that made the change,
	// whose response is in flight, and lets changes of several creates share the work.
	changeDelay = 20 * time.Millisecond
	// retryDelay is for claims that wait for a pool: each change of the pool repeats the
	// requests of all waiting claims.
	retryDelay = 50 * time.Millisecond
)

// Changes queues the claims and pools that the ledger reports as changed for the
// reconcilers. Keys wait if the reconcilers do not run yet. A key that already waits
// takes no further room, so the number of objects bounds the size.
type Changes struct {
	byClaim map[string]*Queues    // claim resource ->
	byPool  map[string][]*Queues  // pool resource -> queues of the claims that request addresses from the pools
	pools   map[string]flow.Queue // pool resource ->

	changed flow.Debouncer // of changed objects
	retried flow.Debouncer // of pools whose waiting claims must be reconciled
	retries retries
}

// Queues has the queues of one claim resource.
type Queues struct {
	Claims flow.Queue
	// Waiting has the queues of pools for which claims wait: pool resource ->
	Waiting map[string]flow.Queue
	// Pools is the queue of the pools that belong to the API of the claims; nil if the
	// API has no pools.
	Pools flow.Queue

	requeueAll func(namespace string) // nil before SetRequeueAll
	retries    *retries
}

// NewChanges returns Changes without a resource.
func NewChanges() *Changes {
	c := &Changes{byClaim: map[string]*Queues{}, byPool: map[string][]*Queues{}, pools: map[string]flow.Queue{}}
	c.changed = flow.Debouncer{Delay: changeDelay, Deliver: c.requeue}
	c.retried = flow.Debouncer{Delay: retryDelay, Deliver: c.requeueWaiting}
	return c
}

// AddQueues adds the queues of a claim resource. requestsFrom has the pool resources from
// which the claims request addresses; poolResource is the pool resource of the claims'
// own API, "" for none.
func (c *Changes) AddQueues(claimResource, poolResource string, requestsFrom []string) {
	q := &Queues{Claims: flow.NewQueue(claimResource), Waiting: map[string]flow.Queue{}, retries: &c.retries}
	for _, pool := range requestsFrom {
		q.Waiting[pool] = flow.NewQueue("pending " + claimResource + " " + pool)
		c.byPool[pool] = append(c.byPool[pool], q)
	}
	if poolResource != "" {
		q.Pools = flow.NewQueue(poolResource)
		c.pools[poolResource] = q.Pools
	}
	c.byClaim[claimResource] = q
}

// QueuesOf returns the queues of a claim resource.
func (c *Changes) QueuesOf(claimResource string) *Queues { return c.byClaim[claimResource] }

// Notify queues changed claims and pools, for the ledger's Config.Changed. Keys of
// resources without queues are ignored. It never blocks.
func (c *Changes) Notify(keys []ledger.Key) {
	c.changed.Add(keys, func(k ledger.Key) bool { return c.byClaim[k.Resource] != nil || c.pools[k.Resource] != nil })
	c.retried.Add(keys, func(k ledger.Key) bool { return c.byPool[k.Resource] != nil })
}

// requeue requeues a claim or a pool.
func (c *Changes) requeue(k ledger.Key) {
	if q := c.byClaim[k.Resource]; q != nil {
		q.Claims.Add(Request(k))
	}
	if q := c.pools[k.Resource]; q != nil {
		q.Add(Request(k))
	}
}

// RequeueClaims requeues all claims of a namespace that may request addresses from a pool
// resource.
func (c *Changes) RequeueClaims(poolResource, namespace string) {
	for _, q := range c.byPool[poolResource] {
		if q.requeueAll != nil {
			q.requeueAll(namespace)
		}
	}
}

// requeueWaiting requeues the claims that wait for a pool.
func (c *Changes) requeueWaiting(pool ledger.Key) {
	for _, q := range c.byPool[pool.Resource] {
		q.RequeueWaiting(pool)
	}
}

// SetRequeueAll sets the function that requeues all claims of a namespace, before the
// reconcilers start.
func (q *Queues) SetRequeueAll(f func(namespace string)) { q.requeueAll = f }

// RequeueWaiting requeues the claims that wait for a pool.
func (q *Queues) RequeueWaiting(pool ledger.Key) {
	if waiting := q.Waiting[pool.Resource]; waiting != nil {
		waiting.Add(Request(pool))
	}
}

// BeginRetry records that the waiting claims of a pool are being retried, until EndRetry.
func (q *Queues) BeginRetry(pool ledger.Key) { q.retries.begin(pool) }

// EndRetry ends BeginRetry.
func (q *Queues) EndRetry(pool ledger.Key) { q.retries.end(pool) }

// IsRetrying reports whether claims.Waiting serves waiting claims of a pool again whose
// last write failed, for retryLimit at most.
func (q *Queues) IsRetrying(pool ledger.Key) bool { return q.retries.isRunning(pool) }

// retries records the pools whose waiting claims are being retried. A failed retry
// returns its ranges at once: meanwhile the pool's counters are not written, since they
// would be written twice.
type retries struct{ since sync.Map } // pool -> time

// retryLimit bounds how long the counters wait for the end of a retry.
const retryLimit = time.Second

func (r *retries) begin(pool ledger.Key) { r.since.Store(pool, time.Now()) }

func (r *retries) end(pool ledger.Key) { r.since.Delete(pool) }

func (r *retries) isRunning(pool ledger.Key) bool {
	since, running := r.since.Load(pool)
	return running && time.Since(since.(time.Time)) < retryLimit
}

// Request returns the request to reconcile a claim or pool.
func Request(k ledger.Key) (r reconcile.Request) {
	r.Namespace, r.Name = k.Namespace, k.Name
	return r
}
