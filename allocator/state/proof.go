package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// proofs counts the proofs of leadership, and lists what awaits one. A replica that was
// suspended may have been replaced without knowing. Two things prove that it still led at
// some time after an event:
//
//   - a commit that began after the event, and landed
//   - a consistent read of the journal that began after the event, and shows this
//     replica's own term
//
// A used standby grant and a claim to confirm need such a proof. Other grants wait for a
// commit of their own, which is a proof too.
//
// Invariant: commitsBegun-1 <= commitsLanded <= commitsBegun, and readsBeforeTerm <=
// readsLanded <= readsBegun. No listed grant is proven.
type proofs struct {
	commitsBegun    uint64       // commits of this term that have begun
	commitsLanded   uint64       // commits of this term that are stored
	readsBegun      uint64       // consistent reads of the journal that have begun
	readsLanded     uint64       // newest read that has shown this term
	readsBeforeTerm uint64       // reads that began before this term
	grants          []*OpenGrant // used standby grants that await a proof
	claims          []*claim     // owners bound since the begin of the last commit that landed; empty in a follower
}

// moment is a time in the life of a leader, in commits and reads that have begun. The
// zero moment is before the first commit of the term.
type moment struct{ commits, reads uint64 }

// isBeforeFirstCommit reports whether the moment is before the first commit of the term.
func (m moment) isBeforeFirstCommit() bool { return m.commits == 0 }

// now returns the present moment: what begins later is a proof for it.
func (p *proofs) now() moment { return moment{p.commitsBegun, p.readsBegun} }

// beginTerm begins the count of the commits. Reads that have begun are no proofs of the
// new term.
func (p *proofs) beginTerm() {
	p.commitsBegun, p.commitsLanded = 0, 0
	p.readsBeforeTerm, p.readsLanded = p.readsBegun, p.readsBegun
}

// nextCommit returns the number of the commit that begins next.
func (p *proofs) nextCommit() uint64 { return p.commitsBegun + 1 }

// isCommitInFlight reports whether a commit has begun and not landed.
func (p *proofs) isCommitInFlight() bool { return p.commitsLanded < p.commitsBegun }

func (p *proofs) commitBegins() { p.commitsBegun++ }
func (p *proofs) commitLands()  { p.commitsLanded = p.commitsBegun }

// readBegins returns the number of a read that begins.
func (p *proofs) readBegins() uint64 {
	p.readsBegun++
	return p.readsBegun
}

// readLands records that the read with this number has shown the present term, and
// reports whether the read began in this term.
func (p *proofs) readLands(n uint64) bool {
	if n <= p.readsBeforeTerm {
		return false
	}
	p.readsLanded = max(p.readsLanded, n)
	return true
}

// prove reports whether a commit has proven that this replica led after a moment, or, if
// a read counts, a read.
func (p *proofs) prove(m moment, byRead bool) bool {
	return p.commitsLanded > m.commits || byRead && p.readsLanded > m.reads
}

// awaitGrant makes a used standby grant await a proof that begins from now on.
func (p *proofs) awaitGrant(g *OpenGrant) {
	g.unproven, g.usedAt = true, p.now()
	p.grants = append(p.grants, g)
}

// dropGrant removes a grant that ends before its proof.
func (p *proofs) dropGrant(g *OpenGrant) {
	p.grants = slices.DeleteFunc(p.grants, func(other *OpenGrant) bool { return other == g })
}

// awaitClaim makes a claim, bound at claim.boundAt, await a proof.
func (p *proofs) awaitClaim(c *claim) { p.claims = append(p.claims, c) }

// dropClaims removes all claims.
func (p *proofs) dropClaims() { p.claims = nil }

// grantsAwaited returns the number of grants that await a proof.
func (p *proofs) grantsAwaited() int { return len(p.grants) }

// settle removes the grants and claims that the landed commits and reads prove. The lives
// of the grants begin, and confirmed is called for each claim.
func (p *proofs) settle(now time.Time, confirmed func(*claim)) {
	p.grants = slices.DeleteFunc(p.grants, func(g *OpenGrant) bool {
		if !p.prove(g.usedAt, true) {
			return false
		}
		g.unproven, g.lifeBegan = false, now
		g.notifyProven(nil)
		return true
	})
	p.claims = slices.DeleteFunc(p.claims, func(c *claim) bool {
		if !p.prove(c.boundAt, c.journaled) {
			return false
		}
		confirmed(c)
		return true
	})
}

// check verifies the invariant.
func (p *proofs) check() error {
	switch {
	case p.commitsLanded > p.commitsBegun:
		return fmt.Errorf("commits landed %d > begun %d", p.commitsLanded, p.commitsBegun)
	case p.commitsBegun-p.commitsLanded > 1:
		return fmt.Errorf("%d commits in flight", p.commitsBegun-p.commitsLanded)
	case p.readsBeforeTerm > p.readsLanded || p.readsLanded > p.readsBegun:
		return fmt.Errorf("reads before the term %d, landed %d, begun %d", p.readsBeforeTerm, p.readsLanded, p.readsBegun)
	}
	for _, g := range p.grants {
		if !g.unproven || p.prove(g.usedAt, true) {
			return fmt.Errorf("grant %s is proven, and awaits a proof", g.Token)
		}
	}
	return nil
}

// ErrUnproven reports that the grant of a claim awaits a proof: see NotifyProven.
var ErrUnproven = errors.New("the grant awaits a proof that this replica leads")

// AwaitsProof reports whether the grant is a used standby grant that is not proven.
func (g *OpenGrant) AwaitsProof() bool { return g.unproven }

// NotifyProven sends the outcome of the proof of the grant with this token to done, which
// must be buffered: at once if no proof is outstanding.
func (s *State) NotifyProven(t journal.Token, done chan<- error) {
	switch g := s.grants.find(t); {
	case g == nil:
		done <- ErrNotLeader
	case !g.unproven:
		done <- nil
	default:
		g.proofWaiters = append(g.proofWaiters, done)
	}
}

// notifyProven sends the outcome of the proof to the callers of NotifyProven.
func (g *OpenGrant) notifyProven(err error) {
	for _, done := range g.proofWaiters {
		done <- err
	}
	g.proofWaiters = nil
}

// BeginProof begins a consistent read of the journal, and returns the number of the read.
func (s *State) BeginProof() uint64 {
	s.commitQueue.readBegins()
	return s.proofs.readBegins()
}

// ProofLanded records that the read with this number has shown that this replica leads in
// its present term.
func (s *State) ProofLanded(now time.Time, n uint64) {
	if s.leadership.mayGrant() && s.proofs.readLands(n) {
		s.applyProofs(now)
	}
}

// ProofFailed records that a read has not shown that this replica leads. The next commit
// decides.
func (s *State) ProofFailed() {
	if s.leadership.mayGrant() {
		s.commitQueue.requestNow()
	}
}

// applyProofs applies the commits and the reads that have landed, and reports the claims
// that they confirm as changed.
func (s *State) applyProofs(now time.Time) {
	s.proofs.settle(now, func(c *claim) { s.changed[c.Key] = struct{}{} })
}
