package reconcilers

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// turns gathers writes that can wait for a moment: the first after a quiet time is done at once, those that follow it share the next turn.
// In between, the API server and etcd have their time for creates.
type turns struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time                          // turn
	due  map[types.NamespacedName]time.Time // of those that wait for theirs
}

func newTurns(every time.Duration) *turns {
	return &turns{every: every, due: map[types.NamespacedName]time.Time{}}
}

// wait says how long a name has to wait for its turn; 0 says that it has come, and takes it.
func (t *turns) wait(name types.NamespacedName, now time.Time) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	due, waits := t.due[name]
	switch {
	case waits:
	case now.Before(t.next):
		due = t.next
		t.due[name] = due
	default:
		due, t.next = now, now.Add(t.every)
	}
	if now.Before(due) {
		return due.Sub(now)
	}
	delete(t.due, name)
	return 0
}

func (t *turns) forget(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.due, name)
}
