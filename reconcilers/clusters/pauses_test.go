package clusters

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func cluster(name string, paused bool) *unstructured.Unstructured {
	c := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"paused": paused}}}
	c.SetGroupVersionKind(clusterv1.GroupVersion.WithKind("Cluster"))
	c.SetNamespace("team-a")
	c.SetName(name)
	return c
}

// stored lists these Clusters, as the API server does.
type stored []*unstructured.Unstructured

func (s stored) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	panic("the Clusters are listed")
}

func (s stored) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, c := range s {
		into := list.(*unstructured.UnstructuredList)
		into.Items = append(into.Items, *c)
	}
	return nil
}

// The rows are those of the table in pauses.go.
func TestPauses_WereMoved(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		stored         []*unstructured.Unstructured
		events         func(*sightings)
		unlisted       bool
		clusters       []string
		moved, certain bool
	}{
		"stored and paused":             {stored: []*unstructured.Unstructured{cluster("c", true)}, clusters: []string{"c"}, moved: true, certain: true},
		"stored and not paused":         {stored: []*unstructured.Unstructured{cluster("c", false)}, clusters: []string{"c"}, certain: true},
		"another Cluster is paused":     {stored: []*unstructured.Unstructured{cluster("c", false), cluster("d", true)}, clusters: []string{"c"}, certain: true},
		"names none, one is paused":     {stored: []*unstructured.Unstructured{cluster("c", false), cluster("d", true)}, moved: true, certain: true},
		"names none, none is paused":    {stored: []*unstructured.Unstructured{cluster("c", false)}, certain: true},
		"no such Cluster":               {clusters: []string{"c"}, certain: true},
		"not listed, stored and paused": {stored: []*unstructured.Unstructured{cluster("c", true)}, unlisted: true, clusters: []string{"c"}, moved: true, certain: true},
		"not listed, no such Cluster":   {unlisted: true, clusters: []string{"c"}},
		"seen paused, and deleted": {events: func(s *sightings) {
			s.record(cluster("c", true), now, false)
			s.record(cluster("c", true), now, true)
		}, clusters: []string{"c"}, moved: true, certain: true},
		"seen paused, and deleted long ago": {events: func(s *sightings) { s.record(cluster("c", true), now.Add(-goneFor-time.Second), true) }, clusters: []string{"c"}, certain: true},
		"seen running, and deleted": {events: func(s *sightings) {
			s.record(cluster("c", false), now, false)
			s.record(cluster("c", false), now, true)
		}, clusters: []string{"c"}, certain: true},
		"deletion missed by the watch": {events: func(s *sightings) {
			s.record(toolscache.DeletedFinalStateUnknown{Key: "team-a/c", Obj: cluster("c", false)}, now, true)
		}, clusters: []string{"c"}, moved: true, certain: true},
		"gone, deletion not shown yet": {events: func(s *sightings) { s.record(cluster("c", true), now, false) }, clusters: []string{"c"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := &Watcher{known: make(chan struct{})}
			if !tc.unlisted {
				close(w.known)
			}
			if tc.events != nil {
				tc.events(&w.sightings)
			}
			p, err := w.Pauses(t.Context(), stored(tc.stored), "team-a")
			if err != nil {
				t.Fatal(err)
			}
			if moved, certain := p.WereMoved(tc.clusters); moved != tc.moved || certain != tc.certain {
				t.Errorf("moved %t, certain %t; want %t, %t", moved, certain, tc.moved, tc.certain)
			}
		})
	}
}
