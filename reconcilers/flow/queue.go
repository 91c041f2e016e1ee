package flow

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is the source of a controller's requests, in the order of turns.
type Queue interface {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	// setWorkers sets the number of regular workers before the controller starts, and
	// returns the number of all workers.
	setWorkers(regular int) (all int)
}

// queue is a workqueue that records in turns which requests are at work, and which are
// postponed.
type queue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	turns *turns
}

// NewQueue returns a queue whose metrics have this name. Its rate limiter is for errors
// that Backoff does not space.
func NewQueue(name string) Queue {
	type request = reconcile.Request
	t := newTurns()
	ordered := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[request]{Name: name, Queue: t})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[request]{Name: name, Queue: ordered})
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[request](FirstPause, LongestPause)
	return &queue{workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[request]{Name: name, DelayingQueue: delaying}), t}
}

// AddAfter implements workqueue.TypedDelayingInterface.
func (q *queue) AddAfter(r reconcile.Request, pause time.Duration) {
	q.turns.postpone(r, pause)
	q.TypedRateLimitingInterface.AddAfter(r, pause)
}

// Done implements workqueue.TypedInterface.
func (q *queue) Done(r reconcile.Request) {
	q.turns.done(r)
	q.TypedRateLimitingInterface.Done(r)
}

func (q *queue) setWorkers(regular int) (all int) { return q.turns.setWorkers(regular) }

// QueueOptions returns the options of a controller with this queue and number of regular
// workers.
func QueueOptions(q Queue, workers int) controller.Options {
	needsLeader := false
	return controller.Options{
		MaxConcurrentReconciles: q.setWorkers(workers),
		NeedLeaderElection:      &needsLeader,
		NewQueue: func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
			return q
		},
	}
}

// Add adds a reconciler of a queue's requests to a manager.
func Add(mgr manager.Manager, name string, q Queue, workers int, r reconcile.Reconciler) error {
	options := QueueOptions(q, workers)
	options.Reconciler = r
	_, err := controller.New(name, mgr, options)
	return err
}

// OnEveryReplica is a part of a manager that runs on every replica, after the informers
// are filled. The webhook server ends later than OnEveryReplica.
type OnEveryReplica func(context.Context) error

// Start implements manager.Runnable.
func (f OnEveryReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (OnEveryReplica) NeedLeaderElection() bool { return false }
