package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// shelf is a journal.Store in this process: a compare-and-swap that takes two milliseconds, or as long as it is told to.
type shelf struct {
	mu     sync.Mutex
	stored journal.Version
	writes int
	takes  time.Duration
}

func (s *shelf) Read(context.Context) (journal.Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, nil
}

func (s *shelf) Write(ctx context.Context, v journal.Version) (string, error) {
	s.mu.Lock()
	takes := s.takes
	s.mu.Unlock()
	if journal.Pause(ctx, max(takes, 2*time.Millisecond)) != nil {
		return "", ctx.Err()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if v.ResourceVersion != s.stored.ResourceVersion {
		return "", journal.ErrConflict
	}
	s.writes++
	v.ResourceVersion = fmt.Sprint(s.writes)
	s.stored = v
	return v.ResourceVersion, nil
}

func (s *shelf) slow(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.takes = d
}

func (s *shelf) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// stores is a Source whose local copy is always complete, and whose store holds the given claims.
type stores struct {
	claims   []Claim
	any      bool
	touched  uint64        // version of what is touched
	sealed   Key           // nobody may write to it
	hangs    time.Duration // a write to that one, until it is refused
	large    time.Duration // how long it takes to read a kind from the store itself
	gone     bool          // are the objects of kinds that the ledger does not count
	unlisted error         // why that cannot be read
	reading  map[string]Reading

	mu      sync.Mutex
	records []Record
	denied  error    // why those cannot be read
	read    []string // kinds that were read from the store itself
	touches int
	reads   int // of single claims
	scans   int
}

func (s *stores) Any(context.Context) (bool, error)            { return s.any, nil }
func (s *stores) Stored(context.Context, string) (bool, error) { return !s.gone, s.unlisted }

func (s *stores) Seen(kind string) uint64 {
	if s.Reading(kind).Denied != nil {
		return 0 // since it started
	}
	return 1 << 60
}

func (s *stores) Reading(kind string) Reading {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reading[kind]
}

func (s *stores) Refresh(ctx context.Context, kind string, live bool) error {
	if live {
		if err := journal.Pause(ctx, s.large); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if live {
		s.read = append(s.read, kind)
	}
	return nil
}

func (s *stores) Touch(ctx context.Context, k Key, _ string) (uint64, error) {
	s.mu.Lock()
	sealed := k == s.sealed
	s.mu.Unlock()
	if sealed {
		_ = journal.Pause(ctx, s.hangs) // it is refused in any case
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.touches++
	if sealed {
		return 0, errors.New("a policy refuses it")
	}
	return s.touched, nil
}

func (s *stores) Records(context.Context) ([]Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.denied
}

// keep has the store return these records, or this error.
func (s *stores) keep(records []Record, denied error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.denied = records, denied
}

// counts returns how many claims were read by name, and how many lists were read.
func (s *stores) counts() (reads, scans int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reads, s.scans
}

// writes returns how many fencing writes were made.
func (s *stores) writes() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.touches
}

// store has these claims stored, and no others.
func (s *stores) store(claims ...Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = claims
}

func (s *stores) Read(_ context.Context, k Key) (Claim, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reads++
	i := slices.IndexFunc(s.claims, func(c Claim) bool { return c.Key == k })
	if i < 0 {
		return Claim{}, false, nil
	}
	return s.claims[i], true, nil
}

func (s *stores) Scan(ctx context.Context, _, _ string, visit func(Claim)) error {
	_ = journal.Pause(ctx, s.large)
	s.mu.Lock()
	s.scans++
	claims := s.claims
	s.mu.Unlock()
	for _, c := range claims {
		visit(c)
	}
	return nil
}

// running is a ledger that holds the journal, with a pool of a hundred addresses, and what stops it.
func running(t *testing.T, store journal.Store, me string, source Source) (l *Ledger, stop func()) {
	t.Helper()
	l, stop = starting(t, store, me, source)
	for !l.Serving() {
		time.Sleep(10 * time.Millisecond)
	}
	return l, stop
}

// starting is a ledger that runs and may come to hold the journal, with a pool of a hundred addresses, and what stops it.
func starting(t *testing.T, store journal.Store, me string, source Source) (l *Ledger, stop func()) {
	t.Helper()
	l = New(Config{Store: store, Identity: me, ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
	l.SetPool(Pool{Key: modelPool, UID: "pool", ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.99")}})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		_ = l.Run(ctx, source)
		close(ended)
	}()
	return l, func() {
		cancel()
		<-ended
	}
}

func request(name string) Request {
	return Request{Claim: key(name), Pool: modelPool, Wants: []Want{{Count: 1}}}
}

// Two who take the same addresses from a pool: the event of the faster one ends what was to hold them back for the other, who waits for that.
func TestAChangeOfAPoolThatAnotherMadeMeanwhileIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		defer stop()
		s.slow(300 * time.Millisecond)
		smaller := Pool{Key: modelPool, ResourceVersion: 2, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.49")}}
		time.AfterFunc(100*time.Millisecond, func() { l.SetPool(smaller) })
		began, again := time.Now(), (*NotServingError)(nil)
		if err := l.ChangePool(t.Context(), smaller, false); !errors.As(err, &again) || again.Here || time.Since(began) > time.Second {
			t.Errorf("after %s: %v, want to be asked again at once", time.Since(began), err)
		}
		if err := l.ChangePool(t.Context(), smaller, false); err != nil {
			t.Errorf("asked again: %v", err)
		}
		s.slow(0)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("after that: %v", err)
		}
	})
}

func TestOnlyTheHolderHasOpenGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := &shelf{}, prometheus.NewRegistry()
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}, Metrics: NewMetrics(reg)})
		shown := func() float64 {
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				if f.GetName() == "butler_ipam_open_grants" {
					return f.Metric[0].GetGauge().GetValue()
				}
			}
			return -1
		}
		l.SetPool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.99")}})
		go func() { _ = l.Run(t.Context(), &stores{}) }()
		for !l.Serving() {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := l.Grant(t.Context(), request("x")); err != nil || shown() != 1 {
			t.Fatalf("%v open grants: %v", shown(), err)
		}
		s.mu.Lock()
		s.stored, s.writes = s.stored.TakenOver("b"), s.writes+1
		s.stored.ResourceVersion = fmt.Sprint(s.writes)
		s.mu.Unlock()
		for l.Serving() {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if got := shown(); got != 0 {
			t.Errorf("who lost the journal has %v open grants", got)
		}
	})
}

func TestWhatTheLastHolderDidNotCountIsReadBeforeAnythingIsGranted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := &shelf{}, &stores{}
		s.stored = journal.Version{ResourceVersion: "0", Epoch: 1, Record: journal.Record{Seen: map[string]uint64{modelClaims: 3}}}
		_, stop := running(t, s, "a", source)
		stop()
		if diff := cmp.Diff([]string{modelPools}, source.read); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

// A replica that follows would take over what stays as it is, only to have everything to read in its turn.
func TestWhoReadsForLongBeforeItServesIsNotTakenOver(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(stop func(), s *shelf)
		want uint64
	}{
		"it reads on":            {want: 2},
		"it stops in the middle": {end: func(stop func(), _ *shelf) { stop() }, want: 3},
		"somebody takes the journal from it": {end: func(_ func(), s *shelf) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stored = s.stored.TakenOver("somebody") // and dies
			s.stored.ResourceVersion = "1000"
			s.writes = 1000
		}, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &shelf{stored: journal.Version{ResourceVersion: "0", Epoch: 1}}
				replica := func(me string) (l *Ledger, stop func()) {
					l = New(Config{Store: s, Identity: me, ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan struct{})
					go func() {
						_ = l.Run(ctx, &stores{large: 20 * time.Second})
						close(ended)
					}()
					return l, func() {
						cancel()
						<-ended
					}
				}
				a, stopA := replica("a")
				time.Sleep(time.Second)
				b, stopB := replica("b")
				time.Sleep(10 * time.Second)
				if tc.end != nil {
					tc.end(stopA, s)
				}
				time.Sleep(2 * time.Minute)
				serve := [2]bool{a.Serving(), b.Serving()}
				if v, _ := s.Read(t.Context()); uint64(v.Epoch) != tc.want || serve[0] == serve[1] {
					t.Errorf("epoch %d, want %d; serving: %v", v.Epoch, tc.want, serve)
				}
				stopA()
				stopB()
			})
		})
	}
}

func TestGrantsThatComeInDuringOneCommitShareTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		before := s.count()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := l.Grant(t.Context(), request(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.count() - before; n > 2 {
			t.Errorf("50 grants at once took %d commits", n)
		}
		stop()
		reg := prometheus.NewRegistry()
		reg.MustRegister(l.cfg.Metrics.batches)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		if h := families[0].GetMetric()[0].GetHistogram(); h.GetSampleSum() != 50 || h.GetSampleCount() > 2 {
			t.Errorf("the metric says %.0f grants in %d commits", h.GetSampleSum(), h.GetSampleCount())
		}
	})
}

func TestALoneGrantWaitsForOneCommitOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, &shelf{}, "a", &stores{})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		started := time.Now()
		if _, err := l.Grant(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took > 4*time.Millisecond {
			t.Errorf("took %s where a write takes 2ms", took)
		}
		stop()
	})
}

func TestAGrantThatCannotBeCommittedInTimeIsRefusedAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		s.slow(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wait *NotServingError
		if _, err := l.Grant(ctx, request("a")); !errors.As(err, &wait) {
			t.Errorf("got %v", err)
		}
		s.slow(0)
		time.Sleep(30 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 100 {
			t.Errorf("%d free", u.Available)
		}
		stop()
	})
}

func TestAHolderThatMayHaveBeenReplacedSendsItsCallersToAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		defer stop()
		s.slow(time.Hour)
		started := time.Now()
		var down *NotServingError
		// The first waits until another may have the journal, whatever time it has; those that come then do not.
		for i, most := range []time.Duration{l.Expiry(), 0} {
			if _, err := l.Grant(t.Context(), request(fmt.Sprint(i))); !errors.As(err, &down) || down.Here || down.RetryAfter == 0 {
				t.Errorf("a grant that cannot be committed: %v, want that another replica be asked", err)
			}
			if waited := time.Since(started); waited > most {
				t.Errorf("waited %s, want at most %s", waited, most)
			}
			started = time.Now()
		}
		if err := l.Granted(t.Context(), key("x"), "", 0, []allocator.Range{mustRange("10.0.0.1")}, journal.Token{1}); !errors.As(err, &down) {
			t.Errorf("a question that needs the journal: %v, want that it does not serve", err)
		}
		if l.Ready() == nil {
			t.Error("it says that it is ready")
		}
		s.slow(0)
		time.Sleep(5 * time.Second)
		if _, err := l.Grant(t.Context(), request("later")); err != nil || l.Ready() != nil {
			t.Errorf("when the journal can be written again: %v, ready: %v", err, l.Ready())
		}
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free, want all but the one that was granted", u.Available)
		}
	})
}

func TestAStoppingHolderAnswersWhatIsQueuedAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		a, stop := running(t, s, "a", &stores{})
		got := make(chan error)
		go func() {
			_, err := a.Grant(t.Context(), request("a"))
			got <- err
		}()
		synctest.Wait()
		stop()
		if err := <-got; err != nil {
			t.Errorf("a grant under way: %v", err)
		}
		stopped := time.Now()
		b, stopB := running(t, s, "b", &stores{})
		if waited := time.Since(stopped); waited > time.Second {
			t.Errorf("the next holder waited %s", waited)
		}
		if u, _ := b.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free at the next holder, which inherits a grant", u.Available)
		}
		stopB()
	})
}

func TestAHolderWhoseJournalWasTakenStopsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		a, stop := running(t, s, "a", &stores{})
		s.mu.Lock()
		s.stored = s.stored.TakenOver("b")
		s.writes++
		s.stored.ResourceVersion = fmt.Sprint(s.writes)
		s.mu.Unlock()
		var wait *NotServingError
		if _, err := a.Grant(t.Context(), request("a")); !errors.As(err, &wait) {
			t.Errorf("got %v", err)
		}
		if a.Serving() {
			t.Error("still serving")
		}
		stop()
	})
}

func TestGrantsThatCameToNothingEndAfterTheirLifeAndARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{}
		l, stop := running(t, &shelf{}, "a", source)
		unseen, err := l.Grant(t.Context(), request("stored, but not seen yet"))
		if err != nil {
			t.Fatal(err)
		}
		source.store(Claim{UID: "u", Token: unseen.Token})
		if _, err := l.Grant(t.Context(), request("failed")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultGrantLife - time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 98 {
			t.Errorf("%d free before the end of their life", u.Available)
		}
		time.Sleep(3 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free after it", u.Available)
		}
		// Somebody changed it around the webhooks: what was granted is nobody's.
		changed := Claim{Key: key("stored, but not seen yet"), UID: "u", ResourceVersion: 7, Pool: modelPool, Token: unseen.Token, Ranges: []allocator.Range{mustRange("10.0.0.90-10.0.0.94")}}
		l.Observe(changed)
		source.store(changed)
		time.Sleep(3 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 95 {
			t.Errorf("%d free after it was seen with other addresses", u.Available)
		}
		stop()
	})
}

func TestAGrantToAStoredClaimEndsAfterItsLifeAndSightOfATouch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{touched: 8}
		l, stop := running(t, &shelf{}, "a", source)
		defer stop()
		claim := Claim{Key: key("a"), UID: "u", ResourceVersion: 7, Pool: modelPool}
		l.Observe(claim)
		q := request("a")
		q.UID = "u"
		if _, err := l.Grant(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		for _, step := range []struct {
			what    string
			wait    time.Duration
			version uint64
			free    int64
			touches int
		}{
			{"before the end of its life", DefaultGrantLife - time.Second, 7, 99, 0},
			{"while the touch is not seen", DefaultGrantLife, 7, 99, 1},
			{"when it is not seen for another life", 4 * time.Second, 7, 99, 2},
			{"when it is", 2 * time.Second, 8, 100, 2},
		} {
			claim.ResourceVersion = step.version
			l.Observe(claim)
			time.Sleep(step.wait)
			if u, _ := l.Usage(modelPool); u.Available != step.free || source.touches != step.touches {
				t.Errorf("%s: %d free after %d touches, want %d after %d", step.what, u.Available, source.touches, step.free, step.touches)
			}
		}
	})
}

// Creates that fail, one a second: of a name that the API server was asked to store, and without one.
func TestGrantsThatCameToNothing_Reads(t *testing.T) {
	for _, tc := range []struct {
		what         string
		every        time.Duration
		large        time.Duration // a list takes
		request      func(i int) Request
		validated    bool
		reads, scans int // in a minute at most
	}{
		{"of_a_known_name", time.Second, time.Millisecond, func(int) Request { return request("x") }, true, 61, 0},
		{"of_names_that_were_not_validated", time.Second, time.Millisecond, func(int) Request { return request("x") }, false, 0, 7},
		{"without_a_name", 2 * time.Second, time.Millisecond, func(i int) Request {
			return Request{Claim: Key{Kind: modelClaims, Namespace: key("x").Namespace}, ID: fmt.Sprint(i), Pool: modelPool, Wants: []Want{{Count: 1}}}
		}, false, 0, 7},
		{"whose_list_is_slow", time.Second, 2 * time.Second, func(int) Request { return request("x") }, false, 0, 2},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &stores{large: tc.large}
				l, stop := running(t, &shelf{}, "a", source)
				defer stop()
				create := func(i int) {
					q := tc.request(i)
					g, err := l.Grant(t.Context(), q)
					if err != nil {
						t.Fatal(err)
					}
					if tc.validated {
						if err := l.Granted(t.Context(), q.Claim, "", 0, g.Ranges, g.Token); err != nil {
							t.Fatal(err)
						}
					}
					time.Sleep(tc.every)
				}
				first := int(130 * time.Second / tc.every)
				for i := range first { // the first grants have ended by then
					create(i)
				}
				source.mu.Lock()
				source.reads, source.scans = 0, 0
				source.mu.Unlock()
				for i := range int(time.Minute / tc.every) {
					create(first + i)
				}
				if reads, scans := source.counts(); reads > tc.reads || scans > tc.scans || reads+scans == 0 {
					t.Errorf("%d reads and %d lists in a minute, want %d and %d at most", reads, scans, tc.reads, tc.scans)
				}
				time.Sleep(DefaultGrantLife + time.Minute)
				if u, _ := l.Usage(modelPool); u.Available != 100 {
					t.Errorf("%d free after the end of all, want all", u.Available)
				}
			})
		})
	}
}

// A write to a claim that is refused is repeated ever more seldom, once for all grants to that claim.
func TestAClaimThatCannotBeWrittenTo_Backoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{sealed: key("sealed"), touched: 7}
		l, stop := running(t, &shelf{}, "a", source)
		defer stop()
		l.Observe(Claim{Key: key("sealed"), UID: "sealed", ResourceVersion: 7, Pool: modelPool})
		for range 5 {
			q := request("sealed")
			q.UID = "sealed"
			if _, err := l.Grant(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultGrantLife + time.Minute)
		before := source.writes()
		if before < 4 || before > 7 { // after 1, 2, 4, 8, 16 and 30 seconds
			t.Errorf("%d writes in the first minute", before)
		}
		time.Sleep(5 * time.Minute)
		if n := source.writes() - before; n < 9 || n > 11 {
			t.Errorf("%d writes in five minutes, want one every %s", n, touchLongest)
		}
		source.mu.Lock()
		source.sealed = Key{}
		source.mu.Unlock()
		time.Sleep(touchLongest + 2*sweepEvery)
		if u, _ := l.Usage(modelPool); u.Available != 100 {
			t.Errorf("%d free after it could be written to, want all", u.Available)
		}
	})
}

func TestAClaimThatCannotBeWrittenToKeepsNoOtherGrantOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &stores{sealed: key("sealed"), touched: 7}
		l, stop := running(t, &shelf{}, "a", source)
		defer stop()
		for _, name := range []string{"sealed", "b", "c", "d"} {
			l.Observe(Claim{Key: key(name), UID: name, ResourceVersion: 7, Pool: modelPool})
			for _, uid := range []string{name, ""} { // a grant to the stored claim, and one to a create
				q := request(name)
				if q.UID = uid; uid == "" {
					q.Claim.Name = "new-" + name
				}
				if _, err := l.Grant(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
		}
		time.Sleep(DefaultGrantLife + 3*time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free, want all but the one address that the sealed claim was given", u.Available)
		}
	})
}

func TestAClaimWhoseWritesHangLetsTheGrantsOfOthersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, &shelf{}, "a", &stores{sealed: key("sealed"), hangs: touchLimit + time.Second, touched: 7})
		defer stop()
		for i := range 20 { // in the order of their tokens, which are random, some come after the one that hangs
			name := "sealed"
			if i > 0 {
				name = fmt.Sprint("claim-", i)
			}
			l.Observe(Claim{Key: key(name), UID: name, ResourceVersion: 7, Pool: modelPool})
			q := request(name)
			q.UID = name
			if _, err := l.Grant(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultGrantLife + 5*touchLimit)
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free, want all but the one address that the sealed claim was given", u.Available)
		}
	})
}

func TestAClaimWithoutPoolGoesWhereItsLabelSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, &shelf{}, "a", &stores{})
		defer stop()
		at := []allocator.Range{mustRange("10.9.0.1")}
		l.Observe(Claim{Key: key("first"), UID: "1", ResourceVersion: 7, Ranges: at})
		l.Observe(Claim{Key: key("first"), UID: "1", ResourceVersion: 8, Ranges: at, Space: "lab"})
		for space, free := range map[string]bool{"lab": false, "": true} {
			_, err := l.Preview(t.Context(), Request{Claim: key("second"), Space: space, Wants: []Want{{Exact: at[0], Count: 1}}})
			if free != (err == nil) {
				t.Errorf("in space %q: %v, want free %t", space, err, free)
			}
		}
	})
}

func TestALostJournalWithPoolsStoredGrantsNothingForAWholeLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := running(t, &shelf{}, "a", &stores{any: true})
		started := time.Now()
		for {
			_, err := l.Grant(t.Context(), request("a"))
			if err == nil {
				break
			}
			time.Sleep(time.Second)
		}
		if waited := time.Since(started); waited < DefaultGrantLife {
			t.Errorf("granted after %s", waited)
		}
		stop()
	})
}

func TestAJournalThatCountsAnUnknownKindIsNotTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{stored: journal.Version{ResourceVersion: "0", Record: journal.Record{Seen: map[string]uint64{"others.test": 1}}}}
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = l.Run(ctx, &stores{})
		if s.count() != 0 || l.Serving() {
			t.Error("taken over")
		}
		if err := l.Ready(); err == nil {
			t.Error("ready")
		}
	})
}

// While one holder follows another, all replicas may look at once as if they could not serve: who asks waits here as well as anywhere.
func TestAReplicaStaysReadyWhileNobodyHoldsTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := journal.Version{ResourceVersion: "0", Holder: "b"}
		vacant := journal.Version{ResourceVersion: "0", Record: journal.Record{Seen: map[string]uint64{"others.test": 1}}} // which it may not take
		s := &shelf{stored: vacant}
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
		run, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(run, &stores{}) })
		defer running.Wait()
		defer stop()
		for i, step := range []struct {
			stored journal.Version
			after  time.Duration
			ready  bool
		}{
			{vacant, time.Second, false}, // it has just started
			{held, time.Second, true},
			{vacant, unreadyAfter - time.Second, true},
			{vacant, 2 * time.Second, false},
			{held, time.Second, true},
			{vacant, unreadyAfter - time.Second, true},
		} {
			s.mu.Lock()
			s.stored = step.stored
			s.mu.Unlock()
			time.Sleep(step.after)
			if err := l.Ready(); (err == nil) != step.ready {
				t.Errorf("step %d: %v, want ready: %t", i, err, step.ready)
			}
		}
	})
}

// sealed is a journal that can be read only, as without the right to update Leases.
type sealed struct {
	*shelf
	open atomic.Bool
}

func (s *sealed) Write(ctx context.Context, v journal.Version) (string, error) {
	if !s.open.Load() {
		return "", errors.New("leases are forbidden to be updated")
	}
	return s.shelf.Write(ctx, v)
}

func TestWhoCannotTakeTheJournalOverIsNotReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &sealed{shelf: &shelf{stored: journal.Version{ResourceVersion: "0", Holder: "b"}}}
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
		run, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(run, &stores{}) })
		defer running.Wait()
		defer stop()
		time.Sleep(time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("while another holds it: %v", err)
		}
		time.Sleep(l.Expiry() + unreadyAfter)
		if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("got %v, want what stands against the write", err)
		}
		s.open.Store(true)
		time.Sleep(time.Second)
		if err := l.Ready(); err != nil || !l.Serving() {
			t.Errorf("when it can be written: %v", err)
		}
		s.open.Store(false) // for who holds it too
		time.Sleep(l.Expiry() + time.Second)
		if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("got %v, want what stands against the write", err)
		}
		s.open.Store(true)
		time.Sleep(2 * time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("when it can be written again: %v", err)
		}
	})
}

// Of what a new holder finds, creates must not wait for what nobody waits for; but everything is looked at some time.
func TestANewHolderHasEverythingLookedAtAndFirstWhatIsNotDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const done = 3 * revisitBatch
		var mu sync.Mutex
		told := map[Key]time.Time{}
		s := &shelf{}
		l := New(Config{Store: s, Identity: "a", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}, Changed: func(keys []Key) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				if told[k].IsZero() {
					told[k] = time.Now()
				}
			}
		}})
		l.SetPool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}})
		observe := func(i int, name string, ready bool) {
			r, err := allocator.NewRange(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
			if err != nil {
				t.Fatal(err)
			}
			l.Observe(Claim{Key: key(name), UID: name, ResourceVersion: uint64(i + 1), Pool: modelPool, Ranges: []allocator.Range{r}, Ready: ready})
		}
		for i := range done {
			observe(i, fmt.Sprint(i), true)
		}
		observe(done, "new", false)
		clear(told) // a follower's reconcilers rest
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			_ = l.Run(ctx, &stores{})
			close(ended)
		}()
		for !l.Serving() {
			time.Sleep(time.Millisecond)
		}
		serving := time.Now()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		mu.Lock()
		defer mu.Unlock()
		if len(told) != done+2 {
			t.Errorf("%d of %d objects are looked at", len(told), done+2)
		}
		if waited := told[key("new")].Sub(serving); waited > 2*confirmAfter {
			t.Errorf("what is not Ready is looked at after %s", waited)
		}
		last := time.Time{}
		for _, at := range told {
			if at.After(last) {
				last = at
			}
		}
		if took := last.Sub(serving); took < 2*revisitEvery {
			t.Errorf("everything is looked at within %s: creates have to wait for it", took)
		}
	})
}

func TestAHolderThatMayHaveBeenReplacedRefusesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		defer stop()
		if err := l.Granted(t.Context(), key("x"), "", 0, []allocator.Range{mustRange("10.0.0.1")}, journal.Token{1}); !errors.Is(err, ErrForged) {
			t.Errorf("a holder says of an unknown token: %v, want %v", err, ErrForged)
		}
		before := s.count()
		tooMany := request("too many")
		tooMany.Wants = []Want{{Count: 101}}
		if _, err := l.Preview(t.Context(), tooMany); !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("a holder says of a pool too small: %v, want %v", err, allocator.ErrExhausted)
		}
		if s.count() != before {
			t.Error("a refusal right after a commit has cost another")
		}
		// As after a pause of the process: the journal is another's, and this one has not noticed.
		s.mu.Lock()
		s.stored = s.stored.TakenOver("b")
		s.stored.ResourceVersion = "taken"
		s.mu.Unlock()
		l.mu.Lock()
		l.proven = time.Now().Add(-sureFor)
		l.mu.Unlock()
		var down *NotServingError
		if err := l.Granted(t.Context(), key("x"), "", 0, []allocator.Range{mustRange("10.0.0.1")}, journal.Token{1}); !errors.As(err, &down) {
			t.Errorf("a former holder says of an unknown token: %v, want that it does not serve", err)
		}
		if _, err := l.Preview(t.Context(), tooMany); !errors.As(err, &down) {
			t.Errorf("a former holder says of a pool too small: %v, want that it does not serve", err)
		}
	})
}

func TestAHolderThatMayHaveBeenReplacedCallsNoClaimConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{}
		l, stop := running(t, s, "a", &stores{})
		defer stop()
		l.Observe(Claim{Key: key("a"), UID: "a", ResourceVersion: 2, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.1")}})
		for _, step := range []struct {
			what      string
			takes     time.Duration
			confirmed bool
		}{
			{"held since the last commit", 0, true},
			{"nobody has heard of it for long", time.Hour, false},
			{"it has written the journal again", 0, true},
		} {
			s.slow(step.takes)
			time.Sleep(l.Expiry() + confirmAfter)
			for range 2 {
				if st := l.Standing("a"); st.Confirmed != step.confirmed {
					t.Errorf("%s: confirmed %t", step.what, st.Confirmed)
				}
			}
		}
	})
}

// What reconcilers and webhooks recover from would leave a book that nobody can rely on.
func TestAPanicInTheBookEndsTheProcess(t *testing.T) {
	if os.Getenv("PANIC_IN_THE_BOOK") != "" {
		defer func() { _ = recover() }()
		New(Config{}).do(func(*book) { panic("halfway") })
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), "PANIC_IN_THE_BOOK=yes")
	said, err := again.CombinedOutput()
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || !strings.Contains(string(said), "left halfway: halfway") || !strings.Contains(string(said), "TestAPanicInTheBook") {
		t.Errorf("%v: %s", err, said)
	}
}
