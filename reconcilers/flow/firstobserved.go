package flow

import (
	"sync"
	"time"
)

// FirstObserved records since when a condition holds, by the clock of this process: times
// in objects come from other clocks. The zero value is ready. FirstObserved is safe for
// concurrent use.
type FirstObserved[K comparable] struct {
	mu sync.Mutex
	at map[K]time.Time
}

// Observe returns the time of the first observation; now for the first observation.
func (s *FirstObserved[K]) Observe(k K, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, known := s.at[k]
	if known {
		return first
	}
	if s.at == nil {
		s.at = map[K]time.Time{}
	}
	s.at[k] = now
	return now
}

// ForgetIf removes the records of conditions that are over.
func (s *FirstObserved[K]) ForgetIf(over func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.at {
		if over(k) {
			delete(s.at, k)
		}
	}
}
