package flow

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Queue is the source of a controller's requests.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// NewQueue returns a queue whose metrics have this name. Its rate limiter is for errors that Backoff does not space.
func NewQueue(name string) Queue {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](FirstPause, LongestPause)
	return workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})
}

// QueueOptions returns the options of a controller with this queue and number of workers.
func QueueOptions(q Queue, workers int) controller.Options {
	needsLeader := false
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NeedLeaderElection:      &needsLeader,
		NewQueue:                func(string, workqueue.TypedRateLimiter[reconcile.Request]) Queue { return q },
	}
}

// Add adds a reconciler of a queue's requests to a manager.
func Add(mgr manager.Manager, name string, q Queue, workers int, r reconcile.Reconciler) error {
	options := QueueOptions(q, workers)
	options.Reconciler = r
	_, err := controller.New(name, mgr, options)
	return err
}

// OnEveryReplica is a part of a manager that runs on every replica, after the informers are filled. The webhook server ends later than OnEveryReplica.
type OnEveryReplica func(context.Context) error

// Start implements manager.Runnable.
func (f OnEveryReplica) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (OnEveryReplica) NeedLeaderElection() bool { return false }
