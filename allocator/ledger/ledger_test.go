package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
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
	"butlerlabs.dev/ipam/allocator/state"
)

// memoryStore is a journal.Store in memory: a compare-and-swap that takes two
// milliseconds, or the time set by setLatency.
type memoryStore struct {
	mu      sync.Mutex
	stored  journal.Revision
	writes  int
	latency time.Duration
}

func (s *memoryStore) Read(context.Context) (journal.Revision, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stored, nil
}

func (s *memoryStore) Write(ctx context.Context, v journal.Revision) (string, error) {
	s.mu.Lock()
	latency := s.latency
	s.mu.Unlock()
	if journal.Pause(ctx, max(latency, 2*time.Millisecond)) != nil {
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

func (s *memoryStore) setLatency(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latency = d
}

func (s *memoryStore) writeCount() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// fakeSource is a Source with complete local copies and an API server that stores the
// given claims.
type fakeSource struct {
	claims        []Claim
	anyStored     bool
	fencedVersion uint64        // resourceVersion of an object after its fence
	fenceDenied   Key           // fences of the object with this key are denied
	fenceLatency  time.Duration // duration of a denied fence
	readLatency   time.Duration // duration of a live read of a resource
	noObjects     bool          // HasObjects reports no objects
	hasObjectsErr error         // error of HasObjects
	readAccess    map[string]ReadAccess

	mu            sync.Mutex
	records       []MovedRecord
	recordsErr    error    // error of MovedRecords
	readResources []string // resources that were read live
	fenceCount    int
	readCount     int // of single claims
	scanCount     int
}

func (s *fakeSource) AnyStored(context.Context) (bool, error) { return s.anyStored, nil }
func (s *fakeSource) HasObjects(context.Context, string) (bool, error) {
	return !s.noObjects, s.hasObjectsErr
}

func (s *fakeSource) AppliedVersion(resource string) uint64 {
	if s.ReadAccess(resource).Denied != nil {
		return 0 // nothing was observed since the start
	}
	return 1 << 60
}

func (s *fakeSource) ReadAccess(resource string) ReadAccess {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readAccess[resource]
}

func (s *fakeSource) Refresh(ctx context.Context, resource string, live bool) error {
	if live {
		if err := journal.Pause(ctx, s.readLatency); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if live {
		s.readResources = append(s.readResources, resource)
	}
	return nil
}

func (s *fakeSource) FenceWrites(ctx context.Context, k Key, _ string) (uint64, error) {
	s.mu.Lock()
	denied := k == s.fenceDenied
	s.mu.Unlock()
	if denied {
		_ = journal.Pause(ctx, s.fenceLatency) // the write is denied in any case
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fenceCount++
	if denied {
		return 0, errors.New("denied by a policy")
	}
	return s.fencedVersion, nil
}

func (s *fakeSource) MovedRecords(context.Context) ([]MovedRecord, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.records, s.recordsErr
}

// setRecords sets the stored records of moved ranges, or the error of reading them.
func (s *fakeSource) setRecords(records []MovedRecord, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records, s.recordsErr = records, err
}

// readCounts returns the number of reads of single claims and the number of lists.
func (s *fakeSource) readCounts() (reads, scans int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readCount, s.scanCount
}

// fences returns the number of fences.
func (s *fakeSource) fences() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fenceCount
}

// setClaims replaces the stored claims.
func (s *fakeSource) setClaims(claims ...Claim) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claims = claims
}

func (s *fakeSource) ReadClaim(_ context.Context, k Key) (Claim, bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readCount++
	i := slices.IndexFunc(s.claims, func(c Claim) bool { return c.Key == k })
	if i < 0 {
		return Claim{}, false, nil
	}
	return s.claims[i], true, nil
}

func (s *fakeSource) ScanClaims(ctx context.Context, _, _ string, visit func(Claim)) error {
	_ = journal.Pause(ctx, s.readLatency)
	s.mu.Lock()
	s.scanCount++
	claims := s.claims
	s.mu.Unlock()
	for _, c := range claims {
		visit(c)
	}
	return nil
}

// startLeader runs a ledger with a pool of a hundred addresses, waits until the ledger
// leads, and returns it with a function that stops it.
func startLeader(t *testing.T, store journal.Store, identity string, source Source) (l *Ledger, stop func()) {
	t.Helper()
	l, stop = startReplica(t, store, identity, source)
	for !l.MayGrant() {
		time.Sleep(10 * time.Millisecond)
	}
	return l, stop
}

// startReplica runs a ledger with a pool of a hundred addresses, and returns it with a
// function that stops it.
func startReplica(t *testing.T, store journal.Store, identity string, source Source) (l *Ledger, stop func()) {
	t.Helper()
	l = New(Config{Store: store, Identity: identity, ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
	l.ObservePool(Pool{Key: modelPool, UID: "pool", ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.99")}})
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
	return Request{Claim: key(name), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}}
}

// Two updates remove the same addresses from a pool. The event of the first update ends
// the withholding for which the second update waits.
func TestUpdatePool_IsRetriedAfterAnEqualUpdateIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		defer stop()
		s.setLatency(300 * time.Millisecond)
		smaller := Pool{Key: modelPool, ResourceVersion: 2, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.49")}}
		time.AfterFunc(100*time.Millisecond, func() { l.ObservePool(smaller) })
		began, again := time.Now(), (*NotServingError)(nil)
		if err := l.UpdatePool(t.Context(), smaller, false); !errors.As(err, &again) || again.NoOtherReplica || time.Since(began) > time.Second {
			t.Errorf("after %s: %v, want an error at once that lets the caller retry", time.Since(began), err)
		}
		if err := l.UpdatePool(t.Context(), smaller, false); err != nil {
			t.Errorf("retry: %v", err)
		}
		s.setLatency(0)
		if _, err := l.Grant(t.Context(), request("x")); err != nil {
			t.Errorf("grant after the update: %v", err)
		}
	})
}

func TestMetrics_OpenGrantsOnlyOnTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reg := &memoryStore{}, prometheus.NewRegistry()
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}, Metrics: NewMetrics(reg)})
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
		l.ObservePool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.99")}})
		go func() { _ = l.Run(t.Context(), &fakeSource{}) }()
		for !l.MayGrant() {
			time.Sleep(10 * time.Millisecond)
		}
		if _, err := l.Grant(t.Context(), request("x")); err != nil || shown() != 1 {
			t.Fatalf("%v open grants: %v", shown(), err)
		}
		s.mu.Lock()
		s.stored, s.writes = s.stored.WithLeader("b"), s.writes+1
		s.stored.ResourceVersion = fmt.Sprint(s.writes)
		s.mu.Unlock()
		for l.MayGrant() {
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if got := shown(); got != 0 {
			t.Errorf("a former leader shows %v open grants", got)
		}
	})
}

// Administrators learn which namespaces fill the journal: by a message, and by a metric
// of the leader. The author of the denied request does not.
func TestJournalFull_NamesTheNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var messages []string
		reg := prometheus.NewRegistry()
		l := New(Config{
			Store: &memoryStore{}, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}, Metrics: NewMetrics(reg),
			JournalFull: func(message string) { messages = append(messages, message) },
		})
		l.ObservePool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0/16")}})
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(ctx, &fakeSource{}) })
		defer func() {
			stop()
			running.Wait()
		}()
		for !l.MayGrant() {
			time.Sleep(10 * time.Millisecond)
		}
		create := func(namespace, name string) error {
			q := request(name)
			q.Claim.Namespace = namespace
			_, err := l.Grant(t.Context(), q)
			return err
		}
		var creates sync.WaitGroup
		var denied atomic.Pointer[NotServingError]
		for i := range 1600 {
			creates.Go(func() {
				if full := (*NotServingError)(nil); errors.As(create("floods", fmt.Sprint(i)), &full) {
					denied.Store(full)
				}
			})
		}
		creates.Wait()
		if err := create("other", "x"); err != nil {
			t.Errorf("a create in another namespace: %v", err)
		}
		if full := denied.Load(); full == nil || !full.JournalFull || !strings.Contains(full.Reason, "namespace floods has used up its share") {
			t.Errorf("denied with %v", full)
		}
		if len(messages) != 1 || !strings.Contains(messages[0], "namespace floods 14") || !strings.Contains(messages[0], "(25 %)") {
			t.Errorf("messages %q", messages)
		}
		shown := func() map[string]float64 {
			all, err := reg.Gather()
			if err != nil {
				t.Fatal(err)
			}
			used := map[string]float64{}
			for _, f := range all {
				for _, m := range f.Metric {
					if f.GetName() == "butler_ipam_journal_used_ratio" {
						used[m.Label[0].GetValue()] = m.GetGauge().GetValue()
					}
				}
			}
			return used
		}
		time.Sleep(2 * expireEvery)
		if used := shown(); len(used) != 2 || used["floods"] < 0.24 || used["other"] == 0 {
			t.Errorf("metric %v", used)
		}
	})
}

func TestTakeOver_ReadsResourcesThatThePreviousLeaderDidNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, source := &memoryStore{}, &fakeSource{}
		s.stored = journal.Revision{ResourceVersion: "0", Term: 1, Snapshot: journal.Snapshot{Applied: map[string]uint64{modelClaims: 3}}}
		_, stop := startLeader(t, s, "a", source)
		stop()
		if diff := cmp.Diff([]string{modelPools}, source.readResources); diff != "" {
			t.Errorf("read (-want +got):\n%s", diff)
		}
	})
}

// Otherwise a follower would take over after the expiry, and have to read all objects
// itself.
func TestTakeOver_LongReadKeepsTheJournal(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(stop func(), s *memoryStore)
		want uint64
	}{
		"the read ends":                     {want: 2},
		"the replica stops during the read": {end: func(stop func(), _ *memoryStore) { stop() }, want: 3},
		"another replica takes over": {end: func(_ func(), s *memoryStore) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.stored = s.stored.WithLeader("other") // which ends at once
			s.stored.ResourceVersion = "1000"
			s.writes = 1000
		}, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &memoryStore{stored: journal.Revision{ResourceVersion: "0", Term: 1}}
				replica := func(identity string) (l *Ledger, stop func()) {
					l = New(Config{Store: s, Identity: identity, ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
					ctx, cancel := context.WithCancel(t.Context())
					ended := make(chan struct{})
					go func() {
						_ = l.Run(ctx, &fakeSource{readLatency: 20 * time.Second})
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
				serve := [2]bool{a.MayGrant(), b.MayGrant()}
				if v, _ := s.Read(t.Context()); uint64(v.Term) != tc.want || serve[0] == serve[1] {
					t.Errorf("term %d, want %d; serving: %v", v.Term, tc.want, serve)
				}
				stopA()
				stopB()
			})
		})
	}
}

func TestCommit_ConcurrentGrantsShareOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		before := s.writeCount()
		var wg sync.WaitGroup
		for i := range 50 {
			wg.Go(func() {
				if _, err := l.Grant(t.Context(), request(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := s.writeCount() - before; n > 2 {
			t.Errorf("50 grants at once took %d commits", n)
		}
		stop()
		reg := prometheus.NewRegistry()
		reg.MustRegister(l.cfg.Metrics.batches)
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		standby := float64(maxStandbyGrants)
		if h := families[0].GetMetric()[0].GetHistogram(); h.GetSampleSum() > 50 || h.GetSampleSum() < 50-standby || h.GetSampleCount() > 2 {
			t.Errorf("the metric has %.0f grants in %d commits; the others had standby grants", h.GetSampleSum(), h.GetSampleCount())
		}
	})
}

func TestCommit_SingleGrantWaitsForOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := startLeader(t, &memoryStore{}, "a", &fakeSource{})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		started := time.Now()
		if _, err := l.Grant(t.Context(), request("a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(started); took > 4*time.Millisecond {
			t.Errorf("the grant took %s, a write takes 2ms", took)
		}
		stop()
	})
}

func TestGrant_DeniedAndWithdrawnIfNotCommittedInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		s.setLatency(20 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var wait *NotServingError
		if _, err := l.Grant(ctx, request("a")); !errors.As(err, &wait) {
			t.Errorf("got %v", err)
		}
		s.setLatency(0)
		time.Sleep(30 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 100 {
			t.Errorf("%d free", u.Available)
		}
		stop()
	})
}

func TestLeaseExpired_CallersAreSentToAnotherReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		defer stop()
		s.setLatency(time.Hour)
		started := time.Now()
		var down *NotServingError
		// The first call waits until another replica may lead, whatever its deadline;
		// later calls do not wait.
		for i, most := range []time.Duration{l.Expiry(), 0} {
			if _, err := l.Grant(t.Context(), request(fmt.Sprint(i))); !errors.As(err, &down) || down.NoOtherReplica || down.RetryAfter == 0 {
				t.Errorf("a grant that cannot be committed: %v, want an error that sends the caller to another replica", err)
			}
			if waited := time.Since(started); waited > most {
				t.Errorf("waited %s, want at most %s", waited, most)
			}
			started = time.Now()
		}
		if err := l.CheckGrant(t.Context(), Claim{Key: key("x"), Ranges: []allocator.Range{mustRange("10.0.0.1")}, Token: journal.Token{1}}, "", 0); !errors.As(err, &down) {
			t.Errorf("CheckGrant: %v, want NotServingError", err)
		}
		if l.Ready() == nil {
			t.Error("Ready returns nil")
		}
		s.setLatency(0)
		time.Sleep(5 * time.Second)
		if _, err := l.Grant(t.Context(), request("later")); err != nil || l.Ready() != nil {
			t.Errorf("when the journal can be written again: %v, ready: %v", err, l.Ready())
		}
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free, want all but the granted address", u.Available)
		}
	})
}

func TestStop_CommitsQueuedGrantsAndHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		a, stop := startLeader(t, s, "a", &fakeSource{})
		got := make(chan error)
		go func() {
			_, err := a.Grant(t.Context(), request("a"))
			got <- err
		}()
		synctest.Wait()
		stop()
		if err := <-got; err != nil {
			t.Errorf("a queued grant: %v", err)
		}
		stopped := time.Now()
		b, stopB := startLeader(t, s, "b", &fakeSource{})
		if waited := time.Since(stopped); waited > time.Second {
			t.Errorf("the next leader waited %s", waited)
		}
		if u, _ := b.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free on the next leader, which inherits a grant", u.Available)
		}
		stopB()
	})
}

func TestLeadershipLost_StopsServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		a, stop := startLeader(t, s, "a", &fakeSource{})
		s.mu.Lock()
		s.stored = s.stored.WithLeader("b")
		s.writes++
		s.stored.ResourceVersion = fmt.Sprint(s.writes)
		s.mu.Unlock()
		var wait *NotServingError
		if _, err := a.Grant(t.Context(), request("a")); !errors.As(err, &wait) {
			t.Errorf("got %v", err)
		}
		if a.MayGrant() {
			t.Error("the former leader still serves")
		}
		stop()
	})
}

func TestExpiry_GrantToCreateEndsAfterItsLifeAndARead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{}
		l, stop := startLeader(t, &memoryStore{}, "a", source)
		unseen, err := l.Grant(t.Context(), request("stored, but not observed"))
		if err != nil {
			t.Fatal(err)
		}
		source.setClaims(Claim{UID: "u", Token: unseen.Token})
		if _, err := l.Grant(t.Context(), request("failed")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(DefaultGrantLife - time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 98 {
			t.Errorf("%d free before the end of the grants' life", u.Available)
		}
		time.Sleep(3 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free after the end of the grants' life", u.Available)
		}
		// The claim was changed without admission: the granted range has no owner.
		changed := Claim{Key: key("stored, but not observed"), UID: "u", ResourceVersion: 7, Pool: modelPool, Token: unseen.Token, Ranges: []allocator.Range{mustRange("10.0.0.90-10.0.0.94")}}
		l.ObserveClaim(changed)
		source.setClaims(changed)
		time.Sleep(3 * time.Second)
		if u, _ := l.Usage(modelPool); u.Available != 95 {
			t.Errorf("%d free after the claim was observed with other addresses", u.Available)
		}
		stop()
	})
}

func TestExpiry_GrantToStoredClaimEndsAfterTheFenceIsObserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{fencedVersion: 8}
		l, stop := startLeader(t, &memoryStore{}, "a", source)
		defer stop()
		claim := Claim{Key: key("a"), UID: "u", ResourceVersion: 7, Pool: modelPool}
		l.ObserveClaim(claim)
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
			fences  int
		}{
			{"before the end of its life", DefaultGrantLife - time.Second, 7, 99, 0},
			{"while the fence is not observed", DefaultGrantLife, 7, 99, 1},
			{"when the fence is not observed for another grant life", 4 * time.Second, 7, 99, 2},
			{"when the fence is observed", 2 * time.Second, 8, 100, 2},
		} {
			claim.ResourceVersion = step.version
			l.ObserveClaim(claim)
			time.Sleep(step.wait)
			if u, _ := l.Usage(modelPool); u.Available != step.free || source.fenceCount != step.fences {
				t.Errorf("%s: %d free after %d fences, want %d after %d", step.what, u.Available, source.fenceCount, step.free, step.fences)
			}
		}
	})
}

// Failed creates, one a second: with a name that reached validation, with a name that did
// not, and without a name.
func TestExpiry_BoundsReads(t *testing.T) {
	for _, tc := range []struct {
		what         string
		every        time.Duration
		readLatency  time.Duration // duration of one list
		request      func(i int) Request
		validated    bool
		reads, scans int // in a minute at most
	}{
		{"final_name", time.Second, time.Millisecond, func(int) Request { return request("x") }, true, 61, 0},
		{"name_before_validation", time.Second, time.Millisecond, func(int) Request { return request("x") }, false, 0, 7},
		{"no_name", 2 * time.Second, time.Millisecond, func(i int) Request {
			return Request{Claim: Key{Resource: modelClaims, Namespace: key("x").Namespace}, RequestUID: fmt.Sprint(i), Pool: modelPool, Ranges: []RangeRequest{{Count: 1}}}
		}, false, 0, 7},
		{"slow_list", time.Second, 2 * time.Second, func(int) Request { return request("x") }, false, 0, 2},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				source := &fakeSource{readLatency: tc.readLatency}
				l, stop := startLeader(t, &memoryStore{}, "a", source)
				defer stop()
				create := func(i int) {
					q := tc.request(i)
					g, err := l.Grant(t.Context(), q)
					if err != nil {
						t.Fatal(err)
					}
					if tc.validated {
						if err := l.CheckGrant(t.Context(), Claim{Key: q.Claim, Pool: q.Pool, Ranges: g.Ranges, Token: g.Token}, "", 0); err != nil {
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
				source.readCount, source.scanCount = 0, 0
				source.mu.Unlock()
				for i := range int(time.Minute / tc.every) {
					create(first + i)
				}
				if reads, scans := source.readCounts(); reads > tc.reads || scans > tc.scans || reads+scans == 0 {
					t.Errorf("%d reads and %d lists in a minute, want %d and %d at most", reads, scans, tc.reads, tc.scans)
				}
				time.Sleep(DefaultGrantLife + time.Minute)
				if u, _ := l.Usage(modelPool); u.Available != 100 {
					t.Errorf("%d free after the end of all grants, want 100", u.Available)
				}
			})
		})
	}
}

// A denied write to a claim is retried with growing pauses, once for all grants to the
// claim.
func TestExpiry_DeniedFenceBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{fenceDenied: key("protected"), fencedVersion: 7}
		l, stop := startLeader(t, &memoryStore{}, "a", source)
		defer stop()
		l.ObserveClaim(Claim{Key: key("protected"), UID: "protected", ResourceVersion: 7, Pool: modelPool})
		for range 5 {
			q := request("protected")
			q.UID = "protected"
			if _, err := l.Grant(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultGrantLife + time.Minute)
		before := source.fences()
		if before < 4 || before > 7 { // after 1, 2, 4, 8, 16 and 30 seconds
			t.Errorf("%d writes in the first minute", before)
		}
		time.Sleep(5 * time.Minute)
		if n := source.fences() - before; n < 9 || n > 11 {
			t.Errorf("%d writes in five minutes, want one every %s", n, fenceRetryMax)
		}
		source.mu.Lock()
		source.fenceDenied = Key{}
		source.mu.Unlock()
		time.Sleep(fenceRetryMax + 2*expireEvery)
		if u, _ := l.Usage(modelPool); u.Available != 100 {
			t.Errorf("%d free after a fence succeeded, want 100", u.Available)
		}
	})
}

func TestExpiry_DeniedFenceKeepsNoOtherGrantOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &fakeSource{fenceDenied: key("protected"), fencedVersion: 7}
		l, stop := startLeader(t, &memoryStore{}, "a", source)
		defer stop()
		for _, name := range []string{"protected", "b", "c", "d"} {
			l.ObserveClaim(Claim{Key: key(name), UID: name, ResourceVersion: 7, Pool: modelPool})
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
			t.Errorf("%d free, want all but the address granted to the protected claim", u.Available)
		}
	})
}

func TestExpiry_HangingFenceKeepsNoOtherGrantOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := startLeader(t, &memoryStore{}, "a", &fakeSource{fenceDenied: key("protected"), fenceLatency: fenceLimit + time.Second, fencedVersion: 7})
		defer stop()
		for i := range 20 { // in the order of the random tokens, some grants follow the fence that hangs
			name := "protected"
			if i > 0 {
				name = fmt.Sprint("claim-", i)
			}
			l.ObserveClaim(Claim{Key: key(name), UID: name, ResourceVersion: 7, Pool: modelPool})
			q := request(name)
			q.UID = name
			if _, err := l.Grant(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(DefaultGrantLife + 5*fenceLimit)
		if u, _ := l.Usage(modelPool); u.Available != 99 {
			t.Errorf("%d free, want all but the address granted to the protected claim", u.Available)
		}
	})
}

func TestObserveClaim_ClaimWithoutPoolMovesToItsRoutingDomain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := startLeader(t, &memoryStore{}, "a", &fakeSource{})
		defer stop()
		at := []allocator.Range{mustRange("10.9.0.1")}
		l.ObserveClaim(Claim{Key: key("first"), UID: "1", ResourceVersion: 7, Ranges: at})
		l.ObserveClaim(Claim{Key: key("first"), UID: "1", ResourceVersion: 8, Ranges: at, RoutingDomain: "lab"})
		for space, free := range map[string]bool{"lab": false, "": true} {
			_, err := l.Preview(t.Context(), Request{Claim: key("second"), RoutingDomain: space, Ranges: []RangeRequest{{Exact: at[0], Count: 1}}})
			if free != (err == nil) {
				t.Errorf("routing domain %q: %v, want free %t", space, err, free)
			}
		}
	})
}

func TestTakeOver_LostJournalGrantsNothingForOneGrantLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, stop := startLeader(t, &memoryStore{}, "a", &fakeSource{anyStored: true})
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

func TestTakeOver_NotWhileAnUnknownResourceHasObjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{stored: journal.Revision{ResourceVersion: "0", Snapshot: journal.Snapshot{Applied: map[string]uint64{"others.test": 1}}}}
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_ = l.Run(ctx, &fakeSource{})
		if s.writeCount() != 0 || l.MayGrant() {
			t.Error("the replica took over")
		}
		if err := l.Ready(); err == nil {
			t.Error("the replica is ready")
		}
	})
}

// Between two leaders all replicas may be without a leader at the same time: a caller can
// wait on any of them.
func TestReady_StaysTrueBetweenTwoLeaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		led := journal.Revision{ResourceVersion: "0", Leader: "b"}
		vacant := journal.Revision{ResourceVersion: "0", Snapshot: journal.Snapshot{Applied: map[string]uint64{"others.test": 1}}} // which the replica may not take over
		s := &memoryStore{stored: vacant}
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
		run, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(run, &fakeSource{}) })
		defer running.Wait()
		defer stop()
		for i, step := range []struct {
			stored journal.Revision
			after  time.Duration
			ready  bool
		}{
			{vacant, time.Second, false}, // just started
			{led, time.Second, true},
			{vacant, unreadyAfter - time.Second, true},
			{vacant, 2 * time.Second, false},
			{led, time.Second, true},
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

// readOnlyStore is a journal that can only be read until open is set, as without the
// right to update Leases.
type readOnlyStore struct {
	*memoryStore
	open atomic.Bool
}

func (s *readOnlyStore) Write(ctx context.Context, v journal.Revision) (string, error) {
	if !s.open.Load() {
		return "", errors.New("leases are forbidden to be updated")
	}
	return s.memoryStore.Write(ctx, v)
}

func TestReady_FalseWithoutTheRightToWriteTheJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &readOnlyStore{memoryStore: &memoryStore{stored: journal.Revision{ResourceVersion: "0", Leader: "b"}}}
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
		run, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { _ = l.Run(run, &fakeSource{}) })
		defer running.Wait()
		defer stop()
		time.Sleep(time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("while another replica leads: %v", err)
		}
		time.Sleep(l.Expiry() + unreadyAfter)
		if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("got %v, want the error of the write", err)
		}
		s.open.Store(true)
		time.Sleep(time.Second)
		if err := l.Ready(); err != nil || !l.MayGrant() {
			t.Errorf("when the journal can be written: %v", err)
		}
		s.open.Store(false) // the same for a leader
		time.Sleep(l.Expiry() + time.Second)
		if err := l.Ready(); err == nil || !strings.Contains(err.Error(), "forbidden") {
			t.Errorf("got %v, want the error of the write", err)
		}
		s.open.Store(true)
		time.Sleep(2 * time.Second)
		if err := l.Ready(); err != nil {
			t.Errorf("when the journal can be written again: %v", err)
		}
	})
}

// After a take-over all objects are reported as changed. Objects that are not Ready come
// first, and creates do not wait for the rest.
func TestTakeOver_RequeuesAllObjectsUnfinishedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const done = 3 * requeueBatch
		var mu sync.Mutex
		reported := map[Key]time.Time{}
		s := &memoryStore{}
		l := New(Config{Store: s, Identity: "a", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}, Changed: func(keys []Key) {
			mu.Lock()
			defer mu.Unlock()
			for _, k := range keys {
				if reported[k].IsZero() {
					reported[k] = time.Now()
				}
			}
		}})
		l.ObservePool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}})
		observe := func(i int, name string, ready bool) {
			r, err := allocator.NewRange(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}))
			if err != nil {
				t.Fatal(err)
			}
			l.ObserveClaim(Claim{Key: key(name), UID: name, ResourceVersion: uint64(i + 1), Pool: modelPool, Ranges: []allocator.Range{r}, Ready: ready})
		}
		for i := range done {
			observe(i, fmt.Sprint(i), true)
		}
		observe(done, "new", false)
		clear(reported) // reconcilers of a follower do nothing
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			_ = l.Run(ctx, &fakeSource{})
			close(ended)
		}()
		for !l.MayGrant() {
			time.Sleep(time.Millisecond)
		}
		serving := time.Now()
		time.Sleep(time.Minute)
		cancel()
		<-ended
		mu.Lock()
		defer mu.Unlock()
		if len(reported) != done+2 {
			t.Errorf("%d of %d objects are reported", len(reported), done+2)
		}
		if waited := reported[key("new")].Sub(serving); waited > 2*confirmAfter {
			t.Errorf("the claim that is not Ready is reported after %s", waited)
		}
		last := time.Time{}
		for _, at := range reported {
			if at.After(last) {
				last = at
			}
		}
		if took := last.Sub(serving); took < 2*requeueEvery {
			t.Errorf("all objects are reported within %s: creates have to wait meanwhile", took)
		}
	})
}

func TestLeaseExpired_DeniesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		defer stop()
		if err := l.CheckGrant(t.Context(), Claim{Key: key("x"), Ranges: []allocator.Range{mustRange("10.0.0.1")}, Token: journal.Token{1}}, "", 0); !errors.Is(err, ErrForged) {
			t.Errorf("leader, unknown token: %v, want %v", err, ErrForged)
		}
		before := s.writeCount()
		tooMany := request("too many")
		tooMany.Ranges = []RangeRequest{{Count: 101}}
		if _, err := l.Preview(t.Context(), tooMany); !errors.Is(err, allocator.ErrExhausted) {
			t.Errorf("leader, request larger than the pool: %v, want %v", err, allocator.ErrExhausted)
		}
		if s.writeCount() != before {
			t.Error("a denial right after a commit caused another commit")
		}
		if owns, err := l.OwnsAll(t.Context(), "x", 0); owns || err != nil {
			t.Errorf("leader, a claim that owns nothing: owns all %t, %v", owns, err)
		}
		// As after a pause of the process: another replica leads, and this replica has
		// not noticed.
		s.mu.Lock()
		s.stored = s.stored.WithLeader("b")
		s.stored.ResourceVersion = "taken"
		s.mu.Unlock()
		l.mu.Lock()
		l.provenAt = time.Now().Add(-leadershipProof)
		l.mu.Unlock()
		var down *NotServingError
		if err := l.CheckGrant(t.Context(), Claim{Key: key("x"), Ranges: []allocator.Range{mustRange("10.0.0.1")}, Token: journal.Token{1}}, "", 0); !errors.As(err, &down) {
			t.Errorf("former leader, unknown token: %v, want NotServingError", err)
		}
		if _, err := l.Preview(t.Context(), tooMany); !errors.As(err, &down) {
			t.Errorf("former leader, request larger than the pool: %v, want NotServingError", err)
		}
		if owns, err := l.OwnsAll(t.Context(), "x", 0); !errors.As(err, &down) {
			t.Errorf("former leader, a claim that may own its ranges by now: owns all %t, %v, want NotServingError", owns, err)
		}
	})
}

func TestLeaseExpired_ConfirmsNoOwnership(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		l, stop := startLeader(t, s, "a", &fakeSource{})
		defer stop()
		l.ObserveClaim(Claim{Key: key("a"), UID: "a", ResourceVersion: 2, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.1")}})
		for _, step := range []struct {
			what      string
			latency   time.Duration
			confirmed bool
		}{
			{"owned since the last commit", 0, true},
			{"the journal has not been written for long", time.Hour, false},
			{"the journal has been written again", 0, true},
		} {
			s.setLatency(step.latency)
			time.Sleep(l.Expiry() + confirmAfter)
			for range 2 {
				if st := l.OwnershipOf("a"); st.Confirmed != step.confirmed {
					t.Errorf("%s: confirmed %t", step.what, st.Confirmed)
				}
			}
		}
	})
}

// Webhooks and reconcilers recover from panics. The state may be incomplete after a
// panic, so the process has to end.
func TestLedger_PanicEndsTheProcess(t *testing.T) {
	if os.Getenv("PANIC_IN_THE_STATE") != "" {
		defer func() { _ = recover() }()
		New(Config{}).withState(func(*state.State) { panic("halfway") })
		return
	}
	again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	again.Env = append(os.Environ(), "PANIC_IN_THE_STATE=yes")
	output, err := again.CombinedOutput()
	if ended := (*exec.ExitError)(nil); !errors.As(err, &ended) || !strings.Contains(string(output), "incomplete after a panic: halfway") || !strings.Contains(string(output), "TestLedger_Panic") {
		t.Errorf("%v: %s", err, output)
	}
}

// enlargePool gives the pool of startReplica enough addresses for standby grants.
func enlargePool(l *Ledger) {
	l.ObservePool(Pool{Key: modelPool, UID: "pool", ResourceVersion: 2, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.199")}})
}

// A former leader that does not know it was replaced answers a create with a standby
// grant: the read of the journal shows the new leader, and the create is not approved.
// Its successor knows the grant.
func TestStandby_FormerLeaderApprovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		l, stop := startLeader(t, store, "a", &fakeSource{})
		defer stop()
		enlargePool(l)
		if _, err := l.Grant(t.Context(), request("first")); err != nil {
			t.Fatal(err)
		}
		writes := store.writeCount()
		g, err := l.Grant(t.Context(), request("proven"))
		if err != nil || store.writeCount() != writes {
			t.Fatalf("%v; %d commits for a standby grant", err, store.writeCount()-writes)
		}
		if err := l.CheckGrant(t.Context(), Claim{Key: key("proven"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0); err != nil {
			t.Errorf("of the leader: %v", err)
		}
		store.mu.Lock()
		inherited := store.stored.Snapshot
		store.stored, store.writes = store.stored.WithLeader("b"), store.writes+1
		store.stored.ResourceVersion = fmt.Sprint(store.writes)
		store.mu.Unlock()
		g, err = l.Grant(t.Context(), request("unproven"))
		if err == nil {
			err = l.CheckGrant(t.Context(), Claim{Key: key("unproven"), Pool: modelPool, Ranges: g.Ranges, Token: g.Token}, "", 0)
		}
		if down := (*NotServingError)(nil); !errors.As(err, &down) {
			t.Errorf("of a former leader: %v, want NotServingError", err)
		}
		if !slices.ContainsFunc(inherited.Entries, func(e journal.Entry) bool { return e.Token == g.Token }) {
			t.Error("the journal that the new leader took over lacks the grant")
		}
	})
}

// Only a few standby grants leave before they are proven: the others wait, since a
// validating call that waits fails if its replica is killed.
func TestStandby_FewLeaveUnproven(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		l, stop := startLeader(t, store, "a", &fakeSource{})
		defer stop()
		enlargePool(l)
		if _, err := l.Grant(t.Context(), request("first")); err != nil {
			t.Fatal(err)
		}
		store.mu.Lock() // reads of the journal hang
		var group sync.WaitGroup
		var granted atomic.Int32
		for i := range 2 * maxUnproven {
			group.Go(func() {
				if _, err := l.Grant(t.Context(), request(fmt.Sprint(i))); err != nil {
					t.Error(err)
				}
				granted.Add(1)
			})
		}
		for granted.Load() < maxUnproven {
			runtime.Gosched()
		}
		for range 1000 { // time for the others
			runtime.Gosched()
		}
		if n := granted.Load(); n > maxUnproven {
			t.Errorf("%d grants left unproven, want %d at most", n, maxUnproven)
		}
		store.mu.Unlock()
		group.Wait()
	})
}

// etcd was restored from a backup of this leader's term: the journal may lack the standby
// grants of later commits.
func TestStandby_RestoredEtcdProvesNothing(t *testing.T) {
	p := &proofs{term: 3}
	for _, tc := range []struct {
		shown  journal.Revision
		proves bool
	}{
		{journal.Revision{Leader: "a", Term: 3, ResourceVersion: "20"}, true},
		{journal.Revision{Leader: "a", Term: 3, ResourceVersion: "21"}, true},
		{journal.Revision{Leader: "a", Term: 3, ResourceVersion: "19"}, false},
		{journal.Revision{Leader: "a", Term: 4, ResourceVersion: "21"}, false},
		{journal.Revision{Leader: "b", Term: 3, ResourceVersion: "21"}, false},
		{journal.Revision{Leader: "", Term: 3, ResourceVersion: "21"}, false},
		{journal.Revision{}, false},
	} {
		if err := p.check(tc.shown, "a", "20"); err == nil != tc.proves {
			t.Errorf("%+v: %v, want a proof: %t", tc.shown, err, tc.proves)
		}
	}
}

// Standby grants of an earlier leader end after a grant life and a list of the claims of
// every resource: the resource of their claim is not known.
func TestStandby_InheritedExpiresAfterAReadOfEveryResource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, source := &memoryStore{}, &fakeSource{}
		l, stop := startLeader(t, store, "a", source)
		enlargePool(l)
		if _, err := l.Grant(t.Context(), request("first")); err != nil {
			t.Fatal(err)
		}
		stored, err := l.Grant(t.Context(), request("stored"))
		if err != nil {
			t.Fatal(err)
		}
		store.mu.Lock()
		crashed := store.stored
		store.mu.Unlock()
		stop()
		store.mu.Lock()
		store.writes++
		store.stored = crashed
		store.stored.ResourceVersion = fmt.Sprint(store.writes)
		store.mu.Unlock()
		carrier := Claim{Key: key("stored"), UID: "stored", ResourceVersion: 5, Pool: modelPool, Ranges: stored.Ranges, Token: stored.Token}
		source.setClaims(carrier)
		next, stopNext := startLeader(t, store, "b", source)
		defer stopNext()
		free := func() int64 {
			u, _ := next.Usage(modelPool)
			return u.Available
		}
		before := free()
		time.Sleep(DefaultGrantLife + 2*scanEvery)
		if _, scans := source.readCounts(); scans == 0 || free() != 99 || before >= 99 {
			t.Errorf("%d lists; %d free at the take-over, %d after a grant life, want 99: only the stored claim's grant is left", scans, before, free())
		}
	})
}

// A claim is deleted under the first leader. The third leader has read the journal of the
// first two: a release waits for a grant life since the first change of the leader, and
// not since the last.
func TestReleaseWindow_CountsFromTheFirstChangeOfTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &memoryStore{}
		lead := func(leader string, term int64) { // for half a minute
			for range 30 {
				s.mu.Lock()
				s.writes++
				s.stored = journal.Revision{
					ResourceVersion: fmt.Sprint(s.writes), Leader: leader, Term: term,
					Snapshot: journal.Snapshot{Applied: map[string]uint64{modelClaims: 6, modelPools: 1}},
				}
				s.mu.Unlock()
				time.Sleep(time.Second)
			}
		}
		l, stop := startReplica(t, s, "third", &fakeSource{})
		defer stop()
		deleted := Claim{Key: key("web"), UID: "web", ResourceVersion: 6, Deleting: true, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.3")}, Token: journal.Token{7}}
		l.ObserveClaim(deleted)
		lead("first", 1)
		changed := time.Now()
		lead("second", 2) // and is killed
		for !l.MayGrant() {
			time.Sleep(10 * time.Millisecond)
		}
		want, got := DefaultGrantLife-time.Since(changed), l.ReleaseWindow("web", time.Time{})
		if got > want+time.Second || got < want {
			t.Errorf("%s after the first change of the leader, the release waits for %s, want %s", time.Since(changed), got, want)
		}
	})
}
