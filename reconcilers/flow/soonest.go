package flow

import (
	"sync"
	"time"
)

// Soonest collects the shortest wait.
type Soonest struct {
	mu   sync.Mutex
	Wait time.Duration // 0 if none
}

// Add adds a wait.
func (s *Soonest) Add(wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Wait == 0 || wait < s.Wait {
		s.Wait = wait
	}
}
