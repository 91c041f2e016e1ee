package ledger

import "slices"

// An object may hold a range for a claim (Claim.For): it stands in for the claim while that does not hold the range itself. Both name the same pool: a
// claim of the same name and another pool is another claim.
//
//	claim     ├── holds ──┤
//	stand-in      ├──────────────┤   its range is held until here, by one holding, which first the claim has and then the stand-in

// standsIn tells whether a holding is that of an object which holds its range of a pool for the claim of this key.
func (h *holding) standsIn(claim, pool Key) bool {
	return h.claim != nil && h.claim.For == claim && h.pool == pool
}

// covering is the holding of the claim that c holds its range for, where that has the very range.
func (b *book) covering(c *claim) *holding {
	if c.For == (Key{}) {
		return nil
	}
	for _, h := range b.byName[c.For] {
		if h.claim != nil && h.claim.Key == c.For && h.pool == c.Pool && h.space == b.spaceOf(c) && (b.breaks.coverByName || slices.Equal(h.ranges, c.Ranges)) {
			return h
		}
	}
	return nil
}

// cover ends the grant of a stand-in: the claim has its range already.
func (b *book) cover(c *claim, h *holding) {
	if l := b.lines[c.Token]; l != nil && l.names(c.Key, c.UID) {
		b.retire(l)
	}
	b.changedBy(h)
}

// succeed gives the holding of a claim that goes to an object that holds the same range for it, if there is one.
func (b *book) succeed(c *claim) bool {
	h := c.holding
	for _, heir := range b.standIns[c.Key] {
		if heir.holding != nil || heir.Pool != h.pool || h.space != b.spaceOf(heir) || !slices.Equal(h.ranges, heir.Ranges) {
			continue
		}
		b.leavePool(c)
		c.holding, h.claim, heir.holding = nil, heir, h
		b.setHoldingPool(h, heir.Pool)
		b.joinPool(heir)
		if c.departs() { // and may not come back: what it left behind may go, its range stays its own
			b.depart(h, c)
		}
		b.restrength(h)
		return true
	}
	return false
}

// joinPool and leavePool count a claim among those that have a range of its pool.
func (b *book) joinPool(c *claim) {
	if c.Pool == (Key{}) {
		return
	}
	if b.ofPool[c.Pool] == nil {
		b.ofPool[c.Pool] = map[*claim]struct{}{}
	}
	b.ofPool[c.Pool][c] = struct{}{}
}

func (b *book) leavePool(c *claim) {
	pool := c.holding.pool
	delete(b.ofPool[pool], c)
	if len(b.ofPool[pool]) == 0 {
		delete(b.ofPool, pool)
	}
}
