package ledger

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

var errDenied = errors.New("forbidden")

func claims(version uint64, kind string) journal.Version {
	return journal.Version{ResourceVersion: "0", Record: journal.Record{Seen: map[string]uint64{kind: version}}}
}

// A journal that was handed over claims objects of a kind.
func TestWhatCannotBeCountedStopsTheOthersForTheLifeOfAGrantAtMost(t *testing.T) {
	for name, test := range map[string]struct {
		kind   string
		source *stores
		wait   time.Duration
	}{
		"readable":                      {modelClaims, &stores{}, 0},
		"CRD gone":                      {modelClaims, &stores{reading: map[string]Reading{modelClaims: {Absent: true}}}, 0},
		"denied":                        {modelClaims, &stores{reading: map[string]Reading{modelClaims: {Denied: errDenied}}}, DefaultGrantLife},
		"another kind denied":           {modelPools, &stores{reading: map[string]Reading{modelClaims: {Denied: errDenied}}}, 0},
		"of a later release, CRD gone":  {"later.test", &stores{gone: true}, 0},
		"of a later release, no right":  {"later.test", &stores{unlisted: errDenied}, DefaultGrantLife},
		"of a later release, not shown": {"later.test", &stores{gone: true, unlisted: errDenied}, DefaultGrantLife},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, stop := running(t, &shelf{stored: claims(7, test.kind)}, "a", test.source)
				defer stop()
				if waited := time.Since(began); waited < test.wait || waited > test.wait+2*time.Second {
					t.Errorf("leads after %s, want %s", waited, test.wait)
				}
			})
		})
	}
}

// While another leads, the time counts already; a claim that changes begins anew.
func TestTheWaitForWhatCannotBeCountedBeginsAtItsLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{stored: claims(7, modelClaims)}
		s.stored.Holder = "b"
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, &stores{reading: map[string]Reading{modelClaims: {Denied: errDenied}}}) }()
		write := func(version uint64, holder string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			next := claims(version, modelClaims)
			next.Holder, next.ResourceVersion = holder, "w"+time.Now().String()
			s.stored = next
		}
		for range 50 { // it lives
			time.Sleep(time.Second)
			write(7, "b")
		}
		write(8, "b")
		time.Sleep(time.Second)
		changed := time.Now()
		write(8, "")
		for !l.Serving() {
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(changed); waited < DefaultGrantLife-2*time.Second || waited > DefaultGrantLife+2*time.Second {
			t.Errorf("leads %s after the last change", waited)
		}
		cancel()
		<-done //nolint:errcheck // it was cancelled
	})
}

// A leader that may not read a kind any more grants nothing of it, and keeps what it saw; its journal stops to claim anything of the kind.
func TestALeaderThatLosesTheRightToAKind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shelf, source := &shelf{}, &stores{reading: map[string]Reading{}}
		l, stop := running(t, shelf, "a", source)
		defer stop()
		at := allocator.Range{First: modelRange.First, Last: modelRange.First}
		l.Observe(Claim{Key: key("stored"), UID: "1", ResourceVersion: 7, Ranges: []allocator.Range{at}})
		if _, err := l.Grant(t.Context(), request("promised")); err != nil {
			t.Fatal(err)
		}
		set := func(r Reading) {
			source.mu.Lock()
			defer source.mu.Unlock()
			source.reading[modelClaims] = r
		}
		set(Reading{Denied: errDenied})
		time.Sleep(2 * sweepEvery)
		down := (*NotServingError)(nil)
		if _, err := l.Grant(t.Context(), request("next")); !errors.As(err, &down) {
			t.Errorf("granted while the claims cannot be read: %v", err)
		}
		other := Request{Claim: Key{Kind: "others.test", Namespace: "ns", Name: "x"}, Wants: []Want{{Exact: at, Count: 1}}}
		held := (*HeldError)(nil)
		for _, after := range []time.Duration{0, DefaultGrantLife + 5*time.Second} {
			time.Sleep(after)
			if _, err := l.Preview(t.Context(), other); !errors.As(err, &held) {
				t.Errorf("after %s what was seen owned is free: %v", after, err)
			}
			r := shelf.record()
			if claims := r.Seen[modelClaims] > 0 || len(r.Lines) > 0; claims != (after == 0) {
				t.Errorf("after %s the journal has %+v", after, r)
			}
		}
		set(Reading{})
		time.Sleep(3 * sweepEvery)
		if r := shelf.record(); r.Seen[modelClaims] == 0 {
			t.Errorf("with the right the journal has %+v", r)
		}
		if _, err := l.Grant(t.Context(), request("next")); err != nil {
			t.Error(err)
		}
	})
}

// What is stored of an API that is switched off owns its addresses, and the journal names it for as long as there is some.
func TestAKindThatIsNotServedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims, modelOthers}, PoolKinds: []string{modelPools}, Unserved: []string{modelOthers}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, &stores{}) }()
		at := []allocator.Range{{First: modelRange.First, Last: modelRange.First}}
		off := Key{Kind: modelOthers, Namespace: "ns", Name: "off"}
		for !l.Serving() {
			time.Sleep(100 * time.Millisecond)
		}
		ask := func() error {
			_, err := l.Preview(t.Context(), Request{Claim: key("x"), Wants: []Want{{Exact: at[0], Count: 1}}})
			return err
		}
		check := func(stored bool) {
			t.Helper()
			time.Sleep(2 * renewAfter)
			r, held := s.record(), (*HeldError)(nil)
			if errors.As(ask(), &held) != stored {
				t.Errorf("stored %t, and asked for its address: %v", stored, ask())
			}
			if _, named := r.Seen[modelOthers]; named != stored || slices.Contains(r.Unserved, modelOthers) != stored || len(l.Warnings()) > 0 != stored {
				t.Errorf("stored %t: the journal has %v, unserved %v, warnings %q", stored, r.Seen, r.Unserved, l.Warnings())
			}
		}
		check(false)
		l.Observe(Claim{Key: off, UID: "1", ResourceVersion: 7, Ranges: at})
		check(true)

		// A claim that shares the address cannot be Ready before writes of those who served the other have ended; nothing flags that one.
		l.Observe(Claim{Key: key("rival"), UID: "2", ResourceVersion: 8, Ranges: at, Token: journal.Token{1}, Created: time.Now().Add(-time.Hour)})
		time.Sleep(2 * renewAfter)
		if st := l.Standing("2"); st.Confirmed || st.Clash != nil {
			t.Errorf("at once: %+v", st)
		}
		time.Sleep(DefaultGrantLife)
		if st := l.Standing("2"); !st.Confirmed {
			t.Errorf("later: %+v", st)
		}
		l.Forget(modelClaims, "2", 9)
		l.Forget(modelOthers, "1", 10)
		check(false)
		cancel()
		<-done //nolint:errcheck // it was cancelled
	})
}

func (s *shelf) record() journal.Record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.Record
}

// A replica that was frozen does not know whether it could read a kind meanwhile.
func TestADenialLastsAsLongAsItIsObserved(t *testing.T) {
	d, c := newDesk(t), claimed{}
	seen := journal.Record{Seen: map[string]uint64{modelClaims: 7}}
	observe := func(after time.Duration) bool {
		d.now = d.now.Add(after)
		d.deny(d.now, modelClaims, errBehind)
		c.find(d.now, seen, func(string, uint64) bool { return true })
		if leads, claims := c.outlived(d.now, modelClaims, 7, d.limits.life), !d.denied[modelClaims].outlived; leads == claims {
			t.Fatalf("it leads without the kind: %v, its journal claims the kind: %v", leads, claims)
		}
		return d.denied[modelClaims].outlived
	}
	if observe(0) || observe(d.limits.life) {
		t.Error("what was not observed counts")
	}
	for range int(d.limits.life / maxUnobserved) {
		if d.denied[modelClaims].outlived {
			t.Error("the life of a grant has not passed")
		}
		observe(maxUnobserved)
	}
	if !d.denied[modelClaims].outlived {
		t.Error("the life of a grant has passed")
	}
}
