package ledger

import (
	"context"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// maxUnproven bounds the standby grants that leave before they are proven, so that few
// creates wait in their validating calls at a time. The API server repeats a failed
// mutating call, which has two webhook entries, but not a validating call: if the leader
// is killed, the waiting creates fail. With more creates than that, the wait for the
// proof costs them little.
const maxUnproven = 4

// Grant allocates ranges for a claim and returns when the journal contains the ranges. If
// ctx ends first, no range is granted. Without a later CheckGrant, the claim of a standby
// grant counts as stored without admission: this replica may have been replaced before
// the call. Errors: *NoPoolError, *PoolDeletingError, *PoolPausedError, *FaultyPoolError,
// *NotAutomaticError, *FamilyError, *PoolError (wraps an error of package allocator),
// *OwnedError, *NotServingError.
func (l *Ledger) Grant(ctx context.Context, q Request) (Grant, error) {
	var granted *state.OpenGrant
	outcome, waits := make(chan error, 1), false // of the commit or the proof that the response waits for
	err := l.withLeadership(ctx, false, func(s *state.State) (err error) {
		if granted, err = s.Grant(l.now(), q); err != nil {
			return err
		}
		switch {
		case granted.AwaitsCommit():
			waits = true
			granted.NotifyCommit(outcome)
		case granted.AwaitsProof() && s.Pending().Proofs > maxUnproven:
			waits = true
			s.NotifyProven(granted.Token, outcome)
		}
		return nil
	})
	if err == nil && waits {
		err = l.awaitGrant(ctx, granted, outcome)
	}
	if err != nil {
		return Grant{}, err
	}
	l.cfg.Metrics.countGranted(q.Pool)
	return Grant{Ranges: granted.Ranges, RoutingDomain: granted.RoutingDomain, Token: granted.Token}, nil
}

// awaitGrant waits for the outcome of the commit or the proof of a grant. If ctx ends
// first, or another replica may lead by now, it withdraws the grant and returns an error.
func (l *Ledger) awaitGrant(ctx context.Context, g *state.OpenGrant, outcome <-chan error) error {
	return l.awaitOutcome(ctx, outcome, func() { l.withState(func(s *state.State) { s.WithdrawGrant(g) }) })
}

// RememberAnswer keeps the answer of an admission call with the open grant that has this
// token, until the grant ends. The ledger does not read the answer.
func (l *Ledger) RememberAnswer(t journal.Token, answer any) {
	l.withState(func(s *state.State) { s.SetAnswer(t, answer) })
}

// Answer returns the answer of an open grant; nil for a token without an open grant, or
// without an answer in this process.
func (l *Ledger) Answer(t journal.Token) (answer any) {
	l.withState(func(s *state.State) { answer = s.Answer(t) })
	return answer
}

// Withdraw ends the open grant with this token. The caller must not have sent the
// response that contains the token.
func (l *Ledger) Withdraw(t journal.Token) {
	l.withState(func(s *state.State) { s.WithdrawToken(t) })
}

// Preview returns the result that Grant would return, without a token, and reserves
// nothing. Errors as with Grant.
func (l *Ledger) Preview(ctx context.Context, q Request) (g Grant, err error) {
	err = l.withLeadership(ctx, false, func(s *state.State) (err error) {
		g, err = s.Preview(q)
		return err
	})
	return g, err
}

// CheckGrant returns nil if each range of the claim c, which is about to be stored, is
// owned by the stored claim already, or is in the open grant with the token of c, through
// the pool of c, and this replica is proven to have led after the grant was requested.
// uid and version identify the stored claim that is overwritten; a create has "" and 0.
// Errors: ErrForged (ErrNoGrant wraps ErrForged), *NotServingError.
func (l *Ledger) CheckGrant(ctx context.Context, c Claim, uid string, version uint64) error {
	proven, awaitsProof := make(chan error, 1), false
	err := l.withLeadership(ctx, true, func(s *state.State) error {
		err := s.CheckGrant(c, uid, version)
		if awaitsProof = err == state.ErrUnproven; awaitsProof {
			s.NotifyProven(c.Token, proven)
			return nil
		}
		return err
	})
	if err == nil && awaitsProof {
		return l.awaitOutcome(ctx, proven, func() {})
	}
	return err
}
