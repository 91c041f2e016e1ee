// Package events records events about claims and pools, and bounds the routine events of
// each pool.
package events

import (
	"errors"
	"maps"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// An event costs the API server as much as the allocation itself. Events that report
// success are therefore dropped under load, beyond a limit for each pool, per second and
// in a burst. They are recorded on the claim: on the pool, thousands of them would bury
// the few important events.
const (
	routinePerSecond = 2
	routineBurst     = 20
	// routinePools bounds the pools whose routine events are counted at a time.
	routinePools = 1024
)

// ReasonWaiting is the reason of an event about a claim or pool that waits for a Cluster.
const ReasonWaiting = "WaitingForCluster"

// Recorder records events. It is safe for concurrent use.
type Recorder struct {
	recorder record.EventRecorder

	mu      sync.Mutex
	routine map[ledger.Key]*rate.Limiter // pool ->
}

// New returns a Recorder that writes to another recorder.
func New(recorder record.EventRecorder) *Recorder {
	return &Recorder{recorder: recorder, routine: map[ledger.Key]*rate.Limiter{}}
}

// Warning records a warning.
func (r *Recorder) Warning(o client.Object, reason, message string) {
	r.recorder.Event(o, corev1.EventTypeWarning, reason, message)
}

// Normal records an event that is no warning.
func (r *Recorder) Normal(o client.Object, reason, message string) {
	r.recorder.Event(o, corev1.EventTypeNormal, reason, message)
}

// Routine records an event that is no warning if the limit of the pool permits.
func (r *Recorder) Routine(o client.Object, pool ledger.Key, reason, message string) {
	if r.allows(pool) {
		r.Normal(o, reason, message)
	}
}

// allows reports whether a routine event of a pool is within the limit, and counts the
// event.
func (r *Recorder) allows(pool ledger.Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.routine[pool]
	if l == nil {
		if len(r.routine) >= routinePools {
			maps.DeleteFunc(r.routine, func(_ ledger.Key, l *rate.Limiter) bool { return l.Tokens() >= routineBurst })
		}
		l = rate.NewLimiter(routinePerSecond, routineBurst)
		r.routine[pool] = l
	}
	return l.Allow()
}

// Waits records that an object waits for a missing Cluster. A pause is a user's decision,
// and has no event.
func (r *Recorder) Waits(o client.Object, pool ledger.Key, why error) {
	if wait := (*clusterpause.WaitError)(nil); errors.As(why, &wait) && wait.Missing {
		r.Routine(o, pool, ReasonWaiting, wait.Reason+": not reconciled until the Cluster exists")
	}
}
