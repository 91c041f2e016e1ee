package services

import (
	"cmp"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// waiting remembers the Services that have no addresses, and what they were told.
type waiting struct {
	mu  sync.Mutex
	all map[types.NamespacedName]wait
}

type wait struct {
	pool    string
	forPool bool      // a change of the pool may end it
	since   time.Time // of the Service
	message string
}

// add says whether a message is new to a Service.
func (w *waiting) add(s *corev1.Service, message string, forPool bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := client.ObjectKeyFromObject(s)
	is := wait{poolOf(s), forPool, s.CreationTimestamp.Time, message}
	isNew := w.all[name] != is
	w.all[name] = is
	return isNew
}

func (w *waiting) forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, name)
}

// of is the Services that wait for a pool, the oldest first.
func (w *waiting) of(pool string) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	var all []types.NamespacedName
	for name, is := range w.all {
		if is.forPool && is.pool == pool {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, func(x, y types.NamespacedName) int {
		return cmp.Or(w.all[x].since.Compare(w.all[y].since), cmp.Compare(x.String(), y.String()))
	})
	return all
}
