package reconcilers

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"butlerlabs.dev/ipam/reconcilers/records"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// Objects of one kind that are worked on at a time. Many statuses under way at once share etcd's syncs and leave nothing to be caught up with when creates
// end: with 8, an allocation costs a tenth more. With the journal and the pools, 20 fit into the 25 connections that client-go keeps: calls beyond
// them open their own. A claim that gets an address object takes two writes, which somebody waits for: with 20, those of 64 clients that create on and on
// fall behind by seconds, while with 40 they keep up.
const (
	claimWorkers   = 20
	addressWorkers = 40
	poolWorkers    = 4
)

// Times between the turns of one kind, long enough that most creates meet none. The status of a claim that was answered nobody waits for; an address
// object, and the status that names it, many do.
const (
	mirrorEvery  = 200 * time.Millisecond
	addressEvery = 50 * time.Millisecond
)

// Options are what the reconcilers stand on.
type Options struct {
	Ledger *ledger.Ledger
	// Metrics of that ledger.
	Metrics *ledger.Metrics
	// APIs are those that are served.
	APIs []API
	// Changes are those that the ledger's Config.Changed tells.
	Changes *Changes
	// Recorder takes events about claims and pools.
	Recorder record.EventRecorder
	// OrphanAge is how long an address object, or the ProxyVIP of a Service, stays without what it is for; DefaultOrphanAge where zero.
	OrphanAge time.Duration
	// Now is the clock that measures spans.
	Now func() time.Time
	// Wall is the clock of the times in statuses and records, which outlive the process and are read by others; Now where nil.
	Wall func() time.Time
	// Clusters are those of Cluster API.
	Clusters *Clusters
	// Records are of ranges that went to other clusters; nil where none are kept.
	Records *records.Store
	// Registry takes the gauges; nil for none.
	Registry prometheus.Registerer
}

// Register adds every reconciler to a manager that has not started. They run on every replica, and act on the one that holds the
// journal.
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

func (a *api[T, P]) register(ctx context.Context, mgr manager.Manager, o Options) error {
	if err := a.addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	lane := o.Changes.byClaim[a.claimKind]
	turns, workers := newTurns(mirrorEvery), claimWorkers
	if a.addresses != nil {
		turns, workers = newTurns(addressEvery), addressWorkers
	}
	d := &desk{
		client: mgr.GetClient(), ledger: o.Ledger, now: o.Now, wall: o.Wall, changes: lane, live: mgr.GetAPIReader(), clusters: o.Clusters, records: o.Records, events: newEvents(o.Recorder),
		sent: newSent(), mirrors: turns, orphanAge: cmp.Or(o.OrphanAge, DefaultOrphanAge), whole: a.wholeStatus, movable: a.addresses != nil,
		spacing: flow.NewBackoff(flow.FirstPause), tries: flow.NewBackoff(secondTry), recording: flow.NewBackoff(flow.FirstPause), repeated: &o.Changes.repeated, overtaken: overtaken.NewChecker(mgr.GetAPIReader()),
	}
	lane.wake = wake(ctx, mgr.GetCache(), a.claims.emptyList, lane.claims)
	if a.addresses != nil { // these have Clusters
		if err := o.Clusters.subscribe(lane.wake); err != nil {
			return err
		}
		if a.poolKind != "" {
			if err := o.Clusters.subscribe(wake(ctx, mgr.GetCache(), a.pools.emptyList, lane.pools)); err != nil {
				return err
			}
		}
	}
	c := claims[T]{desk: d, api: a.claims}
	type worker struct {
		name       string
		queue      work.Queue
		workers    int
		reconciler reconcile.Reconciler
	}
	controllers := []worker{{a.claimName, lane.claims, workers, &c}}
	for kind, queue := range lane.pending {
		resource, _, _ := strings.Cut(kind, ".")
		controllers = append(controllers, worker{"pending-" + a.claimName + "-" + resource, queue, poolWorkers, &pending[T]{c, kind}})
	}
	if a.poolKind != "" {
		known := map[types.NamespacedName]*poolMemory{}
		controllers = append(controllers, worker{a.poolName, lane.pools, poolWorkers, &pools[P]{
			desk: d, api: a.pools, metrics: o.Metrics, known: known, backoff: flow.NewBackoff(flow.FirstPause), wake: func(namespace string) { o.Changes.wake(a.poolKind, namespace) },
		}})
	}
	for _, ctrl := range controllers {
		if err := work.Add(mgr, ctrl.name, ctrl.queue, ctrl.workers, newFair(ctrl.reconciler, ctrl.workers)); err != nil {
			return err
		}
	}
	return nil
}

// wake has all objects of a kind in a namespace looked at: they rested, or will.
func wake(ctx context.Context, informers client.Reader, emptyList func() client.ObjectList, q work.Queue) func(namespace string) {
	return func(namespace string) {
		list := emptyList()
		if err := informers.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return // they have not started, and bring everything up when they do
		}
		_ = meta.EachListItem(list, func(o runtime.Object) error { // which never fails
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o.(client.Object))})
			return nil
		})
	}
}
