package reconcilers

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

	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/reconcilers/informers"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch

// Clusters watches the Clusters of Cluster API, which may be installed later or never: until then there are none. Nothing of them is kept but
// whether they are paused. It is safe for concurrent use; a nil one knows no Clusters.
//
// Before they have been listed once, or Cluster API is known not to be installed, each may be there and paused: what belongs to one rests until then,
// as what is being deleted does not wait for a Cluster that is not there.
type Clusters struct {
	informer toolscache.SharedIndexInformer
	known    chan struct{} // closed from then on
	learn    func()        // closes it
	told     []func(namespace string)
	seen     sightings
}

// NewClusters prepares the watch; Start begins it.
func NewClusters(config *rest.Config, log logr.Logger) (*Clusters, error) {
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
	if err := informer.SetTransform(pauseOnly); err != nil {
		return nil, err
	}
	known := make(chan struct{})
	learn := sync.OnceFunc(func() { close(known) })
	err = informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *toolscache.Reflector, err error) {
		if apierrors.IsNotFound(err) {
			learn()
			log.V(1).Info("Cluster API is not installed, or is older than 1.11: pools that name a Cluster wait for it")
			return
		}
		toolscache.DefaultWatchErrorHandler(ctx, r, err)
	})
	if err != nil {
		return nil, err
	}
	c := &Clusters{informer: informer, known: known, learn: learn}
	_, err = informer.AddEventHandler(c.seen.handler())
	return c, err
}

// knownLimit is how long one waits for the Clusters at most: where they cannot be read, what belongs to none is served all the same.
const knownLimit = 2 * time.Second

// Known waits until it is known which Clusters there are, so that creates of theirs are answered with an address. It is false when ctx ends.
func (c *Clusters) Known(ctx context.Context) bool {
	if c == nil {
		return true
	}
	limit, cancel := context.WithTimeout(ctx, knownLimit)
	defer cancel()
	select {
	case <-c.known:
	case <-limit.Done():
	}
	return ctx.Err() == nil
}

// pauseOnly is a Cluster without what nobody here reads.
func pauseOnly(o any) (any, error) {
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
	if metal3.Paused(c) {
		small.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
	}
	return small, nil
}

// Start implements manager.Runnable.
func (c *Clusters) Start(ctx context.Context) error {
	var listed sync.WaitGroup
	listed.Go(func() {
		if toolscache.WaitFor(ctx, "", c.informer.HasSyncedChecker()) {
			c.learn()
		}
	})
	listed.Go(func() {
		select {
		case <-c.known:
			for _, f := range c.told {
				f(metav1.NamespaceAll)
			}
		case <-ctx.Done():
		}
	})
	c.informer.RunWithContext(ctx)
	listed.Wait()
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica answers claims.
func (*Clusters) NeedLeaderElection() bool { return false }

// Cluster implements metal3.Clusters.
func (c *Clusters) Cluster(namespace, name string) (metal3.Cluster, bool) {
	if c == nil {
		return metal3.Cluster{}, false
	}
	select {
	case <-c.known:
	default:
		return metal3.Cluster{Unknown: true}, true
	}
	o, there, err := c.informer.GetStore().GetByKey(namespace + "/" + name)
	if err != nil || !there {
		return metal3.Cluster{}, false
	}
	return clusterOf(o.(*unstructured.Unstructured)), true
}

func clusterOf(o *unstructured.Unstructured) metal3.Cluster {
	paused, _, _ := unstructured.NestedBool(o.Object, "spec", "paused")
	return metal3.Cluster{UID: o.GetUID(), Paused: paused, Annotated: metal3.Paused(o)}
}

// clustersFunc finds Clusters as metal3.Clusters does.
type clustersFunc func(namespace, name string) (metal3.Cluster, bool)

func (f clustersFunc) Cluster(namespace, name string) (metal3.Cluster, bool) {
	return f(namespace, name)
}

// liveClusters are those that the API server has.
func liveClusters(ctx context.Context, live client.Reader) metal3.Clusters {
	return clustersFunc(func(namespace, name string) (metal3.Cluster, bool) {
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
		switch err := live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, o); {
		case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
			return metal3.Cluster{}, false
		case err != nil:
			return metal3.Cluster{Unknown: true}, true
		}
		return clusterOf(o), true
	})
}

// subscribe has f told of each Cluster that comes, goes, is paused or is no longer; and once of all namespaces, when it is known which there are. It
// comes before Start.
func (c *Clusters) subscribe(f func(namespace string)) error {
	if c == nil {
		return nil
	}
	c.told = append(c.told, f)
	told := func(o any) {
		if u, ok := o.(*unstructured.Unstructured); ok {
			f(u.GetNamespace())
		}
	}
	_, err := c.informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: told,
		UpdateFunc: func(before, after any) {
			was, is := before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)
			if clusterOf(was) != clusterOf(is) {
				told(is)
			}
		},
		DeleteFunc: func(o any) {
			if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = tombstone.Obj
			}
			told(o)
		},
	})
	if err != nil {
		return fmt.Errorf("informer for Clusters: %w", err)
	}
	return nil
}
