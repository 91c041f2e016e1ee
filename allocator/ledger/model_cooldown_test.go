package ledger

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// This is a model of cooldown among replicas whose wall clocks are wrong and are set. Claims are released, any replica records that, replicas
// restart and lag behind, and users change the reuse delay. After every step, for the book of each replica:
//
//	Invariant: no cooldown ends later than now + reuseDelay.
//	Invariant: a range whose claim the replica observed until its deletion is not free before deletion + the shortest reuseDelay since.
//	Invariant: with no further release, every range is free after one reuseDelay, however often the records are observed again.

type coolingWorld struct {
	rng      *rand.Rand
	now      time.Time // every replica's own clock; their wall clocks are off by book.recordsAhead
	version  uint64
	uids     int
	pool     Pool
	claims   map[string]*Claim // UID -> as stored
	events   []event
	replicas []*coolingReplica
	trace    []string

	tally struct{ ahead, behind, releases, kept int } // records of a clock that is ahead, or behind, when a replica observes them first
}

type coolingReplica struct {
	book     *book
	position int
	deleted  map[allocator.Range]deletion // of what this replica observed
}

// deletion of a claim, with the shortest reuse delay since.
type deletion struct {
	at    time.Time
	delay time.Duration
}

func newCoolingWorld(seed uint64) *coolingWorld {
	w := &coolingWorld{rng: rand.New(rand.NewPCG(seed, 11)), now: modelStart, version: 1, claims: map[string]*Claim{}}
	w.pool = Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{modelRange}, ReuseDelay: time.Minute}
	for range 3 {
		r := &coolingReplica{}
		w.replicas = append(w.replicas, r)
		w.restart(r)
	}
	return w
}

func (w *coolingWorld) logf(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.1fs ", w.now.Sub(modelStart).Seconds())+fmt.Sprintf(format, args...))
}

// restart lists all that is stored, as the clock of the replica's node then is.
func (w *coolingWorld) restart(r *coolingReplica) {
	tokens := func() (t journal.Token) { return t }
	r.book, r.position, r.deleted = newBook(modelKinds, limits{life: DefaultGrantLife}, tokens), len(w.events), map[allocator.Range]deletion{}
	w.set(r)
	w.observeRecords(r)
	r.book.setPool(w.now, w.pool)
	for _, c := range w.stored() {
		r.book.observe(w.now, *c)
	}
}

// set has somebody set the wall clock of a replica.
func (w *coolingWorld) set(r *coolingReplica) {
	off := []time.Duration{0, 0, time.Duration(w.rng.IntN(7200)) * time.Second, -time.Duration(w.rng.IntN(7200)) * time.Second}
	r.book.recordsAhead = off[w.rng.IntN(len(off))]
}

func (w *coolingWorld) store(e event) {
	w.version++
	e.resourceVersion = w.version
	e.claim.ResourceVersion = w.version
	if e.pool != nil {
		w.pool.ResourceVersion = w.version
		stored := w.pool
		stored.Cooling = slices.Clone(stored.Cooling)
		e.pool = &stored
	}
	w.events = append(w.events, e)
}

func (w *coolingWorld) observeRecords(r *coolingReplica) {
	for _, c := range w.pool.Cooling {
		switch at := c.Since.Add(-r.book.recordsAhead); {
		case at.After(w.now.Add(time.Minute)):
			w.tally.ahead++
		case at.Before(w.now.Add(-time.Hour)):
			w.tally.behind++
		}
	}
}

func (w *coolingWorld) deliver(r *coolingReplica) {
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
		r.book.setPool(w.now, *e.pool)
	case e.gone:
		r.book.forget(w.now, modelClaims, e.claim.UID, e.resourceVersion)
	default:
		known := r.book.claims[e.claim.UID]
		if known != nil && !known.Deleting && e.claim.Deleting {
			r.deleted[e.claim.Ranges[0]] = deletion{w.now, r.book.pools[modelPool].ReuseDelay}
		}
		r.book.observe(w.now, e.claim)
	}
}

func (w *coolingWorld) step() {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	w.now = w.now.Add(time.Duration(w.rng.IntN(3000)) * time.Millisecond)
	switch n := w.rng.IntN(100); {
	case n < 50:
		w.deliver(r)
	case n < 58:
		w.create(r)
	case n < 66:
		w.delete()
	case n < 78:
		w.release(r)
	case n < 90:
		w.record(r)
	case n < 93:
		w.set(r)
		w.logf("a clock is off by %s", r.book.recordsAhead)
	case n < 95:
		w.logf("a restart")
		w.restart(r)
	case n < 97:
		w.pool.ReuseDelay = time.Duration(w.rng.IntN(4)) * 30 * time.Second
		w.store(event{pool: &w.pool})
		w.logf("reuseDelay %s", w.pool.ReuseDelay)
	default: // a write of something else
		w.store(event{pool: &w.pool})
	}
	for _, r := range w.replicas {
		r.book.tick(w.now)
	}
}

func free(b *book, r allocator.Range) bool {
	for range b.space("").core.HeldIn(r) {
		return false
	}
	return true
}

func (w *coolingWorld) create(r *coolingReplica) {
	at := modelRange.First
	for range w.rng.IntN(10) {
		at = at.Next()
	}
	one := allocator.Range{First: at, Last: at}
	if !free(r.book, one) || slices.ContainsFunc(w.stored(), func(c *Claim) bool { return c.Ranges[0] == one }) {
		return
	}
	w.uids++
	c := &Claim{Key: Key{Kind: modelClaims, Namespace: "ns", Name: fmt.Sprintf("c%d", w.uids)}, UID: fmt.Sprintf("u%d", w.uids), Created: w.now, Pool: modelPool, Ranges: []allocator.Range{one}, Vouched: true}
	w.claims[c.UID] = c
	for _, r := range w.replicas { // the next cooldown is another one
		delete(r.deleted, one)
	}
	w.store(event{claim: *c})
	c.ResourceVersion = w.version
	w.logf("%s has %s", c.UID, one)
}

func (w *coolingWorld) stored() (all []*Claim) {
	for _, c := range w.claims {
		all = append(all, c)
	}
	slices.SortFunc(all, func(x, y *Claim) int { return int(x.ResourceVersion) - int(y.ResourceVersion) })
	return all
}

func (w *coolingWorld) delete() {
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
	w.logf("%s is deleted", c.UID)
}

// release ends a claim whose deletion the replica has observed: with a record of its own, as IPAllocations have it, or as the ledger says.
func (w *coolingWorld) release(r *coolingReplica) {
	for _, c := range w.stored() {
		known := r.book.claims[c.UID]
		if known == nil || !known.Deleting || known.holding == nil {
			continue
		}
		if odd := c.UID[len(c.UID)-1]%2 == 1; odd {
			since := w.now.Add(r.book.recordsAhead).Truncate(time.Second)
			if delay := r.book.pools[modelPool].ReuseDelay; delay > 0 {
				w.pool.Cooling = append(slices.Clone(w.pool.Cooling), Cooling{Range: c.Ranges[0], Since: since, Until: since.Add(delay)})
				w.store(event{pool: &w.pool})
				for _, r := range w.replicas {
					w.observeRecords(r)
				}
			}
		} else if r.book.leave(w.now, c.UID) > 0 {
			return
		}
		delete(w.claims, c.UID)
		w.store(event{gone: true, claim: *c})
		w.tally.releases++
		w.logf("%s is gone", c.UID)
		return
	}
}

// record has a replica write what it knows of cooldowns, rounded as records are.
func (w *coolingWorld) record(r *coolingReplica) {
	if known := r.book.pools[modelPool]; known.ResourceVersion != w.pool.ResourceVersion {
		return // a conflict
	}
	list := r.book.restingOf(modelPool)
	if w.rng.IntN(8) == 0 { // a person edits it
		list = slices.Clone(w.pool.Cooling)
		for i := range list {
			list[i].Since = time.Time{}
		}
	}
	for i, c := range list {
		if list[i].Until = c.Until.Add(time.Second - 1).Truncate(time.Second); !c.Since.IsZero() {
			list[i].Since = c.Since.Add(time.Second - 1).Truncate(time.Second)
		}
	}
	if !slices.Equal(list, w.pool.Cooling) {
		w.pool.Cooling = list
		w.store(event{pool: &w.pool})
		w.logf("recorded %v", list)
	}
}

func (w *coolingWorld) check() error {
	for i, r := range w.replicas {
		p := r.book.pools[modelPool]
		for h := range r.book.resting[modelPool] {
			if latest := w.now.Add(p.ReuseDelay); h.claim == nil && h.until.After(latest) {
				return fmt.Errorf("replica %d: %s is in cooldown until %s, the reuse delay of %s ends %s earlier", i, h.ranges[0], h.until, p.ReuseDelay, h.until.Sub(latest))
			}
		}
		for at, d := range r.deleted {
			switch end := d.at.Add(d.delay); {
			case !w.now.Before(end):
				delete(r.deleted, at)
			case free(r.book, at):
				return fmt.Errorf("replica %d: %s is free %s before the end of its cooldown", i, at, end.Sub(w.now))
			default:
				w.tally.kept++
			}
		}
	}
	return nil
}

// settle ends the claims, and has the records observed again and again.
func (w *coolingWorld) settle() error {
	for _, c := range w.stored() {
		delete(w.claims, c.UID)
		w.store(event{gone: true, claim: *c})
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
			r.book.tick(w.now)
		}
		if err := w.check(); err != nil {
			return err
		}
	}
	for i, r := range w.replicas {
		if list := r.book.restingOf(modelPool); len(list) > 0 {
			return fmt.Errorf("replica %d: in cooldown after the reuse delay of %s: %v", i, w.pool.ReuseDelay, list)
		}
	}
	return nil
}

func TestModelCooldownIsBoundedWhateverTheClocks(t *testing.T) {
	count, first := setting(t, "MODEL_SCHEDULES", 1000), setting(t, "MODEL_SEED", 1)
	var total struct{ ahead, behind, releases, kept int }
	for seed := first; seed < first+count; seed++ {
		w := newCoolingWorld(seed)
		err := error(nil)
		for step := 0; step < 400 && err == nil; step++ {
			w.step()
			err = w.check()
		}
		if err == nil {
			err = w.settle()
		}
		if err != nil {
			for _, line := range w.trace {
				t.Log(line)
			}
			t.Fatalf("MODEL_SEED=%d: %v", seed, err)
		}
		total.ahead, total.behind, total.releases, total.kept = total.ahead+w.tally.ahead, total.behind+w.tally.behind, total.releases+w.tally.releases, total.kept+w.tally.kept
	}
	if n := int(count); min(total.ahead, total.behind, total.releases, total.kept) < n {
		t.Errorf("%d schedules came to no more than %+v", count, total)
	}
	t.Logf("%d schedules: %+v", count, total)
}
