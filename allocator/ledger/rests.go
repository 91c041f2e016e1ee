package ledger

import (
	"cmp"
	"math"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// A range that its claim let go may rest for a while: its pool has a reuse delay. The pool records that, and what it has recorded comes back with
// each of its events.

// putToRest files a holding under its pool's that rest; until says until when.
func (b *book) putToRest(h *holding) {
	if b.resting[h.pool] == nil {
		b.resting[h.pool] = map[*holding]struct{}{}
	}
	b.resting[h.pool][h] = struct{}{}
}

// setHoldingPool files a holding as one of another pool's ranges.
func (b *book) setHoldingPool(h *holding, pool Key) {
	_, rests := b.resting[h.pool][h]
	b.unrest(h)
	if h.pool = pool; rests {
		b.putToRest(h)
	}
}

func (b *book) unrest(h *holding) {
	if delete(b.resting[h.pool], h); len(b.resting[h.pool]) == 0 {
		delete(b.resting, h.pool)
	}
}

// cooldown of a range, by the book's own clock.
type cooldown struct{ since, until time.Time } // since is zero where it is not known

// recordID identifies a record of a cooldown among those of its pool. No two replicas need to have one clock, so what a record says is converted
// and bounded once, when it is first observed.
type recordID struct {
	allocator.Range
	since, until int64 // in milliseconds
}

// firstObserved is what a record comes to that is observed now for the first time. Its author's clock may have been wrong: a release is not
// later than its observation.
func (b *book) firstObserved(now time.Time, c Cooling) (r cooldown) {
	r.until = c.Until.Add(-b.recordsAhead)
	if !c.Since.IsZero() {
		if r.since = c.Since.Add(-b.recordsAhead); r.since.After(now) {
			r.since = now
		}
	}
	return r
}

// bound ends a cooldown of one of the pool's ranges within the reuse delay that the pool has now: of the release, and of now.
func (p *Pool) bound(now time.Time, r cooldown) cooldown {
	if end := r.since.Add(p.ReuseDelay); !r.since.IsZero() && end.Before(r.until) {
		r.until = end
	}
	if end := now.Add(p.ReuseDelay); end.Before(r.until) {
		r.until = end
	}
	return r
}

// shorten ends the rests of a pool's ranges as early as they would have ended with the delay that it has now.
func (b *book) shorten(now time.Time, p Pool) {
	end := func(h *holding) {
		if !h.until.IsZero() && !h.away() {
			h.until = p.bound(now, cooldown{h.since, h.until}).until
		}
	}
	for h := range b.resting[p.Key] {
		end(h)
	}
	for c := range b.ofPool[p.Key] { // that goes, its release recorded
		end(c.holding)
	}
}

// endRests ends the rests of a pool's ranges. Those of claims that are about to go begin anew where the pool is made again before.
func (b *book) endRests(pool Key) {
	delete(b.restSums, pool)
	for h := range b.resting[pool] {
		if !h.away() {
			b.endRest(h)
		}
	}
	for c := range b.ofPool[pool] {
		c.leaves, c.rested = time.Time{}, false
		if h := c.holding; h != nil && !h.until.IsZero() && !h.away() {
			b.endRest(h)
		}
	}
}

func (b *book) endRest(h *holding) {
	b.unrest(h)
	h.since, h.until = time.Time{}, time.Time{}
	b.changedBy(h)
	b.freeIfIdle(h)
}

// recall takes in what a pool has recorded of ranges that rest, or went to another cluster.
func (b *book) recall(now time.Time, p *pool) {
	known := map[allocator.Range]*holding{}
	for h := range b.resting[p.Key] {
		if !h.away() {
			for _, r := range h.ranges {
				known[r] = h
			}
		}
	}
	before := p.observed
	p.observed = make(map[recordID]cooldown, len(p.Cooling))
	for _, c := range p.Cooling {
		if c.Until.IsZero() {
			b.sawShown(p, c)
			continue
		}
		id := recordID{c.Range, c.Since.UnixMilli(), c.Until.UnixMilli()}
		r, seen := before[id]
		if !seen {
			r = b.firstObserved(now, c)
		}
		r = p.bound(now, r)
		h := known[c.Range]
		if h == nil {
			h = b.leaving(p, c.Range)
		}
		if h != nil && h.claim != nil && !seen { // the release is no older than the deletion that was observed
			if end := h.claim.deleted.Add(p.ReuseDelay); !h.claim.deleted.IsZero() && end.After(r.until) {
				r = cooldown{h.claim.deleted, end}
			}
		}
		p.observed[id] = r
		if now.Before(r.until) {
			b.rest(p, h, c, r)
		}
	}
}

// leaving is the holding of a claim that is about to go, whose range rests then: its pool may have recorded that before.
func (b *book) leaving(p *pool, r allocator.Range) *holding {
	for held := range b.space(p.Space).core.HeldIn(r) {
		if h := b.holdings[held.Holder]; h.claim != nil && h.claim.Deleting && slices.Equal(h.ranges, []allocator.Range{r}) {
			return h
		}
	}
	return nil
}

// rest keeps a recorded release from being handed out before its time: h is the holding that rests already, or will when its claim is gone, nil where
// there is none.
func (b *book) rest(p *pool, h *holding, c Cooling, r cooldown) {
	if h == nil {
		h = b.newHolding(Key{}, p.Key, p.Space, c.Range)
		h.since, h.until = r.since, r.until
		b.putToRest(h)
		b.place(h)
		return
	}
	// Not of who had it before. Two clocks are compared here; whichever way that goes, the cooldown ends within the reuse delay and not before that of the
	// deletion that was observed.
	if gone := h.claim; gone != nil && !r.until.Before(h.until) && (!gone.leaves.IsZero() || gone.Deleting && !c.Since.Before(gone.Created)) {
		gone.rested = true
		b.changed[gone.Key] = struct{}{}
	}
	if r.until.After(h.until) {
		h.since, h.until = r.since, r.until
	}
}

// maxRests are the ranges of a pool that rest until a time. As many find room in its record, beside those that went to other clusters.
const maxRests = 8192

// crowded tells whether so many ranges of a pool rest that another release would have to wait.
func (b *book) crowded(k Key) bool {
	p, resting := b.pools[k], 0
	if p == nil || p.ReuseDelay == 0 || p.Deleting {
		return false
	}
	for h := range b.resting[k] {
		if !h.away() {
			resting++
		}
	}
	return resting >= maxRests
}

// leavingMay has the claims of a pool looked at that wait to be released.
func (b *book) leavingMay(pool Key) {
	for c := range b.ofPool[pool] {
		if c.Deleting {
			b.changed[c.Key] = struct{}{}
		}
	}
}

// restBegun tells whether the rest of a holding has begun: not that of a claim which is about to go, and may yet stay.
func (h *holding) restBegun() bool { return h.claim == nil || !h.claim.leaves.IsZero() }

// restSum is what rests of a pool.
type restSum struct {
	addresses int64     // saturates
	first     time.Time // when the first of them are free again
}

// sumRests looks at all that rests of a pool. A range that another has, who clashed with its last holder, rests in the record only.
func (b *book) sumRests(pool Key) (all restSum) {
	for h := range b.resting[pool] {
		if h.away() || h.contested || !h.restBegun() {
			continue
		}
		for _, r := range h.ranges {
			all.addresses = min(all.addresses, math.MaxInt64-r.Size()) + r.Size()
		}
		if all.first.IsZero() || h.until.Before(all.first) {
			all.first = h.until
		}
	}
	return all
}

// firstRested is when the first of a pool's ranges that rest is free again, zero where fewer addresses rest than are lacking. It is as of the last tick:
// thousands may rest, and every refusal asks.
func (b *book) firstRested(pool Key, lacking int64) time.Time {
	if all := b.restSums[pool]; all.addresses >= lacking {
		return all.first.Add(b.recordsAhead)
	}
	return time.Time{}
}

// restingOf lists the ranges of a pool that rest, in address order: what it should record. Of a range that several had who clashed, the longest rest.
func (b *book) restingOf(k Key) []Cooling {
	var list []Cooling
	for h := range b.resting[k] {
		if h.away() && b.isOpen(h) || !h.away() && !h.restBegun() {
			continue
		}
		for _, r := range h.ranges {
			c := Cooling{Range: r}
			switch {
			case h.away():
				c.Claim, c.Left = h.key, h.left
			case h.since.IsZero():
				c.Until = h.until.Add(b.recordsAhead)
			default:
				c.Since, c.Until = h.since.Add(b.recordsAhead), h.until.Add(b.recordsAhead)
			}
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y Cooling) int { // to the end: an order that is another each time would be written each time
		return cmp.Or(x.Range.First.Compare(y.Range.First), x.Range.Last.Compare(y.Range.Last), y.Until.Compare(x.Until), cmp.Compare(x.Claim.Name, y.Claim.Name),
			cmp.Compare(x.Claim.Namespace, y.Claim.Namespace), cmp.Compare(x.Left, y.Left))
	})
	return slices.CompactFunc(list, func(x, y Cooling) bool { return x.Range == y.Range && !x.Until.IsZero() && !y.Until.IsZero() })
}
