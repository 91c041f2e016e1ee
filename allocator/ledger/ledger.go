package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// DefaultGrantLife is how long a grant stays open after its last answer when no claim with its token is seen. The API server gives
// a create up 34 s after the answer at the latest.
const DefaultGrantLife = 120 * time.Second

// Source is where the ledger learns of stored objects. A kind that the API server does not serve has none: its CRD is missing, or was deleted with
// all of them.
type Source interface {
	// Reading is how the local copy of a kind that the ledger counts stands with the API server.
	Reading(kind string) Reading
	// Stored reports, from a consistent read, whether an object is stored of a kind that the ledger does not count.
	Stored(ctx context.Context, kind string) (bool, error)
	// Seen gives the resourceVersion up to which the local copy of a kind is complete.
	Seen(kind string) uint64
	// Refresh feeds all objects of a kind into the ledger (ReplaceClaims or ReplacePools): the local copy, or, with live, a consistent
	// read of the API server, and the local copy once that has caught up with it.
	Refresh(ctx context.Context, kind string, live bool) error
	// Scan reads all claims of a kind in one namespace from the API server, consistently.
	Scan(ctx context.Context, kind, namespace string, visit func(Claim)) error
	// Read reads one claim from the API server, consistently.
	Read(ctx context.Context, k Key) (c Claim, there bool, err error)
	// Touch gives the version of the claim with this UID, or of a pool, that is stored once no older write to it can land any more: it writes to
	// what may be written to for longer than a grant lives. It is 0 where there is none.
	Touch(ctx context.Context, k Key, uid string) (resourceVersion uint64, err error)
	// Records reads all that is recorded of ranges that went to other clusters, consistently.
	Records(ctx context.Context) ([]Record, error)
	// Any reports, from a consistent read, whether a pool or a claim of any kind is stored. Of kinds that it is denied to read some may be.
	Any(ctx context.Context) (bool, error)
}

// Reading is how a local copy stands with the API server: it follows it where both fields are zero.
type Reading struct {
	// Denied is why the API server refuses to show objects of the kind: the right to read them is missing. The copy stays as it was.
	Denied error
	// Absent: the API server does not serve the kind.
	Absent bool
}

// Config of a Ledger.
type Config struct {
	Store    journal.Store
	Identity string // of this process, unique among all that ever ran
	// ClaimKinds and PoolKinds are those that the ledger counts. Objects of Unserved among them own their addresses as all others do, but their API is
	// switched off: nothing writes to them, and nothing is granted to new ones.
	ClaimKinds []string
	PoolKinds  []string
	Unserved   []string
	GrantLife  time.Duration // DefaultGrantLife where zero
	Timing     journal.Timing
	Metrics    *Metrics
	Log        logr.Logger
	// Now is the clock, time.Now where nil. Every span is measured by its monotonic reading. Its wall clock only counts for the times of
	// cooldowns that pools record, see Skew.
	Now func() time.Time
	// Skew is by how much the clock that the recorded times are of is ahead of Now's wall clock; zero where nil. A record whose author had
	// another clock is bounded all the same: a cooldown ends within the pool's ReuseDelay.
	Skew func() time.Duration
	// Changed is told which claims and pools may stand differently now. It is called without locks and must not block.
	Changed func([]Key)
}

// Limits of the journal in bytes: of its lines in all, with room for what else it says, and of those of one namespace.
const (
	maxBytes = journal.MaxEncoded - 4000
	maxShare = maxBytes / 4
)

// Pace of commits.
const (
	renewAfter   = time.Second           // the holder writes as often even when nothing happens
	confirmAfter = 20 * time.Millisecond // what only confirms waits so long for a grant to share its commit
	sweepEvery   = time.Second           // how often ended grants and rests are looked for
	touchLimit   = 10 * time.Second      // for the writes of one such look
	touchAgain   = time.Second           // after a write that failed; twice as long after each further one
	touchLongest = 30 * time.Second      // at most
	readLimit    = 16                    // claims of a kind in one namespace that are read one by one in one such look
	scanEvery    = 10 * time.Second      // how often the claims of a kind in one namespace are listed at most
	scanShare    = 20                    // and for a twentieth of the time
	revisitEvery = 50 * time.Millisecond // after a take-over, this and
	revisitBatch = 250                   // so many objects at a time, everything is looked at
	catchUpLimit = 10 * time.Second      // after which the API server is asked for what the informers do not deliver
	stopLimit    = 3 * time.Second       // for the last commit of a process that stops
	unreadyAfter = 10 * time.Second      // of a journal that nobody holds, or that cannot be read
	tellEvery    = 10 * time.Second      // how often the log says the same of why nobody is served
	remindEvery  = 10 * time.Minute      // how often it repeats what needs attention while all is served
)

// Ledger answers for who holds which address. See the package comment for what it promises.
type Ledger struct {
	cfg     Config
	session *journal.Session
	wake    chan struct{}
	behind  chan struct{} // calls that wait for informers
	started time.Time     // with its monotonic reading

	mu      sync.Mutex
	book    *book
	drifted time.Time     // when the clock of recorded times last was where book has it
	holder  string        // of the journal, as last read
	refused error         // why the journal cannot be followed, or taken over
	able    bool          // this replica could take part in serving at some time
	unable  time.Time     // since when it cannot; zero where it can
	moved   chan struct{} // closed when the holder changes
	proven  time.Time     // begin of the last write by which this replica is known to have held the journal
	read    time.Time     // when the journal was last read, while another holds it
	version string        // that was read then
	written time.Time     // when that was first read
	// recordsDenied is since when the right to read the records of moved ranges is missing; zero where it is not.
	recordsDenied time.Time
	broken        error   // why the journal could last not be written; nil when it was since
	claimed       claimed // what the journal says of kinds that this replica cannot read

	told map[string]told // message -> when it was last told
}

// New makes a ledger that serves once Run has taken the journal over.
func New(cfg Config) *Ledger {
	if cfg.GrantLife <= 0 {
		cfg.GrantLife = DefaultGrantLife
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Skew == nil {
		cfg.Skew = func() time.Duration { return 0 }
	}
	if cfg.Changed == nil {
		cfg.Changed = func([]Key) {}
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	l := &Ledger{cfg: cfg, wake: make(chan struct{}, 1), behind: make(chan struct{}, behindCalls), started: cfg.Now(), moved: make(chan struct{}), told: map[string]told{}, claimed: claimed{}}
	served := slices.DeleteFunc(l.kinds(), func(kind string) bool { return slices.Contains(cfg.Unserved, kind) })
	l.session = journal.NewSession(cfg.Store, cfg.Identity, served, cfg.Timing)
	l.session.Unwritten = l.unwritten
	l.book = newBook(l.kinds(), limits{life: cfg.GrantLife, bytes: maxBytes, share: maxShare}, randomToken)
	for _, kind := range cfg.Unserved {
		l.book.unserved[kind] = true
	}
	return l
}

// own is a time by this process's own clock: it starts at the time of the wall clock and advances as the monotonic clock does, whoever sets the
// wall clock. The book knows no other.
func (l *Ledger) own(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return l.started.Add(t.Sub(l.started)).Round(0)
}

// The clock of recorded times counts as moved against this process's own when it has been off by recordsMoved for recordsSettled. Every record is
// written anew then. Less is the work of a clock that is kept right, of one that is being set, or of API servers whose clocks differ.
const (
	recordsMoved   = 2 * time.Second
	recordsSettled = 10 * time.Second
)

// now reads this process's own clock, and has the book know how far the clock of recorded times is ahead of it. The caller holds mu.
func (l *Ledger) now() time.Time {
	read := l.cfg.Now()
	now := l.own(read)
	switch ahead := read.Round(0).Add(l.cfg.Skew()).Sub(now); {
	case (ahead - l.book.recordsAhead).Abs() <= recordsMoved:
		l.drifted = now
	case l.drifted.IsZero() || now.Sub(l.drifted) >= recordsSettled: // as at the first reading
		l.drifted, l.book.recordsAhead = now, ahead
	}
	return now
}

func randomToken() journal.Token {
	var t journal.Token
	_, _ = rand.Read(t[:]) // never fails: crypto/rand ends the process instead
	return t
}

// do runs f on the book, wakes the committer if there is something to commit, and tells the reconcilers what changed.
func (l *Ledger) do(f func(*book)) {
	due, changed := l.locked(f)
	if due {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
	if len(changed) > 0 {
		l.cfg.Changed(changed)
	}
}

// locked runs f on the book, and says whether there is something to commit then, and what has changed. A panic ends the process, whoever recovers from
// panics above: nobody knows what a book says that was left halfway, and addresses are given by it.
func (l *Ledger) locked(f func(*book)) (due bool, changed []Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if fault := recover(); fault != nil {
			text := fmt.Sprintf("the book of who holds which address is left halfway: %v\n%s", fault, debug.Stack())
			go panic(text) // where nobody recovers
			select {}
		}
	}()
	queued, wanted, asked := l.book.queued, l.book.wanted, len(l.book.asked)
	f(l.book)
	due = l.book.queued > queued || l.book.wanted && !wanted || len(l.book.asked) > asked
	if len(l.book.changed) > 0 {
		changed = make([]Key, 0, len(l.book.changed))
		for k := range l.book.changed {
			changed = append(changed, k)
		}
		clear(l.book.changed)
	}
	return due, changed
}

// Grant gives a claim its ranges and returns once the journal holds them. Errors: *NoPoolError, *PoolDeletingError, *FaultyPoolError, *NotAutomaticError,
// *FamilyError, *PoolError (with allocator's errors inside), *HeldError, *NotServingError. When ctx ends first nothing is given.
func (l *Ledger) Grant(ctx context.Context, q Request) (Grant, error) {
	var ln *line
	done := make(chan error, 1)
	err := l.sure(ctx, false, func(b *book) (err error) {
		if ln, err = b.grant(l.now(), q); err == nil {
			ln.done = done
		}
		return err
	})
	if err == nil && len(ln.Ranges) > 0 {
		err = l.committed(ctx, ln, done)
	}
	if err != nil {
		return Grant{}, err
	}
	l.cfg.Metrics.granted(q.Pool)
	return Grant{Ranges: ln.Ranges, Space: ln.Space, Token: ln.Token}, nil
}

// CountRefused counts a request whose refusal stands: some are asked about once more first.
func (l *Ledger) CountRefused(pool Key, err error) { l.cfg.Metrics.refused(pool, err) }

// committed waits until done says that the journal holds a line.
func (l *Ledger) committed(ctx context.Context, ln *line, done <-chan error) error {
	return l.outcome(ctx, done, func() { l.do(func(b *book) { b.withdraw(ln) }) })
}

// outcome is what done says of a commit. Where it is not waited for any longer, forgo is called.
func (l *Ledger) outcome(ctx context.Context, done <-chan error, forgo func()) error {
	for {
		l.mu.Lock()
		err, sure := l.doubt(), time.NewTimer(time.Until(l.proven.Add(l.session.Expiry())))
		l.mu.Unlock()
		if err == nil {
			select {
			case err := <-done:
				sure.Stop()
				return err
			case <-sure.C:
				continue
			case <-ctx.Done():
				err = &NotServingError{Reason: "the journal could not be written in time"}
			}
		}
		sure.Stop()
		forgo()
		return err
	}
}

// doubt says that another may have taken the journal which this replica holds as far as it knows: nobody could see it written for so long.
// Who asks is better off with another replica. The caller holds mu.
func (l *Ledger) doubt() error {
	if time.Since(l.proven) < l.session.Expiry() {
		return nil
	}
	return &NotServingError{
		Reason: fmt.Sprintf("the journal could not be written for %s: another replica may have taken it over", l.session.Expiry()), RetryAfter: time.Second,
	}
}

// Withdraw ends a grant whose answer is known never to have left.
func (l *Ledger) Withdraw(t journal.Token) {
	l.do(func(b *book) {
		if ln := b.lines[t]; ln != nil && ln.state == open {
			b.withdraw(ln)
		}
	})
}

// Preview says what Grant would give, and reserves nothing. Errors as with Grant.
func (l *Ledger) Preview(ctx context.Context, q Request) (g Grant, err error) {
	err = l.sure(ctx, false, func(b *book) (err error) {
		g, err = b.preview(q)
		return err
	})
	return g, err
}

// sureFor is how long after its begin a write proves that its writer still holds the journal, as far as a refusal goes: the holder
// writes more often than that, and nobody takes the journal of one that was silent for no longer.
const sureFor = 2 * renewAfter

// behindLimit is for how long informers are waited for that are behind a claim as it is stored.
const behindLimit = 2 * time.Second

// behindCalls is how many calls wait for informers at a time.
const behindCalls = 128

// sure asks the book, and where it refuses sees to it that the journal is still this replica's: one that was paused may go by what has
// changed since, and would refuse what another gives. With always, no earlier write proves that.
//
// Informers may be behind what is asked about. They are waited for.
func (l *Ledger) sure(ctx context.Context, always bool, ask func(*book) error) (err error) {
	for began := time.Now(); ; {
		proven := false
		l.do(func(b *book) {
			if doubt := l.doubt(); b.serving && doubt != nil {
				err = doubt
			} else {
				err = ask(b)
			}
			proven = time.Since(l.proven) < sureFor && !always
		})
		if err == errBehind && time.Since(began) < behindLimit && l.awaitInformers(ctx) {
			continue
		}
		down := (*NotServingError)(nil)
		if err == nil || proven || errors.As(err, &down) {
			return err
		}
		if err := l.prove(ctx); err != nil {
			return err
		}
		always = false
	}
}

// awaitInformers waits a moment for informers that are behind, and reports false where as many calls as may wait for them do: a call can make up the version
// of which it says that it is stored.
func (l *Ledger) awaitInformers(ctx context.Context) bool {
	select {
	case l.behind <- struct{}{}:
		defer func() { <-l.behind }()
		return journal.Pause(ctx, 5*time.Millisecond) == nil
	default:
		return false
	}
}

// prove waits for a commit that begins now.
func (l *Ledger) prove(ctx context.Context) (err error) {
	done := make(chan error, 1)
	l.do(func(b *book) { err = b.ask(done) })
	if err != nil {
		return err
	}
	return l.outcome(ctx, done, func() {})
}

// Granted reports whether a claim that is about to be stored carries ranges and token of a grant made for it: nil, ErrForged (ErrNoGrant among
// them) or *NotServingError. The UID is that of a stored claim, and version the one of it that is written over: "" and 0 for a create.
func (l *Ledger) Granted(ctx context.Context, k Key, uid string, version uint64, ranges []allocator.Range, t journal.Token) error {
	return l.sure(ctx, true, func(b *book) error { return b.granted(k, uid, version, ranges, t) })
}

// Owns reports whether the stored claim with this UID, as it is in a version, owns all that it names. Errors: *NotServingError.
func (l *Ledger) Owns(ctx context.Context, uid string, version uint64) (yes bool, err error) {
	err = l.sure(ctx, true, func(b *book) (err error) {
		yes, err = b.owns(uid, version)
		return err
	})
	return yes, err
}

// ChangePool checks a new version of a pool, and holds back what it takes away until the version is seen. With dryRun it only
// checks. Errors: *InUseError, *NotServingError.
func (l *Ledger) ChangePool(ctx context.Context, p Pool, dryRun bool) error {
	var ln *line
	done := make(chan error, 1)
	err := l.sure(ctx, false, func(b *book) (err error) {
		if ln, err = b.change(p); ln == nil {
			return err
		}
		if dryRun {
			b.withdraw(ln)
			ln = nil
			return err
		}
		ln.done = done
		return err
	})
	if err != nil || ln == nil {
		return err
	}
	return l.committed(ctx, ln, done)
}

// Standing of the claim with this UID. Where another may have taken the journal meanwhile, and think otherwise of the claim, the next commit confirms it.
func (l *Ledger) Standing(uid string) (st Standing) {
	l.do(func(b *book) {
		if st = b.standing(uid); st.Confirmed && l.doubt() != nil {
			b.rebind(b.claims[uid].holding)
			st.Confirmed = false
		}
	})
	return st
}

// Landing says for how long an object that was made for the claim with this UID may still turn up, where nobody knows whether it was stored: one
// made by this replica at the time sent, zero where it made none, or by the journal's holder before it.
func (l *Ledger) Landing(uid string, sent time.Time) (wait time.Duration) {
	l.do(func(b *book) { wait = b.landing(l.now(), uid, l.own(sent)) })
	return wait
}

// Serving reports whether this replica may grant: it holds the journal and has caught up.
func (l *Ledger) Serving() (ok bool) {
	l.do(func(b *book) { ok = b.serving })
	return ok
}

// Term is when this replica began to grant, in the term that it holds the journal for now: no two terms of a replica begin at one time. The error, a
// *NotServingError, says why it may not grant, or why it is not sure that nobody has taken the journal from it.
func (l *Ledger) Term() (began time.Time, err error) {
	l.do(func(b *book) {
		if began, err = b.served, l.doubt(); !b.serving {
			err = errNotHolding
		}
	})
	return began, err
}

// Answers reports whether this replica may grant and is sure of it: nobody can have taken the journal from it.
func (l *Ledger) Answers() bool {
	_, err := l.Term()
	return err == nil
}

// HeldBy gives the identity of the replica that holds the journal, as last read, and a channel that is closed when another does. It is
// "" where nobody holds it, and this replica's own from its fence on.
func (l *Ledger) HeldBy() (holder string, moved <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.holder, l.moved
}

// Sighted says, of a journal that another holds, when it was last read and when it was last seen to be written.
func (l *Ledger) Sighted() (read, written time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.read, l.written
}

// Expiry is for how long the journal may stay as it is before another takes it over.
func (l *Ledger) Expiry() time.Duration { return l.session.Expiry() }

// Hurry has the journal read now: a call waits for somebody to hold it.
func (l *Ledger) Hurry() { l.session.Hurry() }

// Refused says that nobody listens at a holder's address: the journal is taken over at once where that is still its holder.
func (l *Ledger) Refused(holder string) { l.session.Refused(holder) }

// Ready reports why this replica cannot take part in serving, nil where it can: for a readiness probe. One that follows another can: it passes on
// what it cannot answer. And so can, for a while, one that has lost sight of a holder: the others mostly have as well, and if all of them
// were taken out of the Service, the calls that would wait here, or be sent back to come again, would find nobody.
func (l *Ledger) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.book.serving:
		if doubt := l.doubt(); doubt != nil && l.broken != nil {
			return fmt.Errorf("%w: %w", doubt, l.broken)
		}
		return l.doubt()
	case l.able && (l.unable.IsZero() || time.Since(l.unable) < unreadyAfter):
		return nil
	case l.refused != nil:
		return l.refused
	default:
		return errors.New("nobody holds the journal yet")
	}
}
