package state

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Preview returns the ranges that Grant would allocate, and reserves nothing.
func (s *State) Preview(q Request) (Grant, error) {
	if err := s.checkCanGrant(q); err != nil {
		return Grant{}, err
	}
	if owned := s.ownedByOwnerClaim(q); owned != nil {
		return Grant{}, owned
	}
	p, err := s.poolForRequest(q)
	if err != nil {
		return Grant{}, err
	}
	if h := s.repeatableHolding(p, q); h != nil {
		return Grant{Ranges: h.ranges, RoutingDomain: h.routingDomain}, nil
	}
	var ranges []allocator.Range
	for _, w := range s.missingRanges(p, q) {
		r, err := s.previewRange(p, w, s.contestedHoldingOf(q.UID))
		if err != nil {
			return Grant{}, err
		}
		ranges = append(ranges, r)
	}
	return Grant{Ranges: ranges, RoutingDomain: p.RoutingDomain}, nil
}

// missingRanges lists the range requests whose range the stored claim does not own yet in
// the routing domain of the pool.
func (s *State) missingRanges(p *pool, q Request) []RangeRequest {
	return slices.DeleteFunc(slices.Clone(q.Ranges), func(w RangeRequest) bool { return s.ownsRange(q.UID, p.RoutingDomain, w.Exact) })
}

// previewRange returns the range that a range request would get. own is the contested
// holding of the claim, nil if the claim lost no conflict.
func (s *State) previewRange(p *pool, w RangeRequest, own *holding) (r allocator.Range, err error) {
	if w.Exact.IsValid() {
		return w.Exact, s.poolError(p, s.checkExactIgnoring(p, w, own))
	}
	offers, err := p.windowsFor(w)
	for _, offer := range offers {
		if r, err = offer.Preview(w.Count, p.Policy); err == nil {
			return r, nil
		}
	}
	return r, s.poolError(p, w.withFamily(p, err))
}

// checkExact returns why an exact range cannot be allocated. If the pool blocks the range
// for every claim but this claim, further pools can still block the range. Without a
// pool, blocked ranges of the routing domain count, except with IgnorePoolBlocks: then
// only owners count.
func (s *State) checkExact(p *pool, w RangeRequest) error {
	if !w.IgnorePoolBlocks {
		return p.CheckExact(w.Exact)
	}
	if p.Key != (Key{}) {
		if !slices.ContainsFunc(p.Window, func(r allocator.Range) bool { return r.Covers(w.Exact) }) {
			return &allocator.OutsideError{Range: w.Exact, Window: p.Window}
		}
		if by, blocked := s.pools.blocking(p.RoutingDomain, w.Exact, p); by != nil {
			return &allocator.BlockedError{Range: blocked}
		}
	}
	for owned := range s.domain(p.RoutingDomain).core.OwnedIn(w.Exact) {
		return &allocator.OwnedError{Range: owned.Range, OwnerID: owned.OwnerID}
	}
	return nil
}

// checkExactIgnoring is checkExact for a claim whose own contested holding does not count
// as an owner.
func (s *State) checkExactIgnoring(p *pool, w RangeRequest, own *holding) error {
	err := s.checkExact(p, w)
	if owned := (*allocator.OwnedError)(nil); own == nil || own.routingDomain != p.RoutingDomain || !errors.As(err, &owned) {
		return err
	}
	for owned := range s.domain(p.RoutingDomain).core.OwnedIn(w.Exact) {
		if owned.OwnerID != own.id {
			return &allocator.OwnedError{Range: owned.Range, OwnerID: owned.OwnerID}
		}
	}
	return nil
}

// allocateRange allocates a range for a range request. The range may include addresses of
// the claim's own contested holding.
func (s *State) allocateRange(p *pool, w RangeRequest, id allocator.OwnerID, own *holding) (r allocator.Range, err error) {
	if w.Exact.IsValid() {
		if err = s.checkExactIgnoring(p, w, own); err == nil {
			core := s.domain(p.RoutingDomain).core
			if own != nil {
				core.Release(w.Exact, own.id)
			}
			core.Assign(w.Exact, id)
		}
		return w.Exact, s.poolError(p, err)
	}
	offers, err := p.windowsFor(w)
	for _, offer := range offers {
		if r, err = offer.Allocate(w.Count, p.Policy, id); err == nil {
			return r, nil
		}
	}
	return r, s.poolError(p, w.withFamily(p, err))
}

// withFamily adds the family of the range request to an *allocator.ExhaustedError, whose
// numbers are of that family, if the pool has two.
func (w RangeRequest) withFamily(p *pool, err error) error {
	if full := (*allocator.ExhaustedError)(nil); errors.As(err, &full) && w.Bits != 0 && len(p.families) > 1 {
		full.Family = FamilyName(w.Bits)
	}
	return err
}

// poolForRequest returns the pool of a request, or why the pool allocates nothing.
func (s *State) poolForRequest(q Request) (*pool, error) {
	p := s.pools.find(q.Pool)
	if p != nil {
		s.domain(p.RoutingDomain).blockAvoided()
	} else {
		s.domain(q.RoutingDomain).blockAvoided()
	}
	switch {
	case q.IgnorePoolRules && p != nil:
		return &pool{Pool: Pool{RoutingDomain: p.RoutingDomain}, exactChecker: s.domain(p.RoutingDomain).core}, nil
	case q.Pool == Key{}:
		return &pool{Pool: Pool{RoutingDomain: q.RoutingDomain}, exactChecker: s.domain(q.RoutingDomain).core}, nil
	case p == nil:
		return nil, &NoPoolError{Pool: q.Pool}
	case p.Deleting:
		return nil, &PoolDeletingError{Pool: q.Pool}
	case s.movedRecords.faultOf(p.UID) != nil:
		return nil, &NotServingError{NoOtherReplica: true, RetryAfter: 5 * time.Second, Reason: fmt.Sprintf("pool %s: %v", q.Pool, s.movedRecords.faultOf(p.UID))}
	case p.Paused && slices.ContainsFunc(q.Ranges, func(w RangeRequest) bool { return !w.Exact.IsValid() }):
		return nil, &PoolPausedError{Pool: q.Pool}
	case p.Fault != "":
		return nil, &FaultyPoolError{Pool: q.Pool, Fault: p.Fault}
	}
	return p, nil
}

// repeatableHolding returns a holding of this claim that still meets the request; nil if
// there is none. These requests get the same ranges again:
//
//	a create of a name with an open grant: a repeated call, or a new create after a failed one
//	a create without a name: a repeated call with the same RequestUID
//	a create of a name that is stored already, which the API server will deny
//	a claim that comes back from another cluster
//
// A second grant of the holding, under a token of its own, is safe: at most one object of
// a name is stored, and an admission request stores at most one object.
func (s *State) repeatableHolding(p *pool, q Request) *holding {
	requests := s.missingRanges(p, q)
	fits := func(h *holding) bool {
		switch {
		case h.routingDomain != p.RoutingDomain, h.pool != q.Pool, len(h.ranges) != len(requests),
			h.claim == nil && h.inherited,                        // an earlier leader has granted the range: never granted again
			h.claim == nil && len(h.grants) == 0 && !h.isMoved(), // no grant and no claim
			h.contested, s.hasRivals(h), // another claim owns some of the addresses, or may soon
			!h.freeAt.IsZero() && !h.isMoved(),                     // in cooldown
			h.claim != nil && h.claim.Deleting && p.ReuseDelay > 0: // a cooldown follows, for the next object of this name too
			return false
		}
		for i, w := range requests {
			if !w.isMetBy(h.ranges[i], p.Window) {
				return false
			}
		}
		return true
	}
	if q.Claim.Name == "" {
		if h := s.holdings.ofRequest(q.RequestUID); h != nil && fits(h) {
			return h
		}
		return nil
	}
	for _, h := range s.holdings.of(q.Claim) {
		if fits(h) {
			return h
		}
	}
	return nil
}

// isMetBy reports whether a range meets the range request, in a pool with this window.
func (w RangeRequest) isMetBy(r allocator.Range, window []allocator.Range) bool {
	if w.Exact.IsValid() {
		return r == w.Exact
	}
	return r.Size() == w.Count && (w.Bits == 0 || w.Bits == r.First.BitLen()) && len(allocator.Subtract([]allocator.Range{r}, window)) == 0
}

// grantFree grants free ranges, under the token of a standby grant of exactly these
// ranges if there is one.
func (s *State) grantFree(now time.Time, p *pool, q Request) (*OpenGrant, error) {
	k, predictable := s.demandOf(p, q)
	ranges, err := s.allocateRanges(p, q)
	if err != nil {
		return nil, err
	}
	var ready *OpenGrant
	if predictable {
		var fewLeft bool
		if ready, fewLeft = s.standby.take(p.RoutingDomain, s.standby.note(now, k), ranges); fewLeft {
			s.commitQueue.requestNow()
		}
	}
	h := s.reserveRanges(p, q, ranges)
	if ready == nil {
		return s.addGrant(h, q), nil
	}
	s.useStandby(now, ready, h, q)
	return ready, nil
}

// allocateRanges allocates free ranges for all range requests of a request, or for none.
// The caller adds the holding that owns them.
func (s *State) allocateRanges(p *pool, q Request) ([]allocator.Range, error) {
	id, own := s.holdings.nextID(), s.contestedHoldingOf(q.UID) // addHolding below gives the new holding this ID
	var ranges []allocator.Range
	for _, w := range s.missingRanges(p, q) {
		r, err := s.allocateRange(p, w, id, own)
		if err != nil {
			for _, taken := range ranges {
				s.domain(p.RoutingDomain).core.Release(taken, id)
			}
			if own != nil {
				s.resolveConflict(own) // takes back the part that was allocated to the request
			}
			return nil, err
		}
		ranges = append(ranges, r)
	}
	return ranges, nil
}

// reserveRanges adds the holding of ranges that were just allocated to a request.
func (s *State) reserveRanges(p *pool, q Request, ranges []allocator.Range) *holding {
	h := s.addHolding(q.Claim, q.Pool, p.RoutingDomain, ranges...)
	if q.Claim.Name == "" && q.RequestUID != "" {
		s.holdings.reserveFor(h, q.RequestUID)
	}
	s.markChanged(h)
	return h
}

// poolError adds the names of pools and owners to an error of package allocator.
func (s *State) poolError(p *pool, err error) error {
	var (
		owned   *allocator.OwnedError
		blocked *allocator.BlockedError
		outside *allocator.OutsideError
		full    *allocator.ExhaustedError
		manual  *NotAutomaticError
		family  *FamilyError
	)
	switch {
	case err == nil, errors.As(err, &manual), errors.As(err, &family): // name the pool already
		return err
	case errors.As(err, &blocked):
		by := s.blockingPool(p, blocked.Range)
		if by == nil || !slices.Contains(by.Blocked, blocked.Range) {
			return &PoolError{Pool: p.Key, Err: s.inUseError(blocked.Range)}
		}
		return by.blockedError(p.Key, blocked.Range)
	case errors.As(err, &outside):
		return p.outsideError(outside)
	case errors.As(err, &owned):
		return s.ownedError(allocator.Owned{Range: owned.Range, OwnerID: owned.OwnerID})
	case errors.As(err, &full):
		promised, until := s.countGranted(p)
		return &PoolError{
			Pool: p.Key, Err: err, Until: s.firstFreeAt(p.Key, full.Requested-full.Available), Withheld: s.firstWithheld(p), Promised: promised, PromisedUntil: until,
		}
	}
	return &PoolError{Pool: p.Key, Err: err}
}

// blockingPool returns the pool that blocks a range which p cannot allocate: p itself if
// p blocks the range, nil if no pool blocks the range.
func (s *State) blockingPool(p *pool, r allocator.Range) *pool {
	if slices.ContainsFunc(p.Blocked, r.Overlaps) {
		return p
	}
	by, _ := s.pools.blocking(p.RoutingDomain, r, p)
	return by
}

// blockedError returns the error for a claim of the pool claimed that requests a range
// which p blocks.
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

// outsideError returns the error for a claim of p that requests a range which p does not
// offer.
func (p *pool) outsideError(e *allocator.OutsideError) error {
	if p.WhyOutside != nil {
		e.Why = p.WhyOutside(e.Range)
	}
	return &PoolError{Pool: p.Key, Err: e}
}
