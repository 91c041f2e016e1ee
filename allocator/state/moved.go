package state

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// noEnd is the freeAt of a moved range.
var noEnd = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)

// moves are the holdings that wait for DecideMoved: of deleted claims that were marked as
// moved.
//
// Invariant: a listed holding is moved, and listed under the UID of its moved object.
type moves struct {
	undecided map[string]*holding // UID of the deleted claim -> its holding
}

func newMoves() moves { return moves{undecided: map[string]*holding{}} }

// await makes the moved holding of a claim wait for a decision.
func (m *moves) await(h *holding, c *claim) {
	h.movedUID, h.clusters = c.UID, c.Clusters
	m.undecided[c.UID] = h
}

// decided ends the wait of a holding, if it waits.
func (m *moves) decided(h *holding) {
	if m.isUndecided(h) {
		delete(m.undecided, h.movedUID)
	}
}

// isUndecided reports whether a holding waits for a decision.
func (m *moves) isUndecided(h *holding) bool { return m.undecided[h.movedUID] == h }

// find returns the holding that waits for the decision about a deleted claim; nil if
// there is none.
func (m *moves) find(uid string) *holding { return m.undecided[uid] }

// all iterates over the holdings that wait.
func (m *moves) all() iter.Seq[*holding] { return maps.Values(m.undecided) }

// check verifies the invariant.
func (m *moves) check(isHolding func(*holding) bool) error {
	for uid, h := range m.undecided {
		if h.movedUID != uid || !h.isMoved() || !isHolding(h) {
			return fmt.Errorf("holding %d of %s waits for the decision about %s, and was removed, or is not of its move", h.id, h.key, uid)
		}
	}
	return nil
}

// isMoved reports whether the claim of a holding was moved to another cluster with its
// range, or may have been.
func (h *holding) isMoved() bool { return h.freeAt.Equal(noEnd) }

// IsMoved reports whether the recorded range is moved; otherwise the range is in cooldown
// until c.Until.
func (c RecordedRange) IsMoved() bool { return c.Until.IsZero() }

// keepMoved applies that the cooldown list or the moved record of a pool contains a moved
// range, and returns the holding of the range. A holding of the claim can have the range
// already: the claim came back, the holding belongs to the address object of the claim,
// or the moved object is not gone for this replica yet. The result is nil if a claim owns
// addresses of the range by a different holding.
func (s *State) keepMoved(p *pool, c RecordedRange) *holding {
	for _, h := range s.holdings.of(c.Claim) {
		if h.routingDomain == p.RoutingDomain && slices.Contains(h.ranges, c.Range) && (h.isMoved() || h.isAddressObjectOf(c.Claim, p.Key) || h.claim != nil && h.claim.UID == c.MovedUID) {
			if h.isMoved() && !h.isOfMove(c.MovedUID) {
				return h
			}
			s.moves.decided(h) // the leader that recorded it has decided
			h.freeAt, h.movedUID = noEnd, cmp.Or(h.movedUID, c.MovedUID)
			s.cooldowns.list(h)
			return h
		}
	}
	for owned := range s.domain(p.RoutingDomain).core.OwnedIn(c.Range) {
		if s.holdings.find(owned.OwnerID).claim != nil {
			return nil
		}
	}
	h := s.addHolding(c.Claim, p.Key, p.RoutingDomain, c.Range)
	h.freeAt, h.movedUID = noEnd, c.MovedUID
	s.cooldowns.list(h)
	s.assignAddresses(h)
	return h
}

// isOfMove reports whether a moved holding belongs to the move of the object with this
// UID; "" is not known. A claim that came back and was moved again has two moves: the
// removal of the first from a list says nothing about the second.
func (h *holding) isOfMove(uid string) bool {
	return h.movedUID == uid || h.movedUID == "" || uid == ""
}

// recordListed applies that the cooldown list of a pool shows a range as moved.
func (s *State) recordListed(p *pool, c RecordedRange) {
	if h := s.keepMoved(p, c); h != nil && h.isOfMove(c.MovedUID) && h.listedSince == 0 && p.MovedListRevision > h.ignoreListsUntil && p.MovedListRevision != EmptiedList {
		h.listedSince = p.MovedListRevision
	}
}

// EmptiedList is the revision of a cooldown list that a person emptied.
const EmptiedList = math.MaxUint64

// endMovedOfReturned frees the range that was kept for a moved claim: the claim is back
// and owns the range by a second holding, from a grant of an earlier leader.
func (s *State) endMovedOfReturned(c *claim) {
	for _, h := range slices.Clone(s.holdings.of(c.Key)) {
		if h != c.holding && h.claim == nil && h.isMoved() && h.movedUID != c.UID && h.routingDomain == c.holding.routingDomain && slices.Equal(h.ranges, c.Ranges) {
			s.clearMoved(h)
			s.freeIfUnused(h)
		}
	}
}

// endSupersededMoves ends, when this replica begins to lead, the moves that no leader has
// recorded and whose range a Ready claim owns. A follower may observe the deletion of an
// address object long after its claim came back, was released, and the range was granted
// again: each resource has its own informer.
func (s *State) endSupersededMoves() {
	for _, domain := range s.domains {
		for h := range maps.Clone(domain.contested) {
			if h.claim == nil && h.isMoved() && !s.isRecordedMove(h) && s.isOwnedByReady(h) {
				s.clearMoved(h)
				s.freeIfUnused(h)
			}
		}
	}
}

// isRecordedMove reports whether the moved record or the cooldown list of its pool has
// the range of a moved holding.
func (s *State) isRecordedMove(h *holding) bool {
	isRange := func(r allocator.Range, claim Key) bool { return slices.Contains(h.ranges, r) && claim == h.key }
	for _, part := range s.movedRecords.of(h.pool).Parts {
		if slices.ContainsFunc(part.Moved, func(m Moved) bool { return isRange(m.Range, m.Claim) }) {
			return true
		}
	}
	p := s.pools.find(h.pool)
	return p != nil && slices.ContainsFunc(p.Recorded, func(c RecordedRange) bool { return c.IsMoved() && isRange(c.Range, c.Claim) })
}

// isOwnedByReady reports whether a claim that is stored as Ready owns addresses of h.
func (s *State) isOwnedByReady(h *holding) bool {
	for _, r := range h.ranges {
		for owned := range s.domain(h.routingDomain).core.OwnedIn(r) {
			if c := s.holdings.find(owned.OwnerID).claim; c != nil && c.ready() {
				return true
			}
		}
	}
	return false
}

// awaitMoveDecision keeps the range of a deleted claim that was marked as moved until
// DecideMoved, and for good if the claim was moved.
func (s *State) awaitMoveDecision(h *holding, c *claim) {
	if h.isMoved() { // of an address object whose claim was moved before
		return
	}
	for _, o := range s.holdings.of(c.owner()) {
		// The pool's record, written by an earlier leader, keeps the range by a second
		// holding: this claim was bound by an inherited grant.
		if o != h && o.isMoved() && o.movedUID == c.UID && o.routingDomain == h.routingDomain && slices.Equal(o.ranges, h.ranges) {
			return
		}
	}
	h.freeAt = noEnd
	s.moves.await(h, c)
	s.cooldowns.list(h)
}

// DecideMoved records whether the deleted object with this UID, which was marked as
// moved, was moved to another cluster. If it was not moved, its range is released with
// the pool's cooldown.
func (s *State) DecideMoved(now time.Time, uid string, moved bool) {
	h := s.moves.find(uid)
	if h == nil {
		return
	}
	s.moves.decided(h)
	s.markChanged(h)
	if moved {
		return
	}
	s.clearMoved(h)
	if p := s.pools.find(h.pool); h.claim == nil && p != nil && p.RoutingDomain == h.routingDomain && p.ReuseDelay > 0 {
		s.cooldowns.begin(h, cooldown{now, now.Add(p.ReuseDelay)})
	}
	s.freeIfUnused(h)
}

// clearMoved ends the moved state of a holding: its claim came back, was not moved, or a
// person removed the range from the cooldown list.
func (s *State) clearMoved(h *holding) {
	s.moves.decided(h)
	s.cooldowns.end(h)
	h.movedUID, h.clusters, h.listedSince, h.ignoreListsUntil = "", nil, 0, 0
}

// UndecidedMove is a deleted object that was marked as moved by clusterctl and for which
// DecideMoved has not been called.
type UndecidedMove struct {
	UID       string
	Namespace string
	Clusters  []string // Clusters that the object or its pool named
}

// UndecidedMoves lists the deleted objects that wait for DecideMoved.
func (s *State) UndecidedMoves() (all []UndecidedMove) {
	for h := range s.moves.all() {
		all = append(all, UndecidedMove{h.movedUID, h.key.Namespace, s.ClustersOf(h.clusters, h.pool)})
	}
	return all
}

// ClustersOf returns the Clusters of a claim: the Clusters that the claim names; if it
// names no Cluster, the Cluster of its pool.
func (s *State) ClustersOf(named []string, pool Key) []string {
	if p := s.pools.find(pool); len(named) == 0 && p != nil && p.Cluster != "" {
		return []string{p.Cluster}
	}
	return named
}

// freeUnlistedMoved frees moved ranges of a pool: all if the pool is gone, otherwise the
// ranges that a person removed from the cooldown list. Nothing is freed by the absence of
// a range in these lists: a missing or unreadable list, and a list older than the first
// list that showed the range.
func (s *State) freeUnlistedMoved(p *pool, gone bool) {
	listed := map[allocator.Range]bool{}
	for _, c := range p.Recorded {
		listed[c.Range] = true
	}
	for h := range s.cooldowns.of(p.Key) {
		takenOut := len(h.ranges) == 1 && !listed[h.ranges[0]] && h.listedSince > 0 && h.listedSince <= p.MovedListRevision
		if !h.isMoved() || !gone && !takenOut {
			continue
		}
		s.clearMoved(h)
		s.freeIfUnused(h)
	}
}

// mayHaveMoved reports whether a claim that is gone may have been moved: the claim is
// marked, and this process has not begun its cooldown. BeginCooldown is called for a
// marked claim only while clusterctl does not move the claim
// (addressobjects.Claims.Release). Without a reuse delay, and for a cooldown that an
// earlier leader began, DecideMoved decides each marked claim.
func (c *claim) mayHaveMoved() bool { return c.MarkedMoved && c.cooldownBegan.IsZero() }
