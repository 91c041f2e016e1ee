package ledger

import (
	"fmt"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

func TestCooldown_EndsOnFollowers(t *testing.T) {
	journal := &memoryStore{}
	_, stop := startLeader(t, journal, "leader", &fakeSource{})
	defer stop()
	l := New(Config{Store: journal, Identity: "follower", ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
	l.ObservePool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}, ReuseDelay: time.Millisecond})
	l.ObserveClaim(Claim{Key: key("a"), UID: "a", ResourceVersion: 2, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.3")}})
	l.RemoveClaim(Claim{Key: key("a"), UID: "a"}, 3)
	if len(l.RangesToRecord(modelPool)) != 1 {
		t.Fatal("no range is in cooldown")
	}
	go func() { _ = l.Run(t.Context(), &fakeSource{}) }()
	for deadline := time.Now().Add(3 * time.Second); len(l.RangesToRecord(modelPool)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the range is in cooldown after the end of the cooldown, while another replica leads")
		}
	}
	if l.MayGrant() {
		t.Error("the replica does not follow")
	}
}

// An event of a pool that records many ranges, beside other pools with as many.
func BenchmarkObservePool_ManyCooldowns(b *testing.B) {
	for _, n := range []int{1_000, 8_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &memoryStore{}, ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
			var p Pool
			for i := range 10 {
				p = Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange(fmt.Sprintf("10.%d.0.0-10.%d.255.255", i, i))}}
				p.Key.Name = fmt.Sprint("p", i)
				for j := range n {
					c := RecordedRange{Range: mustRange(fmt.Sprintf("10.%d.%d.%d", i, j>>8, j&255))}
					if c.Claim = key(fmt.Sprint("m", j)); j%2 == 0 {
						c.Claim, c.Until = Key{}, time.Now().Add(time.Hour)
					}
					p.Recorded = append(p.Recorded, c)
				}
				l.ObservePool(p)
			}
			for b.Loop() {
				p.ResourceVersion++
				l.ObservePool(p)
			}
		})
	}
}

func BenchmarkPreview_DeniedWithManyCooldowns(b *testing.B) {
	for _, n := range []int{0, 8_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &memoryStore{}, ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
			now := time.Now()
			p := Pool{Key: modelPool, ResourceVersion: 1, ReuseDelay: time.Hour, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}}
			for i := range n {
				p.Recorded = append(p.Recorded, RecordedRange{Range: mustRange(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), Until: now.Add(time.Hour)})
			}
			l.ObservePool(p)
			l.state.TakeOver(journal.Revision{})
			l.state.StartGranting(now)
			l.state.Tick(now)
			for b.Loop() {
				if _, err := l.state.Preview(Request{Claim: key("a"), Pool: modelPool, Ranges: []RangeRequest{{Count: 1 << 16}}}); (err == nil) != (n == 0) {
					b.Fatal(err)
				}
			}
		})
	}
}

// Users copy the owned addresses of a pool into its preAllocations.
func BenchmarkFindOwnerConflict_ManyPreAllocations(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &memoryStore{}, ClaimResources: []string{modelClaims}, PoolResources: []string{modelPools}})
			p := Pool{Key: modelPool, ResourceVersion: 1, MayBlockOwned: true, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}}
			l.ObservePool(p)
			kept := map[string]allocator.Range{}
			p.KeptFor = func(name string) allocator.Range { return kept[name] }
			for i := range n {
				r, name := mustRange(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), fmt.Sprint("c", i)
				kept[name], p.Blocked = r, append(p.Blocked, r)
				l.ObserveClaim(Claim{Key: key(name), UID: name, ResourceVersion: uint64(i + 2), Pool: modelPool, Ranges: []allocator.Range{r}})
			}
			for b.Loop() {
				if err := l.FindOwnerConflict(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestRecordClock_IsFollowedWhenSettled(t *testing.T) {
	now, skew := modelStart, time.Hour
	l := New(Config{Now: func() time.Time { return now }, Skew: func() time.Duration { return skew }})
	expect := func(what string, want time.Duration) {
		t.Helper()
		if l.now(); l.state.RecordClockAhead() != want {
			t.Errorf("%s: %s ahead, want %s", what, l.state.RecordClockAhead(), want)
		}
	}
	expect("first reading", time.Hour)
	skew += recordClockTolerance
	for range 20 {
		now = now.Add(time.Second)
		expect("a clock that is being adjusted", time.Hour)
	}
	for range 20 {
		now = now.Add(time.Second)
		if skew = 0; now.Second()%2 == 0 {
			skew = time.Hour
		}
		expect("API servers that differ", time.Hour)
	}
	skew = 0
	for until := l.recordClockSince.Add(recordClockSettled); now.Before(until.Add(-time.Second)); {
		now = now.Add(time.Second)
		expect("set a moment ago", time.Hour)
	}
	now = now.Add(2 * time.Second)
	expect("set", 0)
}
