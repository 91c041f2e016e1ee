package reconcilers

import (
	"errors"
	"fmt"
	"maps"
	"sync"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Reasons of events. Those on a claim:
const (
	eventAllocated       = "IPsAllocated"
	eventFailed          = "AllocationFailed"
	eventAddressConflict = "AddressConflict"
	eventReleaseFailed   = "ReleaseFailed"
	eventWaiting         = "WaitingForCluster" // on pools as well
	eventWaitingForPool  = "WaitingForPool"
)

// Those on a NetworkPool:
const (
	eventCapacityWarning   = "PoolCapacityWarning"
	eventCapacityCritical  = "PoolCapacityCritical"
	eventCapacityExhausted = "PoolCapacityExhausted"
	eventCapacityRecovered = "PoolCapacityRecovered"
	eventReleasesWait      = "ReleasesWait" // on claims as well
	eventRestsUnrecorded   = "RestsUnrecorded"
	eventRestsIllegible    = "RestsIllegible"
	eventMovedHidden       = "MovedNotListed"
	eventMovedUnrecorded   = "MovedUnrecorded"
	eventStatusRefused     = "StatusRefused"
)

// An event costs the API server as much as the allocation itself, so those that say all is well give way under load, of each pool
// per second and at once. They stand on the allocation: on the pool, thousands would bury the few that matter there.
const (
	routinePerSecond = 2
	routineBurst     = 20
	// routinePools is of how many pools the events are counted at once, but for those of which all may be told again.
	routinePools = 1024
)

type events struct {
	recorder record.EventRecorder

	mu      sync.Mutex
	routine map[ledger.Key]*rate.Limiter // pool ->
}

func newEvents(recorder record.EventRecorder) *events {
	return &events{recorder: recorder, routine: map[ledger.Key]*rate.Limiter{}}
}

// mayTell says whether there is room for another routine event of a pool.
func (e *events) mayTell(pool ledger.Key) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.routine[pool]
	if l == nil {
		if len(e.routine) >= routinePools {
			maps.DeleteFunc(e.routine, func(_ ledger.Key, l *rate.Limiter) bool { return l.Tokens() >= routineBurst })
		}
		l = rate.NewLimiter(routinePerSecond, routineBurst)
		e.routine[pool] = l
	}
	return l.Allow()
}

func (e *events) allocated(claim client.Object, pool ledger.Key, message string) {
	if e.mayTell(pool) {
		e.recorder.Event(claim, corev1.EventTypeNormal, eventAllocated, message)
	}
}

// waits tells of an object that waits for a Cluster which does not exist. That it waits for a pause to end somebody has decided.
func (e *events) waits(o client.Object, pool ledger.Key, why error) {
	if wait := (*metal3.WaitError)(nil); errors.As(why, &wait) && wait.Missing && e.mayTell(pool) {
		e.recorder.Event(o, corev1.EventTypeNormal, eventWaiting, wait.Why+": nothing is done until it does")
	}
}

// waitsForPool tells of a claim whose pool has nothing to give yet, and whose status has no word for that.
func (e *events) waitsForPool(claim client.Object, pool ledger.Key, why error) {
	if e.mayTell(pool) {
		e.recorder.Event(claim, corev1.EventTypeNormal, eventWaitingForPool, why.Error())
	}
}

func (e *events) failed(claim client.Object, message string) {
	e.recorder.Event(claim, corev1.EventTypeWarning, eventFailed, message)
}

func (e *events) conflict(claim client.Object, message string) {
	e.recorder.Event(claim, corev1.EventTypeWarning, eventAddressConflict, message)
}

func (e *events) stays(claim client.Object, message string) {
	e.recorder.Event(claim, corev1.EventTypeWarning, eventReleaseFailed, message)
}

func (e *events) waitsForRoom(claim client.Object, message string) {
	e.recorder.Event(claim, corev1.EventTypeWarning, eventReleasesWait, message)
}

func (e *events) crossed(p *v1alpha1.NetworkPool, c crossing) {
	kind := corev1.EventTypeWarning
	if c.reason == eventCapacityRecovered {
		kind = corev1.EventTypeNormal
	}
	e.recorder.Event(p, kind, c.reason, c.message)
}

func (e *events) restsUnrecorded(p client.Object, lacking int) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventRestsUnrecorded, fmt.Sprintf(
		"%s without a record, as the pool's annotations have no room: %s would be free if all managers ended: shorten the reuse delay, or wait",
		allocator.Counted(lacking, "range")+" "+allocator.Agree(lacking, "rests", "rest"), allocator.Agree(lacking, "it", "they")))
}

func (e *events) restsIllegible(p client.Object) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventRestsIllegible, fmt.Sprintf(
		"annotation %s cannot be read: what only it recorded as resting is free: correct it, or take it out", v1alpha1.AnnotationResting))
}

func (e *events) movedHidden(p client.Object, n int) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventMovedHidden, fmt.Sprintf(
		"%s that went to other clusters %s held and %s not listed in annotation %s, as the pool's annotations have no room: make room, so that all are shown and can be taken out",
		allocator.Counted(n, "range"), allocator.Agree(n, "stays", "stay"), allocator.Agree(n, "is", "are"), v1alpha1.AnnotationResting))
}

func (e *events) movedUnrecorded(p client.Object, err error) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventMovedUnrecorded, "ranges that went to other clusters cannot be recorded in the manager's namespace, and are held only while a manager runs: "+fields.Short(err.Error()))
}

func (e *events) statusRefused(p client.Object, err error) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventStatusRefused, "the API server refuses the status, and the pool allocates nothing, until the spec is corrected: "+fields.Short(err.Error()))
}

func (e *events) releasesWait(p *v1alpha1.NetworkPool, waiting int) {
	e.recorder.Event(p, corev1.EventTypeWarning, eventReleasesWait, fmt.Sprintf(
		"%s %s because %d released ranges still rest and status.releases holds no more: shorten spec.reuseDelay, or wait",
		allocator.Counted(waiting, "release"), allocator.Agree(waiting, "waits", "wait"), len(p.Status.Releases)))
}
