package services

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// waitingServices records the Services without addresses, and their last event.
//
// Services that wait for the same form a line. When their pool changes, the oldest
// Service of each line requests its address again. If it gets the address, or leaves the
// line, the next one follows; if it is denied, the request of every other Service of the
// line would be denied too. So one release costs one denied request for each line, and
// the oldest Service is served first. Without a change of the pool, no Service of a line
// repeats its request.
type waitingServices struct {
	mu      sync.Mutex
	all     map[types.NamespacedName]wait
	changes map[string]uint64 // pool -> number of its changes
}

// wait is why a Service has no addresses.
type wait struct {
	line    line      // the zero value for a Service that no change of a pool can help
	since   time.Time // creation of the Service
	message string    // of the last event
}

// line identifies the Services of a pool whose requests have equal outcomes.
type line struct {
	pool, family, address string
	alone                 types.NamespacedName // a Service that was denied for a field of its own, such as bgpConfig
}

// lineOf returns the line of a Service; the zero value if no change of its pool ends the
// denial, or the denial ends by itself.
func lineOf(s *corev1.Service, about *denial) line {
	if !about.awaitsPool() {
		return line{}
	}
	l := line{pool: poolOf(s), family: cmp.Or(s.Annotations[v1alpha1.AnnotationAddressFamily], string(v1alpha1.FamilyIPv4)), address: s.Spec.LoadBalancerIP}
	field, _, _ := strings.Cut(strings.TrimPrefix(about.field, "spec."), ".")
	if !slices.Contains([]string{"", "poolRef", "address", "ipv6Address", "addressFamily"}, field) {
		l.alone = client.ObjectKeyFromObject(s)
	}
	return l
}

func newWaitingServices() *waitingServices {
	return &waitingServices{all: map[types.NamespacedName]wait{}, changes: map[string]uint64{}}
}

// record records why a Service waits, and returns the Service that follows if the Service
// leaves a line. isNew reports that the message is due and differs from that of the last
// event.
func (w *waitingServices) record(s *corev1.Service, about *denial, due bool) (isNew bool, follower []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	name := client.ObjectKeyFromObject(s)
	before := w.all[name]
	is := wait{lineOf(s, about), s.CreationTimestamp.Time, before.message}
	if isNew = due && before.message != about.message; isNew {
		is.message = about.message
	}
	w.all[name] = is
	if before.line != is.line {
		follower = w.firstOf(before.line)
	}
	return isNew, follower
}

// forget removes a Service that has addresses, or requests none, and returns the Service
// that follows in its line.
func (w *waitingServices) forget(name types.NamespacedName) (follower []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.all[name]
	delete(w.all, name)
	return w.firstOf(before.line)
}

// firstOf returns the oldest Service of a line; none for the zero value. The caller holds
// mu.
func (w *waitingServices) firstOf(l line) []types.NamespacedName {
	if l == (line{}) {
		return nil
	}
	return w.firsts(func(other line) bool { return other == l })
}

// firsts returns the oldest Service of each selected line, the oldest first. The caller
// holds mu.
func (w *waitingServices) firsts(selected func(line) bool) []types.NamespacedName {
	first := map[line]types.NamespacedName{}
	older := func(x, y types.NamespacedName) int {
		return cmp.Or(w.all[x].since.Compare(w.all[y].since), cmp.Compare(x.String(), y.String()))
	}
	for name, is := range w.all {
		if known, has := first[is.line]; selected(is.line) && (!has || older(name, known) < 0) {
			first[is.line] = name
		}
	}
	return slices.SortedFunc(maps.Values(first), older)
}

// poolChanged records a change of a pool, and returns the first Service of each line of
// the pool, the oldest first.
func (w *waitingServices) poolChanged(pool string) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.changes[pool]++
	return w.firsts(func(l line) bool { return l.pool == pool && l != (line{}) })
}

// changesOf returns the number of changes of a pool.
func (w *waitingServices) changesOf(pool string) uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.changes[pool]
}
