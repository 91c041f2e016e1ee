package reconcilers

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/addressobjects"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/events"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
	"butlerlabs.dev/ipam/reconcilers/pools"
)

// Workers of the controllers. Many status writes in flight share etcd's syncs, and leave
// no backlog when creates end: with 8 workers, an allocation costs a tenth more. With the
// journal and the pools, 20 workers fit into the 25 connections that client-go keeps:
// further calls open connections of their own. A claim with an address object needs two
// writes for which clients wait: with 64 clients that create continuously, 20 workers
// fall behind by seconds, and 40 workers keep up.
const (
	claimWorkers   = 20
	addressWorkers = 40
	poolWorkers    = 4
)

// mirrorEvery is the period of the pacers: status writes share turns, and creates have
// the API server and etcd in between. With the delays of the ledger and of package feed
// before it, the first status of a claim follows its create response within 100 ms.
const mirrorEvery = 25 * time.Millisecond

// DefaultOrphanAge is the default of Options.OrphanAge.
const DefaultOrphanAge = addressobjects.DefaultOrphanAge

// Options has the dependencies of the reconcilers.
type Options struct {
	Ledger *ledger.Ledger
	// APIs are the APIs that are switched on.
	APIs []API
	// Changes is notified by the ledger's Config.Changed.
	Changes *feed.Changes
	// Recorder records events about claims and pools.
	Recorder record.EventRecorder
	// History logs allocations and releases.
	History *history.Recorder
	// OrphanAge is how long an address object stays without its claim; 0 for
	// DefaultOrphanAge.
	OrphanAge time.Duration
	// Now is the clock that measures durations.
	Now func() time.Time
	// Wall is the clock of the times in statuses and records, which outlive the process
	// and are read by other clients; nil for Now.
	Wall func() time.Time
	// Clusters watches the Clusters of Cluster API; nil if no API has Clusters.
	Clusters *clusters.Watcher
	// MovedRecords stores the ranges that moved to other clusters; nil if none are
	// stored.
	MovedRecords *movedrecords.Store
	// Registry registers the gauges; nil for none.
	Registry prometheus.Registerer
}

// Register adds the reconcilers to a manager that has not started. They run on every
// replica, and act only on the leader.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	if o.Wall == nil {
		o.Wall = o.Now
	}
	for _, a := range o.APIs {
		if err := a.register(ctx, mgr, o); err != nil {
			return err
		}
	}
	if o.Registry == nil {
		return nil
	}
	return o.Registry.Register(&collector{ctx, mgr.GetCache(), o.Ledger, o.APIs})
}

// controller is a queue with the reconciler of its objects.
type controller struct {
	name       string
	queue      flow.Queue
	workers    int
	reconciler reconcile.Reconciler
}

func (a *apiAdapter[T, P]) register(ctx context.Context, mgr manager.Manager, o Options) error {
	api, queues := a.newClaims(), o.Changes.QueuesOf(a.claimResource)
	if err := a.addIndexes(ctx, mgr.GetFieldIndexer(), api); err != nil {
		return err
	}
	requeueClaims := requeueAll(ctx, mgr.GetCache(), api.NewList, queues.Claims)
	queues.SetRequeueAll(requeueClaims)
	if _, pausable := api.(claims.Pausable[T]); pausable {
		if err := o.Clusters.Subscribe(requeueClaims); err != nil {
			return err
		}
		if a.poolResource != "" {
			if err := o.Clusters.Subscribe(requeueAll(ctx, mgr.GetCache(), a.pools.NewList, queues.Pools)); err != nil {
				return err
			}
		}
	}
	d := claims.NewDeps(claims.Config{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Ledger: o.Ledger, Clusters: o.Clusters, Queues: queues, Events: events.New(o.Recorder),
		Now: o.Now, Wall: o.Wall, NewPool: a.newPool, MirrorPacer: flow.NewPacer(mirrorEvery), WholeStatus: a.wholeStatus,
		OrphanAge: cmp.Or(o.OrphanAge, DefaultOrphanAge),
		Released:  func(c client.Object) { o.History.Release(c, api.ToClaim(c.(T))) },
	})
	r := claims.New(d, api)
	controllers := []controller{{a.claimName, queues.Claims, a.workers, r}}
	for pool, queue := range queues.Waiting {
		name, _, _ := strings.Cut(pool, ".")
		controllers = append(controllers, controller{"pending-" + a.claimName + "-" + name, queue, poolWorkers, claims.NewWaiting(r, pool)})
	}
	if a.poolResource != "" {
		controllers = append(controllers, controller{a.poolName, queues.Pools, poolWorkers, pools.New(pools.Config{
			Claims: d, MovedRecords: o.MovedRecords,
			RequeueClaims: func(namespace string) { o.Changes.RequeueClaims(a.poolResource, namespace) },
		}, a.pools)})
	}
	for _, c := range controllers {
		if err := flow.Add(mgr, c.name, c.queue, c.workers, c.reconciler); err != nil {
			return err
		}
	}
	return nil
}

func (a *apiAdapter[T, P]) addIndexes(ctx context.Context, indexer client.FieldIndexer, api claims.Adapter[T]) error {
	if err := claims.AddIndexes(ctx, indexer, api); err != nil || a.addresses == nil {
		return err
	}
	return a.addresses.AddIndex(ctx, indexer)
}

// requeueAll returns a function that requeues all objects of a resource in a namespace,
// after a Cluster of the namespace was paused or resumed.
func requeueAll(ctx context.Context, informers client.Reader, emptyList func() client.ObjectList, q flow.Queue) func(namespace string) {
	return func(namespace string) {
		list := emptyList()
		if err := informers.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return // the informers have not started, and deliver all objects when they do
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // returns no error
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			return nil
		})
	}
}
