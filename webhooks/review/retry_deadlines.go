package review

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Callers other than the API server can send arbitrary UIDs, so number and length are
// bounded. UIDs of the API server have 36 characters.
const (
	maxRetryDeadlines = 8 * maxCalls
	maxUIDLength      = 64
)

// retryDeadlines records the deadlines of calls that the API server was asked to repeat.
// The API server repeats a call under the same UID within the timeout of the first try,
// but each repetition states the whole timeout again.
type retryDeadlines struct {
	mu    sync.Mutex
	until map[types.UID]time.Time // UID of the request -> deadline of its first try
}

func newRetryDeadlines() *retryDeadlines { return &retryDeadlines{until: map[types.UID]time.Time{}} }

// recordDeadline records the deadline of a call that may be repeated. A repetition
// without a record gets its whole timeout again.
func (r *retryDeadlines) recordDeadline(call types.UID, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for recorded, end := range r.until {
		if time.Until(end) < 0 {
			delete(r.until, recorded)
		}
	}
	if len(call) <= maxUIDLength && len(r.until) < maxRetryDeadlines {
		r.until[call] = deadline
	}
}

// findDeadline returns the earlier of the recorded deadline and stated, and whether a
// deadline was recorded.
func (r *retryDeadlines) findDeadline(call types.UID, stated time.Time) (deadline time.Time, repeated bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, repeated := r.until[call]
	if repeated && known.Before(stated) {
		return known, true
	}
	return stated, repeated
}
