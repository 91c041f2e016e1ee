package webhooks

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Who sends calls is not always the API server: what is remembered is bounded. Its own UIDs have 36 characters.
const (
	maxRepeats = 8 * maxCalls
	maxUID     = 64
)

// repeats remembers by when calls are over that were sent away to come again. The API server repeats a call, under the same UID, within the
// time of its first try, and says each time that it has all of it.
type repeats struct {
	mu    sync.Mutex
	until map[types.UID]time.Time
}

// sentAway takes note of a call that may come again. One of which it takes none has its whole time anew.
func (r *repeats) sentAway(call types.UID, deadline time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, over := range r.until {
		if time.Until(over) < 0 {
			delete(r.until, other)
		}
	}
	if len(call) <= maxUID && len(r.until) < maxRepeats {
		r.until[call] = deadline
	}
}

// deadline is by when a call is over that would have until then if it had not been here before, and whether it has.
func (r *repeats) deadline(call types.UID, otherwise time.Time) (deadline time.Time, again bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	known, again := r.until[call]
	if again && known.Before(otherwise) {
		return known, true
	}
	return otherwise, again
}
