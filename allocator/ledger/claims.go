package ledger

import (
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// observe takes in a stored claim. Versions older than the one known are ignored.
func (b *book) observe(now time.Time, c Claim) {
	known := b.claims[c.UID]
	if known == nil {
		known = &claim{unserved: b.unserved[c.Key.Kind]}
		b.claims[c.UID] = known
		b.stored[c.Key.Kind]++
		if c.For != (Key{}) {
			b.standIns[c.For] = append(b.standIns[c.For], known)
		}
	} else if c.ResourceVersion <= known.ResourceVersion {
		return
	}
	before := known.Claim
	if before.UID != "" && !before.Deleting && c.Deleting {
		known.deleted = now
	}
	b.unbar(known)
	if c.Away && len(before.Ranges) > 0 {
		c.Ranges = before.Ranges // clusterctl takes the annotations off what it deletes
	}
	known.Claim = c
	b.changed[c.Key], b.changed[c.holder()] = struct{}{}, struct{}{}

	h := known.holding
	elsewhere := before.Pool != c.Pool || c.Pool == (Key{}) && before.Space != c.Space // the label alone says where
	if h != nil && (elsewhere || !slices.Equal(before.Ranges, c.Ranges)) {
		// What is not among the new ranges is given up. The rest is free for no moment that anybody sees: who wants it meanwhile is weaker.
		b.detach(known, time.Time{}, time.Time{})
		if h.space != b.spaceOf(known) || !within(c.Ranges, before.Ranges) {
			known.granted, known.strays = false, true // unless there is a grant
		}
		h = nil
	}
	if !c.Ready {
		known.strays = false
	}
	switch {
	case len(c.Ranges) == 0:
	case h == nil:
		b.bind(known)
	default:
		b.unline(h, known)
		known.Ready = c.Ready && !known.strays
		if before.Ready != known.Ready || before.Flagged != c.Flagged {
			b.restrength(h)
		}
	}
}

// within tells whether these ranges are all among others.
func within(ranges, others []allocator.Range) bool {
	return !slices.ContainsFunc(ranges, func(r allocator.Range) bool { return !slices.Contains(others, r) })
}

// saw remembers how far the events of a kind have been applied. Only what comes in the order of events counts: an object that was
// read by itself says nothing of the others.
func (b *book) saw(kind string, resourceVersion uint64) {
	if resourceVersion > b.seen[kind] {
		b.seen[kind] = resourceVersion
	}
}

// spaceOf is where the addresses of a claim are: where it holds them, else in the space of its pool. Its label says that only while its pool is not
// known, or it has none.
func (b *book) spaceOf(c *claim) string {
	if c.holding != nil {
		return c.holding.space
	}
	if p := b.pools[c.Pool]; p != nil {
		return p.Space
	}
	return c.Space
}

// bind gives a claim that is seen with its ranges for the first time a holding: that of its grant, if there is one.
func (b *book) bind(c *claim) {
	if h := b.covering(c); h != nil {
		b.cover(c, h)
		return
	}
	h := b.grantOf(c)
	if h == nil {
		b.absorb(c)
		c.strays = c.strays && !c.granted
		c.Ready = c.Ready && !c.strays
		if b.strange(c) != nil {
			b.bar(c)
			return
		}
		b.joinPool(c)
		h = b.newHolding(c.holder(), c.Pool, b.spaceOf(c), c.Ranges...)
		h.claim, c.holding = c, h
		b.rebind(h)
		b.place(h)
		if c.For != (Key{}) {
			b.admit(c.Pool, c.For)
		}
		return
	}
	b.joinPool(c)
	if h.claim != nil { // which stood in for this one
		b.leavePool(h.claim)
		h.claim.holding = nil
	}
	if h.away() && c.For == (Key{}) && h.left != c.UID { // and has come back; else it is yet to be seen gone
		b.returned(h)
	}
	h.claim, c.holding, c.strays = c, h, false
	b.setHoldingPool(h, c.Pool)
	delete(b.byCall, h.call)
	b.name(h, c.holder())
	b.comeBack(c)
	c.granted = b.unline(h, c) || len(h.lines) > 0
	b.rebind(h)
	if h.contested || len(b.space(h.space).contested) > 0 {
		b.settle(h)
	}
	b.changedBy(h)
}

// strange says why a claim does not hold what it names: nobody gave it that, its owner cannot be using it, and its pool does not offer it, or is not
// known. Else who may create claims of any pool could take the addresses of all others, and of pools to come.
func (b *book) strange(c *claim) error {
	if (c.Ready || c.Vouched) && !c.strays || c.granted || !c.Token.IsZero() || c.Pool == (Key{}) || c.For != (Key{}) {
		return nil
	}
	return b.offered(c, nil)
}

// bar has a claim wait for its pool to offer what it names.
func (b *book) bar(c *claim) {
	if b.barred[c.Pool] == nil {
		b.barred[c.Pool] = map[*claim]struct{}{}
	}
	b.barred[c.Pool][c] = struct{}{}
	c.barred = c.Pool
}

func (b *book) unbar(c *claim) {
	if delete(b.barred[c.barred], c); len(b.barred[c.barred]) == 0 {
		delete(b.barred, c.barred)
	}
	c.barred = Key{}
}

// admit gives claims what they name of a pool that has come, or offers more, or one claim what an object holds for it. Who has to wait still is told why.
func (b *book) admit(pool, only Key) {
	for c := range maps.Clone(b.barred[pool]) {
		if only == (Key{}) || only == c.Key {
			b.changed[c.Key] = struct{}{}
			b.unbar(c)
			b.bind(c)
		}
	}
}

// admitAll does so for all pools: one keeps no longer from everybody what it did, or does now.
func (b *book) admitAll() {
	for pool := range maps.Clone(b.barred) {
		b.admit(pool, Key{})
	}
}

// grantOf finds the open grant that a claim fulfils: by its token, or, where the token was taken off the object before it was
// seen, by its name. What stands in for a claim that went to another cluster has the range that is kept for that.
func (b *book) grantOf(c *claim) *holding {
	fits := func(h *holding) bool {
		return (h.claim == nil || h.standsIn(c.Key, c.Pool)) && h.space == b.spaceOf(c) && slices.Equal(h.ranges, c.Ranges)
	}
	if l := b.lines[c.Token]; l != nil && l.names(c.Key, c.UID) && fits(l.holding) {
		return l.holding
	}
	for _, h := range b.byName[c.Key] {
		if fits(h) && (len(h.lines) > 0 || h.claim != nil || h.away()) {
			return h
		}
	}
	for _, h := range b.byName[c.For] {
		if fits(h) && h.away() && h.pool == c.Pool {
			return h
		}
	}
	return nil
}

// absorb ends the grant that a claim was given its ranges by, where the claim has others by now: those that it had before too, or only some.
func (b *book) absorb(c *claim) {
	if l := b.lines[c.Token]; l != nil && l.Space == b.spaceOf(c) && l.spentBy(c) {
		c.granted = b.unline(l.holding, c)
	}
}

// spentBy tells whether a claim is what came of the grant, so that nothing else will: it carries the token. One that was given to a create must
// have nothing but ranges of the grant, as its token could be copied to another object of the name. One that was given to a stored claim was
// written to it, whatever has become of the ranges since.
func (l *line) spentBy(c *claim) bool {
	return l.Token == c.Token && l.names(c.Key, c.UID) &&
		(l.UID != "" || within(c.Ranges, l.Ranges))
}

// names reports whether the grant is one to the claim of this key.
func (l *line) names(k Key, uid string) bool {
	return l.Kind == k.Kind && l.Namespace == k.Namespace &&
		(l.NameHash == 0 || l.NameHash == journal.HashName(k.Name)) && (l.UID == "" || l.UID == uid)
}

// unline retires the grants of the holding that end because its claim was seen: the one with its token, and those to this very object that were to be
// written over an older version of it, so that they cannot land any more.
func (b *book) unline(h *holding, c *claim) (retired bool) {
	for _, l := range slices.Clone(h.lines) {
		if l.Token == c.Token || l.UID != "" && l.UID == c.UID && l.state == open && 0 < l.over && l.over < c.ResourceVersion {
			b.retire(l)
			retired = true
		}
	}
	return retired
}

// restrength re-decides who has the addresses of h after its claim became Ready, or no longer is.
func (b *book) restrength(h *holding) {
	s := b.space(h.space)
	if len(s.contested) > 0 {
		b.settle(h)
	}
	b.changedBy(h)
}

// forget takes in that a claim is gone. Its range rests for the pool's reuse delay, or as long as its pool has recorded.
func (b *book) forget(now time.Time, kind, uid string, resourceVersion uint64) {
	b.saw(kind, resourceVersion)
	c := b.claims[uid]
	if c == nil {
		return
	}
	delete(b.claims, uid)
	b.unbar(c)
	b.stored[c.Key.Kind]--
	b.changed[c.Key], b.changed[c.holder()] = struct{}{}, struct{}{}
	if c.For != (Key{}) {
		if b.standIns[c.For] = slices.DeleteFunc(b.standIns[c.For], func(o *claim) bool { return o == c }); len(b.standIns[c.For]) == 0 {
			delete(b.standIns, c.For)
		}
	}
	for _, h := range slices.Clone(b.byName[c.Key]) {
		for _, l := range slices.Clone(h.lines) {
			if l.UID == uid && l.state == open { // no write to this object can land any more
				b.retire(l)
			}
		}
	}
	if c.holding == nil {
		return
	}
	var rest time.Time // its end
	switch p := b.pools[c.Pool]; {
	case p == nil:
	case c.departs() && !p.Deleting && !b.breaks.freeAway && b.covering(c) == nil: // else the range goes with its claim
		rest = never
	case p.ReuseDelay > 0 && c.leaves.IsZero() && !c.rested:
		rest = now.Add(p.ReuseDelay)
	}
	b.detach(c, now, rest)
}

// departs tells whether a claim that goes may have been moved: it is marked, and was not on its way to be released here.
func (c *claim) departs() bool { return c.Away && c.leaves.IsZero() }

// recordWithin is how long a claim waits for its pool to record the rest of its range, longer by recordForEach for each claim of the pool: the more
// they are, the less often it is written. Where that cannot be written people are told, and releases go on.
const (
	recordWithin  = 5 * time.Second
	recordForEach = 2 * time.Millisecond
)

// leave begins the rest of what a claim has that is about to go, and says for how long its end is to wait: the pool's record of the rest is to be
// stored first, as nothing else tells of it once the claim is gone.
func (b *book) leave(now time.Time, uid string) time.Duration {
	c := b.claims[uid]
	if c == nil || c.holding == nil {
		return 0
	}
	p := b.pools[c.Pool]
	if p == nil || p.ReuseDelay == 0 || p.Deleting || c.rested {
		return 0
	}
	if c.leaves.IsZero() {
		c.leaves = now
		if end := now.Add(p.ReuseDelay); end.After(c.holding.until) {
			c.holding.since, c.holding.until = now, end
		}
		b.putToRest(c.holding)
		b.changed[p.Key] = struct{}{}
	}
	within := recordWithin + time.Duration(len(b.ofPool[c.Pool]))*recordForEach
	return max(0, c.leaves.Add(min(within, p.ReuseDelay)).Sub(now)) // a rest that is over needs no record
}

// detach takes a claim off its holding, whose range rests until the given time, if there is one.
func (b *book) detach(c *claim, now, rest time.Time) {
	if !b.breaks.noHeir && b.succeed(c) {
		return
	}
	h := c.holding
	b.leavePool(c)
	h.claim, c.holding = nil, nil
	switch {
	case rest.Equal(never):
		b.depart(h, c)
	case rest.After(h.until):
		h.since, h.until = now, rest
	}
	if !h.until.IsZero() {
		b.putToRest(h)
	}
	b.changedBy(h)
	if b.freeIfIdle(h); b.holdings[h.id] == h {
		b.restrength(h)
	}
}

// Standing is what a stored claim has.
type Standing struct {
	Known    bool // the ledger has seen the claim
	Answered bool // it has a range
	// Confirmed: it has its whole range, a commit of this term has started since it was seen, and each rival is stored as flagged,
	// so that no older write can mark that one Ready any more; one of an API that is switched off nothing flags, and nothing marks once the writes
	// of earlier holders have ended. Only then may it be marked Ready.
	Confirmed bool
	Space     string // the routing domain that its addresses are of
	Granted   bool   // the journal held its token: what it has was given to it, here or by an earlier holder
	Barred    error  // why it does not have what it names: a *NoPoolError, *FaultyPoolError or *PoolError; nil where it may
	// Clash is set where another has some of the range.
	Clash *HeldError
}

// standing of the claim with this UID, in the version the ledger has seen.
func (b *book) standing(uid string) Standing {
	c := b.claims[uid]
	if c == nil {
		return Standing{}
	}
	h := c.holding
	if h == nil && c.barred != (Key{}) {
		return Standing{Known: true, Barred: b.strange(c)}
	}
	if h == nil {
		return Standing{Known: true}
	}
	st := Standing{Known: true, Answered: true, Space: h.space, Granted: c.granted}
	if h.contested {
		st.Clash = b.clash(h)
		return st
	}
	st.Confirmed = b.serving && b.ended > c.bound
	for o := range b.space(h.space).contested {
		if o.claim != nil && !o.claim.Flagged && !b.cannotBeReady(o.claim) && o.overlaps(h.ranges) {
			st.Confirmed = false
		}
	}
	return st
}

// landing says for how long something that was sent for a claim because it has its range may still land: by this holder of the journal at a certain
// time, zero for never, or by the one before, which knew of every claim that this one took over with it.
func (b *book) landing(now time.Time, uid string, sent time.Time) time.Duration {
	c := b.claims[uid]
	if c != nil && c.holding != nil && b.serving && c.bound == 0 && b.served.After(sent) {
		sent = b.served
	}
	if sent.IsZero() {
		return 0
	}
	return max(0, sent.Add(b.limits.life).Sub(now))
}

// clash names the first holder of some of h's addresses other than h.
func (b *book) clash(h *holding) *HeldError {
	for _, r := range h.ranges {
		for held := range b.space(h.space).core.HeldIn(r) {
			if held.Holder != h.id {
				return b.heldError(held)
			}
		}
	}
	return nil
}

func (b *book) heldError(held allocator.Held) *HeldError {
	h := b.holdings[held.Holder]
	e := &HeldError{Range: held.Range}
	if h != nil {
		e.Pool = h.pool
	}
	switch {
	case h == nil:
	case h.claim != nil:
		e.Holder = h.claim.Key
	case len(h.lines) > 0 && h.lines[0].withdraws():
		e.Holder, e.Withheld, e.Until = h.key, true, b.withheldUntil(h)
	case len(h.lines) > 0:
		e.Holder, e.Promised = h.key, h.lines[0].Stored == ""
	case h.away():
		e.Holder, e.Moved = h.key, true
	default:
		e.Until = h.until.Add(b.recordsAhead)
	}
	return e
}
