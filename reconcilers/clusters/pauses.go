package clusters

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An object marked with delete-for-move counts as moved to another cluster only if
// clusterctl can have marked the object. clusterctl pauses all Clusters of the namespace,
// creates the objects in the target cluster, and then marks and deletes the objects here:
// owned objects first, Clusters last.
//
//	the Cluster is stored and paused               moved
//	the Cluster is stored and not paused           not moved
//	the Cluster was seen paused and is gone        moved, for goneFor
//	the informer has not seen the Cluster's end    undecided
//	the Cluster cannot be read                     undecided
//	no such Cluster                                not moved
//
// An object that names no Cluster by spec, label, owners or pool counts as an object of
// every Cluster of the namespace. While undecided, the range is not free.

// goneFor is how long a deleted Cluster counts as paused, if paused when deleted.
// clusterctl deletes the claims before the Cluster, and the events of the claims follow
// soon.
const goneFor = 10 * time.Minute

// sightings records what the informer has shown of Clusters.
type sightings struct {
	mu  sync.Mutex
	all map[string]map[string]sighting // namespace -> name ->
}

type sighting struct {
	paused bool
	gone   time.Time // zero while the Cluster is stored
}

// record records an informer event. Deletions older than goneFor are removed.
func (s *sightings) record(o any, now time.Time, gone bool) {
	unknown, missed := o.(toolscache.DeletedFinalStateUnknown)
	if missed {
		o = unknown.Obj
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[string]map[string]sighting{}
	}
	of := s.all[u.GetNamespace()]
	if of == nil {
		of = map[string]sighting{}
		s.all[u.GetNamespace()] = of
	}
	last := sighting{paused: clusterOf(u).Paused || missed} // the last state of a Cluster whose deletion the watch missed is unknown
	if gone {
		last.gone = now
	}
	if of[u.GetName()] = last; gone && !last.paused {
		delete(of, u.GetName())
	}
	for name, other := range of {
		if !other.gone.IsZero() && now.Sub(other.gone) > goneFor {
			delete(of, name)
		}
	}
	if len(of) == 0 {
		delete(s.all, u.GetNamespace())
	}
}

func (s *sightings) handler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { s.record(o, time.Now(), false) },
		UpdateFunc: func(_, o any) { s.record(o, time.Now(), false) },
		DeleteFunc: func(o any) { s.record(o, time.Now(), true) },
	}
}

// Pauses has the pauses of the Clusters of a namespace. The zero value is for Clusters
// that cannot be read.
type Pauses struct {
	stored map[string]bool // Clusters in the API server; name -> paused
	// absent has the Clusters that the informer has shown and the API server lacks: name
	// -> whether the informer has shown the deletion, of a paused Cluster.
	absent map[string]bool
	listed bool // the informer has shown all Clusters
}

// WereMoved reports whether clusterctl can have marked an object of these Clusters, and
// whether the result is certain. An object without Clusters belongs to all Clusters of
// the namespace.
func (p Pauses) WereMoved(clusters []string) (moved, certain bool) {
	if len(clusters) == 0 {
		for name := range p.stored {
			clusters = append(clusters, name)
		}
		for name := range p.absent {
			clusters = append(clusters, name)
		}
	}
	certain = p.listed
	for _, name := range clusters {
		paused, stored := p.stored[name]
		deleted, gone := p.absent[name]
		switch {
		case stored && paused, !stored && gone && deleted:
			return true, true
		case !stored && gone:
			certain = false
		}
	}
	return false, certain
}

// Pauses reads the Clusters of a namespace from the API server, and adds what the
// informer has shown of deleted Clusters.
func (w *Watcher) Pauses(ctx context.Context, live client.Reader, namespace string) (Pauses, error) {
	p := Pauses{stored: map[string]bool{}, absent: map[string]bool{}, listed: true}
	if w == nil {
		return p, nil
	}
	for _, version := range []string{clusterv1.GroupVersion.Version, "v1beta1"} { // clusterctl before 1.11 moves claims as well
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("ClusterList").GroupKind().WithVersion(version))
		err := live.List(ctx, list, client.InNamespace(namespace))
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return p, fmt.Errorf("clusters of namespace %s: %w", namespace, err)
		}
		for i := range list.Items {
			p.stored[list.Items[i].GetName()] = clusterOf(&list.Items[i]).Paused
		}
		break
	}
	select {
	case <-w.known:
	default:
		p.listed = false
	}
	w.sightings.mu.Lock()
	defer w.sightings.mu.Unlock()
	for name, last := range w.sightings.all[namespace] { // after the read: a Cluster deleted meanwhile is in one of the two
		if _, stored := p.stored[name]; !stored && (last.gone.IsZero() || time.Since(last.gone) < goneFor) {
			p.absent[name] = !last.gone.IsZero()
		}
	}
	return p, nil
}

// IsMoving reports whether clusterctl may be about to delete a marked object of these
// Clusters. The manager must not release such an object.
func (w *Watcher) IsMoving(ctx context.Context, live client.Reader, namespace string, clusters []string) (bool, error) {
	p, err := w.Pauses(ctx, live, namespace)
	if err != nil {
		return false, err
	}
	moved, certain := p.WereMoved(clusters)
	return moved || !certain, nil
}
