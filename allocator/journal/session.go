package journal

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"
)

// ErrLeadershipLost reports that another replica leads, or that a person changed the
// journal: the session's term is over.
var ErrLeadershipLost = errors.New("journal has been taken over by another replica")

// ErrEtcdRestored reports that the stored journal is older than a revision this process
// has read: etcd was restored from a backup. The process may have observed objects that
// the backup does not contain, and a watch does not report their loss, so the process
// must end and read all objects again.
var ErrEtcdRestored = errors.New("journal is older than a revision read before: etcd was restored from a backup, and all objects must be read again")

// Timing of a Session. Zero fields get the defaults.
type Timing struct {
	Expiry  time.Duration // a follower takes the journal over when it has not changed for this long; default 4 s
	Poll    time.Duration // pause between two reads of a follower; default 500 ms
	Call    time.Duration // limit of one read or write; default 3 s
	Retry   time.Duration // pause after a failed call, doubled up to eightfold; default 50 ms
	MinPoll time.Duration // pause between two reads while a call waits for a leader; default 20 ms
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&t.Expiry, 4 * time.Second}, {&t.Poll, 500 * time.Millisecond}, {&t.Call, 3 * time.Second}, {&t.Retry, 50 * time.Millisecond}, {&t.MinPoll, 20 * time.Millisecond}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}

// Session is one replica's access to the journal: follow, take over, commit, hand over.
// One goroutine uses a Session, with at most one write in flight; other goroutines may
// call PollNow and ReportUnreachable.
type Session struct {
	store         Store
	identity      string // see NewIdentity
	resources     []string
	timing        Timing
	current       Revision
	newestVersion string // resourceVersion of the newest revision read or written

	pollRequests          chan struct{}
	unreachable           atomic.Pointer[string] // leader whose address refuses connections
	replacesUnreachable   bool                   // Follow last returned because the leader's address refuses connections
	replacedUnreachableAt time.Time              // when this replica last took over from an unreachable leader

	// OnWriteError, if set, is called with the error of every write that failed, or whose
	// outcome cannot be read, before the write is retried.
	OnWriteError func(error)
}

// NewSession returns a session for the replica with this identity, which serves these
// resources.
func NewSession(store Store, identity string, resources []string, timing Timing) *Session {
	return &Session{store: store, identity: identity, resources: resources, timing: timing.withDefaults(), pollRequests: make(chan struct{}, 1)}
}

// Current returns the revision last read or written.
func (s *Session) Current() Revision { return s.current }

// Expiry returns how long the journal may stay unchanged before another replica takes it
// over.
func (s *Session) Expiry() time.Duration { return s.timing.Expiry }

// PollNow makes Follow read the journal now rather than at its next poll. It is called
// when a call waits for a leader.
func (s *Session) PollNow() {
	select {
	case s.pollRequests <- struct{}{}:
	default:
	}
}

// ReportUnreachable reports to Follow that the address of a leader refuses connections. A
// wrong report is safe: the compare-and-swap of the take-over decides.
func (s *Session) ReportUnreachable(leader string) {
	s.unreachable.Store(&leader)
	s.PollNow()
}

// Follow returns when this replica may take the journal over, with the reason (cases: see
// the package documentation). The expiry is measured by this process's monotonic clock
// and only while reads succeed: an outage of the API server proves nothing about the
// leader. Follow calls report with every revision read and every error. Follow returns an
// error only when ctx ends, or ErrEtcdRestored.
func (s *Session) Follow(ctx context.Context, report func(Revision, error)) (why string, err error) {
	var since time.Time
	s.replacesUnreachable = false
	for {
		stored, err := s.readOnce(ctx)
		report(stored, err)
		switch {
		case errors.Is(err, ErrEtcdRestored):
			return "", err
		case err != nil:
			since = time.Time{}
		case stored.ResourceVersion == "":
			s.current = stored
			return "the journal does not exist", nil
		case stored.Leader == "":
			s.current = stored
			return "the journal was handed over", nil
		case stored.Leader != s.identity && AddressOf(stored.Leader) != "" && AddressOf(stored.Leader) == AddressOf(s.identity):
			s.current = stored
			return fmt.Sprintf("leader %s was an earlier process at this address", stored.Leader), nil
		case s.isUnreachable(stored.Leader):
			s.current, s.replacesUnreachable = stored, true
			return fmt.Sprintf("the address of leader %s refuses connections", stored.Leader), nil
		case s.servesMoreResources(stored.Snapshot):
			s.current = stored
			return fmt.Sprintf("leader %s does not serve all resources that this replica serves", stored.Leader), nil
		case since.IsZero() || stored.ResourceVersion != s.current.ResourceVersion:
			s.current, since = stored, time.Now()
		case time.Since(since) >= s.timing.Expiry:
			return fmt.Sprintf("leader %s has not written the journal for %s", stored.Leader, s.timing.Expiry), nil
		}
		if err := s.awaitPoll(ctx); err != nil {
			return "", err
		}
	}
}

// servesMoreResources reports whether this replica serves every resource that the leader
// serves, and more. If each of two replicas serves a resource that is missing on the
// other, neither takes the journal from the other.
func (s *Session) servesMoreResources(r Snapshot) bool {
	served := 0
	for resource := range r.Applied {
		if slices.Contains(r.Unserved, resource) {
			continue
		}
		if !slices.Contains(s.resources, resource) {
			return false
		}
		served++
	}
	return len(s.resources) > served
}

// isUnreachable reports whether a leader's address refuses connections. For one expiry
// after a take-over from an unreachable leader it returns false: otherwise replicas that
// reach the API server but not each other would take the journal from one another without
// end. A failed take-over does not start this pause, because the last commit of a killed
// leader may land just before the take-over.
func (s *Session) isUnreachable(leader string) bool {
	refused := s.unreachable.Swap(nil)
	return refused != nil && *refused == leader && (s.replacedUnreachableAt.IsZero() || time.Since(s.replacedUnreachableAt) >= s.timing.Expiry)
}

// awaitPoll waits until the next poll is due or PollNow is called, and at least
// Timing.MinPoll.
func (s *Session) awaitPoll(ctx context.Context) error {
	apart := min(s.timing.MinPoll, s.timing.Poll)
	if err := Pause(ctx, apart); err != nil {
		return err
	}
	t := time.NewTimer(s.timing.Poll - apart)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.pollRequests:
	case <-t.C:
	}
	return nil
}

// TakeOver makes this replica the leader of a new term, on top of the revision that
// Follow returned. ErrLeadershipLost: another replica was faster. ErrEtcdRestored:
// TakeOver created the missing journal again, but this process must not serve with it.
func (s *Session) TakeOver(ctx context.Context, quarantine bool) error {
	next := s.current.WithLeader(s.identity).WithResources(s.resources)
	next.Quarantine = next.Quarantine || quarantine
	err := s.writeUntilSettled(ctx, next)
	if err == nil && s.replacesUnreachable {
		s.replacedUnreachableAt = time.Now()
	}
	return err
}

// Commit writes a snapshot and returns when the write is known to be stored.
// ErrLeadershipLost, ErrEtcdRestored: the term is over and the snapshot is not stored. If
// the journal is unreadable, or ctx ends first, the outcome is unknown and the term is
// over as well.
func (s *Session) Commit(ctx context.Context, r Snapshot) error {
	return s.writeUntilSettled(ctx, s.current.Next(r))
}

// HandOver writes a last snapshot and lets the next leader take over without a wait.
func (s *Session) HandOver(ctx context.Context, r Snapshot) error {
	return s.writeUntilSettled(ctx, s.current.WithoutLeader(r))
}

// writeUntilSettled writes a revision, retries failed writes, and returns when the
// outcome is known.
func (s *Session) writeUntilSettled(ctx context.Context, attempt Revision) error {
	for wait := s.timing.Retry; ; wait = min(2*wait, 8*s.timing.Retry) {
		rv, err := s.writeOnce(ctx, attempt)
		if err == nil {
			attempt.ResourceVersion = rv
			s.current = attempt
			return nil
		}
		if errors.Is(err, ErrEtcdRestored) {
			return err
		}
		if !errors.Is(err, ErrConflict) {
			if s.OnWriteError != nil {
				s.OnWriteError(err)
			}
			if perr := Pause(ctx, wait); perr != nil {
				return fmt.Errorf("commit %d: outcome unknown: %w", attempt.Commit, err)
			}
		}
		stored, rerr := s.readOnce(ctx)
		if errors.Is(rerr, ErrEtcdRestored) || errors.Is(rerr, errCorrupt) || errors.Is(rerr, ErrFormat) {
			return rerr // corrupt or of another format: another writer has replaced the attempt
		}
		if rerr != nil {
			if s.OnWriteError != nil {
				s.OnWriteError(rerr)
			}
			if perr := Pause(ctx, wait); perr != nil {
				return fmt.Errorf("commit %d: outcome unknown: %w", attempt.Commit, rerr)
			}
			continue // a repeated write is safe: at most one of both writes can land
		}
		switch OutcomeOf(attempt, stored) {
		case Landed:
			s.current = stored
			return nil
		case Lost:
			s.current = stored
			return fmt.Errorf("%w: term %d, leader %q", ErrLeadershipLost, stored.Term, stored.Leader)
		case Pending:
		}
	}
}

// ReadAlongside reads the journal for another goroutine, while the goroutine of the
// Session may be writing. Current does not change.
func (s *Session) ReadAlongside(ctx context.Context) (Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	return s.store.Read(ctx)
}

func (s *Session) writeOnce(ctx context.Context, v Revision) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	rv, err := s.store.Write(ctx, v)
	if err != nil {
		return "", err
	}
	return rv, s.checkNotRestored(rv)
}

func (s *Session) readOnce(ctx context.Context) (Revision, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	v, err := s.store.Read(ctx)
	if err != nil || v.ResourceVersion == "" {
		return v, err
	}
	return v, s.checkNotRestored(v.ResourceVersion)
}

// checkNotRestored records a stored resourceVersion, and returns ErrEtcdRestored if the
// version is older than the newest recorded before. Reads are consistent and calls are
// sequential, so versions decrease only after a restore.
func (s *Session) checkNotRestored(rv string) error {
	if order, err := resourceversion.CompareResourceVersion(rv, s.newestVersion); err == nil && order < 0 {
		return fmt.Errorf("%w (resourceVersion %s after %s)", ErrEtcdRestored, rv, s.newestVersion)
	}
	s.newestVersion = rv
	return nil
}

// Pause waits for d, or returns ctx's error as soon as ctx ends.
func Pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
