package work

import (
	"sync"
	"time"
)

// Since remembers since when something has been so, as this process has observed it: by its own clock alone, whoever's clock the times in objects
// are of. It is safe for concurrent use, and the zero value is ready.
type Since[K comparable] struct {
	mu sync.Mutex
	at map[K]time.Time
}

// Observe returns the time of the first observation, which is now where there was none.
func (s *Since[K]) Observe(k K, now time.Time) time.Time {
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

// Forget ends what is no longer so.
func (s *Since[K]) Forget(over func(K) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.at {
		if over(k) {
			delete(s.at, k)
		}
	}
}
