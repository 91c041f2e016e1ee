//go:build chaos

package ledger

import "butlerlabs.dev/ipam/allocator/state"

// checkState panics if an invariant of the state does not hold: the chaos test reports managers that ended by themselves.
func checkState(s *state.State) {
	if err := s.Check(); err != nil {
		panic(err)
	}
}
