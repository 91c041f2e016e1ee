package reconcilers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Changes hands what the ledger says has changed to the reconcilers. What comes before they run waits for them. A key that waits
// already takes no further room, so the size is bounded by the number of objects.
type Changes struct {
	allocations, pending, pools queue
}

// NewChanges makes the queues, for the ledger's Config.Changed and for Register.
func NewChanges() *Changes {
	return &Changes{allocations: newQueue("ipallocation"), pending: newQueue("pending"), pools: newQueue("networkpool")}
}

// Retries of a failed key: soon at first, and never so rarely that an outage is felt long after its end.
const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 30 * time.Second
)

func retries() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
}

func newQueue(name string) queue {
	return workqueue.NewTypedRateLimitingQueueWithConfig(retries(), workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})
}

// Notify takes keys of any kind; it never blocks.
func (c *Changes) Notify(keys []ledger.Key) {
	for _, k := range keys {
		switch k.Kind {
		case butler.KindIPAllocation:
			c.allocations.AddAfter(request(k), gather)
		case butler.KindNetworkPool:
			c.pool(request(k))
		}
	}
}

// How long changes gather before they are looked at.
const (
	// gather leaves the moment after a change to the create that made it: its answer is still on the way.
	gather = 20 * time.Millisecond
	// settle is for the allocations that wait for a pool: each of its changes makes them ask the ledger anew.
	settle = 50 * time.Millisecond
)

// pool looks at a pool, and then at the allocations that wait for it.
func (c *Changes) pool(r reconcile.Request) {
	c.pools.AddAfter(r, gather)
	c.pending.AddAfter(r, settle)
}

func request(k ledger.Key) (r reconcile.Request) {
	r.Namespace, r.Name = k.Namespace, k.Name
	return r
}
