package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Event is an event about an object, recorded by a controller.
type Event struct {
	Warning         bool
	Reason, Message string
	Count           int32 // number of occurrences
	Last            time.Time
}

// NewEvent converts a stored event. The fields with the count and the last time depend on
// the client library of the controller.
func NewEvent(e *corev1.Event) Event {
	of := Event{Warning: e.Type == corev1.EventTypeWarning, Reason: e.Reason, Message: e.Message, Count: max(1, e.Count), Last: e.CreationTimestamp.Time}
	for _, t := range []time.Time{e.EventTime.Time, e.LastTimestamp.Time} {
		if t.After(of.Last) {
			of.Last = t
		}
	}
	if s := e.Series; s != nil {
		of.Count, of.Last = max(of.Count, s.Count), s.LastObservedTime.Time
	}
	return of
}
