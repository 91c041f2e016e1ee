package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

const (
	takeOverRetry = 200 * time.Millisecond // pause after a failed attempt to lead
	unreadyAfter  = 10 * time.Second       // a replica without a leader or a readable journal stays ready this long
	catchUpLimit  = 10 * time.Second       // limit of the wait for informers; then the API server is read
	requeueEvery  = 50 * time.Millisecond  // after a take-over all claims and pools are reconciled:
	requeueBatch  = 250                    // this many each time
	logEvery      = 10 * time.Second       // between two logs of one message about a failure
	remindEvery   = 10 * time.Minute       // between two logs of one warning while this replica serves
)

// Run follows the journal, takes it over when no replica leads, and commits until
// leadership is lost or ctx ends. Objects must be observed (ObserveClaim, ObservePool)
// before and while Run runs. When ctx ends, Run hands the journal over. The only error is
// journal.ErrEtcdRestored: all observed objects and this ledger are void then.
func (l *Ledger) Run(ctx context.Context, source Source) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.checkReadAccess(source)
	go l.tickEverySecond(ctx, source)
	for ctx.Err() == nil {
		why, err := l.session.Follow(ctx, func(v journal.Revision, err error) {
			l.recordRead(v, err)
			if err == nil {
				l.updateUnreadable(source, v.Snapshot)
			}
		})
		if err == nil {
			err = l.leadTerm(ctx, source, why)
		}
		switch {
		case errors.Is(err, journal.ErrEtcdRestored):
			return err
		case err != nil && ctx.Err() == nil:
			if message, why := "Not leading", err.Error(); l.shouldLog(message, why) {
				l.cfg.Log.Info(message, "reason", why)
			}
			l.setLeader(l.session.Current().Leader, err)
			_ = journal.Pause(ctx, takeOverRetry) // the loop checks ctx itself
		}
	}
	return nil
}

// recordRead records a read of the journal while another replica leads.
func (l *Ledger) recordRead(v journal.Revision, err error) {
	if err != nil {
		l.logErrorLimited(err, "Reading the journal failed; retrying")
		v.Leader, _ = l.Leader() // keep the last known leader
	}
	l.setLeader(v.Leader, err)
	l.recordObserved(v, err)
	if err == nil {
		l.withState(func(s *state.State) { s.RecordRevision(l.now(), v) })
	}
}

// recordWriteError records why the journal cannot be written. A cause such as a missing
// right may last. A replica that is taking over cannot serve meanwhile.
func (l *Ledger) recordWriteError(err error) {
	l.logErrorLimited(err, "Writing the journal failed; retrying")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writeError = err
	if !l.state.MayGrant() {
		l.setUnable(err)
	}
}

// logErrorLimited logs an error at most once per logEvery and message: the cause may
// last, and every waiting call triggers another attempt.
func (l *Ledger) logErrorLimited(err error, message string) {
	if l.shouldLog(message, "") {
		l.cfg.Log.Error(err, message)
	}
}

// shouldLog reports whether a message with these details is due, and records the message
// as logged.
func (l *Ledger) shouldLog(message, details string) bool {
	return l.shouldLogWithin(message, details, logEvery)
}

// shouldLogWithin reports whether a message is due: its details changed, or the period
// has passed since its last log. It records a due message as logged.
func (l *Ledger) shouldLogWithin(message, details string, period time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.logged[message]
	if last.details == details && time.Since(last.at) < period {
		return false
	}
	l.logged[message] = loggedMessage{time.Now(), details}
	return true
}

// loggedMessage is the last log of a message: the time and the details.
type loggedMessage struct {
	at      time.Time
	details string
}

// recordObserved records when the journal was read, and when it was first read in its
// current version.
func (l *Ledger) recordObserved(v journal.Revision, err error) {
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.journalReadAt = time.Now()
	if v.ResourceVersion != l.journalVersion {
		l.journalVersion, l.journalVersionReadAt = v.ResourceVersion, l.journalReadAt
	}
}

// setLeader records the leader, and whether this replica can answer or forward calls.
func (l *Ledger) setLeader(leader string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if leader != l.leader {
		close(l.leaderChanged)
		l.leaderChanged = make(chan struct{})
	}
	l.leader = leader
	if err == nil && leader != "" && (leader != l.cfg.Identity || l.state.MayGrant()) {
		l.wasAble, l.unableSince, l.notLeadingReason = true, time.Time{}, nil
	} else {
		l.setUnable(err)
	}
}

// setUnable records why this replica can neither answer nor forward calls. The caller
// holds mu.
func (l *Ledger) setUnable(err error) {
	l.notLeadingReason = err
	if l.unableSince.IsZero() {
		l.unableSince = time.Now()
	}
}

// leadTerm leads for one term: it takes the journal over, catches up, and commits until
// leadership is lost or ctx ends. why is logged.
func (l *Ledger) leadTerm(ctx context.Context, source Source, why string) error {
	started := time.Now()
	before := l.session.Current()
	if err := l.checkMayLead(ctx, source, before.Snapshot); err != nil {
		return err
	}
	if err := l.checkRecordsReadable(ctx, source); err != nil {
		return err
	}
	lost := before.ResourceVersion == ""
	if lost {
		var err error
		if lost, err = source.AnyStored(ctx); err != nil {
			return fmt.Errorf("looking for pools and claims: %w", err)
		}
	}
	takeOverBegan := time.Now()
	if err := l.session.TakeOver(ctx, lost); err != nil {
		return err
	}
	l.withState(func(*state.State) { l.provenAt = takeOverBegan })
	v := l.session.Current()
	if v.Quarantine {
		l.cfg.Log.Info("The journal is new although pools or claims are stored: further addresses are allocated when every grant that an earlier journal may have contained has expired", "wait", l.cfg.GrantLife.String())
	}
	l.withState(func(s *state.State) { s.TakeOver(v) })
	defer l.withState(func(s *state.State) { s.StepDown() })
	defer l.cfg.Metrics.setLeading(false)
	if err := l.renewWhile(ctx, func(ctx context.Context) error { return l.catchUp(ctx, source, before) }); err != nil {
		return err
	}
	l.checkReadAccess(source)
	p := &proofs{term: v.Term, notBefore: l.session.Current().ResourceVersion, wake: make(chan struct{}, 1)}
	l.withState(func(s *state.State) {
		s.Tick(l.now())
		s.StartGranting(l.now())
		s.RecordRevision(l.now(), v)
		l.proofs = p
	})
	l.setLeader(v.Leader, nil)
	l.cfg.Metrics.setLeading(true)
	if l.cfg.Leading != nil {
		l.cfg.Leading(before.Applied)
	}
	l.cfg.Log.Info("Leading", "term", v.Term, "why", why, "inheritedGrants", len(v.Entries), "took", time.Since(started).String())

	term, stop := context.WithCancel(ctx)
	proofsEnded := make(chan struct{})
	go func() {
		l.proveUntilDone(term, p)
		close(proofsEnded)
	}()
	defer func() {
		stop()
		<-proofsEnded
	}()
	go l.expireEverySecond(term, source)
	go l.requeueAll(term)
	return l.commitUntilDone(ctx)
}

// countedResources lists the resources that this replica counts.
func (l *Ledger) countedResources() []string {
	return slices.Concat(l.cfg.ClaimResources, l.cfg.PoolResources)
}

// requeueAll reports all claims and pools as changed, since the reconcilers of a follower
// do nothing. requeueAll works in batches, because creates need the processor meanwhile.
// StartGranting and the first commit have already reported the objects that a client may
// wait for.
func (l *Ledger) requeueAll(ctx context.Context) {
	for l.ProveLeads(ctx) != nil { // nothing is confirmed before the first commit
		if journal.Pause(ctx, requeueEvery) != nil {
			return
		}
	}
	var all []Key
	l.withState(func(s *state.State) { all = s.AllKeys() })
	for batch := range slices.Chunk(all, requeueBatch) {
		l.cfg.Changed(batch)
		if journal.Pause(ctx, requeueEvery) != nil {
			return
		}
	}
}

// renewWhile writes the journal of the take-over again every renewAfter until the work is
// done. The work may take longer than the journal's expiry, and another replica that took
// the journal over meanwhile would have to do the work again.
func (l *Ledger) renewWhile(ctx context.Context, work func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() { done <- work(ctx) }()
	due := time.NewTicker(renewAfter)
	defer due.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-due.C:
			began := time.Now()
			err := l.session.Commit(ctx, l.session.Current().Snapshot)
			if err == nil {
				l.withState(func(*state.State) { l.provenAt = began })
				continue
			}
			stop()
			<-done //nolint:errcheck // the end of the term is the error; the work writes to the state and must have ended
			return err
		}
	}
}

// catchUp waits until this replica has observed all events that the previous leader had
// observed. Only then has it observed the object of every grant that has left the
// journal. A single newer object proves nothing, because lists are delivered in no order.
// Resources that the previous leader did not count, or of which the previous leader had
// observed nothing, are read from the API server.
func (l *Ledger) catchUp(ctx context.Context, source Source, before journal.Revision) error {
	started := time.Now()
	for _, resource := range l.countedResources() {
		rv := before.Applied[resource]
		access := source.ReadAccess(resource)
		for source.AppliedVersion(resource) < rv && access == (ReadAccess{}) && time.Since(started) <= catchUpLimit {
			if err := journal.Pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
			access = source.ReadAccess(resource)
		}
		caughtUp := source.AppliedVersion(resource) >= rv
		switch {
		case access.Denied != nil && !caughtUp && !l.unreadable.HasExpired(time.Now(), resource, rv, l.cfg.GrantLife):
			return fmt.Errorf("reading %s: %w", resource, access.Denied)
		case access.Denied != nil && !(caughtUp && rv > 0): // no read is possible: the denial has lasted for a grant life, or the journal lists no objects. This replica leads with the objects that it has observed
			continue
		}
		live := rv == 0 || !caughtUp
		if err := source.Refresh(ctx, resource, live); err != nil && (rv > 0 || source.ReadAccess(resource).Denied == nil) {
			return fmt.Errorf("reading %s: %w", resource, err)
		}
	}
	records, err := source.MovedRecords(ctx)
	if apierrors.IsForbidden(err) && l.recordsDeniedFor() >= l.cfg.GrantLife {
		l.cfg.Log.Error(err, "Moved ranges are known from the lists on their pools only: ranges that are not on a list may be allocated again")
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading the records of moved ranges: %w", err)
	}
	l.withState(func(s *state.State) {
		l.recordsDenied = time.Time{}
		s.SetMovedRecords(records)
	})
	return nil
}

// checkRecordsReadable returns why the records of moved ranges cannot be read. It reads
// them only within one grant life after a denied attempt to lead: without the check a
// further attempt would write to the journal and fail again.
func (l *Ledger) checkRecordsReadable(ctx context.Context, source Source) error {
	denied := false
	l.withState(func(*state.State) { denied = !l.recordsDenied.IsZero() })
	if !denied || l.recordsDeniedFor() >= l.cfg.GrantLife {
		return nil
	}
	_, err := source.MovedRecords(ctx)
	return err
}

// recordsDeniedFor returns for how long the right to read the records of moved ranges has
// been missing, counted from the first call.
func (l *Ledger) recordsDeniedFor() (d time.Duration) {
	l.withState(func(*state.State) {
		if l.recordsDenied.IsZero() {
			l.recordsDenied = time.Now()
		}
		d = time.Since(l.recordsDenied)
	})
	return d
}

// rereadMovedRecords reads the records of moved ranges again in two cases, and reports
// whether the second is done:
//
//   - A record has a fault, or the right to read the records was missing. The pools
//     allocate again soon after a person has corrected the cause. After a fault only the
//     faulty records are applied: this replica may just have written newer versions of
//     the others.
//   - afterEarlierWrites: writes of earlier leaders have ended. An earlier leader may
//     have written a record after this leader read the records. If this replica saved a
//     record during the read, the read may show an older record: nothing is applied, and
//     the next round reads again.
func (l *Ledger) rereadMovedRecords(ctx context.Context, source Source, afterEarlierWrites bool) (done bool) {
	var faulty map[string]error
	denied := false
	var changes uint64
	l.withState(func(s *state.State) {
		faulty, denied, changes = s.RecordFaults(), !l.recordsDenied.IsZero(), s.MovedRecordChanges()
	})
	if len(faulty) == 0 && !denied && !afterEarlierWrites {
		return false
	}
	all, err := source.MovedRecords(ctx)
	if err != nil {
		l.logErrorLimited(err, "Reading the records of moved ranges failed; retrying")
		return false
	}
	l.withState(func(s *state.State) {
		l.recordsDenied = time.Time{}
		done = afterEarlierWrites && s.MovedRecordChanges() == changes
		for _, r := range all {
			if _, again := faulty[r.UID]; again || denied || done {
				s.SetMovedRecord(r)
			}
			delete(faulty, r.UID)
		}
		for uid := range faulty { // a person deleted the record
			s.ClearRecordFault(uid)
		}
	})
	return done
}
