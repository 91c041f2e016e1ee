package state

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// A model of cooldown, with replicas whose wall clocks are wrong and are set. Claims are
// released, any replica records cooldowns, replicas restart and lag, and users change the
// reuse delay. After every step, for the State of each replica:
//
//	Invariant: no cooldown ends later than now + reuseDelay.
//	Invariant: a range whose claim the replica observed until its deletion is not free before deletion + the shortest reuseDelay since.
//	Invariant: with no further release, every range is free after one reuseDelay, however often the records are observed again.

type cooldownWorld struct {
	rng      *rand.Rand
	now      time.Time // monotonic clock of all replicas; the wall clock of a replica is ahead by State.RecordClockAhead
	version  uint64
	uids     int
	pool     Pool
	claims   map[string]*Claim // UID -> stored claim
	events   []event
	replicas []*cooldownReplica
	trace    []string

	tally struct{ ahead, behind, releases, kept int } // ahead, behind: first observations of a record whose clock was ahead or behind; kept: checks that found a range in cooldown
}

// cooldownReplica is a replica: a State and its position in the events.
type cooldownReplica struct {
	state    *State
	position int
	deleted  map[allocator.Range]observedDeletion // of claims whose deletion the replica observed
}

// observedDeletion is the deletion of a claim and the shortest reuse delay since.
type observedDeletion struct {
	at    time.Time
	delay time.Duration
}

func newCooldownWorld(seed uint64) *cooldownWorld {
	w := &cooldownWorld{rng: rand.New(rand.NewPCG(seed, 11)), now: modelStart, version: 1, claims: map[string]*Claim{}}
	w.pool = Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{modelRange}, ReuseDelay: time.Minute}
	for range 3 {
		r := &cooldownReplica{}
		w.replicas = append(w.replicas, r)
		w.restart(r)
	}
	return w
}

func (w *cooldownWorld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.1fs ", w.now.Sub(modelStart).Seconds())+fmt.Sprintf(format, args...))
}

// restart starts a replica with an empty State, which lists the stored objects with the
// clock of its node.
func (w *cooldownWorld) restart(r *cooldownReplica) {
	tokens := func() (t journal.Token) { return t }
	r.state, r.position, r.deleted = New(modelResources, Limits{GrantLife: DefaultGrantLife}, tokens), len(w.events), map[allocator.Range]observedDeletion{}
	w.setClock(r)
	w.countRecords(r)
	r.state.ObservePool(w.now, w.pool)
	for _, c := range w.stored() {
		r.state.ObserveClaim(w.now, *c)
	}
}

// setClock sets the wall clock of a replica.
func (w *cooldownWorld) setClock(r *cooldownReplica) {
	off := []time.Duration{0, 0, time.Duration(w.rng.IntN(7200)) * time.Second, -time.Duration(w.rng.IntN(7200)) * time.Second}
	r.state.SetRecordClockAhead(off[w.rng.IntN(len(off))])
}

func (w *cooldownWorld) store(e event) {
	w.version++
	e.resourceVersion = w.version
	e.claim.ResourceVersion = w.version
	if e.pool != nil {
		w.pool.ResourceVersion = w.version
		stored := w.pool
		stored.Recorded = slices.Clone(stored.Recorded)
		e.pool = &stored
	}
	w.events = append(w.events, e)
}

// countRecords counts the records whose clock a replica sees ahead or behind.
func (w *cooldownWorld) countRecords(r *cooldownReplica) {
	for _, c := range w.pool.Recorded {
		switch at := c.Since.Add(-r.state.RecordClockAhead()); {
		case at.After(w.now.Add(time.Minute)):
			w.tally.ahead++
		case at.Before(w.now.Add(-time.Hour)):
			w.tally.behind++
		}
	}
}

func (w *cooldownWorld) deliver(r *cooldownReplica) {
	if r.position >= len(w.events) {
		return
	}
	e := w.events[r.position]
	r.position++
	switch {
	case e.pool != nil:
		for at, d := range r.deleted {
			d.delay = min(d.delay, e.pool.ReuseDelay)
			r.deleted[at] = d
		}
		r.state.ObservePool(w.now, *e.pool)
	case e.deleted:
		r.state.RemoveClaim(w.now, e.claim, e.resourceVersion)
	default:
		known := r.state.claims.find(e.claim.UID)
		if known != nil && !known.Deleting && e.claim.Deleting {
			r.deleted[e.claim.Ranges[0]] = observedDeletion{w.now, r.state.pools.find(modelPool).ReuseDelay}
		}
		r.state.ObserveClaim(w.now, e.claim)
	}
}

func (w *cooldownWorld) step() {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	switch n := w.rng.IntN(100); {
	case n < 50:
		w.deliver(r)
	case n < 58:
		w.createClaim(r)
	case n < 66:
		w.deleteClaim()
	case n < 78:
		w.releaseClaim(r)
	case n < 90:
		w.writeRecords(r)
	case n < 93:
		w.setClock(r)
		w.logf("replica: clock ahead by %s", r.state.RecordClockAhead())
	case n < 95:
		w.logf("replica: restart")
		w.restart(r)
	case n < 97:
		w.pool.ReuseDelay = time.Duration(w.rng.IntN(4)) * 30 * time.Second
		w.store(event{pool: &w.pool})
		w.logf("pool: reuseDelay %s", w.pool.ReuseDelay)
	default: // an update of other fields
		w.store(event{pool: &w.pool})
	}
	for _, r := range w.replicas {
		r.state.Tick(w.now)
	}
}

// isFree reports whether no holding owns an address of the range.
func isFree(b *State, r allocator.Range) bool {
	for range b.domain("").core.OwnedIn(r) {
		return false
	}
	return true
}

func (w *cooldownWorld) createClaim(r *cooldownReplica) {
	at := modelRange.First
	for range w.rng.IntN(10) {
		at = at.Next()
	}
	one := allocator.Range{First: at, Last: at}
	if !isFree(r.state, one) || slices.ContainsFunc(w.stored(), func(c *Claim) bool { return c.Ranges[0] == one }) {
		return
	}
	w.uids++
	c := &Claim{Key: Key{Resource: modelClaims, Namespace: "ns", Name: fmt.Sprintf("c%d", w.uids)}, UID: fmt.Sprintf("u%d", w.uids), Created: w.now, Pool: modelPool, Ranges: []allocator.Range{one}, AllocatedEarlier: true}
	w.claims[c.UID] = c
	for _, r := range w.replicas { // the earlier deletion no longer counts
		delete(r.deleted, one)
	}
	w.store(event{claim: *c})
	c.ResourceVersion = w.version
	w.logf("claim %s: stored with %s", c.UID, one)
}

func (w *cooldownWorld) stored() (all []*Claim) {
	for _, c := range w.claims {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y *Claim) int { return int(x.ResourceVersion) - int(y.ResourceVersion) })
	return all
}

func (w *cooldownWorld) deleteClaim() {
	all := w.stored()
	if len(all) == 0 {
		return
	}
	c := all[w.rng.IntN(len(all))]
	if c.Deleting {
		return
	}
	c.Deleting = true
	w.store(event{claim: *c})
	c.ResourceVersion = w.version
	w.logf("claim %s: deletionTimestamp set", c.UID)
}

// releaseClaim releases a claim whose deletion the replica has observed: with a record in
// the pool, as for IPAllocations, or through State.BeginCooldown.
func (w *cooldownWorld) releaseClaim(r *cooldownReplica) {
	for _, c := range w.stored() {
		known := r.state.claims.find(c.UID)
		if known == nil || !known.Deleting || known.holding == nil {
			continue
		}
		if odd := c.UID[len(c.UID)-1]%2 == 1; odd {
			since := w.now.Add(r.state.RecordClockAhead()).Truncate(time.Second)
			if delay := r.state.pools.find(modelPool).ReuseDelay; delay > 0 {
				w.pool.Recorded = append(slices.Clone(w.pool.Recorded), RecordedRange{Range: c.Ranges[0], Since: since, Until: since.Add(delay)})
				w.store(event{pool: &w.pool})
				for _, r := range w.replicas {
					w.countRecords(r)
				}
			}
		} else if r.state.BeginCooldown(w.now, c.UID) > 0 {
			return
		}
		delete(w.claims, c.UID)
		w.store(event{deleted: true, claim: *c})
		w.tally.releases++
		w.logf("claim %s: deleted", c.UID)
		return
	}
}

// writeRecords writes the cooldowns of a replica to the pool, rounded to seconds as
// records are.
func (w *cooldownWorld) writeRecords(r *cooldownReplica) {
	if known := r.state.pools.find(modelPool); known.ResourceVersion != w.pool.ResourceVersion {
		return // a conflict
	}
	list := r.state.RangesToRecord(modelPool)
	if w.rng.IntN(8) == 0 { // a user edits the list
		list = slices.Clone(w.pool.Recorded)
		for i := range list {
			list[i].Since = time.Time{}
		}
	}
	for i, c := range list {
		if list[i].Until = c.Until.Add(time.Second - 1).Truncate(time.Second); !c.Since.IsZero() {
			list[i].Since = c.Since.Add(time.Second - 1).Truncate(time.Second)
		}
	}
	if !slices.Equal(list, w.pool.Recorded) {
		w.pool.Recorded = list
		w.store(event{pool: &w.pool})
		w.logf("pool: records %v", list)
	}
}

// check checks the first two invariants.
func (w *cooldownWorld) check() error {
	for i, r := range w.replicas {
		p := r.state.pools.find(modelPool)
		for h := range r.state.cooldowns.of(modelPool) {
			if latest := w.now.Add(p.ReuseDelay); h.claim == nil && h.freeAt.After(latest) {
				return fmt.Errorf("replica %d: %s is in cooldown until %s, the reuse delay of %s ends %s earlier", i, h.ranges[0], h.freeAt, p.ReuseDelay, h.freeAt.Sub(latest))
			}
		}
		for at, d := range r.deleted {
			switch end := d.at.Add(d.delay); {
			case !w.now.Before(end):
				delete(r.deleted, at)
			case isFree(r.state, at):
				return fmt.Errorf("replica %d: %s is free %s before the end of its cooldown", i, at, end.Sub(w.now))
			default:
				w.tally.kept++
			}
		}
	}
	return nil
}

// settle deletes the claims, and lets every replica observe the records eight times
// during one reuse delay.
func (w *cooldownWorld) settle() error {
	for _, c := range w.stored() {
		delete(w.claims, c.UID)
		w.store(event{deleted: true, claim: *c})
	}
	for _, r := range w.replicas {
		for r.position < len(w.events) {
			w.deliver(r)
		}
	}
	for range 8 {
		w.now = w.now.Add(w.pool.ReuseDelay / 8)
		w.store(event{pool: &w.pool})
		for _, r := range w.replicas {
			w.deliver(r)
			r.state.Tick(w.now)
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	for i, r := range w.replicas {
		if list := r.state.RangesToRecord(modelPool); len(list) > 0 {
			return fmt.Errorf("replica %d: in cooldown after the reuse delay of %s: %v", i, w.pool.ReuseDelay, list)
		}
	}
	return nil
}

// TestModel_CooldownIsBoundedForAllClocks runs random schedules of the cooldown model.
func TestModel_CooldownIsBoundedForAllClocks(t *testing.T) {
	count, first := envNumber(t, "MODEL_SCHEDULES", 1000/modelDivisor), envNumber(t, "MODEL_SEED", 1)
	var total struct{ ahead, behind, releases, kept int }
	for seed := first; seed < first+count; seed++ {
		w := newCooldownWorld(seed)
		err := error(nil)
		for step := 0; step < 400 && err == nil; step++ {
			w.step()
			err = w.check()
		}
		if err == nil {
			err = w.settle()
		}
		if err != nil {
			for _, entry := range w.trace {
				t.Log(entry)
			}
			t.Fatalf("MODEL_SEED=%d: %v", seed, err)
		}
		total.ahead, total.behind, total.releases, total.kept = total.ahead+w.tally.ahead, total.behind+w.tally.behind, total.releases+w.tally.releases, total.kept+w.tally.kept
	}
	if n := int(count); min(total.ahead, total.behind, total.releases, total.kept) < n {
		t.Errorf("%d schedules covered too little: %+v", count, total)
	}
	t.Logf("%d schedules: %+v", count, total)
}
