package main

import (
	"fmt"
	"sync"
	"time"
)

// history is all that happened: what clients asked and were told, what was done to the
// processes, and what etcd stored.
type history struct {
	mu       sync.Mutex
	calls    []*call
	pairs    []pair
	blows    []*blow
	absences []*absence
	services map[string]bool // name -> stored, or about to be
	servicesDone
	stored *chronicle
	broken []string // found out on the way
}

// pair is a dry run and the same call in earnest, with nothing between them that could
// make them differ.
type pair struct{ dry, earnest *call }

// blow is something done to a process, until that serves again.
type blow struct {
	fault, target string
	began, over   time.Time
}

func newHistory() *history {
	return &history{stored: newChronicle(), services: map[string]bool{}}
}

func (h *history) called(c *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, c)
}

func (h *history) compare(dry, earnest *call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pairs = append(h.pairs, pair{dry, earnest})
}

// strike takes down that a fault hits a process. What it returns is called when that
// serves again.
func (h *history) strike(fault, target string) (over func()) {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := &blow{fault: fault, target: target, began: time.Now()}
	h.blows = append(h.blows, b)
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		b.over = time.Now()
	}
}

func (h *history) blame(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = append(h.broken, fmt.Sprintf(format, args...))
}

// lastOf says when the last claim of a name was stored, and went, beside the revision of
// something else that was stored for it.
func (h *history) lastOf(claim, beside string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var last *object
	for _, o := range h.stored.objects {
		if o.name == claim && (last == nil || o.created > last.created) {
			last = o
		}
	}
	if last == nil {
		return fmt.Sprintf("its last version is of revision %s, and %s was never stored", beside, claim)
	}
	return fmt.Sprintf("its last version is of revision %s; %s was deleted at revision %d", beside, last, last.deleted)
}
