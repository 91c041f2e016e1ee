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

// waitingServices records the Services without addresses, and their last event.
type waitingServices struct {
	mu  sync.Mutex
	all map[types.NamespacedName]wait
}

type wait struct {
	pool    string
	forPool bool      // a change of the pool may end it
	since   time.Time // creation of the Service
	message string
}

// record reports whether a message is new for a Service.
func (w *waitingServices) record(s *corev1.Service, message string, forPool bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := client.ObjectKeyFromObject(s)
	is := wait{poolOf(s), forPool, s.CreationTimestamp.Time, message}
	isNew := w.all[name] != is
	w.all[name] = is
	return isNew
}

func (w *waitingServices) forget(name types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.all, name)
}

// forPool lists the Services that wait for a pool, the oldest first.
func (w *waitingServices) forPool(pool string) []types.NamespacedName {
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
