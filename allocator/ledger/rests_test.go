package ledger

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// recorded is what the reconciler of a pool with a reuse delay does: it records what rests, and the event comes back. It gives how many entries that were.
func (d *desk) recorded() int {
	p := d.pool("10.0.0.0-10.0.0.9")
	p.ReuseDelay, p.Cooling = time.Hour, d.restingOf(modelPool)
	for i, c := range p.Cooling {
		if !c.Until.IsZero() {
			p.Cooling[i].Until = c.Until.Add(time.Second - time.Nanosecond).Truncate(time.Second)
		}
	}
	d.setPool(d.now, p)
	return len(p.Cooling)
}

func TestARestIsRecordedOnce(t *testing.T) {
	for name, tt := range map[string]struct {
		play func(*desk)
		want int
	}{
		"of a create that was answered twice": {func(d *desk) {
			d.must(Request{Claim: key("a")})
			g := d.must(Request{Claim: key("a")})
			d.stored("a", g.Ranges[0].String(), g.Token)
			d.gone("a")
		}, 1},
		"of one that another has the addresses of": {func(d *desk) {
			d.stored("winner", "10.0.0.3", journal.Token{}, ready)
			d.stored("loser", "10.0.0.3", journal.Token{}, flagged)
			d.gone("loser")
		}, 1},
		"of both of those": {func(d *desk) {
			d.stored("winner", "10.0.0.3", journal.Token{}, ready)
			d.stored("loser", "10.0.0.3", journal.Token{}, flagged)
			d.gone("loser")
			d.gone("winner")
		}, 1},
		"of one that is about to go": {func(d *desk) {
			d.stored("winner", "10.0.0.3", journal.Token{}, ready)
			d.stored("loser", "10.0.0.3", journal.Token{}, flagged, func(c *Claim) { c.Deleting = true })
			d.leave(d.now, "loser")
		}, 1},
		"whose range was taken around the webhooks": {func(d *desk) {
			d.stored("a", "10.0.0.3", journal.Token{})
			d.gone("a")
			d.stored("b", "10.0.0.3", journal.Token{}, ready)
		}, 1},
		"of two families": {func(d *desk) {
			d.stored("a", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Ranges = append(c.Ranges, mustRange("10.0.0.5")) })
			d.gone("a")
		}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.recorded()
			tt.play(d)
			d.recorded()
			holdings := len(d.holdings)
			for range 5 {
				d.now = d.now.Add(time.Second)
				if n := d.recorded(); n != tt.want || len(d.holdings) != holdings {
					t.Fatalf("%d rests are recorded, of %d holdings; want %d, of %d", n, len(d.holdings), tt.want, holdings)
				}
			}
			d.now = d.now.Add(2 * time.Hour)
			if d.tick(d.now); d.recorded() != 0 {
				t.Errorf("rests after their end: %+v", d.restingOf(modelPool))
			}
		})
	}
}

// The record of a release is written while its claim is there still, which goes a moment later.
func TestAReleaseRestsAsLongAsItsRecordSays(t *testing.T) {
	for name, tt := range map[string]struct{ since, rests time.Duration }{
		"its own":               {0, time.Hour},
		"of who had it earlier": {-time.Minute, time.Hour + 3*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.recorded()
			deleting := func(c *Claim) { c.Created, c.Deleting = d.now, true }
			d.stored("a", "10.0.0.3", journal.Token{}, ready, deleting)
			p := d.pool("10.0.0.0-10.0.0.9")
			p.ReuseDelay, p.Cooling = time.Hour, []Cooling{{Range: mustRange("10.0.0.3"), Since: d.now.Add(tt.since), Until: d.now.Add(tt.since + time.Hour)}}
			d.setPool(d.now, p)
			want := d.now.Add(tt.rests)
			d.now = d.now.Add(3 * time.Second)
			d.gone("a")
			if got := d.restingOf(modelPool); len(got) != 1 || !got[0].Until.Equal(want) {
				t.Errorf("it rests %+v, want until %s", got, want)
			}
		})
	}
}

func TestAnExhaustedPoolSaysWhenWhatRestsIsFree(t *testing.T) {
	d := newDesk(t)
	d.recorded()
	d.stored("a", "10.0.0.0", journal.Token{})
	d.stored("b", "10.0.0.1", journal.Token{})
	d.stored("keeps", "10.0.0.2-10.0.0.9", journal.Token{})
	two := []Want{{Count: 2}}
	expect := func(want time.Time) {
		t.Helper()
		d.tick(d.now)
		_, granted := d.ask(Request{Claim: key("c"), Wants: two})
		_, previewed := d.preview(Request{Claim: key("c"), Pool: modelPool, Wants: two})
		for _, err := range []error{granted, previewed} {
			if full := (*PoolError)(nil); !errors.As(err, &full) || !errors.Is(err, allocator.ErrExhausted) || !full.Until.Equal(want) {
				t.Errorf("%v, want the first to be free at %s", err, want)
			}
		}
	}
	expect(time.Time{})
	d.gone("a")
	expect(time.Time{}) // one is too few
	first := d.now.Add(time.Hour)
	d.now = d.now.Add(time.Minute)
	d.gone("b")
	expect(first)
	d.now = first
	expect(first.Add(time.Minute))
	d.stored("around", "10.0.0.1", journal.Token{}) // the webhooks: there is nothing to wait for
	expect(time.Time{})
}

func TestRestsEndWhereAReplicaFollows(t *testing.T) {
	journal := &shelf{}
	_, stop := running(t, journal, "holder", &stores{})
	defer stop()
	l := New(Config{Store: journal, Identity: "follower", ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
	l.SetPool(Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}, ReuseDelay: time.Millisecond})
	l.Observe(Claim{Key: key("a"), UID: "a", ResourceVersion: 2, Pool: modelPool, Ranges: []allocator.Range{mustRange("10.0.0.3")}})
	l.Forget(modelClaims, "a", 3)
	if len(l.Resting(modelPool)) != 1 {
		t.Fatal("nothing rests")
	}
	go func() { _ = l.Run(t.Context(), &stores{}) }()
	for deadline := time.Now().Add(3 * time.Second); len(l.Resting(modelPool)) > 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it rests after its end, while another replica serves")
		}
	}
	if l.Serving() {
		t.Error("it does not follow")
	}
}

// An update may be repeated, by a client or by the API server, although what it asks for was given.
func TestWhatAClaimHasAlreadyIsNotCommittedAgain(t *testing.T) {
	d := newDesk(t)
	d.stored("vip", "10.0.0.3", journal.Token{})
	version := d.claims["vip"].ResourceVersion
	exact := []Want{{Exact: mustRange("10.0.0.3")}}
	g, err := d.ask(Request{Claim: key("vip"), UID: "vip", Wants: exact})
	if err != nil || len(g.Ranges) > 0 || len(d.commit().Lines) > 0 {
		t.Errorf("it is granted %v, %v, and the journal has %d lines", g.Ranges, err, len(d.lines))
	}
	if err := d.granted(key("vip"), "vip", version, []allocator.Range{mustRange("10.0.0.3")}, g.Token); err != nil {
		t.Error(err)
	}
	// It may have let go of it, which is yet to be seen.
	if _, err := d.grant(d.now, Request{Claim: key("vip"), UID: "vip", Version: version + 1, Pool: modelPool, Wants: exact}); !errors.Is(err, errBehind) {
		t.Errorf("asked about a version to come: %v", err)
	}
	if err := d.granted(key("vip"), "vip", version+1, []allocator.Range{mustRange("10.0.0.3")}, g.Token); !errors.Is(err, errBehind) {
		t.Errorf("asked about a version to come: %v", err)
	}
}

func TestALineWithoutRangesIsNotTakenOver(t *testing.T) {
	d := newDesk(t)
	d.stepDown()
	d.takeOver(journal.Version{Record: journal.Record{Lines: []journal.Line{{Token: journal.Token{9}, Kind: modelClaims, Namespace: "ns", Stored: "vip", UID: "vip"}}}})
	d.serve(d.now)
	if r := d.commit(); len(r.Lines) > 0 {
		t.Errorf("it is in the journal still: %+v", r.Lines)
	}
}

func TestAGrantIsWithdrawnOnce(t *testing.T) {
	d := newDesk(t)
	l, err := d.grant(d.now, Request{Claim: key("a"), Pool: modelPool, Wants: []Want{{Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	d.stepDown()
	d.takeOver(journal.Version{})
	d.serve(d.now)
	if d.withdraw(l); d.queued != 0 {
		t.Errorf("%d lines wait for a commit", d.queued)
	}
}

// A replica that takes over then has nothing to know of them by: neither may this one.
func TestRestsEndWithTheirPool(t *testing.T) {
	for name, goes := range map[string]func(d *desk){
		"whose claim is gone":        func(d *desk) { d.gone("a") },
		"whose claim is about to go": func(d *desk) { d.leave(d.now, "a"); d.recorded() },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.recorded()
			d.stored("a", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Deleting = true })
			if goes(d); len(d.resting[modelPool]) == 0 {
				t.Fatal("nothing rests, the test is in vain")
			}
			d.removePool(modelPool, d.rv)
			p := d.pool("10.0.0.0-10.0.0.9")
			p.ReuseDelay, p.ResourceVersion = 2*time.Hour, d.rv+1
			d.setPool(d.now, p)
			if rests := d.restingOf(modelPool); len(rests) > 0 {
				t.Errorf("%+v of a pool before", rests)
			}
			if d.claims["a"] == nil {
				d.must(Request{Claim: key("b"), Wants: []Want{{Exact: mustRange("10.0.0.3"), Count: 1}}})
				return
			}
			d.gone("a")
			if rests := d.restingOf(modelPool); len(rests) != 1 || !rests[0].Until.Equal(d.now.Add(2*time.Hour)) {
				t.Errorf("%+v, want what the new pool asks for", rests)
			}
		})
	}
}

func TestAPoolThatIsGoneIsNotLearntAgain(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	d.setPool(d.now, p)
	d.removePool(modelPool, p.ResourceVersion+1) // after somebody has read it
	if d.learnPool(d.now, p); d.knows(modelPool, 0) {
		t.Error("it is known, and no event will end that")
	}
	p.ResourceVersion += 2
	if d.learnPool(d.now, p); !d.knows(modelPool, 0) {
		t.Error("one of the same name is not learnt")
	}
}

// What was gone before a list of the informers has no event at all.
func TestAPoolThatWasReadAndHasNoEventIsForgotten(t *testing.T) {
	d := newDesk(t)
	read := d.pool("10.9.0.0-10.9.0.9")
	read.Key.Name, read.ResourceVersion = "ghost", d.seen[modelPools]+2
	d.learnPool(d.now, read)
	ask := Request{Claim: key("a"), Pool: read.Key, Wants: []Want{{Count: 1}}}
	for _, step := range []struct {
		after time.Duration
		seen  uint64
		known bool
	}{
		{2 * ghostAfter, read.ResourceVersion - 1, true}, // its event is yet to come
		{0, read.ResourceVersion + 1, true},              // and may be in the list that this one comes from
		{ghostAfter - time.Second, read.ResourceVersion + 2, true},
		{time.Second, read.ResourceVersion + 2, false},
	} {
		d.now = d.now.Add(step.after)
		d.saw(modelPools, step.seen)
		d.tick(d.now)
		if _, err := d.preview(ask); (err == nil) != step.known {
			t.Errorf("with events up to %d, the pool of version %d: %v", step.seen, read.ResourceVersion, err)
		}
	}
}

// Its label says nothing where its pool says in which routing domain the addresses are.
func TestTheSpaceOfAClaimIsThatOfItsPoolWhateverItsLabelSays(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	p.Space = "x"
	d.setPool(d.now, p)
	label := func(c *Claim) { c.Space = "y" }
	standIn := func(c *Claim) { c.For = key("a") }

	g := d.must(Request{Claim: key("a")})
	lines, address := d.commit().Lines, g.Ranges[0].String()
	d.stored("a", address, g.Token, label)
	d.stored("a", address, g.Token, label, ready)
	d.stored("s", address, journal.Token{}, label, standIn)
	d.stored("s", address, journal.Token{}, label, standIn, ready)
	d.stepDown()
	d.takeOver(journal.Version{Record: journal.Record{Lines: lines}})
	d.serve(d.now)
	if len(d.lines) > 0 {
		t.Errorf("the grant of a claim that was seen is taken over: %d lines", len(d.lines))
	}
	d.gone("a")
	if g, err := d.ask(Request{Claim: key("b"), Wants: []Want{{Exact: mustRange(address)}}}); err == nil {
		t.Errorf("what stands in for the claim holds %s, and b gets %v", address, g.Ranges)
	}
	d.gone("s")
	if free := d.free(); free != 10 {
		t.Errorf("%d free", free)
	}
}

func TestClaimsAndWhatStandsInForThemMoveToTheSpaceOfTheirPool(t *testing.T) {
	d := newDesk(t)
	d.removePool(modelPool, d.rv)
	d.stored("a", "10.0.0.3", journal.Token{}, ready)
	d.stored("s", "10.0.0.3", journal.Token{}, ready, func(c *Claim) { c.For = key("a") })
	p := d.pool("10.0.0.0-10.0.0.9")
	p.Space = "x"
	d.setPool(d.now, p)
	d.gone("a")
	if g, err := d.ask(Request{Claim: key("b"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Errorf("what stands in for the claim holds 10.0.0.3, and b gets %v", g.Ranges)
	}
	if d.gone("s"); d.free() != 10 {
		t.Errorf("%d free", d.free())
	}
}

// An event of a pool that has recorded many ranges, of which those of other pools rest too.
func BenchmarkAnEventOfAPoolWithManyRests(b *testing.B) {
	for _, n := range []int{1_000, 8_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &shelf{}, ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
			var p Pool
			for i := range 10 {
				p = Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{mustRange(fmt.Sprintf("10.%d.0.0-10.%d.255.255", i, i))}}
				p.Key.Name = fmt.Sprint("p", i)
				for j := range n {
					c := Cooling{Range: mustRange(fmt.Sprintf("10.%d.%d.%d", i, j>>8, j&255))}
					if c.Claim = key(fmt.Sprint("m", j)); j%2 == 0 {
						c.Claim, c.Until = Key{}, time.Now().Add(time.Hour)
					}
					p.Cooling = append(p.Cooling, c)
				}
				l.SetPool(p)
			}
			for b.Loop() {
				p.ResourceVersion++
				l.SetPool(p)
			}
		})
	}
}

func BenchmarkARefusalOfAPoolWithManyRests(b *testing.B) {
	for _, n := range []int{0, 8_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &shelf{}, ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
			now := time.Now()
			p := Pool{Key: modelPool, ResourceVersion: 1, ReuseDelay: time.Hour, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}}
			for i := range n {
				p.Cooling = append(p.Cooling, Cooling{Range: mustRange(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), Until: now.Add(time.Hour)})
			}
			l.SetPool(p)
			l.book.takeOver(journal.Version{})
			l.book.serve(now)
			l.book.tick(now)
			for b.Loop() {
				if _, err := l.book.preview(Request{Claim: key("a"), Pool: modelPool, Wants: []Want{{Count: 1 << 16}}}); (err == nil) != (n == 0) {
					b.Fatal(err)
				}
			}
		})
	}
}

// Users copy what is held of a pool into what it keeps.
func BenchmarkWhoHasWhatAPoolKeeps(b *testing.B) {
	for _, n := range []int{2_000, 20_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := New(Config{Store: &shelf{}, ClaimKinds: []string{modelClaims}, PoolKinds: []string{modelPools}})
			p := Pool{Key: modelPool, ResourceVersion: 1, BlocksHeld: true, Window: []allocator.Range{mustRange("10.0.0.0-10.0.255.255")}}
			l.SetPool(p)
			kept := map[string]allocator.Range{}
			p.Keeps = func(name string) allocator.Range { return kept[name] }
			for i := range n {
				r, name := mustRange(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), fmt.Sprint("c", i)
				kept[name], p.Blocked = r, append(p.Blocked, r)
				l.Observe(Claim{Key: key(name), UID: name, ResourceVersion: uint64(i + 2), Pool: modelPool, Ranges: []allocator.Range{r}})
			}
			for b.Loop() {
				if err := l.Taken(p); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestLedger_FollowsTheClockOfRecordsWhenItHasSettled(t *testing.T) {
	now, skew := modelStart, time.Hour
	l := New(Config{Now: func() time.Time { return now }, Skew: func() time.Duration { return skew }})
	expect := func(what string, want time.Duration) {
		t.Helper()
		if l.now(); l.book.recordsAhead != want {
			t.Errorf("%s: %s ahead, want %s", what, l.book.recordsAhead, want)
		}
	}
	expect("first reading", time.Hour)
	skew += recordsMoved
	for range 20 {
		now = now.Add(time.Second)
		expect("a clock that is kept right", time.Hour)
	}
	for range 20 {
		now = now.Add(time.Second)
		if skew = 0; now.Second()%2 == 0 {
			skew = time.Hour
		}
		expect("API servers that differ", time.Hour)
	}
	skew = 0
	for until := l.drifted.Add(recordsSettled); now.Before(until.Add(-time.Second)); {
		now = now.Add(time.Second)
		expect("set a moment ago", time.Hour)
	}
	now = now.Add(2 * time.Second)
	expect("set", 0)
}
