package ledger

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/state"
)

// DefaultGrantLife is how long a grant stays open after its commit if no claim with its
// token is observed.
const DefaultGrantLife = state.DefaultGrantLife

// Config of a Ledger.
type Config struct {
	Store    journal.Store
	Identity string // of this process, unique among all processes that ever ran
	// ClaimResources and PoolResources are the resources that this ledger counts.
	// Unserved lists the counted resources whose API is switched off: stored objects own
	// their addresses, but the manager does not write to them, and new objects get no
	// grants.
	ClaimResources []string
	PoolResources  []string
	Unserved       []string
	// ClusterDomain is the routing domain of the cluster's network, in which addresses in
	// use are not allocated; nil if it is not configured (ClusterDomain).
	ClusterDomain *string
	GrantLife     time.Duration // 0 means DefaultGrantLife
	Timing        journal.Timing
	Metrics       *Metrics
	Log           logr.Logger
	// Now is the clock of the state (lives of grants, cooldowns); nil means time.Now.
	// Leadership and timeouts use time.Now. Durations are measured by the monotonic
	// reading of Now; its wall clock is used only for the times of cooldowns that pools
	// record, see Skew.
	Now func() time.Time
	// Skew returns by how much the clock of recorded times is ahead of Now's wall clock;
	// nil means 0. Recorded times are by the API server's clock, as this process
	// estimates it, so that replicas with different clocks agree. The effect of a record
	// by an author with a wrong clock is bounded: a cooldown ends within the pool's
	// ReuseDelay.
	Skew func() time.Duration
	// Leading is called, without locks, when this replica begins to lead, with the
	// versions of each resource up to which the previous leader had applied the events at
	// its last commit (journal.Snapshot.Applied). It may be nil.
	Leading func(applied map[string]uint64)
	// JournalFull is called, without locks, with a message for administrators when a
	// request was denied because the journal has no room for a further grant of its
	// namespace, at most once per ten seconds. The message names the namespaces that use
	// most of the journal. It may be nil.
	JournalFull func(message string)
	// Changed is called, without locks, with the claims and pools whose ownership or
	// usage may have changed. Changed must not block.
	Changed func([]Key)
}

// maxJournalBytes bounds the open grants in the journal, with room for the rest of the
// snapshot.
const maxJournalBytes = journal.MaxEncoded - 4000

// Bounds of the grants that the journal contains before a create requests them (package
// state, standby grants).
const (
	maxStandbyGrants = 64 // for the creates of one size from one pool
	standbyShare     = 16 // at most one in standbyShare of a pool's free addresses
	// standbyRoom: a pool with fewer free addresses has none. If the leader is killed,
	// the next one keeps their ranges for a grant life, as it cannot know which of them
	// were approved: a small pool could be full meanwhile.
	standbyRoom = 128
)

// Ledger decides which claim owns which address, and grants free ranges. The package
// documentation lists its guarantees.
type Ledger struct {
	cfg           Config
	session       *journal.Session
	wake          chan struct{} // a commit is due
	informerWaits chan struct{} // one element per call that waits for informers
	started       time.Time     // with its monotonic reading

	mu    sync.Mutex
	state *state.State
	// proofs are the reads of the present term; nil while this replica may not grant.
	proofs *proofs
	// recordClockSince is when the clock of recorded times last agreed with
	// state.RecordClockAhead.
	recordClockSince     time.Time
	leader               string // identity, as last read
	leaderChanged        chan struct{}
	notLeadingReason     error     // why this replica can neither follow the journal nor take it over
	wasAble              bool      // this replica could answer or forward calls at some time
	unableSince          time.Time // since when this replica can neither answer nor forward calls; zero if it can
	provenAt             time.Time // begin of the last write that proves that this replica led
	journalReadAt        time.Time // last read while another replica leads
	journalVersion       string    // resourceVersion of the journal at journalReadAt
	journalVersionReadAt time.Time // first read of journalVersion
	// recordsDenied is since when the right to read the records of moved ranges is
	// missing; zero if the right exists.
	recordsDenied time.Time
	writeError    error                     // of the last write to the journal; nil after a success
	unreadable    state.UnreadableResources // resources that the journal lists and this replica cannot read

	logged map[string]loggedMessage // message -> when it was last logged
}

// New returns a ledger. The ledger serves after Run has taken the journal over.
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
	l := &Ledger{
		cfg: cfg, wake: make(chan struct{}, 1), informerWaits: make(chan struct{}, maxInformerWaits), started: cfg.Now(),
		leaderChanged: make(chan struct{}), logged: map[string]loggedMessage{}, unreadable: state.UnreadableResources{},
	}
	served := slices.DeleteFunc(l.countedResources(), func(resource string) bool { return slices.Contains(cfg.Unserved, resource) })
	l.session = journal.NewSession(cfg.Store, cfg.Identity, served, cfg.Timing)
	l.session.OnWriteError = l.recordWriteError
	limits := state.Limits{
		GrantLife: cfg.GrantLife, JournalBytes: maxJournalBytes, StandbyGrants: maxStandbyGrants, StandbyShare: standbyShare, StandbyRoom: standbyRoom,
	}
	l.state = state.New(l.countedResources(), limits, randomToken)
	l.state.SetUnserved(cfg.Unserved)
	if cfg.ClusterDomain != nil {
		l.state.SetClusterDomain(*cfg.ClusterDomain)
	}
	return l
}

// processTime converts a time to this process's own clock. This clock starts at the wall
// clock's time and advances with the monotonic clock, also when the wall clock is set
// later. The state knows only times of this clock.
func (l *Ledger) processTime(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return l.started.Add(t.Sub(l.started)).Round(0)
}

// After the clock of recorded times has differed from the expected time by
// recordClockTolerance for recordClockSettled, the ledger uses the new time for later
// records and for the end of the cooldowns that it observes from then on. Smaller or
// shorter differences come from a clock that is being adjusted, or from API servers whose
// clocks differ.
const (
	recordClockTolerance = 2 * time.Second
	recordClockSettled   = 10 * time.Second
)

// now returns the time of this process's own clock, and updates by how much the clock of
// recorded times is ahead of that clock. The caller holds mu.
func (l *Ledger) now() time.Time {
	read := l.cfg.Now()
	now := l.processTime(read)
	switch ahead := read.Round(0).Add(l.cfg.Skew()).Sub(now); {
	case (ahead - l.state.RecordClockAhead()).Abs() <= recordClockTolerance:
		l.recordClockSince = now
	case l.recordClockSince.IsZero() || now.Sub(l.recordClockSince) >= recordClockSettled: // zero at the first reading
		l.recordClockSince = now
		l.state.SetRecordClockAhead(ahead)
	}
	return now
}

func randomToken() journal.Token {
	var t journal.Token
	_, _ = rand.Read(t[:]) // never fails: crypto/rand ends the process instead
	return t
}

// withState runs f on the state, wakes the committer if f made a commit due, and reports
// changed claims and pools to Config.Changed.
func (l *Ledger) withState(f func(*state.State)) {
	due, changed := l.runLocked(f)
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

// runLocked runs f on the state and returns whether f made a commit due, and the changed
// claims and pools. A panic in f ends the process even if a caller recovers from panics:
// the state may be incomplete, and grants from an incomplete state could give one address
// to two owners.
func (l *Ledger) runLocked(f func(*state.State)) (due bool, changed []Key) {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer func() {
		if fault := recover(); fault != nil {
			text := fmt.Sprintf("the ledger's state may be incomplete after a panic: %v\n%s", fault, debug.Stack())
			go panic(text) // in a new goroutine, in which no caller recovers
			select {}
		}
	}()
	before := l.state.Pending()
	f(l.state)
	checkState(l.state)
	after := l.state.Pending()
	due = after.Grants > before.Grants || after.Confirm && !before.Confirm || after.Commit && !before.Commit || after.Waiters > before.Waiters
	if after.Proofs > before.Proofs || after.Proof && !before.Proof {
		l.wakeProofs()
	}
	return due, l.state.TakeChanged()
}

// CountDenied counts a request that the ledger denied, also if the claim is then stored
// to wait for addresses. Callers repeat some requests after a live read of the pool and
// count only the last denial.
func (l *Ledger) CountDenied(pool Key, err error) { l.cfg.Metrics.countDenied(pool, err) }

// maxShares bounds the namespaces that the log, the event and the metric name as those
// that use most of the journal.
const maxShares = 8

// reportFull reports to administrators which namespaces use most of the journal. The
// author of the denied request does not learn their names.
func (l *Ledger) reportFull(denied *NotServingError) {
	const message = "The journal has no room for further grants of a namespace: creates whose objects are not stored keep their grants until these expire"
	if !l.shouldLog(message, "") {
		return
	}
	var largest []string
	l.withState(func(s *state.State) {
		for _, share := range s.JournalShares(maxShares) {
			whose := "namespace " + share.Namespace
			if share.Namespace == "" {
				whose = "cluster-scoped objects"
			}
			largest = append(largest, fmt.Sprintf("%s %d grants (%.0f %%)", whose, share.Grants, 100*share.Part))
		}
	})
	l.cfg.Log.Info(message, "denied", denied.Reason, "largest", largest)
	if l.cfg.JournalFull != nil {
		l.cfg.JournalFull(message + ". Most of the journal is used by " + strings.Join(largest, ", "))
	}
}

// errNotOwner makes the result false of OwnsAll an error, which a fresh proof of
// leadership confirms.
var errNotOwner = errors.New("the claim does not own all its ranges")

// OwnsAll reports whether the stored claim with this UID, in this version, owns all
// ranges in its fields. Errors: *NotServingError.
func (l *Ledger) OwnsAll(ctx context.Context, uid string, version uint64) (bool, error) {
	err := l.withLeadership(ctx, true, func(s *state.State) error {
		yes, err := s.OwnsAll(uid, version)
		if err == nil && !yes {
			err = errNotOwner
		}
		return err
	})
	if err == errNotOwner {
		return false, nil
	}
	return err == nil, err
}

// errNoOwner makes the result false of DomainOf an error, which a fresh proof of
// leadership confirms.
var errNoOwner = errors.New("the claim owns nothing")

// DomainOf returns the routing domain in which the stored claim or address object with
// this UID, in this version, owns its ranges; false if it owns none. Errors:
// *NotServingError.
func (l *Ledger) DomainOf(ctx context.Context, uid string, version uint64) (routingDomain string, owns bool, err error) {
	err = l.withLeadership(ctx, true, func(s *state.State) error {
		found, owns, err := s.DomainOf(uid, version)
		if routingDomain = found; err == nil && !owns {
			err = errNoOwner
		}
		return err
	})
	if err == errNoOwner {
		return "", false, nil
	}
	return routingDomain, err == nil, err
}

// UpdatePool checks a new version of a pool before the version is stored, and withholds
// the removed addresses until the version is observed. With dryRun it withholds nothing.
// Errors: *InUseError, *NotServingError.
func (l *Ledger) UpdatePool(ctx context.Context, p Pool, dryRun bool) error {
	var withheld *state.OpenGrant
	committed := make(chan error, 1)
	err := l.withLeadership(ctx, false, func(s *state.State) (err error) {
		if withheld, err = s.UpdatePool(p); withheld == nil {
			return err
		}
		if dryRun {
			s.WithdrawGrant(withheld)
			withheld = nil
			return err
		}
		withheld.NotifyCommit(committed)
		return err
	})
	if err != nil || withheld == nil {
		return err
	}
	return l.awaitGrant(ctx, withheld, committed)
}

// OwnershipOf returns the ranges that the claim with this UID owns. If another replica
// may lead by now, the ownership is not confirmed until the next commit.
func (l *Ledger) OwnershipOf(uid string) (o Ownership) {
	l.withState(func(s *state.State) {
		if o = s.OwnershipOf(uid); o.Confirmed && l.leaseError() != nil {
			s.RequireConfirmation(uid)
			o.Confirmed = false
		}
	})
	return o
}

// LandingWindow returns for how long the API server may still store an address object of
// the claim with this UID after a create with unknown outcome. sent is when this replica
// sent the create; zero if only an earlier leader may have sent a create.
func (l *Ledger) LandingWindow(uid string, sent time.Time) (wait time.Duration) {
	l.withState(func(s *state.State) { wait = s.LandingWindow(l.now(), uid, l.processTime(sent)) })
	return wait
}

// ReleaseWindow is LandingWindow for a claim that is being deleted: a change of the
// leader after the deletion does not prolong it.
func (l *Ledger) ReleaseWindow(uid string, sent time.Time) (wait time.Duration) {
	l.withState(func(s *state.State) { wait = s.ReleaseWindow(l.now(), uid, l.processTime(sent)) })
	return wait
}

// ReleasesAwaited returns for how long claims of a pool that are being deleted wait at
// most for creates of earlier leaders; 0 if none waits. The cost grows with the number of
// the pool's owners.
func (l *Ledger) ReleasesAwaited(pool Key) (wait time.Duration) {
	l.withState(func(s *state.State) { wait = s.ReleasesAwaited(l.now(), pool) })
	return wait
}

// Leader returns the identity of the leader, as last read, and a channel that is closed
// when the leader changes. The identity is "" if there is no leader, the identity of the
// previous leader while this replica catches up after a take-over, and then this
// replica's own identity.
func (l *Ledger) Leader() (identity string, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader, l.leaderChanged
}

// LastObserved returns when the journal of another leader was last read, and when its
// current version was first read.
func (l *Ledger) LastObserved() (readAt, versionReadAt time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.journalReadAt, l.journalVersionReadAt
}

// Expiry returns how long the journal may stay unchanged before another replica takes it
// over.
func (l *Ledger) Expiry() time.Duration { return l.session.Expiry() }

// PollNow makes this replica read the journal now rather than at its next poll. It is
// called when a call waits for a leader.
func (l *Ledger) PollNow() { l.session.PollNow() }

// ReportUnreachable reports that a leader's address refuses connections. If the reported
// replica still leads, this replica takes the journal over at once.
func (l *Ledger) ReportUnreachable(leader string) { l.session.ReportUnreachable(leader) }

// Ready returns why this replica can neither answer nor forward calls; nil if it can. The
// readiness probe calls Ready. A replica that follows a leader is ready, because it
// forwards calls. A replica that no longer observes a leader stays ready for
// unreadyAfter: the other replicas have usually lost the leader too, and without ready
// replicas the Service would refuse calls that can wait in this process.
func (l *Ledger) Ready() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.state.MayGrant():
		if leaseErr := l.leaseError(); leaseErr != nil && l.writeError != nil {
			return fmt.Errorf("%w: %w", leaseErr, l.writeError)
		}
		return l.leaseError()
	case l.wasAble && (l.unableSince.IsZero() || time.Since(l.unableSince) < unreadyAfter):
		return nil
	case l.notLeadingReason != nil:
		return l.notLeadingReason
	default:
		return errors.New("no leader is known yet")
	}
}
