package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Which ranges a request gets: those that it was given before, or free ones.

// preview says what grant would answer, and takes nothing.
func (b *book) preview(q Request) (Grant, error) {
	if err := b.grants(q); err != nil {
		return Grant{}, err
	}
	p, err := b.poolFor(q)
	if err != nil {
		return Grant{}, err
	}
	if h := b.repeatable(p, q); h != nil {
		return Grant{Ranges: h.ranges, Space: h.space}, nil
	}
	var ranges []allocator.Range
	for _, w := range b.lacking(q) {
		r, err := b.look(p, w, b.contestedOf(q.UID))
		if err != nil {
			return Grant{}, err
		}
		ranges = append(ranges, r)
	}
	return Grant{Ranges: ranges, Space: p.Space}, nil
}

// behind tells whether a stored claim is yet to be seen in a version: it may have given up what it is known to have.
func (b *book) behind(uid string, version uint64) bool {
	c := b.claims[uid]
	return version > 0 && (c == nil || c.ResourceVersion < version)
}

// owns reports whether a stored claim owns all that it names.
func (b *book) owns(uid string, version uint64) (bool, error) {
	switch c := b.claims[uid]; {
	case !b.serving:
		return false, errNotHolding
	case b.behind(uid, version):
		return false, errBehind
	default:
		return c != nil && c.holding != nil && !c.holding.contested, nil
	}
}

// lacking is what a request wants and its stored claim does not have yet.
func (b *book) lacking(q Request) []Want {
	return slices.DeleteFunc(slices.Clone(q.Wants), func(w Want) bool { return b.has(q.UID, w.Exact) })
}

// has tells whether the claim with this UID is seen to have a range, for itself.
func (b *book) has(uid string, r allocator.Range) bool {
	c := b.claims[uid]
	return c != nil && c.holding != nil && !c.holding.contested && slices.Contains(c.holding.ranges, r)
}

// contestedOf is the holding of a stored claim that lost a conflict: what it has of its ranges it may ask for again, with others or without.
func (b *book) contestedOf(uid string) *holding {
	if c := b.claims[uid]; c != nil && c.holding != nil && c.holding.contested {
		return c.holding
	}
	return nil
}

// look says which range a want would get, of a claim that has own already.
func (b *book) look(p *pool, w Want, own *holding) (r allocator.Range, err error) {
	if w.Exact.IsValid() {
		return w.Exact, b.poolError(p, b.checkExactBeside(p, w, own))
	}
	offers, err := p.offered(w)
	for _, offer := range offers {
		if r, err = offer.Preview(w.Count, p.Policy); err == nil {
			return r, nil
		}
	}
	return r, b.poolError(p, w.named(p, err))
}

// checkExact says what stands against an exact range. One that the pool keeps for the claim only others can block, and of one that no pool need offer
// that counts only who has it.
func (b *book) checkExact(p *pool, w Want) error {
	if !w.Kept {
		return p.CheckExact(w.Exact)
	}
	if p.Key != (Key{}) {
		if !slices.ContainsFunc(p.Window, func(r allocator.Range) bool { return r.Covers(w.Exact) }) {
			return &allocator.OutsideError{Range: w.Exact, Window: p.Window}
		}
		for _, o := range b.pools {
			if i := slices.IndexFunc(o.Blocked, w.Exact.Overlaps); i >= 0 && o != p && o.Space == p.Space {
				return &allocator.BlockedError{Range: o.Blocked[i]}
			}
		}
	}
	for held := range b.space(p.Space).core.HeldIn(w.Exact) {
		return &allocator.HeldError{Range: held.Range, Holder: held.Holder}
	}
	return nil
}

// checkExactBeside is checkExact for a claim whose own holding does not stand against the range.
func (b *book) checkExactBeside(p *pool, w Want, own *holding) error {
	err := b.checkExact(p, w)
	if held := (*allocator.HeldError)(nil); own == nil || own.space != p.Space || !errors.As(err, &held) {
		return err
	}
	for held := range b.space(p.Space).core.HeldIn(w.Exact) {
		if held.Holder != own.id {
			return &allocator.HeldError{Range: held.Range, Holder: held.Holder}
		}
	}
	return nil
}

// pick takes a range for a want, also from what the claim has already.
func (b *book) pick(p *pool, w Want, id allocator.Holder, own *holding) (r allocator.Range, err error) {
	if w.Exact.IsValid() {
		if err = b.checkExactBeside(p, w, own); err == nil {
			core := b.space(p.Space).core
			if own != nil {
				core.Release(w.Exact, own.id)
			}
			core.Hold(w.Exact, id)
		}
		return w.Exact, b.poolError(p, err)
	}
	offers, err := p.offered(w)
	for _, offer := range offers {
		if r, err = offer.Allocate(w.Count, p.Policy, id); err == nil {
			return r, nil
		}
	}
	return r, b.poolError(p, w.named(p, err))
}

// named puts the family to an error that says how much is free of the one that is asked for, where the pool has another.
func (w Want) named(p *pool, err error) error {
	if full := (*allocator.ExhaustedError)(nil); errors.As(err, &full) && w.Bits != 0 && len(p.families) > 1 {
		full.Family = FamilyName(w.Bits)
	}
	return err
}

func (b *book) poolFor(q Request) (*pool, error) {
	p := b.pools[q.Pool]
	switch {
	case q.Unoffered && p != nil:
		return &pool{Pool: Pool{Space: p.Space}, exactly: b.space(p.Space).core}, nil
	case q.Pool == Key{}:
		return &pool{Pool: Pool{Space: q.Space}, exactly: b.space(q.Space).core}, nil
	case p == nil:
		return nil, &NoPoolError{Pool: q.Pool}
	case p.Deleting:
		return nil, &PoolDeletingError{Pool: q.Pool}
	case p.UID != "" && b.faults[p.UID] != nil:
		return nil, &NotServingError{Here: true, RetryAfter: 5 * time.Second, Reason: fmt.Sprintf("pool %s: %v", q.Pool, b.faults[p.UID])}
	case p.Paused && slices.ContainsFunc(q.Wants, func(w Want) bool { return !w.Exact.IsValid() }):
		return nil, &PoolPausedError{Pool: q.Pool}
	case p.Fault != "":
		return nil, &FaultyPoolError{Pool: q.Pool, Fault: p.Fault}
	}
	return p, nil
}

// repeatable finds a range that this very claim was given before and that still answers the request. At most one object of a
// name exists, and one call makes at most one object, so handing it out again is safe, under a token of its own.
func (b *book) repeatable(p *pool, q Request) *holding {
	wants := b.lacking(q)
	fits := func(h *holding) bool {
		switch {
		case h.claim == nil && h.inherited,
			h.claim == nil && len(h.lines) == 0 && !h.away(),
			h.contested, b.rivalled(h), !h.until.IsZero() && !h.away(), h.space != p.Space, h.pool != q.Pool,
			h.claim != nil && h.claim.Deleting && p.ReuseDelay > 0,
			len(h.ranges) != len(wants):
			return false
		}
		for i, w := range wants {
			if !w.meets(h.ranges[i], p.Window) {
				return false
			}
		}
		return true
	}
	if q.Claim.Name == "" {
		if h := b.byCall[q.ID]; h != nil && q.ID != "" && fits(h) {
			return h
		}
		return nil
	}
	for _, h := range b.byName[q.Claim] {
		if fits(h) {
			return h
		}
	}
	return nil
}

// meets reports whether a range answers the want, in a pool with this window.
func (w Want) meets(r allocator.Range, window []allocator.Range) bool {
	if w.Exact.IsValid() {
		return r == w.Exact
	}
	return r.Size() == w.Count && (w.Bits == 0 || w.Bits == r.First.BitLen()) && len(allocator.Subtract([]allocator.Range{r}, window)) == 0
}

// rivalled reports whether another wants some of the addresses that h has.
func (b *book) rivalled(h *holding) bool {
	for o := range b.space(h.space).contested {
		if o != h && o.overlaps(h.ranges) {
			return true
		}
	}
	return false
}

// take makes a holding of ranges that are free: of all that are wanted, or of none.
func (b *book) take(p *pool, q Request) (*holding, error) {
	id, own := b.lastID+1, b.contestedOf(q.UID)
	var ranges []allocator.Range
	for _, w := range b.lacking(q) {
		r, err := b.pick(p, w, id, own)
		if err != nil {
			for _, taken := range ranges {
				b.space(p.Space).core.Release(taken, id)
			}
			if own != nil {
				b.settle(own) // has again what was taken from it
			}
			return nil, err
		}
		ranges = append(ranges, r)
	}
	h := b.newHolding(q.Claim, q.Pool, p.Space, ranges...)
	if q.Claim.Name == "" && q.ID != "" {
		h.call = q.ID
		b.byCall[q.ID] = h
	}
	b.changedBy(h)
	return h, nil
}

// poolError puts names to what the core says, if it says anything.
func (b *book) poolError(p *pool, err error) error {
	var (
		held    *allocator.HeldError
		blocked *allocator.BlockedError
		outside *allocator.OutsideError
		full    *allocator.ExhaustedError
		manual  *NotAutomaticError
		family  *FamilyError
	)
	switch {
	case err == nil, errors.As(err, &manual), errors.As(err, &family): // which name the pool
		return err
	case errors.As(err, &blocked):
		by := b.blocking(p, blocked.Range)
		if by == nil {
			return &PoolError{Pool: p.Key, Err: err}
		}
		return by.blockedError(p.Key, blocked.Range)
	case errors.As(err, &outside):
		return p.outsideError(outside)
	case errors.As(err, &held):
		return b.heldError(allocator.Held{Range: held.Range, Holder: held.Holder})
	case errors.As(err, &full):
		return &PoolError{Pool: p.Key, Err: err, Until: b.firstRested(p.Key, full.Requested-full.Available), Withheld: b.withheldOf(p)}
	}
	return &PoolError{Pool: p.Key, Err: err}
}

// blocking is the pool that blocks a range which p may not give: p itself where it does, nil where none does.
func (b *book) blocking(p *pool, r allocator.Range) *pool {
	if slices.ContainsFunc(p.Blocked, r.Overlaps) {
		return p
	}
	for _, o := range b.pools {
		if o.Space == p.Space && slices.ContainsFunc(o.Blocked, r.Overlaps) {
			return o
		}
	}
	return nil
}

// blockedError is the answer to a claim of a pool that asks for a range which p blocks.
func (p *pool) blockedError(claimed Key, blocked allocator.Range) error {
	e := &allocator.BlockedError{Range: blocked}
	if p.WhatIsBlocked != nil {
		e.What = p.WhatIsBlocked(blocked)
	}
	if p.Key == claimed {
		return &PoolError{Pool: claimed, Err: e}
	}
	return &PoolError{Pool: claimed, By: p.Key, Err: e}
}

// outsideError is the answer to a claim of p that asks for a range which p does not offer.
func (p *pool) outsideError(e *allocator.OutsideError) error {
	if p.WhyOutside != nil {
		e.Why = p.WhyOutside(e.Range)
	}
	return &PoolError{Pool: p.Key, Err: e}
}
