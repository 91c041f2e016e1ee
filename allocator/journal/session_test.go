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

// shelf is a Store in this process: a compare-and-swap whose next replies can be lost, before or after the write took place.
type shelf struct {
	mu     sync.Mutex
	stored Version
	writes int
	lose   []loss
	late   []Version // writes that were lost on the way in, and may still land
}

type loss int

const (
	lostReply loss = iota // it landed, the writer is not told
	lostWrite             // it did not land (yet)
)

func (s *shelf) Read(context.Context) (Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, nil
}

func (s *shelf) Write(_ context.Context, v Version) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.lose) > 0 {
		l := s.lose[0]
		s.lose = s.lose[1:]
		if l == lostReply {
			_, _ = s.swap(v)
		} else {
			s.late = append(s.late, v)
		}
		return "", errors.New("connection lost")
	}
	return s.swap(v)
}

func (s *shelf) swap(v Version) (string, error) {
	if v.ResourceVersion != s.stored.ResourceVersion {
		return "", ErrConflict
	}
	s.writes++
	v.ResourceVersion = fmt.Sprint(s.writes)
	s.stored = v
	return v.ResourceVersion, nil
}

// land lets the lost writes arrive after all.
func (s *shelf) land() {
	for _, v := range s.late {
		_, _ = s.swap(v)
	}
	s.late = nil
}

func taken(t *testing.T, s *shelf, me string, kinds ...string) *Session {
	t.Helper()
	session := NewSession(s, me, kinds, Timing{})
	if _, err := session.Follow(t.Context(), func(Version, error) {}); err != nil {
		t.Fatal(err)
	}
	if err := session.Fence(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	return session
}

func TestACommitWhoseReplyIsLostCountsOnce(t *testing.T) {
	for name, lose := range map[string][]loss{
		"reply lost":                     {lostReply},
		"write lost":                     {lostWrite},
		"write lost, then the reply too": {lostWrite, lostReply},
		"three writes lost":              {lostWrite, lostWrite, lostWrite},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{}
				session := taken(t, s, "a")
				failed := 0
				session.Unwritten = func(error) { failed++ }
				s.lose = lose
				before := s.stored.Commit
				if err := session.Commit(t.Context(), Record{Seen: map[string]uint64{"k": 5}}); err != nil {
					t.Fatal(err)
				}
				s.land()
				if failed == 0 {
					t.Error("nobody is told that a write failed")
				}
				if s.stored.Commit != before+1 || s.stored.Seen["k"] != 5 {
					t.Errorf("stored %+v after commit %d", s.stored, before)
				}
				if err := session.Commit(t.Context(), Record{}); err != nil {
					t.Errorf("the next commit fails: %v", err)
				}
			})
		})
	}
}

func TestAHolderThatWasReplacedFindsOutAtItsNextCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		a := taken(t, s, "a")
		if err := a.Commit(t.Context(), Record{Lines: []Line{{Token: Token{1}, Ranges: ranges("10.0.0.1")}}}); err != nil {
			t.Fatal(err)
		}
		b := taken(t, s, "b") // waits the expiry out
		if got := b.Current(); got.Epoch != 2 || len(got.Lines) != 1 {
			t.Errorf("taken over: %+v", got)
		}
		if err := a.Commit(t.Context(), Record{}); !errors.Is(err, ErrLost) {
			t.Errorf("got %v", err)
		}
		if s.stored.Holder != "b" || len(s.stored.Lines) != 1 {
			t.Errorf("stored %+v", s.stored)
		}
	})
}

func TestALateWriteOfADeadHolderDoesNotLand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		a := taken(t, s, "a")
		s.lose = []loss{lostWrite}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := a.Commit(ctx, Record{Lines: []Line{{Token: Token{9}, Ranges: ranges("10.0.0.9")}}}); err == nil {
			t.Fatal("an unknown outcome passes for a commit")
		}
		taken(t, s, "b")
		s.land()
		if s.stored.Holder != "b" || len(s.stored.Lines) != 0 {
			t.Errorf("stored %+v", s.stored)
		}
	})
}

func TestFollowersWaitForSilenceButNotAfterAHandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		a := taken(t, s, "a")
		stop := make(chan struct{})
		go func() {
			for {
				select {
				case <-stop:
					_ = a.HandOver(t.Context(), Record{})
					return
				case <-time.After(time.Second):
					_ = a.Commit(t.Context(), Record{})
				}
			}
		}()
		took := make(chan time.Time)
		go func() {
			b := NewSession(s, "b", nil, Timing{})
			_, _ = b.Follow(t.Context(), func(Version, error) {})
			took <- time.Now()
		}()
		time.Sleep(30 * time.Second) // of virtual time
		select {
		case <-took:
			t.Fatal("taken from a holder that commits every second")
		default:
		}
		handed := time.Now()
		close(stop)
		if waited := (<-took).Sub(handed); waited > time.Second {
			t.Errorf("a hand-over took %s to be noticed", waited)
		}
	})
}

// Its process is dead, but the API server may still be at work on what it sent last.
func TestTheLastCommitOfAHolderThatWasKilledDoesNotKeepTheJournalFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		killed := taken(t, s, "a")
		b := NewSession(s, "b", nil, Timing{})
		follow := func(refused string) (waited time.Duration) {
			t.Helper()
			began := time.Now()
			b.Refused(refused)
			if _, err := b.Follow(t.Context(), func(Version, error) {}); err != nil {
				t.Fatal(err)
			}
			return time.Since(began)
		}
		follow("a")
		if err := killed.Commit(t.Context(), Record{Seen: map[string]uint64{"k": 5}}); err != nil {
			t.Fatal(err)
		}
		if err := b.Fence(t.Context(), false); !errors.Is(err, ErrLost) {
			t.Fatalf("a fence on a version that was replaced: %v", err)
		}
		if waited := follow("a"); waited > time.Second {
			t.Errorf("the second try comes after %s", waited)
		}
		if err := b.Fence(t.Context(), false); err != nil || s.stored.Holder != "b" || s.stored.Seen["k"] != 5 {
			t.Errorf("%v, stored %+v", err, s.stored)
		}

		if err := b.HandOver(t.Context(), Record{}); err != nil {
			t.Fatal(err)
		}
		taken(t, s, "c")
		if waited := follow("c"); waited < 4*time.Second {
			t.Errorf("who has just taken a journal so takes the next after %s", waited)
		}
	})
}

// What a holder only counts does not keep one that serves it from taking the journal.
func TestWhoServesWhatTheHolderOnlyCountsTakesTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		holder := taken(t, s, "a", "claims", "pools")
		if err := holder.Commit(t.Context(), Record{Seen: map[string]uint64{"claims": 7, "pools": 5, "vips": 3}, Unserved: []string{"vips"}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			kinds []string
			waits bool
		}{
			{[]string{"claims", "pools"}, true},
			{[]string{"claims", "pools", "vips"}, false},
		} {
			began := time.Now()
			session := NewSession(s, "b", tc.kinds, Timing{})
			if _, err := session.Follow(t.Context(), func(Version, error) {}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began) >= 4*time.Second; waited != tc.waits {
				t.Errorf("serves %v and waits: %v", tc.kinds, waited)
			}
			if err := session.Fence(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if all := len(tc.kinds) == 3; all == (len(s.stored.Unserved) > 0) || s.stored.Seen["vips"] != 3 {
				t.Errorf("fenced by %v: %v, unserved %v", tc.kinds, s.stored.Seen, s.stored.Unserved)
			}
		}
	})
}

// Else an API that is switched on replica by replica would wait for the last of them.
func TestWhoCountsMoreTakesTheJournalAtOnceAndWhoCountsOtherThingsDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		holder := taken(t, s, "a", "claims", "pools")
		if err := holder.Commit(t.Context(), Record{Seen: map[string]uint64{"claims": 7, "pools": 5}}); err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			me    string
			kinds []string
			waits bool
		}{
			{"same", []string{"claims", "pools"}, true},
			{"fewer", []string{"claims"}, true},
			{"others", []string{"claims", "vips", "nets"}, true},
			{"more", []string{"claims", "pools", "vips"}, false},
			{"as many as the one before", []string{"claims", "pools", "vips"}, true}, // whose first commit is still to come
		} {
			began := time.Now()
			session := NewSession(s, tc.me, tc.kinds, Timing{})
			if _, err := session.Follow(t.Context(), func(Version, error) {}); err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(began) >= 4*time.Second; waited != tc.waits {
				t.Errorf("%s counts %v and waits: %v", tc.me, tc.kinds, waited)
			}
			if tc.waits {
				continue
			}
			if err := session.Fence(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(map[string]uint64{"claims": 7, "pools": 5, "vips": 0}, s.stored.Seen); diff != "" {
				t.Errorf("seen (-want +got):\n%s", diff)
			}
		}
	})
}

func TestAnAPIServerThatWasAwayProvesNothingAboutTheHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		taken(t, s, "a")
		away := &unreachable{Store: s}
		b := NewSession(away, "b", nil, Timing{})
		took := make(chan time.Time, 1)
		go func() {
			_, _ = b.Follow(t.Context(), func(Version, error) {})
			took <- time.Now()
		}()
		time.Sleep(time.Second)
		away.set(true)
		time.Sleep(time.Minute)
		back := time.Now()
		away.set(false)
		if waited := (<-took).Sub(back); waited < 4*time.Second {
			t.Errorf("taken over %s after the API server came back", waited)
		}
	})
}

type unreachable struct {
	Store
	mu sync.Mutex
	on bool
}

func (u *unreachable) set(on bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.on = on
}

func (u *unreachable) Read(ctx context.Context) (Version, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.on {
		return Version{}, errors.New("no route")
	}
	return u.Store.Read(ctx)
}

// A backup has an earlier version of the journal, or none: then the next one is its first again.
func TestAnOlderJournalThanBeforeEndsTheSession(t *testing.T) {
	follow := func(ctx context.Context, s *Session) error {
		_, err := s.Follow(ctx, func(Version, error) {})
		return err
	}
	commit := func(ctx context.Context, s *Session) error { return s.Commit(ctx, Record{}) }
	fence := func(ctx context.Context, s *Session) error {
		return errors.Join(follow(ctx, s), s.Fence(ctx, false))
	}
	for name, tc := range map[string]struct {
		restored bool // from a backup with a journal
		does     func(context.Context, *Session) error
		want     error
	}{
		"a commit":                     {true, commit, ErrSetBack},
		"a look at it":                 {true, follow, ErrSetBack},
		"a fence where there is none":  {false, fence, ErrSetBack},
		"a commit where there is none": {false, commit, ErrLost},
		"a process that knew no newer one": {true, func(ctx context.Context, s *Session) error {
			return follow(ctx, NewSession(s.store, "c", nil, Timing{}))
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{}
				session := taken(t, s, "a")
				backup, writes := s.stored, s.writes
				for range 3 {
					if err := session.Commit(t.Context(), Record{}); err != nil {
						t.Fatal(err)
					}
				}
				if s.stored, s.writes = backup, writes; !tc.restored {
					s.stored, s.writes = Version{}, 0
				}
				if err := tc.does(t.Context(), session); !errors.Is(err, tc.want) {
					t.Errorf("got %v, want %v", err, tc.want)
				}
			})
		})
	}
}
