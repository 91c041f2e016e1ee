package ledger

import (
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// standsFor makes a claim an object that holds its range for another.
func standsFor(name string) func(*Claim) { return func(c *Claim) { c.For = key(name) } }

func goesAway(c *Claim) { c.Away = true }

func TestAClaimAndWhatStandsInForItAreOneHolder(t *testing.T) {
	for name, order := range map[string][]string{"claim first": {"web", "address"}, "address first": {"address", "web"}} {
		t.Run(name, func(t *testing.T) {
			d := newDesk(t)
			for _, object := range order {
				if object == "web" {
					d.stored("web", "10.0.0.3", journal.Token{})
				} else {
					d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"))
				}
			}
			d.commit()
			if st := d.standing("web"); !st.Confirmed || d.free() != 9 {
				t.Fatalf("standing %+v, %d free", st, d.free())
			}
			for i, object := range order {
				d.gone(object)
				if want := int64(9 + i); d.free() != want {
					t.Errorf("without %s: %d free, want %d", object, d.free(), want)
				}
			}
		})
	}
}

func TestAClaimGetsTheRangeThatIsHeldForIt(t *testing.T) {
	d := newDesk(t)
	d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"))
	if g := d.must(Request{Claim: key("other")}); g.Ranges[0] == mustRange("10.0.0.3") {
		t.Error("somebody else got it")
	}
	g := d.must(Request{Claim: key("web"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}})
	d.stored("web", "10.0.0.3", g.Token)
	d.commit()
	if st := d.standing("web"); !st.Confirmed {
		t.Errorf("standing %+v", st)
	}
	d.gone("address")
	if _, err := d.ask(Request{Claim: key("thief"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Error("the claim lost its range with the object that stood in for it")
	}
}

func TestWhatGoesToAnotherClusterIsNotGivenOutHere(t *testing.T) {
	d := newDesk(t)
	d.stored("web", "10.0.0.3", journal.Token{})
	d.stored("web", "", journal.Token{}, goesAway) // clusterctl takes its annotations off
	d.gone("web")
	d.now = d.now.Add(1000 * time.Hour)
	d.tick(d.now)
	if got, open := d.restingOf(modelPool), d.departures(); d.free() != 9 || len(got) != 0 || len(open) != 1 {
		t.Fatalf("before it is decided: %d free, resting: %+v, open: %+v", d.free(), got, open)
	}
	d.decideMoved(d.now, d.departures()[0].UID, true)
	if got := d.restingOf(modelPool); d.free() != 9 || len(got) != 1 || got[0].Claim != key("web") || !got[0].Until.IsZero() || len(d.departures()) != 0 {
		t.Fatalf("%d free, resting: %+v", d.free(), got)
	}

	// The pool records it, and so does who starts anew.
	fresh := newDesk(t)
	recorded := fresh.pool("10.0.0.0-10.0.0.9")
	recorded.Cooling = d.restingOf(modelPool)
	fresh.setPool(fresh.now, recorded)
	if fresh.free() != 9 {
		t.Fatalf("after a restart: %d free", fresh.free())
	}
	if _, err := fresh.ask(Request{Claim: key("thief"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}}); err == nil {
		t.Error("somebody else got it")
	}
	g := fresh.must(Request{Claim: key("web"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}})
	fresh.stored("web", "10.0.0.3", g.Token, func(c *Claim) { c.UID = "web-2" })
	if got := fresh.restingOf(modelPool); len(got) != 0 {
		t.Errorf("it is back, and still resting: %+v", got)
	}
	fresh.gone("web-2")
	if fresh.free() != 10 {
		t.Errorf("it came back and was released: %d free", fresh.free())
	}

	// Only a person who takes the entry out of a list that had shown it frees the range.
	recorded.Listed = 100
	d.setPool(d.now, recorded)
	for i, tc := range []struct {
		name   string
		listed uint64
		shows  bool
		free   int64
	}{
		{"no list", 0, false, 9},
		{"an older list", 99, false, 9},
		{"a list that shows it", 110, true, 9},
		{"no list once more", 0, false, 9},
		{"taken out", 110, false, 10},
	} {
		p := d.pool("10.0.0.0-10.0.0.9")
		p.ResourceVersion, p.Listed = recorded.ResourceVersion+100+uint64(i), tc.listed
		if tc.shows {
			p.Cooling = recorded.Cooling
		}
		d.setPool(d.now, p)
		if d.free() != tc.free {
			t.Errorf("%s: %d free, want %d", tc.name, d.free(), tc.free)
		}
	}
}

// The record of a pool has room for all, and is not lost with the pool's annotations.
func TestTheRecordOfWhatWentToAnotherCluster(t *testing.T) {
	moved := Moved{Range: mustRange("10.0.0.3"), Claim: key("web"), Left: "web"}
	record := func(m Moved) []Record {
		return []Record{{Pool: modelPool, UID: "of-pool", Parts: []RecordPart{{Name: "part", Version: "1", Moved: []Moved{m}}}}}
	}
	pool := func(d *desk, listed uint64, shows bool) Pool {
		p := d.pool("10.0.0.0-10.0.0.9")
		p.UID, p.Listed = "of-pool", listed
		if shows {
			p.Cooling = []Cooling{{Range: moved.Range, Claim: moved.Claim, Left: moved.Left}}
		}
		return p
	}
	shown := func(revision uint64) Moved { m := moved; m.Shown = revision; return m }
	hidden := func(revision uint64) Moved { m := moved; m.Hidden = revision; return m }
	for name, tc := range map[string]struct {
		stored Moved
		listed uint64
		shows  bool
		free   int64
	}{
		"never listed, no list":          {moved, 0, false, 9},
		"never listed, a list":           {moved, 50, false, 9},
		"listed, no list":                {shown(40), 0, false, 9},
		"listed, an older list":          {shown(40), 39, false, 9},
		"listed, and still":              {shown(40), 50, true, 9},
		"listed, and taken out":          {shown(40), 40, false, 10},
		"listed, and the list emptied":   {shown(40), AllListed, false, 10},
		"without room, the list emptied": {hidden(40), AllListed, false, 9},
		"without room":                   {hidden(40), 40, false, 9},
		"room again, not seen":           {hidden(40), 50, false, 9},
	} {
		for order, take := range map[string]func(*desk, Pool){
			"pool first": func(d *desk, p Pool) { d.setPool(d.now, p); d.takeRecords(record(tc.stored)) },
			"record first": func(d *desk, p Pool) {
				d.removePool(modelPool, 0)
				d.takeRecords(record(tc.stored))
				d.setPool(d.now, p)
			},
		} {
			d := newDesk(t)
			take(d, pool(d, tc.listed, tc.shows))
			if d.free() != tc.free {
				t.Errorf("%s, %s: %d free, want %d", name, order, d.free(), tc.free)
			}
		}
	}

	t.Run("another pool of the name", func(t *testing.T) {
		d := newDesk(t)
		p := pool(d, 0, false)
		p.UID = "another"
		d.setPool(d.now, p)
		d.takeRecords(record(moved))
		if d.free() != 10 {
			t.Errorf("%d free", d.free())
		}
	})
	t.Run("listed before it was hidden", func(t *testing.T) { // whose event comes late
		d := newDesk(t)
		d.setPool(d.now, pool(d, 0, false))
		d.takeRecords(record(hidden(40)))
		d.setPool(d.now, pool(d, 30, true))
		d.setPool(d.now, pool(d, 40, false))
		if d.free() != 9 {
			t.Errorf("%d free", d.free())
		}
		d.setPool(d.now, pool(d, 50, true))
		d.setPool(d.now, pool(d, 50, false))
		if d.free() != 10 {
			t.Errorf("shown again and taken out: %d free", d.free())
		}
	})
	t.Run("held by a claim", func(t *testing.T) {
		d := newDesk(t)
		d.setPool(d.now, pool(d, 0, false))
		d.stored("db", "10.0.0.3", journal.Token{})
		d.takeRecords(record(moved))
		d.gone("db")
		if list, _, _ := d.movedOf(modelPool, "of-pool"); d.free() != 10 || len(list) != 0 {
			t.Errorf("%d free, moved: %+v", d.free(), list)
		}
	})
}

func TestWhatStandsInForAClaimInAnotherClusterHoldsItsRange(t *testing.T) {
	d := newDesk(t)
	d.stored("web", "10.0.0.3", journal.Token{})
	d.stored("web", "", journal.Token{}, goesAway)
	d.gone("web")
	d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"))
	d.gone("address")
	if d.free() != 9 {
		t.Errorf("the claim is where it was, and %d are free", d.free())
	}
	d.stored("address again", "10.0.0.3", journal.Token{}, standsFor("web"))
	d.stored("web again", "10.0.0.3", journal.Token{}, func(c *Claim) { c.Key = key("web") })
	d.commit()
	if st := d.standing("web again"); !st.Confirmed {
		t.Errorf("it is back, after the address: %+v", st)
	}
	d.gone("address again")
	d.gone("web again")
	if d.free() != 10 {
		t.Errorf("it came back and was released: %d free", d.free())
	}
}

func TestAPoolWithAnOrderIsUsedUpRangeByRange(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.8-10.0.0.9")
	p.Window, p.Ordered, p.Policy = append(p.Window, mustRange("10.0.0.1-10.0.0.2"), mustRange("2001:db8::1-2001:db8::2")), true, allocator.Sequential
	d.setPool(d.now, p)
	for i, want := range []string{"10.0.0.8", "10.0.0.9", "10.0.0.1", "10.0.0.2"} {
		g := d.must(Request{Claim: key(want)})
		d.stored(want, want, g.Token)
		if g.Ranges[0] != mustRange(want) {
			t.Errorf("%d: got %s, want %s", i, g.Ranges[0], want)
		}
	}
}

func TestWhatAPoolKeepsForAClaimOnlyThatGets(t *testing.T) {
	d := newDesk(t)
	d.setPool(d.now, d.pool("10.0.0.0-10.0.0.9", "10.0.0.3"))
	exact := []Want{{Exact: mustRange("10.0.0.3")}}
	if _, err := d.ask(Request{Claim: key("other"), Wants: exact}); err == nil {
		t.Error("somebody else got it")
	}
	g := d.must(Request{Claim: key("web"), Wants: []Want{{Exact: mustRange("10.0.0.3"), Kept: true}}})
	d.stored("web", "10.0.0.3", g.Token)
	if _, err := d.ask(Request{Claim: key("twin"), Wants: []Want{{Exact: mustRange("10.0.0.3"), Kept: true}}}); err == nil {
		t.Error("two got it")
	}
}

func TestWhatIsHeldThroughAPool(t *testing.T) {
	d := newDesk(t)
	other := Key{Kind: modelPools, Namespace: "elsewhere", Name: "pool"}
	d.rv++
	d.setPool(d.now, Pool{Key: other, ResourceVersion: d.rv, Window: []allocator.Range{mustRange("10.0.0.0-10.0.0.9")}})
	d.stored("web", "10.0.0.3", journal.Token{})
	d.stored("twin", "10.0.0.3", journal.Token{}) // which does not have it
	d.stored("db", "10.0.0.1", journal.Token{})
	d.stored("theirs", "10.0.0.2", journal.Token{}, func(c *Claim) { c.Key.Namespace, c.Pool = "elsewhere", other })
	d.stored("outside", "10.9.0.1", journal.Token{}, ready)
	d.stored("for-web", "10.0.0.3", journal.Token{}, standsFor("web"))
	d.stored("router", "10.0.0.0", journal.Token{}, standsFor("gateway"))
	own, standIns := d.heldThrough(modelPool)
	slices.SortFunc(own, inAddressOrder)
	want := []Held{{mustRange("10.0.0.1"), key("db")}, {mustRange("10.0.0.3"), key("web")}, {mustRange("10.9.0.1"), key("outside")}}
	if !slices.Equal(own, want) || !slices.Equal(standIns, []Held{{mustRange("10.0.0.0"), key("gateway")}}) {
		t.Errorf("claims: %v, held for claims: %v", own, standIns)
	}
	if own, standIns = d.heldThrough(other); len(own) != 1 || own[0].Range != mustRange("10.0.0.2") || len(standIns) != 0 {
		t.Errorf("of the other pool: %v, %v", own, standIns)
	}
}

func TestAnAddressMadeByAnEarlierHolderMayStillTurnUp(t *testing.T) {
	d := newDesk(t)
	d.stored("known", "10.0.0.3", journal.Token{})
	d.stored("waiting", "", journal.Token{})
	d.stepDown()
	d.takeOver(journal.Version{})
	d.serve(d.now)
	d.commit()
	d.stored("later", "10.0.0.4", journal.Token{})
	d.now = d.now.Add(30 * time.Second)
	for name, want := range map[string]time.Duration{"known": d.limits.life - 30*time.Second, "later": 0, "waiting": 0, "never": 0} {
		if got := d.landing(d.now, name, time.Time{}); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
		if got := d.landing(d.now, name, d.now.Add(-time.Second)); got != d.limits.life-time.Second {
			t.Errorf("%s, tried by this holder a second ago: %s", name, got)
		}
	}
	d.now = d.now.Add(d.limits.life)
	if got := d.landing(d.now, "known", time.Time{}); got != 0 {
		t.Errorf("after the life of a grant: %s", got)
	}
}

func TestAClaimThatCameBeforeItsPoolIsLookedAtWhenThatAppears(t *testing.T) {
	d := newDesk(t)
	p := d.pool("10.0.0.0-10.0.0.9")
	d.removePool(modelPool, d.rv)
	d.stored("web", "10.0.0.3", journal.Token{})
	clear(d.changed)
	d.setPool(d.now, p)
	if _, told := d.changed[key("web")]; !told {
		t.Error("its address object waits for the pool, and nobody makes it then")
	}
}

// A pool's record of a range that went to another cluster may be seen before its claim is seen to be gone: it must not be taken out then.
func TestWhatWentToAnotherClusterStaysRecordedUntilItsClaimComesBack(t *testing.T) {
	for name, tc := range map[string]struct {
		left string
		want int
	}{
		"of the claim that is yet to be seen gone": {left: "a", want: 1},
		"of one before it":                         {left: "another", want: 0},
		"of nobody knows which":                    {want: 0},
	} {
		t.Run(name, func(t *testing.T) {
			for _, first := range []string{"claim", "pool"} {
				d := newDesk(t)
				p := d.pool("10.0.0.0-10.0.0.9")
				p.Cooling = []Cooling{{Range: mustRange("10.0.0.4"), Claim: key("a"), Left: tc.left}}
				if first == "pool" {
					d.setPool(d.now, p)
				}
				d.stored("a", "10.0.0.4", journal.Token{}, ready)
				d.setPool(d.now, p)
				if got := d.restingOf(modelPool); len(got) != tc.want || tc.want > 0 && got[0] != p.Cooling[0] {
					t.Errorf("%s seen first: to be recorded is %v", first, got)
				}
				if d.gone("a"); d.free() != 10-int64(tc.want) {
					t.Errorf("%s seen first: %d free when the claim is gone", first, d.free())
				}
			}
		})
	}
}

func TestClaimsMarkedAsMovedThatWereNot(t *testing.T) {
	marked := func(d *desk, clusters ...string) {
		d.stored("web", "10.0.0.3", journal.Token{})
		d.stored("web", "", journal.Token{}, goesAway, func(c *Claim) { c.Clusters = clusters })
		d.gone("web")
	}
	uid := func(d *desk) string {
		open := d.departures()
		if len(open) != 1 || d.free() != 9 {
			t.Fatalf("%d free, open: %+v", d.free(), open)
		}
		return open[0].UID
	}
	t.Run("free", func(t *testing.T) {
		d := newDesk(t)
		marked(d)
		d.decideMoved(d.now, uid(d), false)
		if d.free() != 10 || len(d.departures()) != 0 || len(d.restingOf(modelPool)) != 0 {
			t.Errorf("%d free, open: %+v, resting: %+v", d.free(), d.departures(), d.restingOf(modelPool))
		}
	})
	t.Run("cooldown", func(t *testing.T) {
		d := newDesk(t)
		p := d.pool("10.0.0.0-10.0.0.9")
		p.ReuseDelay = time.Hour
		d.setPool(d.now, p)
		marked(d)
		d.decideMoved(d.now, uid(d), false)
		if got := d.restingOf(modelPool); d.free() != 9 || len(got) != 1 || !got[0].Until.Equal(d.now.Add(time.Hour)) {
			t.Errorf("%d free, resting: %+v", d.free(), got)
		}
		d.now = d.now.Add(time.Hour)
		d.tick(d.now)
		if d.free() != 10 {
			t.Errorf("after the delay: %d free", d.free())
		}
	})
	t.Run("of an address object that stays", func(t *testing.T) {
		d := newDesk(t)
		d.stored("web", "10.0.0.3", journal.Token{})
		d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"))
		d.stored("web", "", journal.Token{}, goesAway)
		d.gone("web")
		d.decideMoved(d.now, uid(d), false)
		if d.free() != 9 {
			t.Errorf("%d free while the object is stored", d.free())
		}
		d.gone("address")
		if d.free() != 10 {
			t.Errorf("%d free", d.free())
		}
	})
	t.Run("back before the decision", func(t *testing.T) {
		d := newDesk(t)
		marked(d)
		g := d.must(Request{Claim: key("web"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}})
		d.stored("web", "10.0.0.3", g.Token, func(c *Claim) { c.UID = "back" })
		if len(d.departures()) != 0 || d.free() != 9 {
			t.Errorf("%d free, open: %+v", d.free(), d.departures())
		}
	})
	t.Run("the Cluster of the pool", func(t *testing.T) {
		d := newDesk(t)
		p := d.pool("10.0.0.0-10.0.0.9")
		p.Cluster = "of-pool"
		d.setPool(d.now, p)
		marked(d)
		if open := d.departures(); len(open) != 1 || !slices.Equal(open[0].Clusters, []string{"of-pool"}) {
			t.Errorf("open: %+v", open)
		}
		d = newDesk(t)
		d.setPool(d.now, p)
		marked(d, "own")
		if open := d.departures(); len(open) != 1 || !slices.Equal(open[0].Clusters, []string{"own"}) {
			t.Errorf("open: %+v", open)
		}
	})
}

// While the claim has the range too, by a holding of its own, its departure is the one to record. A replica that has not seen it would take the claim for
// one that came back, and end the record.
func TestWhatStandsInForAClaimDoesNotDepartBeforeIt(t *testing.T) {
	first := newDesk(t)
	g := first.must(Request{Claim: key("web"), Wants: []Want{{Exact: mustRange("10.0.0.3")}}})
	d := newDesk(t)
	d.takeOver(journal.Version{Record: first.commit()})
	d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"))
	d.stored("web", "10.0.0.3", g.Token)
	d.stored("address", "10.0.0.3", journal.Token{}, standsFor("web"), goesAway)
	d.gone("address")
	if open := d.departures(); len(open) != 0 || d.free() != 9 {
		t.Errorf("open: %+v, %d free", open, d.free())
	}
	d.stored("web", "", journal.Token{}, goesAway)
	d.gone("web")
	if open := d.departures(); len(open) != 1 || open[0].UID != "web" || d.free() != 9 {
		t.Errorf("open: %+v, %d free", open, d.free())
	}
}
