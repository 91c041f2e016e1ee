package services

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/novaedge"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/work"
)

const (
	workers   = 4                      // Services at a time
	turnEvery = 250 * time.Millisecond // is looked whether this replica holds the journal
)

// settle is how long the changes of a pool gather before those who wait for it ask again.
const settle = 500 * time.Millisecond

// Services makes ProxyVIPs for Services. It is told of what changes in the ledger from its first moment on, and does nothing before Register.
type Services struct {
	queue   work.Queue
	backoff *flow.Backoff
	waiting waiting
}

// New gives one that nothing waits for yet.
func New() *Services {
	return &Services{queue: work.NewQueue("service"), backoff: flow.NewBackoff(flow.FirstPause), waiting: waiting{all: map[types.NamespacedName]wait{}}}
}

// Notify has those looked at again who wait for a pool that changes, the oldest first. It takes keys of any kind, and never blocks.
func (s *Services) Notify(keys []ledger.Key) {
	for _, k := range keys {
		if k.Kind != novaedge.KindProxyIPPool {
			continue
		}
		for _, name := range s.waiting.of(k.Name) {
			s.backoff.Hasten(name)
			s.queue.AddAfter(reconcile.Request{NamespacedName: name}, settle)
		}
	}
}

// Register adds the reconciler to a manager that has not started. It acts while serving says that this replica holds the journal. Of Services
// only the metadata is kept; grace is how long a restored ProxyVIP waits for its Service; ProxyVIPs come from the informer that the ledger is fed by.
func (s *Services) Register(mgr manager.Manager, serving func() bool, recorder record.EventRecorder, grace time.Duration) error {
	r := &reconciler{client: mgr.GetClient(), live: mgr.GetAPIReader(), turn: &turn{serving: serving}, events: recorder, backoff: s.backoff, waiting: &s.waiting, grace: grace}
	return builder.ControllerManagedBy(mgr).
		Named("service").
		WatchesMetadata(&corev1.Service{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(annotated())).
		Watches(&v1alpha1.ProxyVIP{}, handler.EnqueueRequestsFromMapFunc(serviceOf)).
		WatchesRawSource(source.TypedFunc[reconcile.Request](r.turn.watch(mgr.GetCache()))).
		WithOptions(work.From(s.queue, workers)).
		Complete(r)
}

// annotated lets the events of Services pass that ask for a ProxyVIP, or did.
func annotated() predicate.Funcs {
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

// serviceOf is the Service that a ProxyVIP was made for, going by its name: labels can be taken off.
func serviceOf(_ context.Context, vip client.Object) []reconcile.Request {
	if service, named := serviceNamed(vip.GetName()); named {
		return []reconcile.Request{{NamespacedName: service}}
	}
	return nil
}

// turn says whether this replica is the one that acts, and brings up again what it let pass while it was not.
type turn struct {
	serving func() bool
	missed  atomic.Bool
}

func (t *turn) has() bool {
	if t.serving() {
		return true
	}
	t.missed.Store(true)
	return false
}

// watch has every Service looked at once this replica holds the journal and has let some pass, and every ProxyVIP that was made for one.
func (t *turn) watch(stored cache.Cache) func(context.Context, work.Queue) error {
	return func(ctx context.Context, q work.Queue) error {
		go func() {
			ticks := time.NewTicker(turnEvery)
			defer ticks.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticks.C:
				}
				if t.serving() && t.missed.Swap(false) && !enqueue(ctx, stored, q) {
					t.missed.Store(true)
				}
			}
		}()
		return nil
	}
}

// enqueue has all looked at, and says whether they could be listed.
func enqueue(ctx context.Context, stored cache.Cache, q work.Queue) bool {
	all := &metav1.PartialObjectMetadataList{}
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceList"))
	var vips v1alpha1.ProxyVIPList
	if stored.List(ctx, all) != nil || stored.List(ctx, &vips, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	for i := range all.Items {
		if _, asks := all.Items[i].Annotations[v1alpha1.AnnotationVIPMode]; asks {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&all.Items[i])})
		}
	}
	for i := range vips.Items {
		for _, service := range serviceOf(ctx, &vips.Items[i]) {
			q.Add(service)
		}
	}
	return true
}
