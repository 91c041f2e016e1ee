package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// desk is a book with a clock and a journal that always answers.
type desk struct {
	*book
	t   *testing.T
	now time.Time
	rv  uint64
}

func newDesk(t *testing.T) *desk {
	n := uint64(0)
	d := &desk{t: t, now: modelStart, book: newBook([]string{modelClaims, modelPools}, limits{life: DefaultGrantLife, bytes: 9 * ordinaryLine, share: 4 * ordinaryLine}, func() journal.Token {
		n++
		var t journal.Token
		binary.BigEndian.PutUint64(t[:], n)
		return t
	})}
	d.setPool(d.now, d.pool("10.0.0.0-10.0.0.9"))
	d.takeOver(journal.Version{})
	d.serve(d.now)
	return d
}

func (d *desk) pool(window string, blocked ...string) Pool {
	d.rv++
	p := Pool{Key: modelPool, ResourceVersion: d.rv, Policy: allocator.BestFit, Window: []allocator.Range{mustRange(window)}}
	for _, b := range blocked {
		p.Blocked = append(p.Blocked, mustRange(b))
	}
	return p
}

func mustRange(s string) allocator.Range {
	r, err := allocator.ParseRange(s)
	if err != nil {
		panic(err)
	}
	return r
}

func key(name string) Key { return Key{Kind: modelClaims, Namespace: "ns", Name: name} }

// ask grants and commits.
func (d *desk) ask(q Request) (Grant, error) {
	d.t.Helper()
	q.Pool = modelPool
	if c := d.claims[q.UID]; c != nil {
		q.Version = c.ResourceVersion
	}
	if q.Wants == nil {
		q.Wants = []Want{{Count: 1}}
	}
	l, err := d.grant(d.now, q)
	if err != nil {
		return Grant{}, err
	}
	d.commit()
	return Grant{Ranges: l.Ranges, Token: l.Token}, nil
}

func (d *desk) must(q Request) Grant {
	d.t.Helper()
	g, err := d.ask(q)
	if err != nil {
		d.t.Fatal(err)
	}
	return g
}

func (d *desk) commit() journal.Record {
	r := d.begin()
	d.landed(d.now)
	return r
}

// stored has the book see a claim. The UID is the name, the first are the oldest.
func (d *desk) stored(name, ranges string, t journal.Token, more ...func(*Claim)) {
	d.rv++
	c := Claim{Key: key(name), UID: name, ResourceVersion: d.rv, Created: d.now.Add(time.Duration(d.rv) * time.Second), Pool: modelPool, Token: t}
	if ranges != "" {
		c.Ranges = []allocator.Range{mustRange(ranges)}
	}
	for _, m := range more {
		m(&c)
	}
	d.saw(modelClaims, d.rv)
	d.book.observe(d.now, c)
}

func (d *desk) gone(name string) {
	d.rv++
	d.forget(d.now, modelClaims, name, d.rv)
}

func ready(c *Claim)   { c.Ready = true }
func flagged(c *Claim) { c.Flagged = true }

func (d *desk) free() int64 {
	u, _ := d.usage(modelPool)
	return u.Available
}

func (d *desk) expectStanding(name, want string) {
	d.t.Helper()
	st := d.standing(name)
	got := "waits"
	switch {
	case st.Clash != nil:
		got = "clashes with " + st.Clash.Holder.Name
	case st.Confirmed:
		got = "confirmed"
	}
	if got != want {
		d.t.Errorf("%s %s, want: %s", name, got, want)
	}
}

func TestAClaimIsConfirmedByTheFirstCommitThatStartsAfterItWasSeen(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a")})
	d.begin()
	d.stored("a", g.Ranges[0].String(), g.Token)
	d.landed(d.now)
	d.expectStanding("a", "waits")
	if r := d.commit(); len(r.Lines) != 0 {
		t.Errorf("the grant is still in the journal: %v", r.Lines)
	}
	d.expectStanding("a", "confirmed")
}

func TestANameAskedAgainGetsItsRangeUnderANewToken(t *testing.T) {
	d := newDesk(t)
	first := d.must(Request{Claim: key("a")})
	second := d.must(Request{Claim: key("a")})
	if first.Ranges[0] != second.Ranges[0] || first.Token == second.Token {
		t.Errorf("%v, then %v", first, second)
	}
	d.stored("a", first.Ranges[0].String(), first.Token)
	d.gone("a")
	if d.free() != 9 {
		t.Errorf("%d free while the second answer may still be stored", d.free())
	}
	d.now = d.now.Add(DefaultGrantLife)
	for _, l := range d.due(d.now) {
		d.end(l)
	}
	if d.free() != 10 {
		t.Errorf("%d free in the end", d.free())
	}
}

// A claim that waited for its pool may be answered twice, where the first write meets a newer version of it.
func TestASecondAnswerToAStoredClaimEndsTheFirst(t *testing.T) {
	d := newDesk(t)
	d.stored("a", "", journal.Token{})
	first := d.must(Request{Claim: key("a"), UID: "a"})
	second := d.must(Request{Claim: key("a"), UID: "a"})
	if !slices.Equal(first.Ranges, second.Ranges) || first.Token == second.Token {
		t.Errorf("%v, then %v", first, second)
	}
	d.stored("a", second.Ranges[0].String(), second.Token)
	if r := d.commit(); len(r.Lines) != 0 {
		t.Errorf("in the journal are still %v", r.Lines)
	}
	if d.gone("a"); d.free() != 10 {
		t.Errorf("%d free when the claim is gone", d.free())
	}
}

// A claim gives a range up and asks for it again, faster than either is seen: what it is known to have may be free in a moment.
func TestAnAnswerOverANewerVersionOfAClaimWaitsUntilThatIsSeen(t *testing.T) {
	d := newDesk(t)
	d.stored("a", "10.0.0.1", journal.Token{})
	more := func(over uint64) (*line, error) {
		q := Request{Claim: key("a"), UID: "a", Version: over, Pool: modelPool, Wants: []Want{{Exact: mustRange("10.0.0.1")}, {Exact: mustRange("10.0.0.2")}}}
		if _, err := d.preview(q); err != nil {
			return nil, err
		}
		l, err := d.grant(d.now, q)
		d.commit()
		return l, err
	}
	first, err := more(d.rv)
	if err != nil {
		t.Fatal(err)
	}
	both := func(c *Claim) { c.Ranges = append(c.Ranges, mustRange("10.0.0.2")) }
	if d.stored("a", "10.0.0.1", first.Token, both); len(d.lines) != 0 || d.free() != 8 {
		t.Errorf("%d grants open, %d addresses free", len(d.lines), d.free())
	}
	if _, err := more(d.rv + 1); !errors.Is(err, errBehind) {
		t.Errorf("over a version to come: %v", err)
	}
	if d.stored("a", "10.0.0.1", first.Token); d.free() != 9 {
		t.Errorf("%d addresses free", d.free())
	}
	second, err := more(d.rv)
	if err != nil || !slices.Equal(second.Ranges, []allocator.Range{mustRange("10.0.0.2")}) {
		t.Fatalf("%+v, %v", second, err)
	}
	if d.stored("a", "10.0.0.1", second.Token, both); len(d.lines) != 0 || d.free() != 8 {
		t.Errorf("%d grants open, %d addresses free", len(d.lines), d.free())
	}
}

func TestARepeatedCallOfAnUnnamedClaimGetsItsRangeAgain(t *testing.T) {
	d := newDesk(t)
	first := d.must(Request{Claim: key(""), ID: "call"})
	again := d.must(Request{Claim: key(""), ID: "call"})
	other := d.must(Request{Claim: key(""), ID: "other"})
	if first.Ranges[0] != again.Ranges[0] || first.Token == again.Token || other.Ranges[0] == first.Ranges[0] {
		t.Errorf("%v, %v, %v", first, again, other)
	}
}

func TestAWaiterThatLeavesTakesNothingWithIt(t *testing.T) {
	d := newDesk(t)
	for name, when := range map[string]func(*line){
		"before the commit": func(l *line) { d.withdraw(l); d.commit() },
		"during the commit": func(l *line) { d.begin(); d.withdraw(l); d.landed(d.now) },
		"after the commit":  func(l *line) { d.commit(); d.withdraw(l) },
	} {
		l, err := d.grant(d.now, Request{Claim: key("a"), Pool: modelPool, Wants: []Want{{Count: 4}}})
		if err != nil {
			t.Fatal(err)
		}
		when(l)
		if d.free() != 10 || len(d.lines) != 0 || d.queued != 0 {
			t.Errorf("%s: %d free, %d lines, %d queued", name, d.free(), len(d.lines), d.queued)
		}
	}
}

func TestANamespaceHasItsShareOfOpenGrantsAndTheJournalItsMeasure(t *testing.T) {
	d := newDesk(t)
	ask := func(namespace string, i int) error {
		_, err := d.ask(Request{Claim: Key{Kind: modelClaims, Namespace: namespace, Name: fmt.Sprint(i)}})
		return err
	}
	var full *NotServingError
	for i := range 4 {
		if err := ask("a", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("a", 4); !errors.As(err, &full) || !full.Here {
		t.Errorf("a fifth grant: %v", err)
	}
	for i := range 4 {
		if err := ask("b", i); err != nil {
			t.Fatal(err)
		}
	}
	if err := ask("c", 0); !errors.As(err, &full) || !full.Here {
		t.Errorf("a ninth grant: %v", err)
	}
}

// Claims of no pool name their routing domain themselves: one each, if they like.
func TestRoutingDomainsCountInTheJournalsMeasureAndAreForgotten(t *testing.T) {
	d := newDesk(t)
	d.limits.bytes, d.limits.share = maxBytes, maxShare
	long := func(i int) string { return fmt.Sprintf("%063d", i) }
	fill := func(request func(i int) Request) (lines []*line) {
		for i := range journal.MaxEncoded {
			l, err := d.grant(d.now, request(i))
			if full := (*NotServingError)(nil); errors.As(err, &full) {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, l)
		}
		return lines
	}
	exact := []Want{{Exact: mustRange("10.0.0.1")}}
	lines := fill(func(i int) Request {
		return Request{Claim: Key{Kind: modelClaims, Name: fmt.Sprint(i)}, Space: long(i), Wants: exact}
	})
	share := len(lines)
	for i := range 4 { // until the journal is full
		lines = append(lines, fill(func(j int) Request {
			claim := Key{Kind: modelClaims, Namespace: long(i), Name: fmt.Sprint(j)}
			return Request{Claim: claim, Space: long(i), Wants: []Want{{Exact: mustRange(fmt.Sprintf("10.1.%d.%d", j/256, j%256))}}}
		})...)
	}
	size := len(d.begin().Encode())
	if size > journal.MaxEncoded || size < maxBytes*9/10 {
		t.Errorf("%d and %d grants take %d bytes of %d", share, len(lines)-share, size, journal.MaxEncoded)
	}
	d.landed(d.now)
	for _, l := range lines {
		d.retire(l)
	}
	if _, err := d.preview(Request{Space: "another", Wants: exact}); err != nil {
		t.Error(err)
	}
	d.tick(d.now)
	if d.bytes != 0 || len(d.inScope) != 0 || len(d.inDomain) != 0 || len(d.spaces) != 1 {
		t.Errorf("when all has ended: %d bytes, %d namespaces, %d domains in the journal, %d in all", d.bytes, len(d.inScope), len(d.inDomain), len(d.spaces))
	}
}

func TestWhatIsStoredAsReadyKeepsItsRange(t *testing.T) {
	d := newDesk(t)
	d.stored("old", "10.0.0.0-10.0.0.3", journal.Token{})
	d.stored("young", "10.0.0.2-10.0.0.5", journal.Token{}, ready)
	d.commit()
	d.expectStanding("old", "clashes with young")
	d.expectStanding("young", "waits")
	d.stored("old", "10.0.0.0-10.0.0.3", journal.Token{}, flagged)
	d.expectStanding("young", "confirmed")
	if d.free() != 4 {
		t.Errorf("%d free: the loser keeps what nobody else has", d.free())
	}
	d.gone("young")
	d.commit()
	d.expectStanding("old", "confirmed")
	if d.free() != 6 {
		t.Errorf("%d free", d.free())
	}
}

func TestWhoIsReadyTakesNothingThatNobodyGranted(t *testing.T) {
	oldest := func(c *Claim) { c.Created = modelStart }
	east := Key{Kind: modelPools, Namespace: "ns", Name: "east"}
	for name, takes := range map[string]func(*Claim){
		"by another address": func(*Claim) {},
		"by another pool":    func(c *Claim) { c.Pool = east },
		"by another label":   func(c *Claim) { c.Pool, c.Space = Key{}, "east" },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.setPool(d.now, Pool{Key: east, Space: "east", ResourceVersion: 1, Policy: allocator.BestFit, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}})
			g := d.must(Request{Claim: key("takes"), Wants: []Want{{Exact: mustRange("10.0.0.1")}}})
			d.stored("takes", "10.0.0.1", g.Token, oldest, ready)
			other := "10.0.0.2"
			inEast := func(*Claim) {}
			if name != "by another address" {
				other, inEast = "10.0.0.1", func(c *Claim) { c.Pool = east }
			}
			d.stored("other", other, journal.Token{}, ready, inEast)
			d.commit()
			d.expectStanding("takes", "confirmed")
			for range 2 { // whatever else is written to it
				d.stored("takes", other, g.Token, oldest, ready, takes)
				d.expectStanding("takes", "clashes with other")
			}
			d.stored("takes", other, g.Token, oldest, takes, flagged)
			d.expectStanding("other", "confirmed")
			d.gone("other")
			d.commit()
			d.stored("takes", other, g.Token, oldest, ready, takes)
			d.expectStanding("takes", "confirmed")
		})
	}
}

func TestAmongEqualsTheOlderClaimKeepsTheRangeWhateverTheOrderOfSight(t *testing.T) {
	for name, order := range map[string][]string{"older first": {"a", "b"}, "younger first": {"b", "a"}} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			for _, n := range order {
				created := modelStart
				if n == "b" {
					created = created.Add(time.Second)
				}
				d.stored(n, "10.0.0.1", journal.Token{}, func(c *Claim) { c.Created = created })
			}
			d.expectStanding("b", "clashes with a")
		})
	}
}

func TestALateArrivalLosesToTheOneThatGotItsRange(t *testing.T) {
	d := newDesk(t)
	late := d.must(Request{Claim: key("late")})
	d.now = d.now.Add(DefaultGrantLife)
	for _, l := range d.due(d.now) {
		d.end(l)
	}
	g := d.must(Request{Claim: key("next")})
	if g.Ranges[0] != late.Ranges[0] {
		t.Fatalf("%v, then %v", late, g)
	}
	d.stored("late", late.Ranges[0].String(), late.Token, func(c *Claim) { c.Created = modelStart.Add(-time.Hour) })
	d.expectStanding("late", "clashes with next")
	d.stored("next", g.Ranges[0].String(), g.Token)
	d.commit()
	d.expectStanding("late", "clashes with next")
	d.expectStanding("next", "waits")
	if _, err := d.ask(Request{Claim: key("next")}); err != nil {
		t.Errorf("next asked again: %v", err)
	}
	d.stored("late", late.Ranges[0].String(), late.Token, flagged)
	d.expectStanding("next", "confirmed")
}

func TestALateArrivalOnAFreeRangeIsAdopted(t *testing.T) {
	d := newDesk(t)
	d.stored("late", "10.0.0.7", journal.Token{1})
	d.commit()
	d.expectStanding("late", "confirmed")
	if d.free() != 9 {
		t.Errorf("%d free", d.free())
	}
}

func TestATakenOverGrantIsHeldButNeverGrantedAgain(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a")})
	record := d.commit()
	n := newDesk(t)
	n.takeOver(journal.Version{Record: record})
	n.serve(n.now)
	n.lastID = 100
	n.newToken = func() journal.Token { return journal.Token{99} }
	again, err := n.ask(Request{Claim: key("a")})
	if err != nil || again.Ranges[0] == g.Ranges[0] {
		t.Errorf("got %v, %v after %v", again, err, g)
	}
	if err := n.granted(key("a"), "", 0, g.Ranges, g.Token); err != nil {
		t.Errorf("its claim is refused: %v", err)
	}
	n.stored("a", g.Ranges[0].String(), g.Token)
	n.commit()
	n.expectStanding("a", "confirmed")
}

func TestAPoolHearsOfATakenOverGrantThatComesToNothing(t *testing.T) {
	d := newDesk(t)
	d.must(Request{Claim: key("a")})
	record := d.commit()
	n := newDesk(t)
	n.takeOver(journal.Version{Record: record})
	n.serve(n.now)
	n.now = n.now.Add(DefaultGrantLife)
	clear(n.changed)
	for _, l := range n.due(n.now) {
		n.end(l)
	}
	if n.free() != 10 {
		t.Fatalf("%d free, want all", n.free())
	}
	if _, told := n.changed[modelPool]; !told {
		t.Error("the pool is not looked at again: its status goes on counting the addresses, and claims that wait for them wait on")
	}
}

func TestGrantedAcceptsOnlyWhatWasGranted(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a"), Wants: []Want{{Count: 2}}})
	other := d.must(Request{Claim: key("b"), Wants: []Want{{Count: 2}}})
	for name, tt := range map[string]struct {
		key   Key
		r     []allocator.Range
		token journal.Token
		want  error
	}{
		"as granted":      {key("a"), g.Ranges, g.Token, nil},
		"another name":    {key("c"), g.Ranges, g.Token, ErrForged},
		"another range":   {key("a"), other.Ranges, g.Token, ErrForged},
		"another's token": {key("a"), g.Ranges, other.Token, ErrForged},
		"no token":        {key("a"), g.Ranges, journal.Token{}, ErrForged},
		"another kind":    {Key{Kind: modelPools, Namespace: "ns", Name: "a"}, g.Ranges, g.Token, ErrForged},
	} {
		if err := d.granted(tt.key, "", 0, tt.r, tt.token); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", name, err, tt.want)
		}
	}
}

func TestPoolsHearOfReservationsThatGoWithTheirPool(t *testing.T) {
	reserving := func(d *desk, space string) Pool {
		p := d.pool("10.0.0.100-10.0.0.109", "10.0.0.5")
		p.Key.Name, p.Space = "other", space
		return p
	}
	for name, change := range map[string]func(*desk){
		"it is deleted":                     func(d *desk) { d.removePool(reserving(d, "").Key, d.rv) },
		"it goes to another routing domain": func(d *desk) { d.setPool(d.now, reserving(d, "east")) },
		"it comes back from another one": func(d *desk) {
			d.setPool(d.now, reserving(d, "east"))
			clear(d.changed)
			d.setPool(d.now, reserving(d, ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.setPool(d.now, reserving(d, ""))
			clear(d.changed)
			change(d)
			if _, told := d.changed[modelPool]; !told {
				t.Error("a pool that offers what was reserved, or is, is not told")
			}
		})
	}
}

func TestAPoolsChangeMayNotTakeWhatIsHeld(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a"), Wants: []Want{{Exact: mustRange("10.0.0.4-10.0.0.5")}}})
	for _, state := range []string{"granted", "stored"} {
		if state == "stored" {
			d.stored("a", g.Ranges[0].String(), g.Token)
		}
		for change, p := range map[string]Pool{
			"reserved over it":       d.pool("10.0.0.0-10.0.0.9", "10.0.0.5"),
			"window shrunk below it": d.pool("10.0.0.0-10.0.0.4"),
		} {
			var inUse *InUseError
			if _, err := d.change(p); !errors.As(err, &inUse) || inUse.Holder != key("a") {
				t.Errorf("%s, %s: %v", state, change, err)
			}
		}
	}
}

// Else nothing tells of the rest, from the end of the claim until its pool has the record.
func TestAClaimGoesWhenItsRestIsRecorded(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	p.ReuseDelay = time.Hour
	d.setPool(d.now, p)
	stored := func(name, address string) {
		d.stored(name, address, d.must(Request{Claim: key(name), Wants: []Want{{Exact: mustRange(address)}}}).Token)
		d.stored(name, address, journal.Token{}, func(c *Claim) { c.Deleting = true })
	}
	stored("a", "10.0.0.1")
	stored("b", "10.0.0.2")
	record := func(since time.Time) {
		p.ResourceVersion = d.pool("10.0.0.0").ResourceVersion
		p.Cooling = []Cooling{{Range: mustRange("10.0.0.1"), Since: since, Until: since.Add(p.ReuseDelay)}}
		d.setPool(d.now, p)
	}
	record(d.now.Add(-time.Minute))          // of an earlier rest
	within := recordWithin + 2*recordForEach // of a pool with two claims
	if wait := d.leave(d.now, "a"); wait != within {
		t.Errorf("it waits for the record for %s, want %s", wait, within)
	}
	if list := d.restingOf(modelPool); len(list) != 1 || list[0].Range != mustRange("10.0.0.1") || !list[0].Until.Equal(d.now.Add(time.Hour)) {
		t.Errorf("to be recorded: %+v", list)
	}
	began := d.now
	d.tick(d.now.Add(time.Second))
	d.now = d.now.Add(time.Second)
	if wait := d.leave(d.now, "a"); wait != within-time.Second {
		t.Errorf("it waits for the record for %s after a second", wait)
	}
	clear(d.changed)
	record(began)
	if _, told := d.changed[key("a")]; !told {
		t.Error("nothing brings the claim back when its rest is recorded")
	}
	if wait := d.leave(d.now, "a"); wait != 0 {
		t.Errorf("its rest is recorded, and it waits for %s", wait)
	}
	d.gone("a")
	if list := d.restingOf(modelPool); len(list) != 1 || !list[0].Until.Equal(began.Add(time.Hour)) {
		t.Errorf("another record is to be written: %+v", list)
	}
	d.leave(d.now, "b") // whose record cannot be written
	if wait := d.leave(d.now.Add(within), "b"); wait != 0 {
		t.Errorf("it waits for %s more", wait)
	}
	stored("brief", "10.0.0.3")
	p.ResourceVersion, p.ReuseDelay = d.pool("10.0.0.0").ResourceVersion, time.Second
	d.setPool(d.now, p)
	if wait := d.leave(d.now, "brief"); wait != time.Second {
		t.Errorf("it waits for the record of a rest of a second for %s", wait)
	}
	p.ResourceVersion, p.ReuseDelay = d.pool("10.0.0.0").ResourceVersion, time.Hour
	d.setPool(d.now, p)
	d.gone("b")
	if _, err := d.ask(Request{Claim: key("c"), Wants: []Want{{Exact: mustRange("10.0.0.2")}}}); err == nil {
		t.Error("it does not rest")
	}
}

// It may have given whatever can be read of its ranges, before the fault came about.
func TestAFaultyPoolIsCorrectedSoThatItKeepsWhatItGave(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a"), Wants: []Want{{Exact: mustRange("10.0.0.8")}}})
	d.stored("a", "10.0.0.8", g.Token)
	d.stored("stray", "10.9.9.9", journal.Token{})
	faulty := d.pool("10.0.0.0")
	faulty.Window, faulty.Fault, faulty.Readable = nil, "spec.cidr: no", []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}
	d.setPool(d.now, faulty)
	var fault *FaultyPoolError
	if _, err := d.ask(Request{Claim: key("b")}); !errors.As(err, &fault) || fault.Fault != faulty.Fault {
		t.Errorf("asked for an address it says %v", err)
	}
	var inUse *InUseError
	if _, err := d.change(d.pool("10.0.0.0-10.0.0.7")); !errors.As(err, &inUse) || inUse.Range != mustRange("10.0.0.8") || inUse.Holder != key("a") {
		t.Errorf("corrected beside an address that it gave: %v", err)
	}
	if _, err := d.change(faulty); err != nil {
		t.Errorf("changed, and faulty as before: %v", err)
	}
	corrected := d.pool("10.0.0.0-10.0.0.9")
	if _, err := d.change(corrected); err != nil {
		t.Errorf("corrected: %v", err)
	}
	d.setPool(d.now, corrected)
	d.must(Request{Claim: key("b")})
}

func TestAPoolsChangeMayNotTakeWhatAnEarlierHolderGranted(t *testing.T) {
	d := newDesk(t)
	d.must(Request{Claim: key("a"), Wants: []Want{{Exact: mustRange("10.0.0.4-10.0.0.5")}}})
	n := newDesk(t)
	n.takeOver(journal.Version{Record: d.commit()})
	n.serve(n.now)
	moved := n.pool("10.0.0.0-10.0.0.9")
	moved.Space = "elsewhere"
	for change, p := range map[string]Pool{
		"reserved over it":                n.pool("10.0.0.0-10.0.0.9", "10.0.0.5"),
		"window shrunk below it":          n.pool("10.0.0.0-10.0.0.4"),
		"moved to another routing domain": moved,
	} {
		var inUse *InUseError
		if _, err := n.change(p); !errors.As(err, &inUse) || inUse.Holder.Namespace != "ns" {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// What somebody still has when the change is let through may be free before it is seen.
func TestWhatIsLetGoDuringAPoolsChangeIsHeldBack(t *testing.T) {
	reserve := func(d *desk, reserved string) {
		p := d.pool("10.0.0.0-10.0.0.9", reserved)
		p.BlocksHeld = true
		if l, err := d.change(p); err != nil || l == nil {
			d.t.Errorf("the change of the pool: %v, %v", l, err)
		}
	}
	for name, letGo := range map[string]func(*desk){
		"by a rest that ends": func(d *desk) {
			p := d.pool("10.0.0.0-10.0.0.9")
			p.Cooling = []Cooling{{Range: mustRange("10.0.0.4"), Until: d.now.Add(time.Minute)}}
			d.setPool(d.now, p)
			reserve(d, "10.0.0.4")
			d.tick(d.now.Add(time.Minute))
		},
		"by a claim": func(d *desk) {
			d.stored("a", "10.0.0.4", journal.Token{}, ready)
			reserve(d, "10.0.0.4")
			d.commit()
			d.expectStanding("a", "confirmed")
			d.gone("a")
		},
		"by the same change, given up": func(d *desk) {
			first, err := d.change(d.pool("10.0.0.0-10.0.0.9", "10.0.0.4"))
			if err != nil {
				d.t.Fatal(err)
			}
			reserve(d, "10.0.0.4")
			d.withdraw(first)
		},
		"by another change, given up": func(d *desk) {
			first, err := d.change(d.pool("10.0.0.0-10.0.0.9", "10.0.0.3-10.0.0.5"))
			if err != nil {
				d.t.Fatal(err)
			}
			reserve(d, "10.0.0.4")
			d.withdraw(first)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			letGo(d)
			if r := d.commit(); d.free() != 9 || len(r.Lines) != 1 {
				t.Errorf("%d free, %d lines in the journal, want 9 and one", d.free(), len(r.Lines))
			}
		})
	}
}

func TestAddressesAPoolsChangeTakesAwayAreHeldBackUntilItIsSeen(t *testing.T) {
	d := newDesk(t)
	next := d.pool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.3")
	l, err := d.change(next)
	if err != nil || l == nil {
		t.Fatalf("%v, %v", l, err)
	}
	record := d.commit()
	if d.free() != 6 {
		t.Errorf("%d free after admission", d.free())
	}
	if g := d.must(Request{Claim: key("a")}); g.Ranges[0] != mustRange("10.0.0.4") {
		t.Errorf("granted %v", g)
	}
	n := newDesk(t)
	n.takeOver(journal.Version{Record: record})
	n.serve(n.now)
	if n.free() != 6 {
		t.Errorf("%d free at the next holder", n.free())
	}
	d.setPool(d.now, next)
	if u, _ := d.usage(modelPool); u.Total != 6 || u.Available != 5 || len(d.lines) != 1 {
		t.Errorf("after it was seen: %+v, %d lines", u, len(d.lines))
	}
}

func TestAChangeThatIsNotStoredGivesItsAddressesBack(t *testing.T) {
	d := newDesk(t)
	if _, err := d.change(d.pool("10.0.0.0-10.0.0.3")); err != nil {
		t.Fatal(err)
	}
	d.commit()
	d.setPool(d.now, d.pool("10.0.0.0-10.0.0.9"))
	if d.free() != 4 {
		t.Errorf("%d free: an update of another field gave them back too early", d.free())
	}
	d.now = d.now.Add(DefaultGrantLife)
	for _, l := range d.due(d.now) {
		d.end(l)
	}
	if d.free() != 10 {
		t.Errorf("%d free in the end", d.free())
	}
}

func TestAReleasedRangeRestsForTheReuseDelay(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.3")
	p.ReuseDelay = time.Minute
	d.setPool(d.now, p)
	d.stored("a", "10.0.0.0-10.0.0.1", journal.Token{})
	// The release is recorded before the claim is gone.
	p.ResourceVersion++
	d.rv++
	p.Cooling = []Cooling{{Range: mustRange("10.0.0.0-10.0.0.1"), Until: d.now.Add(time.Minute)}}
	d.setPool(d.now, p)
	d.gone("a")
	if d.free() != 2 {
		t.Errorf("%d free while resting", d.free())
	}
	var held *HeldError
	if _, err := d.ask(Request{Claim: key("b"), Wants: []Want{{Exact: mustRange("10.0.0.0")}}}); !errors.As(err, &held) || held.Until.IsZero() {
		t.Errorf("a pinned claim on it: %v", err)
	}
	d.tick(d.now.Add(59 * time.Second))
	if d.free() != 2 {
		t.Errorf("%d free a second too early", d.free())
	}
	d.tick(d.now.Add(time.Minute))
	if d.free() != 4 {
		t.Errorf("%d free in the end", d.free())
	}
}

func TestRecordedReleasesRestAfterARestart(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.3")
	p.ReuseDelay = time.Minute
	p.Cooling = []Cooling{
		{Range: mustRange("10.0.0.0-10.0.0.1"), Until: d.now.Add(time.Minute)},
		{Range: mustRange("10.0.0.3"), Until: d.now.Add(-time.Minute)},
	}
	d.setPool(d.now, p)
	if d.free() != 2 {
		t.Errorf("%d free", d.free())
	}
	d.tick(d.now.Add(time.Minute))
	if d.free() != 4 {
		t.Errorf("%d free in the end", d.free())
	}
}

func TestAShorterReuseDelayEndsRestsEarlier(t *testing.T) {
	const short = 10 * time.Second
	delay := func(d *desk, delay time.Duration, recorded ...Cooling) {
		p := d.pool("10.0.0.0-10.0.0.9")
		p.ReuseDelay, p.Cooling = delay, recorded
		d.setPool(d.now, p)
	}
	free := func(what string, d *desk, after time.Duration, want int64) {
		t.Helper()
		d.now = d.now.Add(after)
		d.tick(d.now)
		if got := d.free(); got != want {
			t.Errorf("%s: %d free after %s, want %d", what, got, after, want)
		}
	}
	d := newDesk(t)
	delay(d, time.Hour)
	d.stored("web", "10.0.0.1", journal.Token{})
	d.gone("web")
	free("an hour", d, 5*time.Second, 9)
	before := d.restingOf(modelPool)
	delay(d, short, before...) // what is recorded says still what it said
	free("shorter", d, 4*time.Second, 9)
	delay(d, time.Hour, before...) // longer does not count for what rests
	delay(d, short, before...)
	free("shorter again", d, time.Second, 10)

	fresh := newDesk(t) // a restart before it is recorded
	fresh.now = before[0].Since
	delay(fresh, short, before...)
	free("after a restart", fresh, short-time.Second, 9)
	free("after a restart", fresh, time.Second, 10)
}

func TestNothingIsGrantedWhileAnEarlierJournalMayHavePromisedIt(t *testing.T) {
	d := newDesk(t)
	d.takeOver(journal.Version{Record: journal.Record{Quarantine: true}})
	d.serve(d.now)
	var wait *NotServingError
	if _, err := d.ask(Request{Claim: key("a")}); !errors.As(err, &wait) {
		t.Errorf("granted: %v", err)
	}
	if _, err := d.preview(Request{Claim: key("a"), Pool: modelPool, Wants: []Want{{Count: 1}}}); !errors.As(err, &wait) {
		t.Errorf("a dry run says that it would be: %v", err)
	}
	if !d.commit().Quarantine {
		t.Error("the journal forgets its quarantine")
	}
	d.tick(d.now.Add(DefaultGrantLife))
	if d.commit().Quarantine {
		t.Error("the quarantine never ends")
	}
	d.must(Request{Claim: key("a")})
}

func TestADryRunGivesWhatACreateWould(t *testing.T) {
	d := newDesk(t)
	q := Request{Claim: key("a"), Pool: modelPool, Wants: []Want{{Count: 3}}}
	dry, err := d.preview(q)
	if err != nil {
		t.Fatal(err)
	}
	if got := d.must(q); !slices.Equal(got.Ranges, dry.Ranges) {
		t.Errorf("dry run %v, create %v", dry, got)
	}
	if again, err := d.preview(q); err != nil || !slices.Equal(again.Ranges, dry.Ranges) || len(d.lines) != 1 {
		t.Errorf("dry run of a name that has its range: %v, %v", again, err)
	}
}

func TestAPoolSeenAfterItsClaimsTakesThemIntoItsSpace(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	d.removePool(modelPool, d.rv)
	d.stored("a", "10.0.0.1", journal.Token{}, func(c *Claim) { c.Space = "elsewhere" })
	p.Space = "blue"
	p.ResourceVersion = d.rv + 1
	d.setPool(d.now, p)
	if u, _ := d.usage(modelPool); u.Available != 9 || u.Claims != 1 {
		t.Errorf("%+v", u)
	}
	d.gone("a")
	if u, _ := d.usage(modelPool); u.Available != 10 || u.Claims != 0 {
		t.Errorf("%+v", u)
	}
}

var twoFamilies = []Want{{Count: 1, Bits: 32}, {Count: 1, Bits: 128}}

func TestAClaimOfTwoFamiliesGetsBothOrNeither(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.2")
	if _, err := d.ask(Request{Claim: key("none"), Wants: twoFamilies}); !errors.As(err, new(*FamilyError)) {
		t.Fatalf("from a pool of one family: %v", err)
	}
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	d.setPool(d.now, p)
	both := d.must(Request{Claim: key("both"), Wants: twoFamilies})
	if want := []allocator.Range{mustRange("10.0.0.0"), mustRange("2001:db8::1")}; !slices.Equal(both.Ranges, want) {
		t.Fatalf("got %v, want %v", both.Ranges, want)
	}
	six := d.must(Request{Claim: key("six"), Wants: []Want{{Count: 1, Bits: 128}}})
	for name, g := range map[string]Grant{"both": both, "six": six} {
		d.stored(name, "", g.Token, func(c *Claim) { c.Ranges = g.Ranges })
	}
	if _, err := d.ask(Request{Claim: key("late"), Wants: twoFamilies}); !errors.Is(err, allocator.ErrExhausted) {
		t.Fatalf("without an IPv6 address left: %v", err)
	}
	if u, _ := d.usage(modelPool); u.Allocated != 3 {
		t.Errorf("%d addresses are held: a refusal left one behind", u.Allocated)
	}
	if _, err := d.ask(Request{Claim: key("late"), Wants: []Want{{Exact: mustRange("10.0.0.1")}, {Exact: mustRange("2001:db8::1")}}}); !errors.As(err, new(*HeldError)) {
		t.Fatalf("of a held IPv6 address: %v", err)
	}
	if again := d.must(Request{Claim: key("both"), Wants: twoFamilies}); !slices.Equal(again.Ranges, both.Ranges) || again.Token == both.Token {
		t.Errorf("asked again: %v", again)
	}
	if err := d.granted(key("both"), "", 0, both.Ranges[:1], both.Token); !errors.Is(err, ErrForged) {
		t.Errorf("half of a grant passes: %v", err)
	}
}

func TestANewHolderKnowsGrantsOfTwoFamilies(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.2")
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	d.setPool(d.now, p)
	g := d.must(Request{Claim: key("a"), Wants: twoFamilies})
	n := newDesk(t)
	n.takeOver(journal.Version{Record: d.commit()})
	n.setPool(n.now, p)
	n.serve(n.now)
	n.lastID = 100
	n.newToken = func() journal.Token { return journal.Token{99} }
	if again, err := n.ask(Request{Claim: key("b"), Wants: twoFamilies}); err != nil || again.Ranges[0] == g.Ranges[0] || again.Ranges[1] == g.Ranges[1] {
		t.Errorf("%v, %v: the first claim may be stored yet", again, err)
	}
	n.stored("a", "", g.Token, func(c *Claim) { c.Ranges = g.Ranges })
	if st := n.standing("a"); st.Clash != nil || !st.Answered {
		t.Errorf("%+v", st)
	}
}

func TestAPoolThatAssignsNothingByItselfGivesWhatIsAskedFor(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	p.Manual = true
	d.setPool(d.now, p)
	if _, err := d.ask(Request{Claim: key("a")}); !errors.As(err, new(*NotAutomaticError)) {
		t.Errorf("any: %v", err)
	}
	d.must(Request{Claim: key("a"), Wants: []Want{{Exact: mustRange("10.0.0.4")}}})
}

func TestAnAddressOfNoPoolIsNoPoolsToGive(t *testing.T) {
	d := newDesk(t)
	static := func(address string) Request {
		return Request{Claim: key("static-" + address), Wants: []Want{{Exact: mustRange(address)}}}
	}
	for _, address := range []string{"10.0.0.0", "192.0.2.1"} {
		l, err := d.grant(d.now, static(address))
		if err != nil {
			t.Fatal(err)
		}
		d.commit()
		if err := d.granted(key("static-"+address), "", 0, l.Ranges, l.Token); err != nil {
			t.Fatal(err)
		}
		d.stored("static-"+address, address, l.Token, func(c *Claim) { c.Pool = Key{} })
	}
	if g := d.must(Request{Claim: key("a")}); g.Ranges[0] == mustRange("10.0.0.0") {
		t.Error("an address is given twice")
	}
	held := (*HeldError)(nil)
	if _, err := d.grant(d.now, Request{Claim: key("thief"), Wants: []Want{{Exact: mustRange("192.0.2.1")}}}); !errors.As(err, &held) || held.Holder != key("static-192.0.2.1") {
		t.Errorf("%v", err)
	}
	if u, _ := d.usage(modelPool); u.Claims != 0 {
		t.Errorf("%d claims of the pool: they are of none", u.Claims)
	}
}

func TestAClaimThatLeavesItsPoolKeepsItsAddress(t *testing.T) {
	d := newDesk(t)
	g := d.must(Request{Claim: key("a")})
	d.stored("a", g.Ranges[0].String(), g.Token)
	d.stored("a", g.Ranges[0].String(), g.Token, func(c *Claim) { c.Pool = Key{} })
	if u, _ := d.usage(modelPool); u.Claims != 0 || u.Allocated != 1 {
		t.Errorf("%+v: want no claim of the pool, and the address held", u)
	}
}

func TestAClaimThatIsGivenMoreKeepsWhatItHas(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.2")
	p.Window = append(p.Window, mustRange("2001:db8::1-2001:db8::2"))
	d.setPool(d.now, p)
	four, six := mustRange("10.0.0.1"), mustRange("2001:db8::1")
	d.stored("a", "10.0.0.1", journal.Token{}, ready)
	q := Request{Claim: key("a"), UID: "a", Wants: []Want{{Exact: four}, {Count: 1, Bits: 128}}}
	g := d.must(q)
	if !slices.Equal(g.Ranges, []allocator.Range{six}) {
		t.Fatalf("given %v, want %v beside what it has", g.Ranges, six)
	}
	if err := d.granted(key("a"), "a", 0, []allocator.Range{four, six}, g.Token); err != nil {
		t.Error(err)
	}
	if err := d.granted(key("a"), "", 0, []allocator.Range{four, six}, g.Token); !errors.Is(err, ErrForged) {
		t.Errorf("another object of its name: %v", err)
	}
	d.stored("a", "", g.Token, func(c *Claim) { c.Ranges, c.Ready = []allocator.Range{four, six}, true })
	d.commit()
	d.expectStanding("a", "confirmed")
	if u, _ := d.usage(modelPool); u.Allocated != 2 || len(d.lines) != 0 {
		t.Errorf("%d addresses held, %d grants open: want 2 and none", u.Allocated, len(d.lines))
	}

	// And one that moves gives up what it left when that is seen.
	moved := Request{Claim: key("a"), UID: "a", Wants: []Want{{Exact: mustRange("10.0.0.2")}, {Exact: six}}}
	d.must(moved)
	g = d.must(moved) // the call came twice
	if u, _ := d.usage(modelPool); u.Allocated != 3 {
		t.Errorf("%d addresses held while it moves, want the old and the new one", u.Allocated)
	}
	d.stored("a", "", g.Token, func(c *Claim) { c.Ranges, c.Ready = []allocator.Range{mustRange("10.0.0.2"), six}, true })
	if u, _ := d.usage(modelPool); u.Allocated != 2 || len(d.lines) != 0 {
		t.Errorf("%d addresses held, %d grants open: want 2 and none", u.Allocated, len(d.lines))
	}
}

// Between a grant and the commit that ends it a claim may have been changed, and the journal change hands.
func TestANewHolderKnowsAClaimThatHasChangedSinceItsGrant(t *testing.T) {
	four, six := mustRange("10.0.0.1"), mustRange("2001:db8::1")
	for name, tc := range map[string]struct {
		line journal.Line
		has  []allocator.Range
	}{
		"gave up a range of its create":      {journal.Line{Ranges: []allocator.Range{four, six}}, []allocator.Range{four}},
		"was given a range more":             {journal.Line{Ranges: []allocator.Range{six}, Stored: "a", UID: "a"}, []allocator.Range{four, six}},
		"was given one and gave it up again": {journal.Line{Ranges: []allocator.Range{six}, Stored: "a", UID: "a"}, []allocator.Range{four}},
	} {
		for order, first := range map[string]bool{"seen before the journal is taken": true, "seen after it": false} {
			t.Run(name+", "+order, func(t *testing.T) {
				tc.line.Token, tc.line.Kind, tc.line.Namespace, tc.line.NameHash = journal.Token{7}, modelClaims, "ns", journal.HashName("a")
				d := newDesk(t)
				p := d.pool("10.0.0.0-10.0.0.2")
				p.Window = append(p.Window, six)
				d.setPool(d.now, p)
				see := func() { d.stored("a", "", tc.line.Token, func(c *Claim) { c.Ranges = tc.has }) }
				if d.stepDown(); first {
					see()
				}
				d.takeOver(journal.Version{Record: journal.Record{Lines: []journal.Line{tc.line}}})
				if d.serve(d.now); !first {
					see()
				}
				d.commit()
				d.expectStanding("a", "confirmed")
				if u, _ := d.usage(modelPool); u.Allocated != int64(len(tc.has)) || len(d.lines) != 0 {
					t.Errorf("%d addresses held, %d grants open: want %d and none", u.Allocated, len(d.lines), len(tc.has))
				}
			})
		}
	}
}

// A reconciler that looks at a pool as soon as the ledger has read it may find nothing, or an older version: the informers come later, and have to
// bring it up once more.
func TestAPoolReadAheadOfItsEventIsBroughtUpByThat(t *testing.T) {
	d := newDesk(t)
	pool := d.pool("10.0.0.0-10.0.0.9")
	read, arrive := func() { d.learnPool(d.now, pool) }, func() { d.setPool(d.now, pool) }
	for _, step := range []struct {
		what string
		do   func()
		want bool
	}{{"the read", read, true}, {"another read", read, false}, {"its event", arrive, true}, {"a repeated event", arrive, false}, {"a late read", read, false}, {"an event after that", arrive, false}} {
		clear(d.changed)
		step.do()
		if _, got := d.changed[modelPool]; got != step.want {
			t.Errorf("%s brings it up: %v, want %v", step.what, got, step.want)
		}
	}
}

// Who takes the journal over waits for what its last holder had seen. What that had only read, it may not know.
func TestWhatWasReadAheadOfItsEventStaysInTheJournalUntilThat(t *testing.T) {
	d := newDesk(t)
	next := d.pool("10.0.0.0-10.0.0.9", "10.0.0.0-10.0.0.3")
	if _, err := d.change(next); err != nil {
		t.Fatal(err)
	}
	d.learnPool(d.now, next)
	if r := d.commit(); len(r.Lines) != 1 || d.free() != 6 {
		t.Errorf("%d lines in the journal, %d addresses free after the read", len(r.Lines), d.free())
	}
	d.setPool(d.now, next)
	if r := d.commit(); len(r.Lines) != 0 || d.free() != 6 {
		t.Errorf("%d lines in the journal, %d addresses free after its event", len(r.Lines), d.free())
	}
}

func TestAGrantToAStoredClaimEndsWhenThatIsSeenAsItIsSince(t *testing.T) {
	for name, see := range map[string]func(*desk, Grant){
		"without the range": func(d *desk, _ Grant) { d.stored("a", "", journal.Token{}) },
		"with the range":    func(d *desk, g Grant) { d.stored("a", g.Ranges[0].String(), g.Token) },
	} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.stored("a", "", journal.Token{})
			g := d.must(Request{Claim: key("a"), UID: "a"})
			d.now = d.now.Add(DefaultGrantLife)
			for _, l := range d.due(d.now) {
				d.outlive(d.now, l, d.rv+1) // what see makes the book see
			}
			if due := d.due(d.now); len(due) != 0 || len(d.commit().Lines) != 1 {
				t.Errorf("due before it is seen: %v", due)
			}
			n := newDesk(t) // has seen nothing of the claim, as the holder has not
			n.takeOver(journal.Version{Record: d.commit()})
			n.serve(n.now)
			if o := n.must(Request{Claim: key("b")}); o.Ranges[0] == g.Ranges[0] {
				t.Errorf("the next holder gives %v again", o.Ranges)
			}
			see(d, g)
			for _, l := range d.due(d.now) {
				d.end(l)
			}
			if r := d.commit(); len(r.Lines) != 0 {
				t.Errorf("in the journal when it was seen: %v", r.Lines)
			}
			if d.gone("a"); d.free() != 10 {
				t.Errorf("%d free when the claim is gone", d.free())
			}
		})
	}
}

func TestAGrantToAClaimThatIsGoneEndsWhenThatIsSeen(t *testing.T) {
	d := newDesk(t)
	d.stored("a", "", journal.Token{})
	d.must(Request{Claim: key("a"), UID: "a"})
	n := newDesk(t) // to which the claim is unknown: it was gone before
	n.takeOver(journal.Version{Record: d.commit()})
	n.serve(n.now)
	for _, tc := range []struct {
		what string
		*desk
		want int64
	}{{"the holder", d, 9}, {"the next", n, 10}} {
		tc.now = tc.now.Add(DefaultGrantLife)
		for _, l := range tc.due(tc.now) {
			tc.outlive(modelStart, l, 0)
		}
		if tc.free() != tc.want {
			t.Errorf("%s: %d free before its end is seen, want %d", tc.what, tc.free(), tc.want)
		}
	}
	if d.gone("a"); d.free() != 10 || len(d.lines) != 0 {
		t.Errorf("%d free, %d grants open when its end is seen", d.free(), len(d.lines))
	}
}

// Its parts are shown by what they are, not by their place.
func TestThePartsOfAPoolFollowItsChanges(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0")
	p.Ordered, p.Policy = true, allocator.Sequential
	n := 0
	gives := func(want string, window ...string) {
		t.Helper()
		p.ResourceVersion, p.Window = d.pool("10.0.0.0").ResourceVersion, nil
		for _, r := range window {
			p.Window = append(p.Window, mustRange(r))
		}
		d.setPool(d.now, p)
		n++
		name := fmt.Sprint("c", n)
		g := d.must(Request{Claim: key(name)})
		if g.Ranges[0] != mustRange(want) {
			t.Errorf("of %v it gives %s, want %s", window, g.Ranges[0], want)
		}
		d.stored(name, want, g.Token)
	}
	gives("10.0.0.4", "10.0.0.4-10.0.0.7", "10.0.0.0-10.0.0.1")
	gives("10.0.0.0", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7")
	gives("10.0.0.9", "10.0.0.9", "10.0.0.9", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7")
	gives("10.0.0.1", "10.0.0.0-10.0.0.1", "10.0.0.4-10.0.0.7", "10.0.0.9")
	gives("10.0.0.2", "10.0.0.0-10.0.0.9")
	gives("10.0.0.5", "10.0.0.4-10.0.0.7", "10.0.0.2-10.0.0.3")
	d.removePool(p.Key, 1<<40)
	if l := len(d.offers); l > 0 {
		t.Errorf("%d parts of a pool that is gone are shown still", l)
	}
}

// As the status of a pool is written: an IPPool may have tens of thousands of parts, and the ledger serves nobody meanwhile.
func BenchmarkAPoolOfManyPartsIsSeen(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := newBook([]string{modelClaims, modelPools}, limits{life: DefaultGrantLife}, nil)
			p := Pool{Key: modelPool, Ordered: true, Policy: allocator.Sequential}
			for i := range n {
				p.Window = append(p.Window, mustRange(fmt.Sprintf("11.%d.%d.%d", i>>14, i>>7&127, i&127<<1)))
			}
			all := p.Window
			for what, lack := range map[string]uint64{"as it was": 1, "one part more or less": 2} {
				b.Run(what, func(b *testing.B) {
					for b.Loop() {
						p.ResourceVersion++
						p.Window = all[p.ResourceVersion%lack:]
						k.setPool(modelStart, p)
					}
				})
			}
		})
	}
}

// Two pools have the same parts, and one of them keeps each of these for somebody.
func BenchmarkAPoolOfManyPinsIsSeen(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			k := newBook([]string{modelClaims, modelPools}, limits{life: DefaultGrantLife}, nil)
			other := Pool{Key: Key{Kind: modelPools, Namespace: "ns", Name: "other"}, Ordered: true, ResourceVersion: 1, Policy: allocator.Sequential}
			for i := range n {
				other.Window = append(other.Window, mustRange(fmt.Sprintf("11.%d.%d.%d", i>>14, i>>7&127, i&127<<1)))
			}
			k.setPool(modelStart, other)
			p := other
			p.Key, p.BlocksHeld, p.ResourceVersion = modelPool, true, 0
			for b.Loop() {
				p.ResourceVersion++
				p.Blocked = other.Window[p.ResourceVersion%2*uint64(n)/2:] // all, and half of them
				k.setPool(modelStart, p)
			}
		})
	}
}

// A grant's claim was written to, so that nothing older can land, and etcd was restored to what was before: that version will never be seen.
func TestAGrantIsEndedAnewWhereSightOfItsClaimDoesNotCome(t *testing.T) {
	d := newDesk(t)
	d.stored("a", "", journal.Token{})
	d.must(Request{Claim: key("a"), UID: "a"})
	d.now = d.now.Add(DefaultGrantLife)
	due := d.due(d.now)
	if len(due) != 1 {
		t.Fatalf("%d grants are due", len(due))
	}
	d.outlive(d.now, due[0], d.rv+100)
	if again := d.due(d.now.Add(DefaultGrantLife - time.Second)); len(again) != 0 {
		t.Error("it is due before its claim is seen")
	}
	d.now = d.now.Add(DefaultGrantLife)
	if again := d.due(d.now); len(again) != 1 || again[0].outlived != 0 {
		t.Errorf("due are %+v, want the grant, to be ended anew", again)
	}
}

// The loser of a conflict may ask for what nobody else has of its range. While the answer may come to nothing the loser keeps that.
func TestTheLoserOfAConflictMayAskForItsPartOfTheRange(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "withdrawn": false} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			d.stored("winner", "10.0.0.0-10.0.0.1", journal.Token{}, ready)
			d.stored("loser", "10.0.0.1-10.0.0.4", journal.Token{}, flagged)
			ask := func(r string) (Grant, error) {
				return d.ask(Request{Claim: key("loser"), UID: "loser", Wants: []Want{{Exact: mustRange(r)}}})
			}
			if _, err := ask("10.0.0.1-10.0.0.4"); !errors.As(err, new(*HeldError)) {
				t.Fatalf("the same range again: %v, want that the winner has some of it", err)
			}
			if d.free() != 5 {
				t.Fatalf("%d addresses are free after a refusal, want 5", d.free())
			}
			g, err := ask("10.0.0.2-10.0.0.5")
			if err != nil {
				t.Fatal(err)
			}
			if d.free() != 4 {
				t.Errorf("%d addresses are free, want 4", d.free())
			}
			want := int64(5)
			if stored {
				d.stored("loser", "10.0.0.2-10.0.0.5", g.Token)
				want = 4
			} else {
				d.withdraw(d.lines[g.Token])
			}
			d.commit()
			if d.free() != want {
				t.Errorf("%d addresses are free at last, want %d", d.free(), want)
			}
			if st := d.standing("loser"); (st.Clash == nil) != stored {
				t.Errorf("the loser clashes with %v", st.Clash)
			}
			if owns, err := d.owns("winner", 0); err != nil || !owns {
				t.Errorf("the winner owns its range: %v, %v", owns, err)
			}
		})
	}
}
