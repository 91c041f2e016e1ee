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
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// An object marked with delete-for-move counts as moved to another cluster only if clusterctl can have marked it. clusterctl pauses all Clusters of the
// namespace, creates everything in the other cluster, and then marks and deletes the objects here: owned objects first, Clusters last.
//
//	the Cluster is stored and paused               moved
//	the Cluster is stored and not paused           not moved
//	the Cluster was seen paused and is gone        moved, for goneFor
//	the informer has not seen the Cluster's end    undecided
//	the Cluster cannot be read                     undecided
//	no such Cluster                                not moved
//
// An object that names no Cluster, by its spec, its label, its owners or its pool, is moved if one of these holds for any Cluster of its namespace.
// While undecided, the range stays held.

// goneFor is how long a Cluster counts as paused that was paused when it went. Its claims went before it, and their events come soon.
const goneFor = 10 * time.Minute

const (
	decideAgain      = 250 * time.Millisecond // first pause after a decision that could not be made
	decideAgainLimit = 30 * time.Second
)

// sightings is what the informer has shown of Clusters: namespace -> name ->.
type sightings struct {
	mu  sync.Mutex
	all map[string]map[string]sighting
}

type sighting struct {
	paused bool
	gone   time.Time // zero while it is stored
}

func (s *sightings) saw(o any, now time.Time, gone bool) {
	unknown, is := o.(toolscache.DeletedFinalStateUnknown)
	if is {
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
	one := sighting{paused: clusterOf(u).Paused || is} // of one that went unseen nobody knows
	if gone {
		one.gone = now
	}
	if of[u.GetName()] = one; gone && !one.paused {
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
		AddFunc:    func(o any) { s.saw(o, time.Now(), false) },
		UpdateFunc: func(_, o any) { s.saw(o, time.Now(), false) },
		DeleteFunc: func(o any) { s.saw(o, time.Now(), true) },
	}
}

// pauses is what is known of the Clusters of a namespace.
type pauses struct {
	stored map[string]bool // by the API server; name -> paused
	gone   map[string]bool // name -> whether the informer has seen its end; it was paused then
	listed bool            // the informer has all of them
}

// moved tells whether clusterctl can have marked an object that belongs to these Clusters, and whether that is certain.
func (p pauses) moved(clusters []string) (moved, certain bool) {
	if len(clusters) == 0 {
		for name := range p.stored {
			clusters = append(clusters, name)
		}
		for name := range p.gone {
			clusters = append(clusters, name)
		}
	}
	certain = p.listed
	for _, name := range clusters {
		paused, stored := p.stored[name]
		seen, gone := p.gone[name]
		switch {
		case stored && paused, !stored && gone && seen:
			return true, true
		case !stored && gone:
			certain = false
		}
	}
	return false, certain
}

// pauses reads the Clusters of a namespace from the API server, and what the informer knows of others.
func (c *Clusters) pauses(ctx context.Context, live client.Reader, namespace string) (pauses, error) {
	p := pauses{stored: map[string]bool{}, gone: map[string]bool{}, listed: true}
	if c == nil {
		return p, nil
	}
	for _, version := range []string{clusterv1.GroupVersion.Version, "v1beta1"} { // clusterctl of before 1.11 moves claims as well
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
	case <-c.known:
	default:
		p.listed = false
	}
	c.seen.mu.Lock()
	defer c.seen.mu.Unlock()
	for name, one := range c.seen.all[namespace] { // as of after the read
		if _, stored := p.stored[name]; !stored && (one.gone.IsZero() || time.Since(one.gone) < goneFor) {
			p.gone[name] = !one.gone.IsZero()
		}
	}
	return p, nil
}

// lookForDepartures has DecideMoved look whether there is something to decide.
func (f *Feed) lookForDepartures() {
	select {
	case f.departed <- struct{}{}:
	default:
	}
}

// DecideMoved decides of each object that is gone and marked as moved whether clusterctl can have marked it, until ctx ends. Every replica decides for
// itself, soon after the object went: later a Cluster may be paused for other reasons.
func (f *Feed) DecideMoved(ctx context.Context, clusters *Clusters, log logr.Logger) error {
	pause := decideAgain
	for {
		var again <-chan time.Time
		if f.decideMoved(ctx, clusters, log) {
			pause = decideAgain
		} else {
			again = time.After(pause)
			pause = min(2*pause, decideAgainLimit)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-f.departed:
		case <-again:
		}
	}
}

// decideMoved decides what can be decided now, and tells whether that is all.
func (f *Feed) decideMoved(ctx context.Context, clusters *Clusters, log logr.Logger) (all bool) {
	open := f.ledger.Departures() // before the Clusters are read: each was marked by then
	all = true
	known := map[string]pauses{}
	for _, d := range open {
		p, read := known[d.Namespace]
		if !read {
			var err error
			if p, err = clusters.pauses(ctx, f.live, d.Namespace); err != nil {
				log.Error(err, "Addresses of objects marked as moved to another cluster stay held until their Clusters can be read", "namespace", d.Namespace)
				p = pauses{}
			}
			known[d.Namespace] = p
		}
		moved, certain := p.moved(d.Clusters)
		if !certain {
			all = false
			continue
		}
		if !moved {
			log.Info("An object was marked as moved to another cluster while none of its Clusters was paused: it is released as any other", "namespace", d.Namespace, "uid", d.UID)
		}
		f.ledger.DecideMoved(d.UID, moved)
	}
	return all
}

// moving tells whether clusterctl may be about to delete a marked claim, so that its release is left to that.
func (d *desk) moving(ctx context.Context, o metav1.Object, clusters []string) (bool, error) {
	p, err := d.clusters.pauses(ctx, d.live, o.GetNamespace())
	if err != nil {
		return false, err
	}
	moved, certain := p.moved(clusters)
	return moved || !certain, nil
}
