package cluster

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	toolscache "k8s.io/client-go/tools/cache"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

// resourceEvent is the resource of events. An Inventory contains no events.
var resourceEvent = newResource[corev1.Event]("events", "v1")

// indexUID is the index of events by the UID of the involved object.
const indexUID = "uid"

// EventFeed watches the events about pools, and keeps their current versions.
type EventFeed struct {
	watched   map[string]*watched // resource of the pools -> events; empty if the user may not list events
	namespace string              // the only namespace in which the user may list events; "" for all namespaces
	note      string              // why there are no events
}

// WatchEvents watches the events about pools until ctx ends. If the user may not list
// events, the feed has a note in place of the events.
func WatchEvents(ctx context.Context, o Options) (*EventFeed, error) {
	client, err := dynamic.NewForConfig(o.Config)
	if err != nil {
		return nil, fmt.Errorf("access to the cluster: %w", err)
	}
	f := &EventFeed{watched: map[string]*watched{}}
	f.namespace, err = findScope(ctx, client, resourceEvent, o.Namespace)
	switch {
	case apierrors.IsForbidden(err):
		f.note = o.notRead(resourceEvent)
		return f, nil
	case err != nil:
		return nil, fmt.Errorf("list %s: %w", resourceEvent.name, err)
	}
	for _, of := range resources {
		if !of.pools {
			continue
		}
		w, err := newWatched(client, resourceEvent, f.namespace, "involvedObject.kind="+inventory.KindOf(inventory.Key{Resource: of.name}))
		if err != nil {
			return nil, err
		}
		err = w.informer.AddIndexers(toolscache.Indexers{indexUID: func(o any) ([]string, error) {
			if e, ok := o.(*corev1.Event); ok {
				return []string{string(e.InvolvedObject.UID)}, nil
			}
			return nil, nil
		}})
		if err != nil {
			return nil, fmt.Errorf("watch %s: %w", resourceEvent.name, err)
		}
		f.watched[of.name] = w
	}
	start(ctx, f.watched)
	return f, nil
}

// start starts informers, and waits until each informer has listed its objects once, for
// at most Patience. Later, a page has a note about objects that are not read yet.
func start(ctx context.Context, all map[string]*watched) {
	patience := timeout(ctx, Patience)
	for _, w := range all {
		go w.informer.RunWithContext(ctx)
	}
	for _, w := range all {
		toolscache.WaitForCacheSync(patience, w.informer.HasSynced)
	}
}

// note returns the reason why the objects are incomplete or out of date; "" for complete
// objects.
func (w *watched) note(scope Scope) string {
	if warning := w.warning(scope); warning != "" {
		return warning
	}
	if w.failing.Load() {
		return w.of.Resource + " may be out of date"
	}
	if !w.informer.HasSynced() {
		return w.of.Resource + ": not read yet"
	}
	return ""
}

// Events lists the events about a pool that a reader may list, newest first. note
// describes unread events; note may be "".
func (f *EventFeed) Events(scope Scope, p *inventory.Pool) (list []inventory.Event, note string) {
	w := f.watched[p.Key.Resource]
	if w == nil {
		return nil, f.note
	}
	namespace := f.namespace
	if scope != nil {
		allowed, some := scope[resourceEvent.name]
		if !some {
			return nil, Options{}.notRead(resourceEvent)
		}
		if allowed != AllNamespaces {
			namespace = allowed
		}
	}
	// Events about an object without a namespace are in namespace default.
	if namespace != metav1.NamespaceAll && cmp.Or(p.Key.Namespace, metav1.NamespaceDefault) != namespace {
		return nil, fmt.Sprintf(onlyListed, resourceEvent.Resource, namespace)
	}
	stored, err := w.informer.GetIndexer().ByIndex(indexUID, string(p.Object.GetUID()))
	if err != nil {
		return nil, err.Error()
	}
	for _, o := range stored {
		if e, ok := o.(*corev1.Event); ok {
			list = append(list, inventory.NewEvent(e))
		}
	}
	slices.SortFunc(list, func(x, y inventory.Event) int {
		return cmp.Or(y.Last.Compare(x.Last), cmp.Compare(x.Reason, y.Reason), cmp.Compare(x.Message, y.Message))
	})
	return list, w.note(scope)
}
