package ledger

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// This is a model of everything around the book: an API server that stores claims and the journal, answers lost on the way, writes
// that land late, clients that repeat themselves, and replicas that stop for any length of time between any two steps. A schedule
// is one random run of it; the same seed gives the same run. After every write to the store the promises are checked.

const (
	modelClaims    = "claims.test"
	modelAddresses = "addresses.test" // objects that stand in for claims
	modelOthers    = "others.test"    // claims of an API that may be switched off
	modelPools     = "pools.test"
)

var (
	modelPool  = Key{Kind: modelPools, Namespace: "ns", Name: "pool"}
	modelRange = allocator.Range{First: netip.MustParseAddr("10.0.0.0"), Last: netip.MustParseAddr("10.0.0.9")}
	modelSix   = allocator.Range{First: netip.MustParseAddr("2001:db8::"), Last: netip.MustParseAddr("2001:db8::5")}
	modelStart = time.Unix(1_000_000, 0)

	modelKinds  = []string{modelClaims, modelAddresses, modelOthers, modelPools}
	modelExpiry = 4 * time.Second // of a holder that is silent
)

// errTwice is the violation that everything is about.
var errTwice = errors.New("given twice")

// modelBreaks are ways to break the protocol. Each must be found.
type modelBreaks struct {
	breaks
	trustToken  bool // a create that brings range and token of an open grant is taken at its word
	noWatermark bool // a new holder serves before it has seen what the last one had
	noRefresh   bool // or goes by the newest that it has applied, in the middle of a list
	noTouch     bool // a grant to a stored claim ends without a write to that claim
	unseenTouch bool // or before that write is seen
	noSetBack   bool // a replica goes on where etcd was restored from a backup
	staleChange bool // a change of the pool is checked against whatever version the holder has seen
	uncounted   bool // a replica does not count the kinds whose API is switched off
	unclaimed   bool // or leads at once where it may not read what the journal claims
}

// focus has a schedule do what the break is about, if it is about a part of the schedules.
func (m modelBreaks) focus(w *world) {
	switch {
	case m.noSetBack:
		w.restored, w.switched = true, false
	case m.staleChange:
		w.intruders, w.moves, w.switched, w.changing = false, false, false, true
	case m.noRefresh:
		w.gaps, w.switched = true, false
	case m.noTouch, m.unseenTouch:
		w.stalls, w.switched = 1, false
	case m.uncounted, m.unclaimed:
		w.switched = true
	case m.noHeir, m.freeAway, m.absenceFrees, m.coverByName:
		w.intruders, w.moves, w.switched = false, true, false
	}
}

type world struct {
	rng    *rand.Rand
	breaks modelBreaks
	now    time.Time
	trace  []string
	verb   bool

	rv            uint64
	objects       map[string]*object // name ->
	events        []event
	lease         journal.Version
	writes        []*leaseWrite
	updates       []*update
	creates       []*create
	replicas      []*replica
	uids          int
	calls         int
	tokens        map[journal.Token]string // token -> the call it answered
	intruders     bool
	moves         bool // claims have objects that stand in for them, and move to other clusters
	pool          Pool // as it is stored
	changing      bool // is the pool, by users
	gaps          bool // watches end, and begin anew with a list
	stalls        int  // one of so many writes to claims stalls on its way
	changes       []*poolChange
	freed         allocator.Range // that was reserved last, and is no longer
	departed      map[allocator.Range]*departure
	switched      bool            // replicas are started with and without the API of some claims
	denied        time.Time       // until then nobody may read these
	marked        map[string]bool // UID of a claim that a user marked as moved
	lists         []Pool          // versions of the pool that had another list
	recorded      []Moved         // in the manager's own namespace
	recordVersion int
	saved         []*object // a claim and what stands in for it, as a backup has them
	backup        *backup
	restored      bool // etcd is, from backups
	restores      int  // so far
	quiet         bool // nothing goes wrong any more
	err           error

	tally tally
}

// tally counts what a schedule came to: one that idles proves nothing.
type tally struct {
	creates, takeOvers, ended, fulfilled, extended, standIns, departed, marked, replaced, returned, restores, setBack, changes, unserved, denied, broughtBack, forced uint64
}

func (t *tally) add(o tally) {
	t.creates += o.creates
	t.takeOvers += o.takeOvers
	t.ended += o.ended
	t.fulfilled += o.fulfilled
	t.extended += o.extended
	t.standIns += o.standIns
	t.departed += o.departed
	t.marked += o.marked
	t.replaced += o.replaced
	t.returned += o.returned
	t.restores += o.restores
	t.setBack += o.setBack
	t.changes += o.changes
	t.unserved += o.unserved
	t.denied += o.denied
	t.broughtBack += o.broughtBack
	t.forced += o.forced
	t.broughtBack += o.broughtBack
}

// object is a stored claim.
type object struct {
	Claim
	intruder bool // came in around admission, or later than the end of its claim
	dual     bool // is to have a range of each family
}

type event struct {
	gone            bool
	claim           Claim
	pool            *Pool // this, where it is set
	resourceVersion uint64
}

// leaseWrite is a write to the journal that is on its way.
type leaseWrite struct {
	attempt journal.Version
	from    *replica
	life    int // of the replica that sent it
}

// update is a write to a stored claim that is on its way. It lands only on the version it was made for.
type update struct {
	what            string
	name, uid       string
	resourceVersion uint64
	change          func(*Claim)
	done            func(landed bool)
	arrives         time.Time // at the earliest
	pool            []Cooling // what the pool is to record; name is empty then
}

// create is a client's create, inside the API server.
type create struct {
	id        int
	name      string // empty: to be generated
	pool      Key
	exact     allocator.Range
	dual      bool // asks for an IPv6 address too
	brought   journal.Token
	standsFor Key  // claim
	ours      bool // the stand-in of a claim that has the range, made by the holder
	late      bool // that claim went meanwhile
	saved     bool // from a backup
	started   time.Time
	call      *call
	answer    Grant
	answered  bool
	validated bool // the validating webhook is called
	over      bool
}

// call is one admission call of a create.
type call struct {
	id      string
	to      *replica
	started time.Time
	life    int
	line    *line
	done    chan error
	ended   bool
}

type replica struct {
	id     int
	life   int
	book   *book
	pos    int     // events that its local copies have
	coming []event // of these, what a list brought and is not applied yet
	looked int     // events that were there when it last read what is stored itself
	lag    int     // of 400 steps, so many apply events
	off    bool    // does not serve modelOthers
	held   []event // of modelOthers, while they may not be read
	claims claimed
	paused time.Time

	phase   phase
	newest  uint64 // version of the journal that was seen
	setBack bool   // it is older by now
	current journal.Version
	since   time.Time
	attempt *journal.Version
	reply   int // 0 none yet, 1 landed, 2 conflict
	replyRV string
	before  journal.Version
	last    time.Time // commit
	sent    time.Time // was the write to the journal that is under way
	proven  time.Time // that it held the journal
	scan    []*line
	found   map[journal.Token]bool
	fulfils map[string]*fulfil
}

type fulfil struct {
	line *line
	done chan error
	rv   uint64
	sent bool
}

type phase int

const (
	following phase = iota
	fencing
	catching
	holding1
	handing
)

func newWorld(seed uint64, breaks modelBreaks, verbose bool) *world {
	w := &world{
		rng: rand.New(rand.NewPCG(seed, 7)), breaks: breaks, now: modelStart, verb: verbose,
		objects: map[string]*object{}, tokens: map[journal.Token]string{}, departed: map[allocator.Range]*departure{}, marked: map[string]bool{},
		pool: firstPool(), stalls: 4,
	}
	switch w.rng.IntN(4) {
	case 0:
		w.intruders = true
	case 1, 2:
		w.moves = true
	default:
		w.switched = w.rng.IntN(2) == 0
	}
	w.restored, w.changing, w.gaps = w.rng.IntN(4) == 0, w.rng.IntN(3) == 0, w.rng.IntN(3) == 0
	breaks.focus(w)
	if w.switched {
		w.intruders, w.moves, w.restored, w.gaps = false, false, false, false
	}
	for i := range 2 + w.rng.IntN(2) {
		r := &replica{id: i, lag: []int{4, 20, 120}[w.rng.IntN(3)]}
		w.replicas = append(w.replicas, r)
		w.start(r)
	}
	return w
}

func (w *world) logf(format string, args ...any) {
	if w.verb {
		w.trace = append(w.trace, fmt.Sprintf("%8.1fs ", w.now.Sub(modelStart).Seconds())+fmt.Sprintf(format, args...))
	}
}

func (w *world) failf(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf(format, args...)
		w.logf("VIOLATION: %v", w.err)
	}
}

// start gives a replica a new life: it has listed the claims at some version that may be old.
func (w *world) start(r *replica) {
	r.life++
	token := func() journal.Token {
		var t journal.Token
		binary.BigEndian.PutUint64(t[:], w.rng.Uint64())
		return t
	}
	r.book = newBook(modelKinds, limits{life: DefaultGrantLife, bytes: 50 * ordinaryLine, share: 50 * ordinaryLine}, token)
	r.book.breaks = w.breaks.breaks
	r.coming, r.held, r.claims, r.off = nil, nil, claimed{}, w.switched && !w.quiet && w.rng.IntN(2) == 0
	r.book.unserved[modelOthers] = r.off
	r.pos, r.looked, r.phase, r.newest, r.setBack, r.current = 0, 0, following, 0, false, journal.Version{}
	r.since, r.attempt, r.scan = time.Time{}, nil, nil
	r.fulfils = map[string]*fulfil{}
	w.list(r, len(w.events)/2+w.rng.IntN(len(w.events)/2+1))
}

func (r *replica) name() string { return fmt.Sprintf("r%d.%d", r.id, r.life) }

// deliver applies the next event to a replica; false where it has them all.
func (w *world) deliver(r *replica) bool {
	var e event
	switch {
	case len(r.held) > 0 && !w.unreadable(modelOthers):
		e, r.held = r.held[0], r.held[1:]
	case len(r.coming) > 0:
		e, r.coming = r.coming[0], r.coming[1:]
	case r.pos < len(w.events):
		e = w.events[r.pos]
		r.pos++
	default:
		return false
	}
	switch {
	case w.hides(r, e):
	case e.pool != nil:
		r.book.saw(modelPools, e.resourceVersion)
		r.book.setPool(w.now, *e.pool)
	case e.gone:
		r.book.forget(w.now, e.claim.Key.Kind, e.claim.UID, e.resourceVersion)
	default:
		r.book.saw(e.claim.Key.Kind, e.resourceVersion)
		r.book.observe(w.now, e.claim)
	}
	return true
}

// store writes a claim and checks what must hold of everything stored.
func (w *world) store(o *object, what string) {
	o.ResourceVersion = w.nextVersion()
	w.offered(o, w.objects[o.Key.Name])
	w.objects[o.Key.Name] = o
	w.events = append(w.events, event{claim: o.Claim, resourceVersion: w.rv})
	w.logf("stored %s %s %v ready=%v flagged=%v token=%s rv=%d: %s", o.Key.Name, o.UID, o.Ranges, o.Ready, o.Flagged, o.Token, w.rv, what)
	for _, other := range w.objects {
		if other == o || !overlap(o.Ranges, other.Ranges) || other.holder() == o.holder() {
			continue
		}
		if !o.intruder && !other.intruder {
			w.failf("%w: %s and %s hold %s", errTwice, o.Key.Name, other.Key.Name, o.Ranges)
		}
		if o.Ready && other.Ready && o.For == (Key{}) && other.For == (Key{}) {
			w.failf("%w: %s and %s are Ready on %s", errTwice, o.Key.Name, other.Key.Name, o.Ranges)
		}
	}
	if !o.intruder {
		w.arrive(o)
	}
}

func overlap(a, b []allocator.Range) bool {
	return slices.ContainsFunc(a, func(r allocator.Range) bool { return slices.ContainsFunc(b, r.Overlaps) })
}

func (w *world) remove(o *object) {
	delete(w.objects, o.Key.Name)
	c := o.Claim
	c.ResourceVersion = w.nextVersion()
	w.events = append(w.events, event{gone: true, claim: c, resourceVersion: w.rv})
	w.logf("deleted %s %s rv=%d", o.Key.Name, o.UID, w.rv)
}

func (w *world) newObject(name string) *object {
	w.uids++
	uid := fmt.Sprintf("u%d", w.uids)
	if name == "" {
		name = "gen-" + uid
	}
	return &object{Claim: Claim{Key: Key{Kind: kindOfName(name), Namespace: "ns", Name: name}, UID: uid, Created: w.now, Pool: modelPool}}
}

// run makes the given number of random steps, then lets everything come to rest and compares the ledger with the store. Where the protocol is broken only
// what is stored in the meantime counts.
func (w *world) run(steps int) error {
	for range steps {
		w.step()
		if w.err != nil {
			return w.err
		}
	}
	if w.breaks == (modelBreaks{}) {
		w.rest()
	}
	return w.err
}

func (w *world) step() {
	w.advance()
	if w.restored {
		switch w.rng.IntN(200) {
		case 0:
			w.backUp()
		case 1:
			w.restore()
		}
	}
	if w.switched {
		w.takeRight()
	}
	switch n := w.rng.IntN(100); {
	case n < 7:
		w.client()
	case n < 42:
		w.server()
	case n < 54:
		w.network()
	default:
		w.replica(w.someReplica())
	}
}

// someReplica picks one, more often one that serves.
func (w *world) someReplica() *replica {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	if !r.book.serving && w.rng.IntN(2) == 0 {
		r = w.replicas[w.rng.IntN(len(w.replicas))]
	}
	return r
}

func (w *world) advance() {
	var d time.Duration
	switch n := w.rng.IntN(1000); {
	case n < 960:
		d = time.Duration(w.rng.IntN(10)) * time.Millisecond
	case n < 992:
		d = time.Duration(w.rng.IntN(2000)) * time.Millisecond
	case n < 996:
		d = time.Duration(w.rng.IntN(15)) * time.Second
	default:
		d = time.Duration(w.rng.IntN(180)) * time.Second
	}
	w.now = w.now.Add(d)
}

// client is what users do.
func (w *world) client() {
	names := []string{"a", "b", "c", "d"}
	if w.switched {
		names = append(names, "other-a", "other-b", "other-c")
	}
	name := names[w.rng.IntN(len(names))]
	if w.moves && w.rng.IntN(3) == 0 && w.mover(name) {
		return
	}
	if w.changing && w.rng.IntN(4) == 0 {
		w.changePool()
		return
	}
	switch n := w.rng.IntN(20); {
	case n < 9:
		w.create(&create{name: name, pool: modelPool, dual: w.rng.IntN(3) == 0})
	case n < 10:
		w.create(&create{pool: modelPool})
	case n < 11: // of no pool
		w.create(&create{name: name, exact: w.someRange()})
	case n < 12: // exactly what somebody may have, with a copied token
		c := &create{name: name, pool: modelPool, exact: w.someRange()}
		if l := w.someGrant(); l != nil {
			c.exact, c.brought = l.Ranges[0], l.Token
		}
		w.create(c)
	case n < 14 && w.objects[name] == nil: // admitted without a range: the pool was not there
		o := w.newObject(name)
		o.dual = w.rng.IntN(3) == 0
		w.store(o, "pending")
	case n < 15 && w.intruders && w.objects[name] == nil:
		o := w.newObject(name)
		o.Ranges, o.intruder = []allocator.Range{w.someRange()}, true
		w.store(o, "around admission")
	case n < 17 && w.objects[name] != nil && len(w.objects[name].Ranges) > 0:
		w.change(w.objects[name])
	default:
		if o := w.objects[name]; o != nil && !w.beingMade(o) {
			w.remove(o)
		}
	}
}

// change is an update of a claim that has its ranges: it gives up its IPv6 address, or asks for one beside what it has.
func (w *world) change(o *object) {
	if o.Ranges[len(o.Ranges)-1].First.Is6() {
		if len(o.Ranges) > 1 {
			n := *o
			n.Ranges, n.dual = o.Ranges[:1:1], false
			w.store(&n, "without IPv6")
		}
		return
	}
	w.extend(w.someReplica(), o)
}

// someGrant is an open grant of an IPv4 address that some replica knows, nil where it knows none.
func (w *world) someGrant() (found *line) {
	for _, l := range w.someReplica().book.due(w.now.Add(time.Hour)) {
		if l.Ranges[0].First.Is4() && l.Kind != modelPools {
			found = l
		}
	}
	return found
}

func (w *world) someRange() allocator.Range {
	a := modelRange.First
	for range w.rng.IntN(10) {
		a = a.Next()
	}
	return allocator.Range{First: a, Last: a}
}

func (w *world) create(c *create) {
	w.calls++
	c.id, c.started, c.validated = w.calls, w.now, w.rng.IntN(2) == 0
	w.creates = append(w.creates, c)
	w.logf("create %d of %q exact=%v", c.id, c.name, c.exact)
	c.call = w.newCall("")
}

// newCall goes to some replica, as a call of its own or as a repetition of an earlier one.
func (w *world) newCall(id string) *call {
	if id == "" {
		w.calls++
		id = fmt.Sprintf("call-%d", w.calls)
	}
	to := w.someReplica()
	return &call{id: id, to: to, started: w.now, life: to.life}
}

// broken tells whether a call has come to nothing: its connection broke, or the API server has given it up.
func (w *world) broken(k *call) bool {
	return k.ended || k.life != k.to.life || w.now.Sub(k.started) > 3*time.Second
}

// server is what the API server does with the creates in it, and with changes of the pool.
func (w *world) server() {
	w.changes = slices.DeleteFunc(w.changes, func(c *poolChange) bool { return c.over })
	if n := len(w.changes); n > 0 && w.rng.IntN(3) == 0 {
		w.serveChange(w.changes[w.rng.IntN(n)])
		return
	}
	var under []*create
	for _, c := range w.creates {
		if !c.over {
			under = append(under, c)
		}
	}
	w.creates = under
	if len(under) == 0 {
		return
	}
	c := under[w.rng.IntN(len(under))]
	switch {
	case w.now.Sub(c.started) > 34*time.Second:
		c.over = true
	case c.answered:
		w.persist(c)
	default:
		w.admit(c)
	}
}

// admit drives the admission call of a create.
func (w *world) admit(c *create) {
	k, r := c.call, c.call.to
	switch {
	case w.broken(k): // a second call is made, or the create fails
		k.ended = true
		if w.rng.IntN(3) == 0 {
			c.over = true
			return
		}
		id := ""
		if w.rng.IntN(2) == 0 {
			id = k.id
		}
		c.call = w.newCall(id)
	case w.now.Before(r.paused):
	case r.off && kindOfName(c.name) == modelOthers: // which is told not to serve it
		k.ended = true
	case k.line == nil:
		w.handle(c, k)
	default:
		select {
		case err := <-k.done:
			k.ended = true
			if err == nil {
				w.answer(c, k, Grant{Ranges: slices.Clone(k.line.Ranges), Token: k.line.Token})
			}
		default:
		}
	}
}

// modelWants is what a claim asks for: an IPv4 address, a certain one or any, and an IPv6 address where it is to have both.
func modelWants(exact allocator.Range, dual bool) []Want {
	wants := []Want{{Exact: exact, Count: 1, Bits: 32}}
	if dual {
		wants = append(wants, Want{Count: 1, Bits: 128})
	}
	return wants
}

// handle is the mutating webhook.
func (w *world) handle(c *create, k *call) {
	b := k.to.book
	if l := b.lines[c.brought]; w.breaks.trustToken && l != nil && l.state == open && l.Ranges[0] == c.exact {
		k.ended = true
		w.answer(c, k, Grant{Ranges: []allocator.Range{c.exact}, Token: c.brought})
		return
	}
	q := Request{Claim: c.key(), ID: k.id, Pool: c.pool, Wants: modelWants(c.exact, c.dual)}
	if has := heldFor(b, q.Claim); c.name != "" && !c.exact.IsValid() && c.standsFor == (Key{}) && has.IsValid() {
		q.Wants = modelWants(has, false)
	}
	if w.changing && q.Pool == modelPool && (b.changing(modelPool) || w.rng.IntN(8) == 0) {
		b.learnPool(w.now, w.pool)
	}
	l, err := b.grant(w.now, q)
	switch {
	case c.ours && holdsFor(err, c.standsFor):
		k.ended = true
		c.answer, c.answered, c.validated = Grant{Ranges: []allocator.Range{c.exact}}, true, true
	case err == nil && c.ours: // its claim has lost it
		b.withdraw(l)
		c.over = true
	case err != nil:
		w.logf("%s refuses create %d: %v", k.to.name(), c.id, err)
		k.ended = true
	case l.state == open: // only where the protocol is broken
		k.ended = true
		k.line = l
		w.answer(c, k, Grant{Ranges: l.Ranges, Token: l.Token})
	default:
		w.logf("%s takes %s for create %d, token %s", k.to.name(), l.Ranges, c.id, l.Token)
		k.line, k.done = l, make(chan error, 1)
		l.done = k.done
	}
}

func (w *world) answer(c *create, k *call, g Grant) {
	if other, used := w.tokens[g.Token]; used && other != k.id && !w.breaks.shareToken && !w.breaks.trustToken {
		w.failf("token %s answers %s and %s", g.Token, other, k.id)
	}
	w.tokens[g.Token] = k.id
	w.logf("%s answers create %d: %s token %s", k.to.name(), c.id, g.Ranges, g.Token)
	c.answer, c.answered = g, true
}

// persist stores a create that was answered, or fails it for one of the many reasons there are.
func (w *world) persist(c *create) {
	if w.rng.IntN(2) > 0 { // takes its time
		return
	}
	c.over = true
	if w.rng.IntN(4) == 0 || c.name != "" && w.objects[c.name] != nil {
		w.logf("create %d fails after its answer", c.id)
		return
	}
	o := w.newObject(c.name)
	o.Key, o.For, o.Pool, o.dual = c.keyOf(o), c.standsFor, c.pool, c.dual
	if o.For != (Key{}) {
		o.Ready, o.Flagged = true, true
		w.tally.standIns++
	}
	v := w.replicas[w.rng.IntN(len(w.replicas))]
	if c.ours {
		if _, err := v.book.preview(Request{Claim: o.Key, Pool: c.pool, Wants: modelWants(c.exact, false)}); !holdsFor(err, o.For) {
			w.logf("create %d is not validated: %v", c.id, err)
			return
		}
	} else if c.validated {
		if v.off && o.Key.Kind == modelOthers {
			return
		}
		if err := v.book.granted(o.Key, "", 0, c.answer.Ranges, c.answer.Token); err != nil {
			w.logf("create %d is not validated: %v", c.id, err)
			return
		}
	}
	o.Ranges, o.Token = c.answer.Ranges, c.answer.Token
	o.intruder = c.late
	w.store(o, fmt.Sprintf("create %d", c.id))
	w.tally.creates++
	if c.saved {
		w.tally.broughtBack++
	}
}

// network lets a write to the journal or to a claim arrive, and its reply perhaps get lost.
func (w *world) network() {
	if len(w.writes) > 0 && (len(w.updates) == 0 || w.rng.IntN(2) == 0) {
		i := w.rng.IntN(len(w.writes))
		lw := w.writes[i]
		w.writes = slices.Delete(w.writes, i, i+1)
		w.landLease(lw)
		return
	}
	if len(w.updates) > 0 {
		i := w.rng.IntN(len(w.updates))
		u := w.updates[i]
		if w.now.Before(u.arrives) && !w.quiet {
			return
		}
		w.updates = slices.Delete(w.updates, i, i+1)
		w.landUpdate(u)
	}
}

func (w *world) landLease(lw *leaseWrite) {
	reply := 2
	if lw.attempt.ResourceVersion == w.lease.ResourceVersion {
		b := lw.attempt.Encode()
		rec, err := journal.Decode(b)
		if err != nil {
			w.failf("journal does not decode: %v", err)
		}
		w.lease = lw.attempt
		w.lease.Record = rec
		w.lease.ResourceVersion = fmt.Sprint(w.nextVersion())
		reply = 1
		for r, d := range w.departed {
			granted := slices.ContainsFunc(rec.Lines, func(l journal.Line) bool { return slices.Contains(l.Ranges, r) })
			d.safe = d.safe || d.recorded > 0 && rec.Seen[modelPools] >= d.recorded && !granted
		}
		w.logf("journal: epoch %d commit %d holder %q lines %d", w.lease.Epoch, w.lease.Commit, w.lease.Holder, len(w.lease.Lines))
	}
	if r := lw.from; w.rng.IntN(8) > 0 && r.life == lw.life && r.attempt != nil && r.attempt.Commit == lw.attempt.Commit && r.attempt.Epoch == lw.attempt.Epoch {
		r.reply, r.replyRV = reply, w.lease.ResourceVersion
	}
}

// sendUpdate puts a write to a claim on its way. Now and then it sits in a connection that stalls, for longer than a grant lives.
func (w *world) sendUpdate(u *update) {
	u.arrives = w.now
	if w.rng.IntN(w.stalls) == 0 {
		u.arrives = w.now.Add(time.Duration(w.rng.IntN(250)) * time.Second)
	}
	w.updates = append(w.updates, u)
}

func (w *world) landUpdate(u *update) {
	if u.name == "" {
		if u.resourceVersion == w.pool.ResourceVersion {
			w.lists = append(w.lists, w.pool)
			w.storePool(u.pool, u.resourceVersion, u.what)
		}
		return
	}
	o := w.objects[u.name]
	landed := o != nil && o.UID == u.uid && o.ResourceVersion == u.resourceVersion
	if landed {
		n := *o
		u.change(&n.Claim)
		w.store(&n, u.what)
	}
	if u.done != nil {
		u.done(landed)
	}
}

// rest lets everything end, and compares.
func (w *world) rest() {
	w.creates, w.changes, w.quiet, w.denied = nil, nil, true, time.Time{}
	for _, r := range w.replicas {
		if r.off {
			w.start(r)
		}
	}
	for round := 0; round < 4000 && w.err == nil; round++ {
		w.now = w.now.Add(20 * time.Millisecond)
		if round%100 == 99 && w.serving() { // the life of grants passes, while every replica sees the holder's commits
			w.now = w.now.Add(DefaultGrantLife)
			for _, r := range w.replicas {
				r.since = w.now
			}
		}
		w.network()
		for _, r := range w.replicas {
			r.paused = time.Time{}
			w.replica(r)
		}
		if round%20 == 0 && w.settled() {
			return
		}
	}
	if w.err == nil {
		w.failf("no rest: %s", w.difference())
	}
}

func (w *world) serving() bool {
	return slices.ContainsFunc(w.replicas, func(r *replica) bool { return r.book.serving })
}

func (w *world) settled() bool {
	return len(w.writes)+len(w.updates) == 0 && w.difference() == ""
}

// barred tells whether an object names what is not its own: it came in around admission, and the pool does not offer that, or keeps it.
func (w *world) barred(o *object) bool {
	return !o.Ready && o.Token.IsZero() && o.Pool != (Key{}) && o.For == (Key{}) && slices.ContainsFunc(o.Ranges, func(r allocator.Range) bool {
		return slices.ContainsFunc(w.pool.Blocked, r.Overlaps) || !slices.ContainsFunc(w.pool.Window, func(o allocator.Range) bool { return o.Covers(r) })
	})
}

// difference says where the holder's ledger is not exactly what is stored, "" where it is.
func (w *world) difference() string {
	for _, r := range w.replicas {
		if !r.book.serving {
			continue
		}
		if n := len(r.book.lines); n > 0 {
			return fmt.Sprintf("%d grants open", n)
		}
		var held []string
		space := r.book.space("")
		var want []string
		for _, window := range []allocator.Range{modelRange, modelSix} {
			for h := range space.core.HeldIn(window) {
				for a := range h.Range.Addresses() {
					held = append(held, a.String())
				}
			}
			for a := range window.Addresses() {
				for _, o := range w.objects {
					if !w.barred(o) && slices.ContainsFunc(o.Ranges, func(r allocator.Range) bool { return r.Contains(a) }) {
						want = append(want, a.String())
						break
					}
				}
				if w.rests(r.book, a) && (len(want) == 0 || want[len(want)-1] != a.String()) {
					want = append(want, a.String())
				}
			}
		}
		if !slices.Equal(held, want) {
			return fmt.Sprintf("held %s, stored %s", strings.Join(held, " "), strings.Join(want, " "))
		}
		for _, o := range w.objects {
			if !o.Ready && len(o.Ranges) > 0 && !o.Flagged && !w.barred(o) {
				return o.Key.Name + " is neither Ready nor flagged"
			}
		}
		return ""
	}
	return "nobody serves"
}
