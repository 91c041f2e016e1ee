package state

import (
	"errors"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// Proofs of leadership. A replica that was suspended may have been replaced without
// knowing. Two things prove that it still led at some time after an event:
//
//   - a commit that began after the event, and landed
//   - a consistent read of the journal that began after the event, and shows this
//     replica's own term
//
// A used standby grant and a claim to confirm need such a proof. Other grants wait for a
// commit of their own, which is a proof too.

// ErrUnproven reports that the grant of a claim awaits a proof: see NotifyProven.
var ErrUnproven = errors.New("the grant awaits a proof that this replica leads")

// requireProof makes a used standby grant await a proof that begins from now on.
func (s *State) requireProof(g *OpenGrant) {
	g.unproven, g.usedAtCommit, g.usedAtProof = true, s.commitsBegun, s.proofsBegun
	s.unproven = append(s.unproven, g)
}

// AwaitsProof reports whether the grant is a used standby grant that is not proven.
func (g *OpenGrant) AwaitsProof() bool { return g.unproven }

// NotifyProven sends the outcome of the proof of the grant with this token to done, which
// must be buffered: at once if no proof is outstanding.
func (s *State) NotifyProven(t journal.Token, done chan<- error) {
	switch g := s.grants[t]; {
	case g == nil:
		done <- ErrNotLeader
	case !g.unproven:
		done <- nil
	default:
		g.proofWaiters = append(g.proofWaiters, done)
	}
}

// BeginProof begins a consistent read of the journal, and returns the number of the read.
func (s *State) BeginProof() uint64 {
	s.proofsBegun++
	s.proofDue = false
	return s.proofsBegun
}

// ProofLanded records that the read with this number has shown that this replica leads in
// its present term.
func (s *State) ProofLanded(now time.Time, n uint64) {
	if s.leadership.mayGrant() && n > s.proofsBeforeTerm {
		s.proofsLanded = max(s.proofsLanded, n)
		s.applyProofs(now)
	}
}

// ProofFailed records that a read has not shown that this replica leads. The next commit
// decides.
func (s *State) ProofFailed() { s.commitDue = s.leadership.mayGrant() }

// applyProofs applies the commits and the reads that have landed: it begins the lives of
// the grants that they prove, and reports the claims that they confirm as changed.
func (s *State) applyProofs(now time.Time) {
	s.unproven = slices.DeleteFunc(s.unproven, func(g *OpenGrant) bool {
		if g.usedAtCommit >= s.commitsLanded && g.usedAtProof >= s.proofsLanded {
			return false
		}
		g.unproven, g.lifeBegan = false, now
		g.notifyProven(nil)
		return true
	})
	later := s.unconfirmed[:0]
	for _, c := range s.unconfirmed {
		if s.isProven(c) {
			s.changed[c.Key] = struct{}{}
		} else {
			later = append(later, c)
		}
	}
	clear(s.unconfirmed[len(later):])
	s.unconfirmed = later
}

// isProven reports whether a commit or a read has proven that this replica led after the
// claim was bound.
func (s *State) isProven(c *claim) bool {
	return s.commitsLanded > c.boundAtCommit || c.journaled && s.proofsLanded > c.boundAtProof
}

// notifyProven sends the outcome of the proof to the callers of NotifyProven.
func (g *OpenGrant) notifyProven(err error) {
	for _, done := range g.proofWaiters {
		done <- err
	}
	g.proofWaiters = nil
}
