package state

import (
	"slices"
	"testing"

	"butlerlabs.dev/ipam/allocator/journal"
)

// A claim owns its addresses whatever becomes of its pool. Every change of the pool that
// changes the result of FindNotOffered reports the owner as changed.
func TestFindNotOffered_ReportsOwners(t *testing.T) {
	const gone, offered = "pool ns/pool does not exist", ""
	for name, tt := range map[string]struct {
		change   func(*testState)
		a, b     string
		reported []string
	}{
		"pool removed": {
			change: func(s *testState) { s.RemovePool(modelPool, s.version) },
			a:      gone, b: gone, reported: []string{"a", "b"},
		},
		"list without the pool": {
			change: func(s *testState) { s.ReplacePools(s.now, modelPools, nil) },
			a:      gone, b: gone, reported: []string{"a", "b"},
		},
		"pool made again": {
			change: func(s *testState) {
				s.RemovePool(modelPool, s.version)
				clear(s.changed)
				s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.5"))
			},
			b: "pool ns/pool does not offer 10.0.0.6-10.0.0.7", reported: []string{"a", "b"},
		},
		"pool shrunk": {
			change: func(s *testState) { s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.5")) },
			b:      "pool ns/pool does not offer 10.0.0.6-10.0.0.7", reported: []string{"b"},
		},
		"pool shrunk and grown": {
			change: func(s *testState) {
				s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.5"))
				clear(s.changed)
				s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9"))
			},
			a: offered, b: offered, reported: []string{"b"},
		},
		"pool divided into adjacent ranges": {
			change: func(s *testState) {
				p := s.nextPool("10.0.0.0-10.0.0.5")
				p.Window = append(p.Window, mustRange("10.0.0.6-10.0.0.9"))
				s.ObservePool(s.now, p)
			},
		},
		"addresses reserved": {
			change: func(s *testState) { s.ObservePool(s.now, s.nextPool("10.0.0.0-10.0.0.9", "10.0.0.4-10.0.0.7")) },
		},
		"pool that breaks a rule": {
			change: func(s *testState) {
				p := s.nextPool("10.0.0.0")
				p.Window, p.Fault = nil, "spec.cidr: no"
				s.ObservePool(s.now, p)
			},
			reported: []string{"a", "b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newTestState(t)
			s.observeStored("a", "10.0.0.1", journal.Token{}, ready)
			s.observeStored("b", "10.0.0.4-10.0.0.7", journal.Token{}, ready)
			s.observeStored("without pool", "10.0.0.8", journal.Token{}, ready, func(c *Claim) { c.Pool = Key{} })
			s.observeStored("loser", "10.0.0.1", journal.Token{}, ready, flagged)
			clear(s.changed)
			tt.change(s)
			for uid, want := range map[string]string{"a": tt.a, "b": tt.b, "without pool": "", "loser": ""} {
				got := ""
				if e := s.FindNotOffered(uid); e != nil {
					got = e.Error()
				}
				if got != want {
					t.Errorf("%s: %q, want %q", uid, got, want)
				}
			}
			for _, uid := range []string{"a", "b"} {
				if _, reported := s.changed[key(uid)]; reported != slices.Contains(tt.reported, uid) {
					t.Errorf("%s is reported as changed: %t", uid, reported)
				}
			}
		})
	}
}

// Without the right to read pools, a missing pool may exist.
func TestFindNotOffered_NothingWithoutTheRightToReadPools(t *testing.T) {
	s := newTestState(t)
	s.observeStored("a", "10.0.0.1", journal.Token{}, ready)
	s.RemovePool(modelPool, s.version)
	s.SetReadDenied(s.now, modelPools, ErrBehind)
	if e := s.FindNotOffered("a"); e != nil {
		t.Errorf("%v", e)
	}
}
