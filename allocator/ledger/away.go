package ledger

import (
	"cmp"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// never is the end of the rest of a range that went to another cluster.
var never = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// away tells whether the claim of a holding went to another cluster, and took the range along.
func (h *holding) away() bool { return h.until.Equal(never) }

// keepAway takes in that a pool records a range as gone to another cluster. Who holds it here all the same came back with it, or is what its claim
// left behind, or has gone itself, which is yet to be seen.
func (b *book) keepAway(p *pool, c Cooling) {
	for _, h := range b.byName[c.Claim] {
		if h.space == p.Space && slices.Contains(h.ranges, c.Range) && (h.away() || h.standsIn(c.Claim) || h.claim != nil && h.claim.UID == c.Left) {
			h.until, h.recorded, h.left = never, true, cmp.Or(h.left, c.Left)
			b.resting[h] = struct{}{}
			return
		}
	}
	for held := range b.space(p.Space).core.HeldIn(c.Range) {
		if b.holdings[held.Holder].claim != nil {
			return
		}
	}
	h := b.newHolding(c.Claim, p.Key, p.Space, c.Range)
	h.until, h.recorded, h.left = never, true, c.Left
	b.resting[h] = struct{}{}
	b.place(h)
}

// comeBack lets go of the range that was kept for a claim while it was away: the claim has it by another holding, that of a grant of an earlier holder
// of the journal.
func (b *book) comeBack(c *claim) {
	for _, h := range slices.Clone(b.byName[c.Key]) {
		if h != c.holding && h.claim == nil && h.away() && h.left != c.UID && h.space == c.Space && slices.Equal(h.ranges, c.Ranges) {
			delete(b.resting, h)
			h.returned()
			b.freeIfIdle(h)
		}
	}
}

// returned takes in that the claim of a holding which went to another cluster has come back, or nobody has the range there any more.
func (h *holding) returned() {
	h.since, h.until, h.recorded, h.left = time.Time{}, time.Time{}, false, ""
}

// settleAway lets go of ranges that their pool recorded as gone to another cluster and no longer does: somebody knows that nobody has them there,
// or the pool is gone too.
func (b *book) settleAway(p *pool, gone bool) {
	for h := range b.resting {
		if h.pool != p.Key || !h.away() || !h.recorded && !gone || slices.ContainsFunc(p.Cooling, func(c Cooling) bool { return slices.Equal(h.ranges, []allocator.Range{c.Range}) }) {
			continue
		}
		delete(b.resting, h)
		h.returned()
		b.freeIfIdle(h)
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
	for h := range b.resting {
		if h.pool == k && !h.away() {
			resting++
		}
	}
	return resting >= maxRests
}

// restingOf lists the ranges of a pool that rest, in address order: what it should record.
func (b *book) restingOf(k Key) []Cooling {
	var list []Cooling
	for h := range b.resting {
		if h.pool != k || h.claim != nil && !h.away() && h.claim.leaves.IsZero() {
			continue
		}
		for _, r := range h.ranges {
			c := Cooling{Range: r, Since: h.since, Until: h.until}
			if h.away() {
				c.Since, c.Until, c.Claim, c.Left = time.Time{}, time.Time{}, h.key, h.left
			}
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y Cooling) int { // to the end: an order that is another each time would be written each time
		return cmp.Or(x.Range.First.Compare(y.Range.First), x.Until.Compare(y.Until), cmp.Compare(x.Claim.Name, y.Claim.Name),
			cmp.Compare(x.Claim.Namespace, y.Claim.Namespace), cmp.Compare(x.Left, y.Left))
	})
	return list
}
