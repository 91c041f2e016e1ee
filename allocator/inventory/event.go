package inventory

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Event is an event that a controller has recorded about an object.
type Event struct {
	Warning         bool
	Reason, Message string
	Count           int32 // how often it happened
	Last            time.Time
}

// NewEvent returns a stored event. The fields with its count and its last time depend on the client library that has recorded it.
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
