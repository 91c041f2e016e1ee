package state

import (
	"maps"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// TakeChanged returns the claims and pools whose ownership or usage may have changed
// since the last call, in no order.
func (s *State) TakeChanged() []Key {
	if len(s.changed) == 0 {
		return nil
	}
	keys := make([]Key, 0, len(s.changed))
	for k := range s.changed {
		keys = append(keys, k)
	}
	clear(s.changed)
	return keys
}

// SetUnserved declares resources whose API is switched off. Stored objects of these
// resources count as owners; new objects are granted nothing.
func (s *State) SetUnserved(resources []string) {
	for _, resource := range resources {
		s.unserved[resource] = true
	}
}

// RecordClockAhead returns by how much the clock of recorded times is ahead of the clock
// of this state's times.
func (s *State) RecordClockAhead() time.Duration { return s.recordClockAhead }

// SetRecordClockAhead sets by how much the clock of recorded times is ahead of the clock
// of this state's times.
func (s *State) SetRecordClockAhead(d time.Duration) { s.recordClockAhead = d }

// UnservedCounts returns the number of stored objects of each resource whose API is
// switched off.
func (s *State) UnservedCounts() map[string]int {
	counts := make(map[string]int, len(s.unserved))
	for resource := range s.unserved {
		counts[resource] = s.storedCount[resource]
	}
	return counts
}

// ReadDenials returns why the API server denies reading a resource: resource -> error.
func (s *State) ReadDenials() map[string]error {
	denials := make(map[string]error, len(s.readDenied))
	for resource, d := range s.readDenied {
		denials[resource] = d.err
	}
	return denials
}

// RecordFaults returns why records of moved ranges cannot be read: UID of the pool ->
// error.
func (s *State) RecordFaults() map[string]error { return maps.Clone(s.recordFaults) }

// ClearRecordFault removes the fault of a pool whose record was deleted.
func (s *State) ClearRecordFault(poolUID string) { delete(s.recordFaults, poolUID) }

// WithdrawToken ends the open grant with this token. Precondition: the response of the
// grant has not left this process.
func (s *State) WithdrawToken(t journal.Token) {
	if g := s.grants[t]; g != nil && g.state == grantCommitted {
		s.WithdrawGrant(g)
	}
}

// RequireConfirmation makes the next commit confirm the owner with this UID.
func (s *State) RequireConfirmation(uid string) {
	if c := s.claims[uid]; c != nil && c.holding != nil {
		s.requireConfirmation(c.holding)
	}
}

// NotifyCommit registers a buffered channel for the outcome of the grant's commit: nil
// once the journal contains the grant.
func (g *OpenGrant) NotifyCommit(committed chan error) { g.waiter = committed }

// AwaitsCommit reports whether a commit must land before the response of the grant may
// leave.
func (g *OpenGrant) AwaitsCommit() bool { return g.state != grantCommitted }
