//go:build chaos

package ledger

import (
	"sync/atomic"
	"time"

	"butlerlabs.dev/ipam/allocator/state"
)

// checkShare bounds the cost of the checks, which grows with the state: they take one in
// checkShare of the time at most. With a check after each call, a leader with a thousand
// claims spent three quarters of its time on checks, and wrote four statuses a second.
const checkShare = 20

// nextCheck is when the state is checked again.
var nextCheck atomic.Pointer[time.Time]

// checkState panics if an invariant of the state does not hold: the chaos test reports
// managers that ended by themselves.
func checkState(s *state.State) {
	began := time.Now()
	if next := nextCheck.Load(); next != nil && began.Before(*next) {
		return
	}
	if err := s.Check(); err != nil {
		panic(err)
	}
	nextCheck.Store(new(time.Now().Add(checkShare * time.Since(began))))
}
