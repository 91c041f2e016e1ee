// Package work has the queues that reconcilers take their work from, and the parts of a manager that run everywhere. Queues are there before a manager
// is, as the ledger tells of changes from its first moment on, and are worked on every replica: the ledger says whether it acts.
package work

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/reconcilers/flow"
)

// Queue is one that a controller takes its requests from.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// NewQueue makes a queue, whose metrics have this name. Its rate limiter is for what flow.Backoff does not space.
func NewQueue(name string) Queue {
	retries := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](flow.FirstPause, flow.LongestPause)
	return workqueue.NewTypedRateLimitingQueueWithConfig(retries, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name})
}

// From are the options of a controller that takes requests from a queue, so many at a time.
func From(q Queue, workers int) controller.Options {
	needsLeader := false
	return controller.Options{
		MaxConcurrentReconciles: workers,
		NeedLeaderElection:      &needsLeader,
		NewQueue:                func(string, workqueue.TypedRateLimiter[reconcile.Request]) Queue { return q },
	}
}

// Add has a manager run a reconciler of what comes from a queue, so many at a time.
func Add(mgr manager.Manager, name string, q Queue, workers int, r reconcile.Reconciler) error {
	options := From(q, workers)
	options.Reconciler = r
	_, err := controller.New(name, mgr, options)
	return err
}

// Everywhere is a part of a manager that runs on every replica, once the informers are filled. The webhook server ends after it.
type Everywhere func(context.Context) error

// Start implements manager.Runnable.
func (f Everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (Everywhere) NeedLeaderElection() bool { return false }
