package reconcilers

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// Objects of one kind that are worked on at a time.
const (
	allocationWorkers = 8
	poolWorkers       = 4
)

// mirrorEvery is the time between the turns in which statuses are written that nobody waits for: long enough that most creates meet none,
// short enough that nobody notices.
const mirrorEvery = 200 * time.Millisecond

// Options are what the reconcilers stand on.
type Options struct {
	Ledger *ledger.Ledger
	// Metrics of that ledger.
	Metrics *ledger.Metrics
	// Changes are those that the ledger's Config.Changed tells.
	Changes *Changes
	// Recorder takes events about IPAllocations and NetworkPools.
	Recorder record.EventRecorder
	// Now is the clock of the times in statuses.
	Now func() time.Time
	// Registry takes the gauges; nil for none.
	Registry prometheus.Registerer
}

// Register adds every reconciler to a manager that has not started. They run on every replica, and act on the one that holds the
// journal.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	if o.Registry != nil {
		if err := o.Registry.Register(collector{ctx, mgr.GetCache(), o.Ledger}); err != nil {
			return err
		}
	}
	d := desk{client: mgr.GetClient(), ledger: o.Ledger, now: o.Now, changes: o.Changes, events: newEvents(o.Recorder), answers: newSent(), drops: newSent(), mirrors: newTurns(mirrorEvery)}
	for _, c := range []struct {
		name       string
		queue      queue
		workers    int
		reconciler reconcile.Reconciler
	}{
		{"ipallocation", o.Changes.allocations, allocationWorkers, &allocations{d}},
		{"pending", o.Changes.pending, poolWorkers, &pending{d}},
		{"networkpool", o.Changes.pools, poolWorkers, &pools{desk: d, metrics: o.Metrics, known: map[types.NamespacedName]*poolMemory{}}},
	} {
		everywhere := false
		_, err := controller.New(c.name, mgr, controller.Options{
			Reconciler:              c.reconciler,
			MaxConcurrentReconciles: c.workers,
			NeedLeaderElection:      &everywhere,
			NewQueue: func(string, workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
				return c.queue
			},
		})
		if err != nil {
			return err
		}
	}
	return nil
}
