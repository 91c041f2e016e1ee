package ledger

import (
	"context"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

const (
	renewAfter   = time.Second           // the leader commits at least this often
	confirmAfter = 20 * time.Millisecond // a commit that only confirms owners waits this long, so that a grant can share it
	stopLimit    = 3 * time.Second       // for the last commit of a process that is stopping
)

// commitUntilDone writes due commits, one at a time, until leadership is lost or ctx
// ends: all grants that arrive during one write share the next write. When ctx ends, the
// last commit hands the journal over.
func (l *Ledger) commitUntilDone(ctx context.Context) error {
	writes, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopLimit, stop) })()
	for l.awaitCommitDue(ctx) {
		if err := l.commitOnce(writes, l.session.Commit); err != nil {
			return err
		}
	}
	l.withState(func(s *state.State) { s.StopGranting() })
	if err := l.commitOnce(writes, l.session.HandOver); err != nil {
		return err
	}
	l.cfg.Log.Info("Handed the journal over")
	return nil
}

// commitOnce writes one commit that contains all waiting grants.
func (l *Ledger) commitOnce(ctx context.Context, commit func(context.Context, journal.Snapshot) error) error {
	var (
		batch    int
		snapshot journal.Snapshot
	)
	l.withState(func(s *state.State) {
		batch = s.Pending().Grants
		snapshot = s.BeginCommit()
	})
	started := time.Now()
	if err := commit(ctx, snapshot); err != nil {
		return err
	}
	l.cfg.Metrics.observeCommit(time.Since(started), batch, snapshot.OpenGrants())
	l.withState(func(s *state.State) {
		l.provenAt, l.writeError = started, nil
		if l.proofs != nil {
			l.proofs.notBefore = l.session.Current().ResourceVersion
		}
		s.CommitLanded(l.now())
	})
	return nil
}

// awaitCommitDue returns true when a commit is due, and false when ctx ends. A commit is
// due
//
//	at once              for a grant, for a call of ProveLeads, or for what state.Pending.Commit lists
//	after confirmAfter   if it would confirm an owner that no read can confirm
//	after renewAfter     in any case, to keep leadership
func (l *Ledger) awaitCommitDue(ctx context.Context) bool {
	deadline := time.Now().Add(renewAfter)
	confirming := false
	for {
		var pending state.Pending
		l.withState(func(s *state.State) { pending = s.Pending() })
		if ctx.Err() != nil {
			return false
		}
		if pending.Grants > 0 || pending.Waiters > 0 || pending.Commit {
			return true
		}
		if pending.Confirm && !confirming {
			confirming = true
			deadline = time.Now().Add(confirmAfter)
		}
		t := time.NewTimer(time.Until(deadline))
		select {
		case <-ctx.Done():
		case <-l.wake:
		case <-t.C:
			return true
		}
		t.Stop()
	}
}
