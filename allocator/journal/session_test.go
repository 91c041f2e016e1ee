package journal

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// memoryStore is a Store in memory: a compare-and-swap. The next writes or their replies
// can be lost.
type memoryStore struct {
	mu         sync.Mutex
	stored     Revision
	writes     int
	losses     []loss
	lostWrites []Revision // lost writes that the API server may still apply
}

type loss int

const (
	lostReply loss = iota // the write is applied, but the writer gets an error
	lostWrite             // the write is not applied, or applied later
)

func (s *memoryStore) Read(context.Context) (Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, nil
}

func (s *memoryStore) Write(_ context.Context, v Revision) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.losses) > 0 {
		l := s.losses[0]
		s.losses = s.losses[1:]
		if l == lostReply {
			_, _ = s.swap(v)
		} else {
			s.lostWrites = append(s.lostWrites, v)
		}
		return "", errors.New("connection lost")
	}
	return s.swap(v)
}

func (s *memoryStore) swap(v Revision) (string, error) {
	if v.ResourceVersion != s.stored.ResourceVersion {
		return "", ErrConflict
	}
	s.writes++
	v.ResourceVersion = fmt.Sprint(s.writes)
	s.stored = v
	return v.ResourceVersion, nil
}

// applyLostWrites applies the lost writes.
func (s *memoryStore) applyLostWrites() {
	for _, v := range s.lostWrites {
		_, _ = s.swap(v)
	}
	s.lostWrites = nil
}

// takeOver returns a session that has taken the journal over.
func takeOver(t *testing.T, s *memoryStore, identity string, resources ...string) *Session {
	t.Helper()
	session := NewSession(s, identity, resources, Timing{})
	if _, err := session.Follow(t.Context(), func(Revision, error) {}); err != nil {
		t.Fatal(err)
	}
	if err := session.TakeOver(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return session
}

func TestCommit_LostReplyLandsOnce(t *testing.T) {
	for name, losses := range map[string][]loss{
		"reply lost":                     {lostReply},
		"write lost":                     {lostWrite},
		"write lost, then the reply too": {lostWrite, lostReply},
		"three writes lost":              {lostWrite, lostWrite, lostWrite},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &memoryStore{}
				session := takeOver(t, s, "a")
				failed := 0
				session.OnWriteError = func(error) { failed++ }
				s.losses = losses
				before := s.stored.Commit
				if err := session.Commit(t.Context(), Snapshot{Applied: map[string]uint64{"k": 5}}); err != nil {
					t.Fatal(err)
				}
				s.applyLostWrites()
				if failed == 0 {
					t.Error("OnWriteError was not called for a failed write")
				}
				if s.stored.Commit != before+1 || s.stored.Applied["k"] != 5 {
					t.Errorf("stored %+v after commit %d", s.stored, before)
				}
				if err := session.Commit(t.Context(), Snapshot{}); err != nil {
					t.Errorf("the next commit fails: %v", err)
				}
			})
		})
	}
}

func TestCommit_ReplacedLeaderGetsErrLeadershipLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		a := takeOver(t, s, "a")
		if err := a.Commit(t.Context(), Snapshot{Entries: []Entry{{Token: Token{1}, Ranges: ranges("10.0.0.1")}}}); err != nil {
			t.Fatal(err)
		}
		b := takeOver(t, s, "b") // waits for the expiry
		if got := b.Current(); got.Term != 2 || len(got.Entries) != 1 {
			t.Errorf("after the take-over: %+v", got)
		}
		if err := a.Commit(t.Context(), Snapshot{}); !errors.Is(err, ErrLeadershipLost) {
			t.Errorf("got %v", err)
		}
		if s.stored.Leader != "b" || len(s.stored.Entries) != 1 {
			t.Errorf("stored %+v", s.stored)
		}
	})
}

func TestTakeOver_LateWriteOfKilledLeaderDoesNotLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		a := takeOver(t, s, "a")
		s.losses = []loss{lostWrite}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := a.Commit(ctx, Snapshot{Entries: []Entry{{Token: Token{9}, Ranges: ranges("10.0.0.9")}}}); err == nil {
			t.Fatal("Commit returned no error for an unknown outcome")
		}
		takeOver(t, s, "b")
		s.applyLostWrites()
		if s.stored.Leader != "b" || len(s.stored.Entries) != 0 {
			t.Errorf("stored %+v", s.stored)
		}
	})
}

func TestFollow_WaitsForExpiryButNotAfterHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		a := takeOver(t, s, "a")
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					_ = a.HandOver(t.Context(), Snapshot{})
					return
				case <-time.After(time.Second):
					_ = a.Commit(t.Context(), Snapshot{})
				}
			}
		}()
		took := make(chan time.Time)
		go func() {
			b := NewSession(s, "b", nil, Timing{})
			_, _ = b.Follow(t.Context(), func(Revision, error) {})
			took <- time.Now()
		}()
		time.Sleep(30 * time.Second) // of virtual time
		select {
		case <-took:
			t.Fatal("the journal was taken over from a leader that commits every second")
		default:
		}
		handed := time.Now()
		close(stop)
		if waited := (<-took).Sub(handed); waited > time.Second {
			t.Errorf("Follow returned %s after the hand-over", waited)
		}
	})
}

// The process of the leader is dead, but the API server may still apply the commit that
// the leader sent last.
func TestTakeOver_LastCommitOfKilledLeaderDoesNotDelayTheNextAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		killed := takeOver(t, s, "a")
		b := NewSession(s, "b", nil, Timing{})
		follow := func(unreachable string) (waited time.Duration) {
			t.Helper()
			began := time.Now()
			b.ReportUnreachable(unreachable)
			if _, err := b.Follow(t.Context(), func(Revision, error) {}); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		follow("a")
		if err := killed.Commit(t.Context(), Snapshot{Applied: map[string]uint64{"k": 5}}); err != nil {
			t.Fatal(err)
		}
		if err := b.TakeOver(t.Context(), false); !errors.Is(err, ErrLeadershipLost) {
			t.Fatalf("take-over on a replaced revision: %v", err)
		}
		if waited := follow("a"); waited > time.Second {
			t.Errorf("the second attempt comes after %s", waited)
		}
		if err := b.TakeOver(t.Context(), false); err != nil || s.stored.Leader != "b" || s.stored.Applied["k"] != 5 {
			t.Errorf("%v, stored %+v", err, s.stored)
		}

		if err := b.HandOver(t.Context(), Snapshot{}); err != nil {
			t.Fatal(err)
		}
		takeOver(t, s, "c")
		if waited := follow("c"); waited < 4*time.Second {
			t.Errorf("a second take-over from an unreachable leader came after %s", waited)
		}
	})
}

// A resource that the leader counts but does not serve does not keep a replica that
// serves the resource from taking over.
func TestFollow_TakesOverAtOnceIfTheLeaderDoesNotServeAResourceItCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		leader := takeOver(t, s, "a", "claims", "pools")
		if err := leader.Commit(t.Context(), Snapshot{Applied: map[string]uint64{"claims": 7, "pools": 5, "vips": 3}, Unserved: []string{"vips"}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			resources []string
			waits     bool
		}{
			{[]string{"claims", "pools"}, true},
			{[]string{"claims", "pools", "vips"}, false},
		} {
			began := time.Now()
			session := NewSession(s, "b", tc.resources, Timing{})
			if _, err := session.Follow(t.Context(), func(Revision, error) {}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began) >= 4*time.Second; waited != tc.waits {
				t.Errorf("serves %v, waits for the expiry: %v", tc.resources, waited)
			}
			if err := session.TakeOver(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if all := len(tc.resources) == 3; all == (len(s.stored.Unserved) > 0) || s.stored.Applied["vips"] != 3 {
				t.Errorf("taken over by %v: %v, unserved %v", tc.resources, s.stored.Applied, s.stored.Unserved)
			}
		}
	})
}

// Otherwise an API that is switched on by replacing replicas one by one would wait until
// the last replica is replaced.
func TestFollow_TakesOverAtOnceOnlyToServeMoreResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		leader := takeOver(t, s, "a", "claims", "pools")
		if err := leader.Commit(t.Context(), Snapshot{Applied: map[string]uint64{"claims": 7, "pools": 5}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			identity  string
			resources []string
			waits     bool
		}{
			{"same", []string{"claims", "pools"}, true},
			{"fewer", []string{"claims"}, true},
			{"others", []string{"claims", "vips", "nets"}, true},
			{"more", []string{"claims", "pools", "vips"}, false},
			{"as many as the new leader", []string{"claims", "pools", "vips"}, true}, // the new leader has committed nothing since its take-over
		} {
			began := time.Now()
			session := NewSession(s, tc.identity, tc.resources, Timing{})
			if _, err := session.Follow(t.Context(), func(Revision, error) {}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began) >= 4*time.Second; waited != tc.waits {
				t.Errorf("%s serves %v, waits for the expiry: %v", tc.identity, tc.resources, waited)
			}
			if tc.waits {
				continue
			}
			if err := session.TakeOver(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]uint64{"claims": 7, "pools": 5, "vips": 0}, s.stored.Applied); diff != "" {
				t.Errorf("applied (-want +got):\n%s", diff)
			}
		}
	})
}

func TestFollow_OutageOfTheAPIServerRestartsTheExpiry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		takeOver(t, s, "a")
		outage := &unreachableStore{Store: s}
		b := NewSession(outage, "b", nil, Timing{})
		took := make(chan time.Time, 1)
		go func() {
			_, _ = b.Follow(t.Context(), func(Revision, error) {})
			took <- time.Now()
		}()
		time.Sleep(time.Second)
		outage.set(true)
		time.Sleep(time.Minute)
		back := time.Now()
		outage.set(false)
		if waited := (<-took).Sub(back); waited < 4*time.Second {
			t.Errorf("taken over %s after the end of the outage", waited)
		}
	})
}

// unreachableStore is a Store that fails reads while unreachable is set.
type unreachableStore struct {
	Store
	mu          sync.Mutex
	unreachable bool
}

func (u *unreachableStore) set(unreachable bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.unreachable = unreachable
}

func (u *unreachableStore) Read(ctx context.Context) (Revision, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.unreachable {
		return Revision{}, errors.New("no route")
	}
	return u.Store.Read(ctx)
}

// A backup contains an earlier revision of the journal, or no journal: then the next
// take-over creates the first revision again.
func TestSession_EndsAfterEtcdIsRestored(t *testing.T) {
	follow := func(ctx context.Context, s *Session) error {
		_, err := s.Follow(ctx, func(Revision, error) {})
		return err
	}
	commit := func(ctx context.Context, s *Session) error { return s.Commit(ctx, Snapshot{}) }
	takeJournal := func(ctx context.Context, s *Session) error {
		return errors.Join(follow(ctx, s), s.TakeOver(ctx, false))
	}
	for name, tc := range map[string]struct {
		restored bool // from a backup with a journal
		does     func(context.Context, *Session) error
		want     error
	}{
		"commit on an earlier revision": {true, commit, ErrEtcdRestored},
		"read of an earlier revision":   {true, follow, ErrEtcdRestored},
		"take-over without a journal":   {false, takeJournal, ErrEtcdRestored},
		"commit without a journal":      {false, commit, ErrLeadershipLost},
		"process that read no later revision": {true, func(ctx context.Context, s *Session) error {
			return follow(ctx, NewSession(s.store, "c", nil, Timing{}))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &memoryStore{}
				session := takeOver(t, s, "a")
				backup, writes := s.stored, s.writes
				for range 3 {
					if err := session.Commit(t.Context(), Snapshot{}); err != nil {
						t.Fatal(err)
					}
				}
				if s.stored, s.writes = backup, writes; !tc.restored {
					s.stored, s.writes = Revision{}, 0
				}
				if err := tc.does(t.Context(), session); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}
