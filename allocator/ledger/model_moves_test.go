package ledger

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// This part of the model has objects that stand in for claims, as the IPAddresses of Metal3 do, and a tool that takes claims to other clusters: it
// marks them, which takes their annotations off, and deletes them. The pool records which ranges went, so that a replica knows it that starts later.

// departure is a range that lives on in another cluster.
type departure struct {
	claim    Key
	objects  []string // UIDs of the claim and of what stood in for it
	lives    int      // of all replicas that had seen what had it when that went, zero where one had not: these know
	recorded uint64   // version of the pool that says so
	safe     bool     // a commit has that version, and no grant of before: every later holder knows
	lost     bool     // before that, with those who knew: another has it
}

// lives counts how often replicas have started.
func (w *world) lives() (n int) {
	for _, r := range w.replicas {
		n += r.life
	}
	return n
}

// key is that of the object to be made; it has no name where that is to be generated.
func (c *create) key() Key {
	kind := kindOfName(c.name)
	if c.standsFor != (Key{}) {
		kind = modelAddresses
	}
	return Key{Kind: kind, Namespace: "ns", Name: c.name}
}

func (c *create) keyOf(o *object) Key {
	k := c.key()
	k.Name = o.Key.Name
	return k
}

// heldFor is the range that an object holds for a claim, as a replica has seen it; not valid where there is none.
func heldFor(b *book, k Key) (r allocator.Range) {
	for _, c := range b.standIns[k] {
		if len(c.Ranges) == 1 && !c.Away {
			return c.Ranges[0]
		}
	}
	return r
}

// holdsFor tells whether a refusal says that the very claim has the range.
func holdsFor(err error, claim Key) bool {
	held := (*HeldError)(nil)
	return errors.As(err, &held) && (held.Holder == claim || held.Moved)
}

// list has a replica begin with what was stored when there were so many events.
func (w *world) list(r *replica, to int) {
	alive := map[string]event{}
	pool := firstPool()
	r.book.saw(modelPools, pool.ResourceVersion)
	for _, e := range w.events[:to] {
		kind := e.claim.Key.Kind
		switch {
		case e.pool != nil:
			pool, kind = *e.pool, modelPools
		case e.gone:
			delete(alive, e.claim.UID)
		default:
			alive[e.claim.UID] = e
		}
		if kind != modelOthers || !w.unreadable(kind) && !w.uncounted(r) {
			r.book.saw(kind, e.resourceVersion)
		}
	}
	r.pos = to
	r.book.setPool(w.now, pool)
	for _, e := range w.events[:to] {
		if last, there := alive[e.claim.UID]; there && e.pool == nil && last.resourceVersion == e.resourceVersion && !w.hides(r, e) {
			r.book.observe(w.now, e.claim)
		}
	}
}

// copied is how far the local copies of a replica are complete, by kind.
func (w *world) copied(r *replica) map[string]uint64 {
	newest := map[string]uint64{modelPools: firstPool().ResourceVersion}
	for _, e := range w.events[:min(r.pos, len(w.events))] {
		kind := e.claim.Key.Kind
		if e.pool != nil {
			kind = modelPools
		}
		newest[kind] = e.resourceVersion
	}
	if len(r.held) > 0 {
		newest[modelOthers] = r.book.seen[modelOthers]
	}
	return newest
}

// relist has the watches of a replica end, and what they have missed come with a list: what is gone first, with no more than its last version that was
// seen, then the others in any order.
func (w *world) relist(r *replica) {
	if len(r.coming) > 0 || r.pos >= len(w.events) {
		return
	}
	to := r.pos + 1 + w.rng.IntN(len(w.events)-r.pos)
	missed := map[string]event{} // UID, "" for the pool -> its last event
	for _, e := range w.events[r.pos:to] {
		missed[e.claim.UID] = e
	}
	var gone, others []event
	for _, uid := range slices.Sorted(maps.Keys(missed)) {
		e := missed[uid]
		switch known := r.book.claims[uid]; {
		case !e.gone:
			others = append(others, e)
		case known == nil:
		default:
			e.claim, e.resourceVersion = known.Claim, known.ResourceVersion
			gone = append(gone, e)
			for _, r := range known.Ranges {
				if d := w.departed[r]; d != nil && d.recorded == 0 {
					d.lost = true // where it went is not seen
				}
			}
		}
	}
	w.rng.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	r.pos, r.coming = to, append(gone, others...)
	w.logf("%s lists anew: %d gone, %d others", r.name(), len(gone), len(others))
}

// storePool has the pool record ranges.
func (w *world) storePool(resting []Cooling, listed uint64, what string) {
	w.pool.ResourceVersion, w.pool.Cooling, w.pool.Listed = w.nextVersion(), resting, listed
	stored := w.pool
	w.events = append(w.events, event{pool: &stored, resourceVersion: w.rv})
	w.logf("stored the pool, resting %v rv=%d: %s", resting, w.rv, what)
	for _, c := range resting {
		if d := w.departed[c.Range]; d == nil { // recorded by who had not seen that it came back: it rests until somebody takes the entry out
			w.departed[c.Range] = &departure{claim: c.Claim, lost: true}
		} else if d.recorded == 0 && slices.Contains(d.objects, c.Left) { // else it is the entry of an earlier departure
			d.recorded = w.rv
		}
	}
}

// arrive checks that what is stored has no range that is known to be in another cluster, but for who brings it back.
func (w *world) arrive(o *object) {
	for _, r := range o.Ranges {
		d := w.departed[r]
		switch {
		case d == nil:
		case d.claim != o.holder() && !d.lost && (d.safe || d.lives == w.lives()):
			w.failf("%w: %s holds %s, which %s has in another cluster", errTwice, o.Key.Name, r, d.claim.Name)
		case d.claim != o.holder():
			d.lost = true
		case o.For == (Key{}): // a replica that does not see that keeps the range until somebody takes the entry out
			d.lost = true
			w.tally.returned++
		}
	}
}

// rests tells whether a holder keeps an address that went to another cluster, or should.
func (w *world) rests(b *book, a netip.Addr) bool {
	for r, d := range w.departed {
		kept := slices.ContainsFunc(b.restingOf(modelPool), func(c Cooling) bool { return c.Range == r })
		if r.Contains(a) && (kept || d.safe && !d.lost) {
			return true
		}
	}
	return false
}

// beingMade tells whether the stand-in of a claim is on its way: the claim waits for it before it goes.
func (w *world) beingMade(o *object) bool {
	return slices.ContainsFunc(w.creates, func(c *create) bool { return !c.over && c.ours && c.standsFor == o.Key })
}

// standIn makes an object that holds the range of a claim, unless the API server says that it is gone: a replica may lag behind.
func (w *world) standIn(c *claim) {
	if o := w.objects[c.Key.Name]; o == nil || o.UID != c.UID {
		return
	}
	if !slices.ContainsFunc(w.creates, func(o *create) bool { return !o.over && o.ours && o.standsFor == c.Key }) {
		name := "address-" + c.Ranges[0].First.String() + "-" + c.Key.Name
		w.create(&create{name: name, pool: modelPool, exact: c.Ranges[0], standsFor: c.Key, ours: true})
	}
}

// mover is what users do to stand-ins and to the pool, and tools to claims: one takes them to other clusters, one restores them. False where there was
// nothing to do it to.
func (w *world) mover(name string) bool {
	claim := Key{Kind: modelClaims, Namespace: "ns", Name: name}
	listed, standIns, o := len(w.pool.Cooling), w.standInsOf(claim), w.movable()
	switch n := w.rng.IntN(32); {
	case n < 6 && listed > 0: // one comes back
		moved := w.pool.Cooling[w.rng.IntN(listed)]
		w.create(&create{name: moved.Claim.Name, pool: modelPool, exact: moved.Range})
	case n < 12 && listed > 0:
		w.replacePool()
	case n < 14 && listed > 0 && w.pool.Listed > 0: // somebody knows that it is free after all
		if d := w.departed[w.pool.Cooling[0].Range]; d != nil {
			d.lost = true // once that is seen; else it stays held
		}
		w.storePool(slices.Clone(w.pool.Cooling[1:]), w.pool.Listed, "an entry is taken out")
	case n < 16 && len(w.saved) > 0:
		w.restoreClaim()
	case n < 17 && w.removeFinalizer():
	case n < 20: // somebody keeps an address for a claim
		w.create(&create{name: "kept-for-" + name, pool: modelPool, exact: w.someRange(), standsFor: claim})
	case n < 21 && len(standIns) > 0:
		w.remove(standIns[0])
	case o == nil:
		return false
	case n < 26:
		w.depart(o)
	case n < 28: // a user does what the tool does, while the Cluster of the claim is not paused: it was not moved
		w.marked[o.UID] = true
		w.markAndRemove(o)
		w.tally.marked++
	default:
		w.lose(o)
	}
	return true
}

// movable picks a claim that has one range of a pool, and whose stand-in is not on its way; nil where there is none.
func (w *world) movable() *object {
	var all []*object
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		if o := w.objects[name]; o.For == (Key{}) && len(o.Ranges) == 1 && o.Pool != (Key{}) && !w.beingMade(o) {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

// replacePool has somebody replace the pool, with no list or with one of before.
func (w *world) replacePool() {
	if w.rng.IntN(3) == 0 && len(w.lists) > 0 {
		old := w.lists[w.rng.IntN(len(w.lists))]
		w.storePool(old.Cooling, old.Listed, "replaced by an older version")
	} else {
		w.storePool(nil, 0, "replaced without its list")
	}
	w.tally.replaced++
}

func (w *world) standInsOf(k Key) (all []*object) {
	for _, o := range w.objects {
		if o.For == k {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(x, y *object) int { return int(x.ResourceVersion) - int(y.ResourceVersion) })
	return all
}

// depart takes a claim to another cluster, after what stands in for it.
func (w *world) depart(o *object) {
	all := append(w.standInsOf(o.Key), o)
	var objects []string
	for _, leaving := range all {
		objects = append(objects, leaving.UID)
	}
	for _, leaving := range all {
		lives := w.lives()
		for _, r := range w.replicas {
			if seen := r.book.claims[leaving.UID]; seen == nil || seen.ResourceVersion != leaving.ResourceVersion {
				lives = 0
			}
		}
		for _, r := range leaving.Ranges {
			w.departed[r] = &departure{claim: o.Key, objects: objects, lives: lives}
		}
		delete(w.marked, leaving.UID) // of before etcd was restored
		w.markAndRemove(leaving)
	}
	w.tally.departed++
}

// markAndRemove is how the tool deletes an object: it marks it, and takes the annotations off that say what a claim has.
func (w *world) markAndRemove(o *object) {
	n := *o
	n.Away = true
	if n.For == (Key{}) {
		n.Ranges, n.Token = nil, journal.Token{}
	}
	w.objects[n.Key.Name] = &n
	n.ResourceVersion = w.nextVersion()
	w.events = append(w.events, event{claim: n.Claim, resourceVersion: w.rv})
	w.remove(&n)
}

// decide has a replica learn of each marked object that it has seen gone whether the tool has moved it.
func (w *world) decide(r *replica) {
	open := r.book.departures()
	slices.SortFunc(open, func(x, y Departure) int { return strings.Compare(x.UID, y.UID) })
	for _, d := range open {
		r.book.decideMoved(w.now, d.UID, !w.marked[d.UID])
	}
}

// record stores what went to other clusters, but for what another replica has stored since this one read it, and tells whether it is stored.
func (w *world) record(r *replica, p *pool, hidden Cooling) bool {
	moved, stored, _ := r.book.movedOf(modelPool, "")
	for i, m := range moved {
		if m.Range == hidden.Range && m.Claim == hidden.Claim && (m.Shown > 0 || m.Hidden == 0) {
			moved[i].Shown, moved[i].Hidden = 0, p.ResourceVersion
		}
	}
	var known []Moved
	if len(stored.Parts) > 0 {
		known = stored.Parts[0].Moved
	}
	if slices.Equal(known, moved) {
		return true
	}
	if version := fmt.Sprint(w.recordVersion); len(stored.Parts) > 0 && stored.Parts[0].Version != version || len(stored.Parts) == 0 && len(w.recorded) > 0 {
		r.book.takeRecord(w.storedRecord())
		return false
	}
	w.recordVersion++
	w.recorded = moved
	r.book.recordSaved(w.storedRecord())
	w.logf("%s stores a record of %d", r.name(), len(moved))
	return true
}

func (w *world) storedRecord() Record {
	r := Record{Pool: modelPool}
	if len(w.recorded) > 0 {
		r.Parts = []RecordPart{{Name: "record", Version: fmt.Sprint(w.recordVersion), Moved: slices.Clone(w.recorded)}}
	}
	return r
}

// tidy has the pool record what rests, and removes what stands in for nobody.
func (w *world) tidy(r *replica) {
	b := r.book
	p := b.pools[modelPool]
	resting := b.restingOf(modelPool)
	var hidden Cooling
	if len(resting) > 1 && !w.quiet && (p.ResourceVersion/lineage)%3 == 0 { // the pool has room for all but one
		hidden, resting = resting[0], resting[1:]
	}
	if !w.record(r, p, hidden) {
		return
	}
	if !slices.Equal(resting, p.Cooling) {
		w.sendUpdate(&update{what: r.name() + " records", resourceVersion: p.ResourceVersion, pool: resting})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		o := w.objects[name]
		if known := b.claims[o.UID]; w.quiet && known != nil && o.For != (Key{}) && w.objects[o.For.Name] == nil {
			w.remove(o)
			return
		}
	}
}
