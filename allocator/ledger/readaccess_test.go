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

func journalWith(version uint64, resource string) journal.Revision {
	return journal.Revision{ResourceVersion: "0", Snapshot: journal.Snapshot{Applied: map[string]uint64{resource: version}}}
}

// A journal that was handed over counts objects of a resource.
func TestReadAccess_UnreadableResourceDelaysLeadingByOneGrantLife(t *testing.T) {
	for name, test := range map[string]struct {
		resource string
		source   *fakeSource
		wait     time.Duration
	}{
		"readable":                        {modelClaims, &fakeSource{}, 0},
		"CRD deleted":                     {modelClaims, &fakeSource{readAccess: map[string]ReadAccess{modelClaims: {Absent: true}}}, 0},
		"denied":                          {modelClaims, &fakeSource{readAccess: map[string]ReadAccess{modelClaims: {Denied: errDenied}}}, DefaultGrantLife},
		"another resource denied":         {modelPools, &fakeSource{readAccess: map[string]ReadAccess{modelClaims: {Denied: errDenied}}}, 0},
		"of a later release, CRD deleted": {"later.test", &fakeSource{noObjects: true}, 0},
		"of a later release, no right":    {"later.test", &fakeSource{hasObjectsErr: errDenied}, DefaultGrantLife},
		"of a later release, CRD deleted, no right": {"later.test", &fakeSource{noObjects: true, hasObjectsErr: errDenied}, DefaultGrantLife},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				_, stop := startLeader(t, &memoryStore{stored: journalWith(7, test.resource)}, "a", test.source)
				defer stop()
				if waited := time.Since(began); waited < test.wait || waited > test.wait+2*time.Second {
					t.Errorf("leads after %s, want %s", waited, test.wait)
				}
			})
		})
	}
}

// The wait begins while another replica leads, and begins again when the version in the
// journal changes.
func TestReadAccess_WaitBeginsAtTheLastChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{stored: journalWith(7, modelClaims)}
		s.stored.Leader = "b"
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- l.Run(ctx, &fakeSource{readAccess: map[string]ReadAccess{modelClaims: {Denied: errDenied}}})
		}()
		write := func(version uint64, leader string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			next := journalWith(version, modelClaims)
			next.Leader, next.ResourceVersion = leader, "w"+time.Now().String()
			s.stored = next
		}
		for range 50 { // the leader commits
			time.Sleep(time.Second)
			write(7, "b")
		}
		write(8, "b")
		time.Sleep(time.Second)
		changed := time.Now()
		write(8, "")
		for !l.MayGrant() {
			time.Sleep(100 * time.Millisecond)
		}
		if waited := time.Since(changed); waited < DefaultGrantLife-2*time.Second || waited > DefaultGrantLife+2*time.Second {
			t.Errorf("leads %s after the last change", waited)
		}
		cancel()
		<-done //nolint:errcheck // it was cancelled
	})
}

// A leader that loses the right to read a resource grants nothing for the resource.
// Observed claims keep their addresses. After one grant life the journal no longer counts
// the resource.
func TestReadAccess_LostOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, source := &memoryStore{}, &fakeSource{readAccess: map[string]ReadAccess{}}
		l, stop := startLeader(t, store, "a", source)
		defer stop()
		at := allocator.Range{First: modelRange.First, Last: modelRange.First}
		l.ObserveClaim(Claim{Key: key("stored"), UID: "1", ResourceVersion: 7, Ranges: []allocator.Range{at}})
		if _, err := l.Grant(t.Context(), request("granted")); err != nil {
			t.Fatal(err)
		}
		set := func(r ReadAccess) {
			source.mu.Lock()
			defer source.mu.Unlock()
			source.readAccess[modelClaims] = r
		}
		set(ReadAccess{Denied: errDenied})
		time.Sleep(2 * expireEvery)
		down := (*NotServingError)(nil)
		if _, err := l.Grant(t.Context(), request("next")); !errors.As(err, &down) {
			t.Errorf("granted while the claims cannot be read: %v", err)
		}
		other := Request{Claim: Key{Resource: "others.test", Namespace: "ns", Name: "x"}, Ranges: []RangeRequest{{Exact: at, Count: 1}}}
		owned := (*OwnedError)(nil)
		for _, after := range []time.Duration{0, DefaultGrantLife + 5*time.Second} {
			time.Sleep(after)
			if _, err := l.Preview(t.Context(), other); !errors.As(err, &owned) {
				t.Errorf("after %s an observed owner's address is free: %v", after, err)
			}
			r := store.snapshot()
			if claims := r.Applied[modelClaims] > 0 || len(r.Entries) > 0; claims != (after == 0) {
				t.Errorf("after %s the journal has %+v", after, r)
			}
		}
		set(ReadAccess{})
		time.Sleep(3 * expireEvery)
		if r := store.snapshot(); r.Applied[modelClaims] == 0 {
			t.Errorf("with the right the journal has %+v", r)
		}
		if _, err := l.Grant(t.Context(), request("next")); err != nil {
			t.Error(err)
		}
	})
}

// Stored objects of an API that is switched off own their addresses, and the journal
// lists their resource while objects are stored.
func TestUnservedResource_IsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims, modelOthers}, PoolResources: []string{modelPools}, Unserved: []string{modelOthers}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx, &fakeSource{}) }()
		at := []allocator.Range{{First: modelRange.First, Last: modelRange.First}}
		off := Key{Resource: modelOthers, Namespace: "ns", Name: "off"}
		for !l.MayGrant() {
			time.Sleep(100 * time.Millisecond)
		}
		preview := func() error {
			_, err := l.Preview(t.Context(), Request{Claim: key("x"), Ranges: []RangeRequest{{Exact: at[0], Count: 1}}})
			return err
		}
		check := func(stored bool) {
			t.Helper()
			time.Sleep(2 * renewAfter)
			r, owned := s.snapshot(), (*OwnedError)(nil)
			if errors.As(preview(), &owned) != stored {
				t.Errorf("stored %t, Preview of its address: %v", stored, preview())
			}
			if _, named := r.Applied[modelOthers]; named != stored || slices.Contains(r.Unserved, modelOthers) != stored || len(l.Warnings()) > 0 != stored {
				t.Errorf("stored %t: the journal has %v, unserved %v, warnings %q", stored, r.Applied, r.Unserved, l.Warnings())
			}
		}
		check(false)
		l.ObserveClaim(Claim{Key: off, UID: "1", ResourceVersion: 7, Ranges: at})
		check(true)

		// The other claim is not flagged, since its API is switched off. So a claim that
		// shares the address cannot be Ready before writes of replicas that served the
		// other API have ended.
		l.ObserveClaim(Claim{Key: key("rival"), UID: "2", ResourceVersion: 8, Ranges: at, Token: journal.Token{1}, Created: time.Now().Add(-time.Hour)})
		time.Sleep(2 * renewAfter)
		if st := l.OwnershipOf("2"); st.Confirmed || st.Conflict != nil {
			t.Errorf("at once: %+v", st)
		}
		time.Sleep(DefaultGrantLife)
		if st := l.OwnershipOf("2"); !st.Confirmed {
			t.Errorf("later: %+v", st)
		}
		l.RemoveClaim(Claim{Key: key("rival"), UID: "2"}, 9)
		l.RemoveClaim(Claim{Key: off, UID: "1"}, 10)
		check(false)
		cancel()
		<-done //nolint:errcheck // it was cancelled
	})
}

func (s *memoryStore) snapshot() journal.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored.Snapshot
}
