package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// InUseError says that a change of a pool would take addresses from somebody who has them.
type InUseError struct {
	Pool   Key
	What   string // what the change does to the addresses: "would leave the pool's ranges", "would become reserved", …
	Else   string // what to do where the holder stays
	Range  allocator.Range
	Holder Key // of a claim or an open grant
}

func (e *InUseError) Error() string { return e.SeenFrom(everywhere) }

// SeenFrom words the error for a reader in a namespace, who may not know the owners in other ones; "" is no namespace.
func (e *InUseError) SeenFrom(namespace string) string {
	return fmt.Sprintf("pool %s: %s %s while it is held %s: delete the holder first, or %s", e.Pool, e.Range, e.What, e.Holder.SeenFrom(namespace), e.Else)
}

// name of the pool in its space.
func (k Key) coreName() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// setPool takes in the event of a pool.
func (b *book) setPool(now time.Time, p Pool) { b.takePool(now, p, false) }

// learnPool takes in a pool that was read ahead of its event. Who looks at it before that comes may not find it.
// One that is not known although events have come since may be gone.
func (b *book) learnPool(now time.Time, p Pool) {
	if b.pools[p.Key] != nil || p.ResourceVersion > b.seen[p.Key.Kind] {
		b.takePool(now, p, true)
	}
}

// ghostAfter is how long a pool that was read waits for its event once later ones have come: a list brings all events at once, in no order.
const ghostAfter = 10 * time.Second

// dropGhosts forgets pools that were read and have no event: gone before a list of the informers that would have shown them, they never will.
func (b *book) dropGhosts(now time.Time) {
	for k, p := range b.pools {
		switch {
		case !p.ahead, b.seen[k.Kind] < p.ResourceVersion:
			p.overdue = time.Time{}
		case p.overdue.IsZero():
			p.overdue = now
		case now.Sub(p.overdue) >= ghostAfter:
			b.removePool(k, 0)
		}
	}
}

// takePool takes in a pool as stored: by its event, or ahead of that. Versions older than the one known are ignored.
func (b *book) takePool(now time.Time, p Pool, ahead bool) {
	known, moved, same := b.pools[p.Key], true, false
	var before Pool
	if known != nil {
		before = known.Pool
	}
	switch {
	case known == nil:
		known = &pool{}
		b.pools[p.Key] = known
		b.stored[p.Key.Kind]++
	case p.ResourceVersion <= known.ResourceVersion:
		if known.ahead && !ahead && p.ResourceVersion == known.ResourceVersion {
			known.ahead = false
			b.changed[p.Key] = struct{}{}
			b.endWithdrawals(known)
		}
		return
	case known.Space != p.Space:
		b.close(known)
		b.changedByBlocks(known.Space, known.Blocked, nil)
		known.Blocked = nil
	default:
		moved = false
		same = known.Ordered == p.Ordered && slices.Equal(known.Window, p.Window) && slices.Equal(known.Blocked, p.Blocked)
	}
	b.changedByBlocks(p.Space, known.Blocked, p.Blocked)
	if p.ReuseDelay < known.ReuseDelay {
		b.shorten(now, p)
	}
	crowded := b.crowded(p.Key)
	known.Pool, known.ahead = p, ahead
	if crowded && !b.crowded(p.Key) {
		b.leavingMay(p.Key)
	}
	if before.UID != p.UID {
		b.recallMoved(known)
	}
	b.settleAway(known, false)
	if known.Policy == nil {
		known.Policy = allocator.BestFit
	}
	if !same {
		b.open(known)
	}
	if moved {
		b.rehome(known)
	}
	if before.Space == p.Space && slices.Equal(before.Blocked, p.Blocked) {
		b.admit(p.Key, Key{})
	} else {
		b.admitAll()
	}
	if !ahead { // else the next holder may know an older version, and go by the journal
		b.endWithdrawals(known)
	}
	b.recall(now, known)
	b.changed[p.Key] = struct{}{}
}

// knows tells whether this version of a pool, or a later one, is known.
func (b *book) knows(k Key, resourceVersion uint64) bool {
	p := b.pools[k]
	return p != nil && p.ResourceVersion >= resourceVersion
}

// changing tells whether a change of a pool was let through that has not been seen yet.
func (b *book) changing(k Key) bool {
	return slices.ContainsFunc(b.byName[k], func(h *holding) bool { return len(h.lines) > 0 })
}

// changedByBlocks marks the pools that addresses were taken from, or given back to, by what another one blocks.
func (b *book) changedByBlocks(space string, before, after []allocator.Range) {
	if slices.Equal(before, after) {
		return
	}
	touch := allocator.Touching(slices.Concat(before, after))
	for k, p := range b.pools {
		if p.Space == space && touch(p.Window) {
			b.changed[k] = struct{}{}
		}
	}
}

// open shows the window of a pool in its space, of a pool with two families each for itself as well, and of one with an order each range.
func (b *book) open(p *pool) {
	core, name := b.space(p.Space).core, p.Key.coreName()
	for _, part := range p.families {
		delete(b.offers, part)
	}
	b.openParts(p)
	p.core = core.SetPool(name, p.Window, p.Blocked)
	p.exactly, p.families = p.core, map[int]*allocator.Pool{}
	b.offers[p.core] = p.Key
	for _, bits := range families {
		part := slices.DeleteFunc(slices.Clone(p.Window), func(r allocator.Range) bool { return r.First.BitLen() != bits })
		switch {
		case len(part) == 0:
			core.RemovePool(partName(name, bits))
		case len(part) == len(p.Window):
			p.families[bits] = p.core
			core.RemovePool(partName(name, bits))
		default:
			p.families[bits] = core.SetPool(partName(name, bits), part, nil)
			b.offers[p.families[bits]] = p.Key
		}
	}
}

// openParts shows each range of a pool for itself, where they have an order.
func (b *book) openParts(p *pool) {
	if !p.Ordered || len(p.Window) < 2 {
		b.showParts(p, nil)
	} else {
		b.showParts(p, p.Window)
	}
}

// showParts shows these ranges of a pool for themselves, and no others. Those that are shown already cost little: a pool may have thousands.
func (b *book) showParts(p *pool, ranges []allocator.Range) {
	core, stay := b.space(p.Space).core, map[allocator.Range]bool{}
	var (
		gone  []string
		shown []allocator.Offer
	)
	for _, r := range ranges {
		stay[r] = true
		shown = append(shown, allocator.Offer{Name: orderedName(p.Key.coreName(), r), Window: []allocator.Range{r}})
	}
	for i, r := range p.shown {
		if !stay[r] {
			gone = append(gone, orderedName(p.Key.coreName(), r))
			delete(b.offers, p.parts[i])
		}
	}
	core.RemovePools(gone...)
	p.shown, p.parts = ranges, core.SetPools(shown...)
	for _, part := range p.parts {
		b.offers[part] = p.Key
	}
}

// close takes a pool out of its space.
func (b *book) close(p *pool) {
	core, name := b.space(p.Space).core, p.Key.coreName()
	core.RemovePool(name)
	delete(b.offers, p.core)
	for _, bits := range families {
		core.RemovePool(partName(name, bits))
		delete(b.offers, p.families[bits])
	}
	b.showParts(p, nil)
}

// families are those of addresses, by their bits.
var families = []int{32, 128}

func partName(pool string, bits int) string { return fmt.Sprintf("%s/%d", pool, bits) }

func orderedName(pool string, r allocator.Range) string { return pool + "#" + r.String() }

// removePool takes in that a pool is gone. What is held of it stays held. What rests ends with it, as its record does.
func (b *book) removePool(k Key, resourceVersion uint64) {
	b.saw(k.Kind, resourceVersion)
	if p := b.pools[k]; p != nil {
		b.close(p)
		delete(b.pools, k)
		b.changedByBlocks(p.Space, p.Blocked, nil)
		p.Cooling = nil
		b.settleAway(p, true)
		b.endRests(k)
		b.stored[k.Kind]--
		b.changed[k] = struct{}{}
		b.admitAll()
	}
}

// rehome moves claims that were read before their pool was, into the pool's space. All of them may have waited for it.
func (b *book) rehome(p *pool) {
	for c := range b.ofPool[p.Key] {
		b.changed[c.Key] = struct{}{}
	}
	for moved := true; moved; { // what stands in for a claim that is moved takes its place first
		moved = false
		for c := range maps.Clone(b.ofPool[p.Key]) {
			if c.holding != nil && c.holding.space != p.Space {
				b.detach(c, time.Time{}, time.Time{})
				b.bind(c)
				moved = true
			}
		}
	}
}

// Usage of a pool.
type Usage struct {
	allocator.Stats
	Claims int // stored claims that have a range of it
}

func (b *book) usage(k Key) (Usage, bool) {
	p := b.pools[k]
	if p == nil {
		return Usage{}, false
	}
	return Usage{Stats: p.core.Stats(), Claims: len(b.ofPool[k])}, true
}

// Held is a range and the stored claim that has it.
type Held struct {
	Range  allocator.Range
	Holder Key
}

// heldOf lists what claims of some kinds have of a pool's addresses, through this pool or not, in address order and up to a limit, and counts
// them all.
func (b *book) heldOf(k Key, kinds []string, limit int) (list []Held, total int64) {
	p := b.pools[k]
	if p == nil {
		return nil, 0
	}
	core := b.space(p.Space).core
	for _, r := range allocator.Union(p.Window) {
		for held := range core.HeldIn(r) {
			h := b.holdings[held.Holder]
			if h.claim == nil || !slices.Contains(kinds, h.claim.holder().Kind) {
				continue
			}
			if total++; len(list) < limit {
				list = append(list, Held{held.Range, h.claim.holder()})
			}
		}
	}
	return list, total
}

// unheld is those of some addresses that nobody uses in the space of a pool, or may come to use.
func (b *book) unheld(k Key, addresses []netip.Addr) []netip.Addr {
	p := b.pools[k]
	if p == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(addresses), func(a netip.Addr) bool {
		for held := range b.space(p.Space).core.HeldIn(allocator.Range{First: a, Last: a}) {
			if b.holdings[held.Holder].inUse() {
				return true
			}
		}
		return false
	})
}

// heldThrough lists what claims have through a pool, those that hold it themselves and those that an object holds it for, in no order.
func (b *book) heldThrough(k Key) (own, standIns []Held) {
	for c := range b.ofPool[k] {
		list := &own
		if c.For != (Key{}) {
			list = &standIns
		}
		for _, r := range c.holding.ranges {
			for held := range b.space(c.holding.space).core.HeldIn(r) {
				if held.Holder == c.holding.id {
					*list = append(*list, Held{held.Range, c.holder()})
				}
			}
		}
	}
	return own, standIns
}

// offered says why a claim may not have the ranges that it names and nobody gave it: its pool does not offer them, or some pool of the space keeps them
// from everybody. What its own pool keeps for it, by its name or as kept says, does not stand against it.
func (b *book) offered(c *claim, kept []allocator.Range) error {
	p := b.pools[c.Pool]
	switch {
	case c.Pool != (Key{}) && p == nil:
		return &NoPoolError{Pool: c.Pool}
	case p != nil && p.Fault != "":
		return &FaultyPoolError{Pool: c.Pool, Fault: p.Fault}
	case p != nil && p.Keeps != nil:
		kept = append(slices.Clone(kept), p.Keeps(c.Key.Name))
	}
	for _, r := range c.Ranges {
		if p != nil && !slices.ContainsFunc(p.Window, func(o allocator.Range) bool { return o.Covers(r) }) {
			return p.outsideError(&allocator.OutsideError{Range: r, Window: p.Window})
		}
		for _, o := range b.pools {
			if at := slices.IndexFunc(o.Blocked, r.Overlaps); at >= 0 && o.Space == b.spaceOf(c) && (o != p || !slices.Contains(kept, r)) {
				return o.blockedError(c.Pool, o.Blocked[at])
			}
		}
	}
	return nil
}

// taken finds who has an address that p offers and no stored pool does, and did not get it of p; or one that p is to keep, from everybody or for
// another. Nil where nobody has.
func (b *book) taken(p Pool) *HeldError {
	s := b.spaces[p.Space]
	if s == nil {
		return nil
	}
	var offered []allocator.Range
	for _, o := range b.pools {
		if o.Space == p.Space {
			offered = append(offered, o.Window...)
		}
	}
	for _, part := range []struct {
		ranges []allocator.Range
		keeps  func(claim string) allocator.Range // nil where it is not for a claim of a name
	}{{allocator.Subtract(p.Window, offered), nil}, {p.Blocked, p.Keeps}} {
		for _, r := range part.ranges {
			for held := range s.core.HeldIn(r) {
				h := b.holdings[held.Holder]
				if h.inUse() && (h.pool != p.Key || part.keeps != nil && part.keeps(h.forClaim().Name) != held.Range) {
					return b.heldError(held)
				}
			}
		}
	}
	return nil
}

// forClaim is the claim that the holding is of, or is there for.
func (h *holding) forClaim() Key {
	if h.claim != nil {
		return h.claim.holder()
	}
	return h.key
}

func inAddressOrder(x, y Held) int { return x.Range.First.Compare(y.Range.First) }

// change checks a new version of a pool before it is stored. Addresses that it takes away are held back from then on, under a line
// of the journal, until the new version is seen or a grant's life has passed. Who has some of them keeps them, and what that one lets go is held back
// too. The line is nil where nothing is taken away.
func (b *book) change(p Pool) (*line, error) {
	if !b.serving {
		return nil, errNotHolding
	}
	if d := b.denied[p.Key.Kind]; d.err != nil {
		return nil, d.notServing(p.Key.Kind)
	}
	old := b.pools[p.Key]
	if old == nil {
		return nil, nil
	}
	core := b.space(old.Space).core
	offered := old.Window
	if old.Fault != "" && p.Fault == "" { // it offers nothing, and may have given some of this before the fault came about
		offered = old.Readable
	}
	isOffered := allocator.Touching(offered)
	if old.Space != p.Space {
		for _, h := range b.holdings {
			if h.inUse() && h.mayBeOf(old, isOffered) {
				return nil, &InUseError{Pool: p.Key, What: "would change its routing domain", Else: "leave that as it is", Range: h.ranges[0], Holder: h.key}
			}
		}
	}
	leaving := allocator.Subtract(offered, p.Window)
	blocked := allocator.Subtract(p.Blocked, old.Blocked)
	for _, loss := range []struct {
		ranges     []allocator.Range
		what, stay string
		all        bool
	}{{leaving, "would leave the pool's ranges", "keep the range in the pool", false}, {blocked, "would become reserved", "leave it out of what is reserved", true}} {
		if loss.all && p.BlocksHeld {
			continue
		}
		for _, r := range loss.ranges {
			for held := range core.HeldIn(r) {
				h := b.holdings[held.Holder]
				if h.inUse() && (loss.all || h.mayBeOf(old, isOffered)) {
					return nil, &InUseError{Pool: p.Key, What: loss.what, Else: loss.stay, Range: held.Range, Holder: h.key}
				}
			}
		}
	}
	gone := allocator.Union(append(slices.Clone(leaving), blocked...))
	if len(gone) == 0 {
		return nil, nil
	}
	l := &line{Line: journal.Line{
		Token: b.newToken(), Space: old.Space, Ranges: gone,
		Kind: p.Key.Kind, Namespace: p.Key.Namespace, NameHash: journal.HashName(p.Key.Name), Stored: p.Key.Name,
	}}
	if err := b.full(l.Namespace, l.Size()); err != nil {
		return nil, err
	}
	h := b.newHolding(p.Key, Key{}, old.Space, gone...)
	l.holding = h
	b.queued++
	b.file(l)
	b.place(h)
	return l, nil
}

// inUse tells whether a claim has the holding's addresses, or may come to have them.
func (h *holding) inUse() bool { return h.claim != nil || len(h.lines) > 0 && !h.lines[0].withdraws() }

// mayBeOf tells whether the holding is of the pool, going by what is offered there: where it is a grant of an earlier holder of the journal, its pool is
// not known.
func (h *holding) mayBeOf(p *pool, isOffered func([]allocator.Range) bool) bool {
	return h.pool == p.Key || h.inherited && h.claim == nil && h.space == p.Space && isOffered(h.ranges)
}

// endWithdrawals lets go of addresses that were held back for a change of the pool which is now seen.
func (b *book) endWithdrawals(p *pool) {
	back := slices.Clone(b.byName[p.Key])
	if len(back) == 0 {
		return
	}
	isOffered := allocator.Touching(allocator.Subtract(p.Window, p.Blocked))
	for _, h := range back {
		if isOffered(h.ranges) {
			continue
		}
		for _, l := range slices.Clone(h.lines) {
			b.retire(l)
		}
	}
}

// overlapping lists the other pools of p's space that offer some of the same addresses.
func (b *book) overlapping(p Pool) []Key {
	var keys []Key
	isOffered := allocator.Touching(p.Window)
	for k, o := range b.pools {
		if k != p.Key && o.Space == p.Space && isOffered(o.Window) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y Key) int { return cmp.Compare(x.coreName(), y.coreName()) })
	return keys
}
