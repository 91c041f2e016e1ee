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

// ErrLost says that another replica holds the journal, or somebody changed it by hand: the session's term is over.
var ErrLost = errors.New("journal is held by another replica")

// ErrSetBack says that what is stored is older than what this process has seen of it: etcd was restored from a backup. All that the process
// knows of objects is of a time that never was, and a watch does not tell, so it must end, and read everything anew.
var ErrSetBack = errors.New("journal is older than it was: etcd was restored from a backup, and what is stored must be read anew")

// Timing of a Session. Zero fields get the defaults.
type Timing struct {
	Expiry time.Duration // a journal unchanged for so long is taken over; default 4 s
	Poll   time.Duration // how often a follower reads it; default 500 ms
	Call   time.Duration // limit of one read or write; default 3 s
	Retry  time.Duration // pause after a failed call, doubled up to eightfold; default 50 ms
	Hurry  time.Duration // between two reads of a follower that somebody waits for; default 20 ms
}

func (t Timing) withDefaults() Timing {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&t.Expiry, 4 * time.Second}, {&t.Poll, 500 * time.Millisecond}, {&t.Call, 3 * time.Second}, {&t.Retry, 50 * time.Millisecond}, {&t.Hurry, 20 * time.Millisecond}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	return t
}

// Session is one replica's dealings with the journal: follow it, fence it, commit to it, hand it over. Its methods are for one
// goroutine, which has at most one write under way; only Hurry and Refused are for any.
type Session struct {
	store   Store
	me      string // see NewIdentity
	kinds   []string
	timing  Timing
	current Version
	newest  string // resourceVersion, of all read and written

	hurry   chan struct{}
	refused atomic.Pointer[string] // holder at whose address nobody listens
	ousting bool                   // the journal that Follow found last is to be taken over for that
	ousted  time.Time              // when one last was

	// Unwritten, where set, is told of every write that fails, or whose outcome cannot be read, and is tried again.
	Unwritten func(error)
}

// NewSession makes a session for the replica identified by me, which serves objects of these kinds.
func NewSession(store Store, me string, kinds []string, timing Timing) *Session {
	return &Session{store: store, me: me, kinds: kinds, timing: timing.withDefaults(), hurry: make(chan struct{}, 1)}
}

// Current is the version last read or written.
func (s *Session) Current() Version { return s.current }

// Expiry is for how long the journal may stay as it is before another takes it over.
func (s *Session) Expiry() time.Duration { return s.timing.Expiry }

// Hurry has Follow read the journal now rather than with its next poll: somebody waits for a holder.
func (s *Session) Hurry() {
	select {
	case s.hurry <- struct{}{}:
	default:
	}
}

// Refused tells Follow that nobody listens at the address of a holder. The fence makes it safe where that is wrong.
func (s *Session) Refused(holder string) {
	s.refused.Store(&holder)
	s.Hurry()
}

// Follow returns when the journal is there for the taking, and why: it is missing, was handed over, did not change for the expiry, its
// holder's address refuses connections, or is this process's own, or its holder serves only some of the kinds that this replica does. Time
// counts on this process's monotonic clock and only while reads succeed: an API server that was away proves nothing about the holder. report
// gets every version read and every error. Follow returns an error only when ctx ends, and ErrSetBack.
func (s *Session) Follow(ctx context.Context, report func(Version, error)) (why string, err error) {
	var since time.Time
	s.ousting = false
	for {
		stored, err := s.read(ctx)
		report(stored, err)
		switch {
		case errors.Is(err, ErrSetBack):
			return "", err
		case err != nil:
			since = time.Time{}
		case stored.ResourceVersion == "":
			s.current = stored
			return "the journal does not exist", nil
		case stored.Holder == "":
			s.current = stored
			return "the journal was handed over", nil
		case stored.Holder != s.me && AddressOf(stored.Holder) != "" && AddressOf(stored.Holder) == AddressOf(s.me):
			s.current = stored
			return fmt.Sprintf("holder %s was an earlier process at this address", stored.Holder), nil
		case s.isRefused(stored.Holder):
			s.current, s.ousting = stored, true
			return fmt.Sprintf("nobody listens at the address of holder %s", stored.Holder), nil
		case s.servesMore(stored.Record):
			s.current = stored
			return fmt.Sprintf("holder %s does not serve all kinds that this replica does", stored.Holder), nil
		case since.IsZero() || stored.ResourceVersion != s.current.ResourceVersion:
			s.current, since = stored, time.Now()
		case time.Since(since) >= s.timing.Expiry:
			return fmt.Sprintf("holder %s was silent for %s", stored.Holder, s.timing.Expiry), nil
		}
		if err := s.rest(ctx); err != nil {
			return "", err
		}
	}
}

// servesMore reports whether this replica serves every kind that a journal's holder does, and others. Where each serves something that the other
// does not, neither may take the journal from the other.
func (s *Session) servesMore(r Record) bool {
	served := 0
	for kind := range r.Seen {
		if slices.Contains(r.Unserved, kind) {
			continue
		}
		if !slices.Contains(s.kinds, kind) {
			return false
		}
		served++
	}
	return len(s.kinds) > served
}

// isRefused says whether a holder's address refuses connections. It does not for an expiry after that cost somebody the journal: replicas that
// cannot reach each other, but the API server, must not take it from one another all the time. A fence that comes to nothing does not count: the
// last commit of a holder that was killed may land just ahead of it.
func (s *Session) isRefused(holder string) bool {
	refused := s.refused.Swap(nil)
	return refused != nil && *refused == holder && (s.ousted.IsZero() || time.Since(s.ousted) >= s.timing.Expiry)
}

// rest waits until the next poll, or until somebody is in a hurry.
func (s *Session) rest(ctx context.Context) error {
	apart := min(s.timing.Hurry, s.timing.Poll)
	if err := Pause(ctx, apart); err != nil {
		return err
	}
	t := time.NewTimer(s.timing.Poll - apart)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.hurry:
	case <-t.C:
	}
	return nil
}

// Fence makes this replica the holder of a new epoch, on top of the version that Follow saw. ErrLost: somebody else was faster. ErrSetBack:
// the journal that was missing is made anew, but this process must not serve on it.
func (s *Session) Fence(ctx context.Context, quarantine bool) error {
	next := s.current.TakenOver(s.me).Serving(s.kinds)
	next.Quarantine = next.Quarantine || quarantine
	err := s.write(ctx, next)
	if err == nil && s.ousting {
		s.ousted = time.Now()
	}
	return err
}

// Commit writes a record and returns when it is known to be stored. ErrLost, ErrSetBack: the term is over, the record is not stored. When the journal
// is illegible now, or ctx ends first, the outcome stays unknown and the term is over as well.
func (s *Session) Commit(ctx context.Context, r Record) error {
	return s.write(ctx, s.current.Next(r))
}

// HandOver writes a last record and lets the next holder in without a wait.
func (s *Session) HandOver(ctx context.Context, r Record) error {
	return s.write(ctx, s.current.HandedOver(r))
}

func (s *Session) write(ctx context.Context, attempt Version) error {
	for wait := s.timing.Retry; ; wait = min(2*wait, 8*s.timing.Retry) {
		rv, err := s.try(ctx, attempt)
		if err == nil {
			attempt.ResourceVersion = rv
			s.current = attempt
			return nil
		}
		if errors.Is(err, ErrSetBack) {
			return err
		}
		if !errors.Is(err, ErrConflict) {
			if s.Unwritten != nil {
				s.Unwritten(err)
			}
			if perr := Pause(ctx, wait); perr != nil {
				return fmt.Errorf("commit %d: outcome unknown: %w", attempt.Commit, err)
			}
		}
		stored, rerr := s.read(ctx)
		if errors.Is(rerr, ErrSetBack) || errors.Is(rerr, errCorrupt) || errors.Is(rerr, ErrFormat) {
			return rerr // the two last: somebody else has written it
		}
		if rerr != nil {
			if s.Unwritten != nil {
				s.Unwritten(rerr)
			}
			if perr := Pause(ctx, wait); perr != nil {
				return fmt.Errorf("commit %d: outcome unknown: %w", attempt.Commit, rerr)
			}
			continue // sending it again is safe: only one of the two can land
		}
		switch Settle(attempt, stored) {
		case Landed:
			s.current = stored
			return nil
		case Lost:
			s.current = stored
			return fmt.Errorf("%w: epoch %d, holder %q", ErrLost, stored.Epoch, stored.Holder)
		case Pending:
		}
	}
}

func (s *Session) try(ctx context.Context, v Version) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	rv, err := s.store.Write(ctx, v)
	if err != nil {
		return "", err
	}
	return rv, s.advance(rv)
}

func (s *Session) read(ctx context.Context) (Version, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timing.Call)
	defer cancel()
	v, err := s.store.Read(ctx)
	if err != nil || v.ResourceVersion == "" {
		return v, err
	}
	return v, s.advance(v.ResourceVersion)
}

// advance takes note of a version that is stored. Reads are consistent and one call is made at a time, so none is older than the one before.
func (s *Session) advance(rv string) error {
	if order, err := resourceversion.CompareResourceVersion(rv, s.newest); err == nil && order < 0 {
		return fmt.Errorf("%w (resourceVersion %s after %s)", ErrSetBack, rv, s.newest)
	}
	s.newest = rv
	return nil
}

// Pause waits, or returns ctx's error as soon as it ends.
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
