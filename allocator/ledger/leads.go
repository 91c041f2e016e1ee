package ledger

import (
	"context"
	"errors"
	"fmt"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// awaitOutcome waits for the outcome of a commit or a proof. If ctx ends first, or
// another replica may lead by now, it calls giveUp and returns an error.
func (l *Ledger) awaitOutcome(ctx context.Context, committed <-chan error, giveUp func()) error {
	for {
		l.mu.Lock()
		err, leaseEnds := l.leaseError(), time.NewTimer(time.Until(l.provenAt.Add(l.session.Expiry())))
		l.mu.Unlock()
		if err == nil {
			select {
			case err := <-committed:
				leaseEnds.Stop()
				return err
			case <-leaseEnds.C:
				continue
			case <-ctx.Done():
				err = &NotServingError{Reason: "the journal could not be written in time"}
			}
		}
		leaseEnds.Stop()
		giveUp()
		return err
	}
}

// leaseError returns an error if another replica may lead by now: the last proof of
// leadership is older than the journal's expiry. The error lets the client call another
// replica. The caller holds mu.
func (l *Ledger) leaseError() error {
	if time.Since(l.provenAt) < l.session.Expiry() {
		return nil
	}
	return &NotServingError{
		Reason: fmt.Sprintf("the journal could not be written for %s: another replica may have taken it over", l.session.Expiry()), RetryAfter: time.Second,
	}
}

const (
	// leadershipProof is how long after its begin a write proves leadership for a denial.
	// The leader writes more often, and no replica takes over by expiry within this time.
	// After a faster take-over (package journal) a denial may be based on a state of up
	// to this age.
	leadershipProof = 2 * renewAfter
	// informerWait bounds how long a call waits for informers that have not delivered the
	// stored version of its claim.
	informerWait = 2 * time.Second
	// maxInformerWaits bounds the concurrent calls that wait for informers: a caller of
	// the webhook can invent a version that is never delivered.
	maxInformerWaits = 128
)

// withLeadership runs ask, and proves this replica's leadership before it returns an
// error: a replica that was suspended may deny a request that the new leader would grant.
// A commit of the last leadershipProof is a proof; with freshProof only a commit that
// begins after ask. After such a commit, ask runs again, as the state may have changed. A
// success needs no proof: the journal contains a grant before Grant returns it, and the
// next leader inherits the grant that CheckGrant has found. For a standby grant,
// CheckGrant waits for a proof.
//
// CheckGrant and OwnsAll ask for a fresh proof: a former leader does not know the grants
// of the new leader, however recent its own last commit.
//
// If the informers have not delivered the stored version of the claim (state.ErrBehind),
// withLeadership waits for them and runs ask again.
func (l *Ledger) withLeadership(ctx context.Context, freshProof bool, ask func(*state.State) error) (err error) {
	renewed := false
	for began := time.Now(); ; {
		proven := false
		l.withState(func(s *state.State) {
			if leaseErr := l.leaseError(); s.MayGrant() && leaseErr != nil {
				err = leaseErr
			} else {
				err = ask(s)
			}
			proven = renewed || time.Since(l.provenAt) < leadershipProof && !freshProof
		})
		if err == state.ErrBehind && time.Since(began) < informerWait && l.awaitInformers(ctx) {
			continue
		}
		cannotServe := (*NotServingError)(nil)
		if errors.As(err, &cannotServe) && cannotServe.JournalFull {
			l.reportFull(cannotServe)
		}
		if err == nil || proven || cannotServe != nil {
			return err
		}
		if err := l.ProveLeads(ctx); err != nil {
			return err
		}
		renewed = true // a proof, even if the commit took longer than leadershipProof: the next round checks leaseError again
	}
}

// awaitInformers waits 5 ms for informers. It returns false if ctx ended or if
// maxInformerWaits calls are waiting.
func (l *Ledger) awaitInformers(ctx context.Context) bool {
	select {
	case l.informerWaits <- struct{}{}:
		defer func() { <-l.informerWaits }()
		return journal.Pause(ctx, 5*time.Millisecond) == nil
	default:
		return false
	}
}

// ProveLeads returns nil if this replica led when the call began, after a commit that
// began later. Before the call the replica has observed the claims of all grants of
// earlier leaders; the grants of later leaders began after the call. A replica that was
// suspended, and does not know its successor yet, returns an error. Error:
// *NotServingError, or the error of ctx.
func (l *Ledger) ProveLeads(ctx context.Context) (err error) {
	committed := make(chan error, 1)
	l.withState(func(s *state.State) { err = s.NotifyOfNextCommit(committed) })
	if err != nil {
		return err
	}
	return l.awaitOutcome(ctx, committed, func() {})
}

// MayGrant reports whether this replica may grant: it leads and has caught up.
func (l *Ledger) MayGrant() (ok bool) {
	l.withState(func(s *state.State) { ok = s.MayGrant() })
	return ok
}

// Term returns when this replica began to grant in its current term; no two terms of one
// replica begin at the same time. The error, a *NotServingError, is set if this replica
// does not lead, or if another replica may lead by now.
func (l *Ledger) Term() (began time.Time, err error) {
	l.withState(func(s *state.State) {
		if began, err = s.GrantingSince(), l.leaseError(); !s.MayGrant() {
			err = state.ErrNotLeader
		}
	})
	return began, err
}

// CheckLeads returns nil if this replica may grant and its last proof of leadership is
// younger than the journal's expiry: no other replica has taken over by expiry. After a
// faster take-over (package journal) the next commit fails. Errors: *NotServingError.
func (l *Ledger) CheckLeads() error {
	_, err := l.Term()
	return err
}

// HasCurrentProof reports whether CheckLeads returns nil. A replica with MayGrant and
// without HasCurrentProof does not know whether it still leads.
func (l *Ledger) HasCurrentProof() bool {
	return l.CheckLeads() == nil
}
