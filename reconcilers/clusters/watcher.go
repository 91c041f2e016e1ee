// Package clusters watches the Clusters of Cluster API. Claims and pools of a paused
// Cluster must not be written. The pauses also decide whether clusterctl moved the
// objects of a namespace to another cluster.
package clusters

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/reconcilers/informers"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Watcher watches the Clusters of Cluster API and stores only their pauses. Cluster API
// may be installed later or never: without Cluster API no Cluster exists. A Watcher is
// safe for concurrent use; a nil Watcher has no Clusters.
//
//	the Clusters                                   their objects
//	not listed, Cluster API may be installed       not managed: each Cluster may exist and be paused
//	listed, or Cluster API is missing              managed by the state of the Cluster
//
// Objects that are being deleted do not wait for a missing Cluster.
type Watcher struct {
	informer    toolscache.SharedIndexInformer
	known       chan struct{} // closed when the Clusters are listed, or Cluster API is missing
	setKnown    func()        // closes known
	subscribers []func(namespace string)
	sightings   sightings
}

// New returns a Watcher; Start begins the watch.
func New(config *rest.Config, log logr.Logger) (*Watcher, error) {
	reader, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	kind := &unstructured.Unstructured{}
	kind.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	clusters := reader.Resource(clusterv1.GroupVersion.WithResource("clusters"))
	informer := informers.New(log)(&toolscache.ListWatch{
		ListWithContextFunc:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return clusters.List(ctx, o) },
		WatchFuncWithContext: clusters.Watch,
	}, kind, 0, nil)
	if err := informer.SetTransform(keepPause); err != nil {
		return nil, err
	}
	known := make(chan struct{})
	setKnown := sync.OnceFunc(func() { close(known) })
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			setKnown()
			log.V(1).Info("Cluster API is not installed, or is older than 1.11: pools that name a Cluster wait for it")
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, err
	}
	w := &Watcher{informer: informer, known: known, setKnown: setKnown}
	_, err = informer.AddEventHandler(w.sightings.handler())
	return w, err
}

// knownLimit bounds the wait for the Clusters: if the Clusters cannot be read, objects
// without a Cluster are served nevertheless.
const knownLimit = 2 * time.Second

// Known waits until the Clusters are known, so that creates of claims of a Cluster get an
// address, or until knownLimit. It returns false if ctx ends first.
func (w *Watcher) Known(ctx context.Context) bool {
	if w == nil {
		return true
	}
	limit, cancel := context.WithTimeout(ctx, knownLimit)
	defer cancel()
	select {
	case <-w.known:
	case <-limit.Done():
	}
	return ctx.Err() == nil
}

// keepPause removes all fields of a Cluster except identity and pause.
func keepPause(o any) (any, error) {
	c, ok := o.(*unstructured.Unstructured)
	if !ok {
		return o, nil
	}
	paused, _, _ := unstructured.NestedBool(c.Object, "spec", "paused")
	small := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": paused}}}
	small.SetGroupVersionKind(c.GroupVersionKind())
	small.SetNamespace(c.GetNamespace())
	small.SetName(c.GetName())
	small.SetUID(c.GetUID())
	small.SetResourceVersion(c.GetResourceVersion())
	if clusterpause.IsPaused(c) {
		small.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
	}
	return small, nil
}

// Start implements manager.Runnable.
func (w *Watcher) Start(ctx context.Context) error {
	var listed sync.WaitGroup
	listed.Go(func() {
		if toolscache.WaitFor(ctx, "", w.informer.HasSyncedChecker()) {
			w.setKnown()
		}
	})
	listed.Go(func() {
		select {
		case <-w.known:
			for _, f := range w.subscribers {
				f(metav1.NamespaceAll)
			}
		case <-ctx.Done():
		}
	})
	w.informer.RunWithContext(ctx)
	listed.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves
// creates of claims.
func (*Watcher) NeedLeaderElection() bool { return false }

// Cluster implements clusterpause.Clusters.
func (w *Watcher) Cluster(namespace, name string) (clusterpause.Cluster, bool) {
	if w == nil {
		return clusterpause.Cluster{}, false
	}
	select {
	case <-w.known:
	default:
		return clusterpause.Cluster{Unknown: true}, true
	}
	o, exists, err := w.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !exists {
		return clusterpause.Cluster{}, false
	}
	return clusterOf(o.(*unstructured.Unstructured)), true
}

func clusterOf(o *unstructured.Unstructured) clusterpause.Cluster {
	paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused")
	return clusterpause.Cluster{UID: o.GetUID(), Paused: paused, HasPausedAnnotation: clusterpause.IsPaused(o)}
}

// clustersFunc implements clusterpause.Clusters.
type clustersFunc func(namespace, name string) (clusterpause.Cluster, bool)

func (f clustersFunc) Cluster(namespace, name string) (clusterpause.Cluster, bool) {
	return f(namespace, name)
}

// Live returns the Clusters that the API server has stored.
func Live(ctx context.Context, live client.Reader) clusterpause.Clusters {
	return clustersFunc(func(namespace, name string) (clusterpause.Cluster, bool) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
		switch err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return clusterpause.Cluster{}, false
		case err != nil:
			return clusterpause.Cluster{Unknown: true}, true
		}
		return clusterOf(o), true
	})
}

// Subscribe calls f with the namespace of each Cluster that is created, deleted, paused
// or resumed, and once for all namespaces when the Clusters are known. Subscribe must be
// called before Start.
func (w *Watcher) Subscribe(f func(namespace string)) error {
	if w == nil {
		return nil
	}
	w.subscribers = append(w.subscribers, f)
	notify := func(o any) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			f(u.GetNamespace())
		}
	}
	_, err := w.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: notify,
		UpdateFunc: func(before, after any) {
			was, is := before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)
			if clusterOf(was) != clusterOf(is) {
				notify(is)
			}
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			notify(o)
		},
	})
	if err != nil {
		return fmt.Errorf("informer for Clusters: %w", err)
	}
	return nil
}
