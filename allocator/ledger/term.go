package ledger

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"butlerlabs.dev/ipam/allocator/journal"
)

// Run follows the journal, takes it over when it is there for the taking, and commits until it is lost or ctx ends. Objects must be
// fed in (Observe, SetPool) before and while it runs. On its way out it hands the journal over. The only error is journal.ErrSetBack: what was
// fed in is void, and so is this ledger.
func (l *Ledger) Run(ctx context.Context, source Source) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	l.look(source)
	go l.tick(ctx, source)
	for ctx.Err() == nil {
		why, err := l.session.Follow(ctx, func(v journal.Version, err error) {
			l.followed(v, err)
			if err == nil {
				l.find(source, v.Record)
			}
		})
		if err == nil {
			err = l.term(ctx, source, why)
		}
		switch {
		case errors.Is(err, journal.ErrSetBack):
			return err
		case err != nil && ctx.Err() == nil:
			if message, why := "Journal is not held", err.Error(); l.isNews(message, why) {
				l.cfg.Log.Info(message, "reason", why)
			}
			l.note(l.session.Current().Holder, err)
			_ = journal.Pause(ctx, 200*time.Millisecond) // the loop looks at ctx itself
		}
	}
	return nil
}

// followed takes note of a read of the journal while another replica holds it.
func (l *Ledger) followed(v journal.Version, err error) {
	if err != nil {
		l.tell(err, "Journal cannot be read, and is tried again")
		v.Holder, _ = l.HeldBy() // who it was stays the best guess
	}
	l.note(v.Holder, err)
	l.sight(v, err)
}

// unwritten takes note of why the journal cannot be written: that may be so for good, as where a right is missing. Who is yet to take it over is not
// able to serve meanwhile.
func (l *Ledger) unwritten(err error) {
	l.tell(err, "Journal cannot be written, and is tried again")
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = err
	if !l.book.serving {
		l.refuse(err)
	}
}

// tell has the log say why nobody is served, now and then: it may be so for long, and calls that wait have it tried ever again.
func (l *Ledger) tell(err error, message string) {
	if l.isNews(message, "") {
		l.cfg.Log.Error(err, message)
	}
}

// isNews tells whether a message, with these words, is to be told, and takes it that it is.
func (l *Ledger) isNews(message, words string) bool { return l.isNewsWithin(message, words, tellEvery) }

func (l *Ledger) isNewsWithin(message, words string, period time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	last := l.told[message]
	if last.words == words && time.Since(last.at) < period {
		return false
	}
	l.told[message] = told{time.Now(), words}
	return true
}

// told is when the log last said something, and in which words.
type told struct {
	at    time.Time
	words string
}

// sight takes note of when the journal was read, and of when it was found written anew.
func (l *Ledger) sight(v journal.Version, err error) {
	if err != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.read = time.Now()
	if v.ResourceVersion != l.version {
		l.version, l.written = v.ResourceVersion, l.read
	}
}

func (l *Ledger) note(holder string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if holder != l.holder {
		close(l.moved)
		l.moved = make(chan struct{})
	}
	l.holder = holder
	if err == nil && holder != "" && (holder != l.cfg.Identity || l.book.serving) {
		l.able, l.unable, l.refused = true, time.Time{}, nil
	} else {
		l.refuse(err)
	}
}

// refuse takes note of why this replica cannot take part in serving. The caller holds mu.
func (l *Ledger) refuse(err error) {
	l.refused = err
	if l.unable.IsZero() {
		l.unable = time.Now()
	}
}

// term is one time of holding the journal, from the fence to its end.
func (l *Ledger) term(ctx context.Context, source Source, why string) error {
	started := time.Now()
	before := l.session.Current()
	if err := l.mayLead(ctx, source, before.Record); err != nil {
		return err
	}
	if err := l.recordsReadable(ctx, source); err != nil {
		return err
	}
	lost := before.ResourceVersion == ""
	if lost {
		var err error
		if lost, err = source.Any(ctx); err != nil {
			return fmt.Errorf("looking for pools and claims: %w", err)
		}
	}
	fenced := time.Now()
	if err := l.session.Fence(ctx, lost); err != nil {
		return err
	}
	l.do(func(*book) { l.proven = fenced })
	v := l.session.Current()
	if v.Quarantine {
		l.cfg.Log.Info("An earlier journal was lost although pools or claims exist: nothing is granted until every grant it may have held has ended", "wait", l.cfg.GrantLife.String())
	}
	l.do(func(b *book) { b.takeOver(v) })
	defer l.do(func(b *book) { b.stepDown() })
	defer l.cfg.Metrics.holding(false)
	if err := l.hold(ctx, func(ctx context.Context) error { return l.catchUp(ctx, source, before) }); err != nil {
		return err
	}
	l.look(source)
	l.do(func(b *book) {
		b.tick(l.now())
		b.serve(l.now())
	})
	l.note(v.Holder, nil)
	l.cfg.Metrics.holding(true)
	l.cfg.Log.Info("Holding the journal", "epoch", v.Epoch, "why", why, "inheritedGrants", len(v.Lines), "took", time.Since(started).String())

	beside, stop := context.WithCancel(ctx)
	defer stop()
	go l.sweep(beside, source)
	go l.revisit(beside)
	return l.commit(ctx)
}

// kinds are those that this replica counts.
func (l *Ledger) kinds() []string { return slices.Concat(l.cfg.ClaimKinds, l.cfg.PoolKinds) }

// revisit has the reconcilers look at everything, as they rest while another replica holds the journal: bit by bit, since nobody
// waits for it but creates want the machine. What somebody may wait for serve and the first commit bring up.
func (l *Ledger) revisit(ctx context.Context) {
	for l.prove(ctx) != nil { // until a commit, nothing is confirmed
		if journal.Pause(ctx, revisitEvery) != nil {
			return
		}
	}
	var all []Key
	l.do(func(b *book) { all = b.keys() })
	for some := range slices.Chunk(all, revisitBatch) {
		l.cfg.Changed(some)
		if journal.Pause(ctx, revisitEvery) != nil {
			return
		}
	}
}

// hold commits what was fenced once more, again and again until the work is done: it may take longer than a journal may stay as it is, and whoever
// took it over meanwhile would have the same work before them.
func (l *Ledger) hold(ctx context.Context, work func(context.Context) error) error {
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
			if err := l.session.Commit(ctx, l.session.Current().Record); err != nil {
				stop()
				<-done //nolint:errcheck // that the term is over is the error, and the work writes to the book
				return err
			}
		}
	}
}

// catchUp waits until this replica has what the last holder had, and applies it. A claim whose grant left the journal was seen by then, so it is known
// here before anything is granted; that newer ones are known would not say so, as a list comes in no order. What the last holder did not count, or had
// seen nothing of, is read: it may be stored all the same.
func (l *Ledger) catchUp(ctx context.Context, source Source, before journal.Version) error {
	started := time.Now()
	for _, kind := range l.kinds() {
		rv := before.Seen[kind]
		at := source.Reading(kind)
		for source.Seen(kind) < rv && at == (Reading{}) && time.Since(started) <= catchUpLimit {
			if err := journal.Pause(ctx, 5*time.Millisecond); err != nil {
				return err
			}
			at = source.Reading(kind)
		}
		known := source.Seen(kind) >= rv
		switch {
		case at.Denied != nil && !known && !l.claimed.outlived(time.Now(), kind, rv, l.cfg.GrantLife):
			return fmt.Errorf("reading %s: %w", kind, at.Denied)
		case at.Denied != nil && !(known && rv > 0): // what was seen of it stays
			continue
		}
		live := rv == 0 || !known
		if err := source.Refresh(ctx, kind, live); err != nil && (rv > 0 || source.Reading(kind).Denied == nil) {
			return fmt.Errorf("reading %s: %w", kind, err)
		}
	}
	records, err := source.Records(ctx)
	if apierrors.IsForbidden(err) && l.recordsDeniedFor() >= l.cfg.GrantLife {
		l.cfg.Log.Error(err, "Ranges in other clusters are known by the lists of their pools alone: those that have no room there may be given again")
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what is recorded of ranges in other clusters: %w", err)
	}
	l.do(func(b *book) {
		l.recordsDenied = time.Time{}
		b.takeRecords(records)
	})
	return nil
}

// recordsReadable returns why the records of moved ranges cannot be read, for the life of a grant, where the last attempt was denied: another attempt to lead
// would write to the journal and fail again.
func (l *Ledger) recordsReadable(ctx context.Context, source Source) error {
	denied := false
	l.do(func(*book) { denied = !l.recordsDenied.IsZero() })
	if !denied || l.recordsDeniedFor() >= l.cfg.GrantLife {
		return nil
	}
	_, err := source.Records(ctx)
	return err
}

// recordsDeniedFor is for how long the right to read the records of moved ranges has been missing: since the first call.
func (l *Ledger) recordsDeniedFor() (d time.Duration) {
	l.do(func(*book) {
		if l.recordsDenied.IsZero() {
			l.recordsDenied = time.Now()
		}
		d = time.Since(l.recordsDenied)
	})
	return d
}

// commit writes to the journal as there is need, one write at a time: everything that comes in during one write shares the next.
func (l *Ledger) commit(ctx context.Context) error {
	writes, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	defer context.AfterFunc(ctx, func() { time.AfterFunc(stopLimit, stop) })()
	for l.await(ctx) {
		if err := l.write(writes, l.session.Commit); err != nil {
			return err
		}
	}
	l.do(func(b *book) { b.stopping() })
	if err := l.write(writes, l.session.HandOver); err != nil {
		return err
	}
	l.cfg.Log.Info("Handed the journal over")
	return nil
}

// write makes one commit of all that wait for one.
func (l *Ledger) write(ctx context.Context, commit func(context.Context, journal.Record) error) error {
	var (
		batch int
		r     journal.Record
	)
	l.do(func(b *book) {
		batch = b.queued
		r = b.begin()
	})
	started := time.Now()
	if err := commit(ctx, r); err != nil {
		return err
	}
	l.cfg.Metrics.committed(time.Since(started), batch, len(r.Lines))
	l.do(func(b *book) {
		l.proven, l.broken = started, nil
		b.landed(l.now())
	})
	return nil
}

// await returns true when a commit is due: at once for grants, soon for what only confirms, and now and then to show that the
// holder lives. It returns false when ctx ends.
func (l *Ledger) await(ctx context.Context) bool {
	deadline := time.Now().Add(renewAfter)
	soon := false
	for {
		var queued, wanted bool
		l.do(func(b *book) { queued, wanted = b.queued > 0 || len(b.asked) > 0, b.wanted })
		if ctx.Err() != nil {
			return false
		}
		if queued {
			return true
		}
		if wanted && !soon {
			soon = true
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
