package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// A consistent read of the journal proves leadership as a commit does (package state,
// proofs), and costs the API server less. Reads are made one at a time: all grants that
// await a proof share the next read.

// proofRetry is the pause after a read that proved nothing; a commit is under way
// meanwhile.
const proofRetry = 50 * time.Millisecond

// errNoProof reports that a read did not prove that this replica leads. A commit decides
// then.
var errNoProof = errors.New("a read of the journal did not show this replica's term")

// proofs are the reads of one term.
type proofs struct {
	term int64
	// notBefore is the resourceVersion of the newest commit that has landed. An older
	// version in a read shows that etcd was restored from a backup, which may lack the
	// grants of that commit.
	notBefore string
	wake      chan struct{}
}

// wakeProofs makes proveUntilDone look for work. The caller holds mu.
func (l *Ledger) wakeProofs() {
	if l.proofs == nil {
		return
	}
	select {
	case l.proofs.wake <- struct{}{}:
	default:
	}
}

// proveUntilDone reads the journal while the term lasts: at once for grants, after
// confirmAfter for owners to confirm.
func (l *Ledger) proveUntilDone(ctx context.Context, p *proofs) {
	for l.awaitProofDue(ctx, p) {
		var n uint64
		var notBefore string
		l.withState(func(s *state.State) { n, notBefore = s.BeginProof(), p.notBefore })
		v, err := l.session.ReadAlongside(ctx)
		if err == nil {
			err = p.check(v, l.cfg.Identity, notBefore)
		}
		l.withState(func(s *state.State) {
			if err == nil {
				s.ProofLanded(l.now(), n)
			} else {
				s.ProofFailed()
			}
		})
		if err != nil && journal.Pause(ctx, proofRetry) != nil {
			break
		}
	}
	l.withState(func(*state.State) { l.proofs = nil })
}

// check returns nil if a read shows this term. Any error wraps errNoProof.
func (p *proofs) check(v journal.Revision, identity, notBefore string) error {
	switch order, err := resourceversion.CompareResourceVersion(v.ResourceVersion, notBefore); {
	case err != nil:
		return fmt.Errorf("%w: %w", errNoProof, err)
	case v.Leader != identity, v.Term != p.term, order < 0:
		return fmt.Errorf("%w: term %d, leader %q, resourceVersion %s", errNoProof, v.Term, v.Leader, v.ResourceVersion)
	}
	return nil
}

// awaitProofDue returns true when a read is due, and false when ctx ends.
func (l *Ledger) awaitProofDue(ctx context.Context, p *proofs) bool {
	var confirmAt <-chan time.Time
	for ctx.Err() == nil {
		grants, confirm := 0, false
		l.withState(func(s *state.State) { grants, confirm = s.Pending().Proofs, s.Pending().Proof })
		if grants > 0 {
			return true
		}
		if confirm && confirmAt == nil {
			confirmAt = time.After(confirmAfter)
		}
		select {
		case <-ctx.Done():
		case <-p.wake:
		case <-confirmAt:
			if confirm {
				return true
			}
			confirmAt = nil
		}
	}
	return false
}
