package services

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

const (
	workers              = 4                      // Services at a time
	leadershipCheckEvery = 250 * time.Millisecond // between two looks whether this replica leads
)

// poolSettleDelay is the delay between a change of a pool and the next requests of the
// Services that wait for it.
const poolSettleDelay = 500 * time.Millisecond

// Services creates ProxyVIPs for Services. Notify may be called from the start of the
// ledger on, and has no effect before Register.
type Services struct {
	queue   flow.Queue
	backoff *flow.Backoff
	waiting *waitingServices
}

// New returns Services without waiting requests.
func New() *Services {
	return &Services{queue: flow.NewQueue("service"), backoff: flow.NewBackoff(flow.FirstPause), waiting: newWaitingServices()}
}

// Notify requeues the Services that are the first to be served from a changed pool
// (waitingServices). Keys of every resource are accepted. Notify never blocks.
func (s *Services) Notify(keys []ledger.Key) {
	for _, k := range keys {
		if k.Resource != novaedge.ResourceProxyIPPool {
			continue
		}
		for _, name := range s.waiting.poolChanged(k.Name) {
			s.backoff.RetrySoon(name)
			s.queue.AddAfter(reconcile.Request{NamespacedName: name}, poolSettleDelay)
		}
	}
}

// follow requeues Services that follow in a line.
func (s *Services) follow(names []types.NamespacedName) {
	for _, name := range names {
		s.backoff.RetrySoon(name)
		s.queue.Add(reconcile.Request{NamespacedName: name})
	}
}

// Register adds the reconciler to a manager that has not started. The reconciler acts
// while leads returns true. Of Services only the metadata are cached; ProxyVIPs come from
// the ledger's informer. grace is how long a restored ProxyVIP waits for a Service.
func (s *Services) Register(mgr manager.Manager, leads func() bool, recorder record.EventRecorder, grace time.Duration) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), turn: &leadershipGate{leads: leads}, events: recorder, backoff: s.backoff, waiting: s.waiting, follow: s.follow, grace: grace}
	return builder.ControllerManagedBy(mgr).
		Named("service").
		WatchesMetadata(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(hasVIPAnnotation())).
		Watches(&v1alpha1.ProxyVIP{}, handler.EnqueueRequestsFromMapFunc(mapToService)).
		WatchesRawSource(source.TypedFunc[reconcile.Request](r.turn.requeueOnTakeOver(mgr.GetCache()))).
		WithOptions(flow.QueueOptions(s.queue, workers)).
		Complete(r)
}

// hasVIPAnnotation accepts the events of Services that request a ProxyVIP, or did before
// the event.
func hasVIPAnnotation() predicate.Funcs {
	is := func(o client.Object) bool {
		_, is := o.GetAnnotations()[v1alpha1.AnnotationVIPMode]
		return is
	}
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return is(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return is(e.ObjectOld) || is(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return is(e.Object) },
	}
}

// mapToService returns the Service of a ProxyVIP. The name of the ProxyVIP decides, since
// clients can remove labels.
func mapToService(_ context.Context, vip client.Object) []reconcile.Request {
	if service, named := serviceOfVIP(vip.GetName()); named {
		return []reconcile.Request{{NamespacedName: service}}
	}
	return nil
}

// requests is the queue of a controller.
type requests = workqueue.TypedRateLimitingInterface[reconcile.Request]

// leadershipGate reports whether this replica leads, and requeues at a take-over the
// requests that the replica skipped as a follower.
type leadershipGate struct {
	leads  func() bool
	missed atomic.Bool
}

// isOpen reports whether this replica leads. A follower records that a request was
// skipped.
func (t *leadershipGate) isOpen() bool {
	if t.leads() {
		return true
	}
	t.missed.Store(true)
	return false
}

// requeueOnTakeOver requeues every Service, and every ProxyVIP of a Service, when this
// replica leads and has skipped requests.
func (t *leadershipGate) requeueOnTakeOver(stored cache.Cache) func(context.Context, requests) error {
	return func(ctx context.Context, q requests) error {
		go func() {
			ticks := time.NewTicker(leadershipCheckEvery)
			defer ticks.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				if t.leads() && t.missed.Swap(false) && !enqueueAll(ctx, stored, q) {
					t.missed.Store(true)
				}
			}
		}()
		return nil
	}
}

// enqueueAll requeues all Services, the oldest first, and all ProxyVIPs. It returns false
// if a list failed.
func enqueueAll(ctx context.Context, stored cache.Cache, q requests) bool {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	var vips v1alpha1.ProxyVIPList
	if stored.List(ctx, all) != nil || stored.List(ctx, &vips, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	slices.SortFunc(all.Items, func(x, y metav1.PartialObjectMetadata) int {
		return x.CreationTimestamp.Compare(y.CreationTimestamp.Time)
	})
	for i := range all.Items {
		if _, asks := all.Items[i].Annotations[v1alpha1.AnnotationVIPMode]; asks {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	for i := range vips.Items {
		for _, service := range mapToService(ctx, &vips.Items[i]) {
			q.Add(service)
		}
	}
	return true
}
