package reconcilers

import (
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Changes hands what the ledger says has changed to the reconcilers. What comes before they run waits for them. A key that waits
// already takes no further room, so the size is bounded by the number of objects.
type Changes struct {
	lanes map[string]*lane // kind of claim or of pool ->
}

// lane is the queues of one API.
type lane struct {
	claimKind              string
	claims, pending, pools queue
}

// NewChanges makes the queues of some APIs, for the ledger's Config.Changed and for Register.
func NewChanges(apis ...API) *Changes {
	c := &Changes{lanes: map[string]*lane{}}
	for _, a := range apis {
		claims, pools := a.Kinds()
		l := &lane{claimKind: claims, claims: newQueue(claims), pending: newQueue("pending " + claims), pools: newQueue(pools)}
		c.lanes[claims], c.lanes[pools] = l, l
	}
	return c
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
		switch l := c.lanes[k.Kind]; {
		case l == nil:
		case k.Kind == l.claimKind:
			l.claims.AddAfter(request(k), gather)
		default:
			l.pools.AddAfter(request(k), gather)
			l.pending.AddAfter(request(k), settle)
		}
	}
}

// How long changes gather before they are looked at.
const (
	// gather leaves the moment after a change to the create that made it: its answer is still on the way.
	gather = 20 * time.Millisecond
	// settle is for the claims that wait for a pool: each of its changes makes them ask the ledger anew.
	settle = 50 * time.Millisecond
)

func request(k ledger.Key) (r reconcile.Request) {
	r.Namespace, r.Name = k.Namespace, k.Name
	return r
}
