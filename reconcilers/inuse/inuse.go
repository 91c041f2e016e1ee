// Package inuse watches the addresses that Nodes, Machines and Services of the cluster
// use: the ledger does not allocate them in the routing domain of the cluster's network,
// and the status of each NetworkPool there lists them.
//
//	Node, Machine, Service ──▶ watcher ──▶ ledger: not allocated (state/inuse.go)
//	                              └──────▶ statusReconciler ──▶ status.infrastructureAllocations of each NetworkPool, for people and tools
//
// The ledger alone decides which routing domain that is, or whether it may be each
// (Ledger.AvoidsInUse). A NetworkPool of another routing domain lists no addresses.
//
// The ledger of every replica has the addresses. The status keeps those of a NetworkPool
// for a new leader whose informers have not synced.
package inuse

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
)

// +kubebuilder:rbac:groups="",resources=services;nodes,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

const (
	workers = 8 // NetworkPools at a time
	// collectDelay is the time for which changes are collected before the status of the
	// pools is computed.
	collectDelay = 500 * time.Millisecond
	// ledgerInterval is the pause between two checks of what followLedger follows.
	ledgerInterval = 200 * time.Millisecond
	// syncLimit bounds the wait for the first list of Nodes and Services, which this
	// replica may have no right to read.
	syncLimit = 5 * time.Second
)

// Options are the dependencies of the package.
type Options struct {
	Ledger   *ledger.Ledger
	Platform *platform.Cluster
	// NetworkPools is true if NetworkPools are served: their status lists the addresses.
	NetworkPools bool
	Recorder     record.EventRecorder
	Log          logr.Logger
}

// Watcher passes the addresses in use to the ledger.
type Watcher struct {
	Options
	synced []toolscache.InformerSynced
	queue  flow.Queue
	client client.Client
}

// Register adds the watches and the reconciler to a manager that has not started.
func Register(ctx context.Context, mgr manager.Manager, o Options) (*Watcher, error) {
	w := &Watcher{Options: o, queue: flow.NewQueue("infrastructure"), client: mgr.GetClient()}
	for _, kind := range []client.Object{&corev1.Node{}, &corev1.Service{}} {
		informer, err := o.Platform.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if err := w.follow(ctx, informer); err != nil {
			return nil, err
		}
	}
	if err := mgr.Add(flow.OnEveryReplica(w.followMachines)); err != nil || !o.NetworkPools {
		return w, err
	}
	if err := w.watchPools(ctx, mgr.GetCache()); err != nil {
		return nil, err
	}
	r := &statusReconciler{Watcher: w, status: report.StatusWriter{Client: mgr.GetClient(), Live: o.Platform.Live}, events: report.Events{Recorder: o.Recorder}}
	reconciler := flow.WithBackoff(r, w.client, func() client.Object { return &v1alpha1.NetworkPool{} }, v1alpha1.AnnotationCooldown)
	if err := flow.Add(mgr, "infrastructure", w.queue, workers, reconciler); err != nil {
		return nil, err
	}
	return w, mgr.Add(flow.OnEveryReplica(w.followLedger))
}

// follow passes the addresses of the objects of an informer to the ledger.
func (w *Watcher) follow(ctx context.Context, informer cache.Informer) error {
	registered, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.set(ctx, platform.SourceOf(o)) },
		UpdateFunc: func(before, o any) {
			if source := platform.SourceOf(o); !source.Equal(platform.SourceOf(before)) {
				w.set(ctx, source)
			}
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			source := platform.SourceOf(o)
			source.Addresses = nil
			w.set(ctx, source)
		},
	})
	if err == nil {
		w.synced = append(w.synced, registered.HasSynced)
	}
	return err
}

// set passes the addresses of a source to the ledger, and queues the NetworkPools.
func (w *Watcher) set(ctx context.Context, s platform.AddressSource) {
	w.Ledger.SetInUse(ledger.Key{Resource: s.Kind.Resource(), Namespace: s.Namespace, Name: s.Name}, s.Addresses)
	w.addPools(ctx)
}

// followMachines follows the Machines of Cluster API once their CRD is installed.
func (w *Watcher) followMachines(ctx context.Context) error {
	if err := w.Platform.WatchCRDs(ctx); err != nil {
		return err
	}
	kind, err := w.Platform.AwaitVersion(ctx, w.Platform.Machines)
	if err != nil || kind == nil {
		return err
	}
	machine := &unstructured.Unstructured{}
	machine.SetGroupVersionKind(*kind)
	informer, err := w.Platform.GetInformer(ctx, machine)
	if err != nil {
		return err
	}
	w.Platform.Machines.SetReadable(*kind)
	return w.follow(ctx, informer)
}

// Await waits until the ledger has the addresses of the stored Nodes and Services, for at
// most syncLimit: a missing right must not prevent allocations.
func (w *Watcher) Await(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, syncLimit)
	defer cancel()
	if !toolscache.WaitForCacheSync(limited.Done(), w.synced...) && ctx.Err() == nil {
		w.Log.Info("The addresses of Nodes and Services are not known yet, and may be allocated: has the manager the right to list and watch both?")
	}
}

// watchPools queues a NetworkPool when its usage may have changed.
func (w *Watcher) watchPools(ctx context.Context, shared cache.Cache) error {
	pools, err := shared.GetInformer(ctx, &v1alpha1.NetworkPool{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	_, err = pools.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) { w.queue.Add(requestFor(o.(client.Object))) },
		UpdateFunc: func(before, o any) {
			was, is := before.(*v1alpha1.NetworkPool), o.(*v1alpha1.NetworkPool)
			if was.UID != is.UID || changesUsage(was, is) {
				w.queue.Add(requestFor(is))
			}
		},
	})
	if err != nil {
		return err
	}
	allocations, err := shared.GetInformer(ctx, &v1alpha1.IPAllocation{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	released := func(o any) { // an address that a node still has becomes the platform's
		if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if a, ok := o.(*v1alpha1.IPAllocation); ok && a.DeletionTimestamp != nil {
			w.queue.AddAfter(reconcile.Request{NamespacedName: types.NamespacedName{Namespace: a.Namespace, Name: a.Spec.PoolRef.Name}}, collectDelay)
		}
	}
	_, err = allocations.AddEventHandler(toolscache.ResourceEventHandlerFuncs{UpdateFunc: func(_, o any) { released(o) }, DeleteFunc: released})
	return err
}

// changesUsage reports whether the platform may use other addresses of a pool than
// before. After a release the address of a node is the platform's. The first status shows
// that the ledger has observed the pool.
func changesUsage(before, after *v1alpha1.NetworkPool) bool {
	return before.Generation != after.Generation || before.Status.ObservedGeneration != after.Status.ObservedGeneration ||
		after.Status.AllocatedIPs < before.Status.AllocatedIPs
}

// followLedger queues every pool when a term of this replica begins, and when the routing
// domain of the cluster's network changes.
func (w *Watcher) followLedger(ctx context.Context) error {
	type basis struct {
		leads, known bool
		domain       string
	}
	tick := time.NewTicker(ledgerInterval)
	defer tick.Stop()
	for last := (basis{}); ; {
		now := basis{leads: w.Ledger.MayGrant()}
		if now.domain, now.known = w.Ledger.ClusterDomain(); now != last {
			w.addPools(ctx)
		}
		last = now
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// addPools queues every NetworkPool.
func (w *Watcher) addPools(ctx context.Context) {
	if !w.NetworkPools || !w.Ledger.MayGrant() {
		return
	}
	all := &v1alpha1.NetworkPoolList{}
	if w.client.List(ctx, all, client.UnsafeDisableDeepCopy) == nil {
		for i := range all.Items {
			w.queue.AddAfter(requestFor(&all.Items[i]), collectDelay)
		}
	}
}

func requestFor(o client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}
