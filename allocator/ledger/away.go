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
		if h.space == p.Space && slices.Contains(h.ranges, c.Range) && (h.away() || h.standsIn(c.Claim, p.Key) || h.claim != nil && h.claim.UID == c.Left) {
			h.until, h.recorded, h.left = never, true, cmp.Or(h.left, c.Left)
			b.putToRest(h)
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
	b.putToRest(h)
	b.place(h)
}

// comeBack lets go of the range that was kept for a claim while it was away: the claim has it by another holding, that of a grant of an earlier holder
// of the journal.
func (b *book) comeBack(c *claim) {
	for _, h := range slices.Clone(b.byName[c.Key]) {
		if h != c.holding && h.claim == nil && h.away() && h.left != c.UID && h.space == c.holding.space && slices.Equal(h.ranges, c.Ranges) {
			b.unrest(h)
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
	recorded := map[allocator.Range]bool{}
	for _, c := range p.Cooling {
		recorded[c.Range] = true
	}
	for h := range b.resting[p.Key] {
		if !h.away() || !h.recorded && !gone || len(h.ranges) == 1 && recorded[h.ranges[0]] {
			continue
		}
		b.unrest(h)
		h.returned()
		b.freeIfIdle(h)
	}
}
