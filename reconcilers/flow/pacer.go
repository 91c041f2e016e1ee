package flow

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pacer spaces writes that can wait: the first write after a quiet time is due at once,
// later writes share the next turn. Between turns, API server and etcd serve creates.
type Pacer struct {
	every time.Duration

	mu   sync.Mutex
	next time.Time                          // next turn
	due  map[types.NamespacedName]time.Time // waiting objects -> their turn
}

// NewPacer returns a pacer with one turn in each period.
func NewPacer(every time.Duration) *Pacer {
	return &Pacer{every: every, due: map[types.NamespacedName]time.Time{}}
}

// Wait returns for how long an object has to wait for a turn. If the turn has come, Wait
// returns 0 and ends the turn.
func (t *Pacer) Wait(name types.NamespacedName, now time.Time) time.Duration {
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

// Forget ends the wait of an object.
func (t *Pacer) Forget(name types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.due, name)
}
