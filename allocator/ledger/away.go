package ledger

import (
	"cmp"
	"math"
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
func (b *book) keepAway(p *pool, c Cooling) *holding {
	for _, h := range b.byName[c.Claim] {
		if h.space == p.Space && slices.Contains(h.ranges, c.Range) && (h.away() || h.standsIn(c.Claim, p.Key) || h.claim != nil && h.claim.UID == c.Left) {
			b.decided(h) // by the holder of the journal that recorded it
			h.until, h.left = never, cmp.Or(h.left, c.Left)
			b.putToRest(h)
			return h
		}
	}
	for held := range b.space(p.Space).core.HeldIn(c.Range) {
		if b.holdings[held.Holder].claim != nil {
			return nil
		}
	}
	h := b.newHolding(c.Claim, p.Key, p.Space, c.Range)
	h.until, h.left = never, c.Left
	b.putToRest(h)
	b.place(h)
	return h
}

// sawShown takes in that a list of a pool shows a range as gone to another cluster.
func (b *book) sawShown(p *pool, c Cooling) {
	if h := b.keepAway(p, c); h != nil && h.shown == 0 && p.Listed > h.hidden && p.Listed != AllListed {
		h.shown = p.Listed
	}
}

// AllListed is the revision of a list that a person emptied.
const AllListed = math.MaxUint64

// comeBack lets go of the range that was kept for a claim while it was away: the claim has it by another holding, that of a grant of an earlier holder
// of the journal.
func (b *book) comeBack(c *claim) {
	for _, h := range slices.Clone(b.byName[c.Key]) {
		if h != c.holding && h.claim == nil && h.away() && h.left != c.UID && h.space == c.holding.space && slices.Equal(h.ranges, c.Ranges) {
			b.returned(h)
			b.freeIfIdle(h)
		}
	}
}

// depart keeps the range of a claim that is gone, marked as moved, until it is decided whether it was moved, and for good if it was.
func (b *book) depart(h *holding, c *claim) {
	if h.away() { // of what stood in for a claim that went before
		return
	}
	h.until, h.left, h.clusters = never, c.UID, c.Clusters
	b.departed[c.UID] = h
	b.putToRest(h)
}

// decided ends the wait of a holding for the decision whether its claim was moved.
func (b *book) decided(h *holding) {
	if b.isOpen(h) {
		delete(b.departed, h.left)
	}
}

// isOpen tells whether it is yet to be decided that the claim of a holding was moved.
func (b *book) isOpen(h *holding) bool { return b.departed[h.left] == h }

// decideMoved takes in whether the object with this UID, which was marked and is gone, was moved to another cluster. One that was not is released as any
// other.
func (b *book) decideMoved(now time.Time, uid string, moved bool) {
	h := b.departed[uid]
	if h == nil {
		return
	}
	b.decided(h)
	b.changedBy(h)
	if moved {
		return
	}
	b.returned(h)
	if p := b.pools[h.pool]; h.claim == nil && p != nil && p.ReuseDelay > 0 {
		h.since, h.until = now, now.Add(p.ReuseDelay)
		b.putToRest(h)
	}
	b.freeIfIdle(h)
}

// returned takes in that the claim of a holding which went to another cluster has come back, did not go there, or that nobody has the range there any more.
func (b *book) returned(h *holding) {
	b.decided(h)
	b.unrest(h)
	h.since, h.until, h.left, h.clusters, h.shown, h.hidden = time.Time{}, time.Time{}, "", nil, 0, 0
}

// Departure is an object that is gone, marked as one that clusterctl moved, of which it is not decided whether it was.
type Departure struct {
	UID       string
	Namespace string
	Clusters  []string // that it or its pool said it belonged to
}

// departures lists what is to be decided.
func (b *book) departures() (all []Departure) {
	for uid, h := range b.departed {
		all = append(all, Departure{uid, h.key.Namespace, b.clustersOf(h.clusters, h.pool)})
	}
	return all
}

// clustersOf is the Clusters that a claim belongs to: those that it names, else that of its pool.
func (b *book) clustersOf(named []string, pool Key) []string {
	if p := b.pools[pool]; len(named) == 0 && p != nil && p.Cluster != "" {
		return []string{p.Cluster}
	}
	return named
}

// settleAway frees ranges that went to another cluster and that a person has taken out of the list of their pool, or all where the pool is gone too.
// A list that is absent, that cannot be read, or that is older than the range on it frees nothing.
func (b *book) settleAway(p *pool, gone bool) {
	listed := map[allocator.Range]bool{}
	for _, c := range p.Cooling {
		listed[c.Range] = true
	}
	for h := range b.resting[p.Key] {
		takenOut := len(h.ranges) == 1 && !listed[h.ranges[0]] && h.shown > 0 && h.shown <= p.Listed || b.breaks.absenceFrees && h.shown > 0 && p.Listed == 0
		if !h.away() || !gone && !takenOut {
			continue
		}
		b.returned(h)
		b.freeIfIdle(h)
	}
}
