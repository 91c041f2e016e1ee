package state

import (
	"cmp"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// cooldownRecordID identifies the record of a cooldown among the records of its pool. The
// clocks of replicas may differ, so a record is converted once, when first observed. Each
// event of the pool bounds the result by the present reuse delay of the pool.
type cooldownRecordID struct {
	allocator.Range
	since, until int64 // Unix milliseconds
}

// convertRecord converts a record that is observed for the first time. The clock of the
// record's author may have been wrong: a release cannot be later than its observation.
func (s *State) convertRecord(now time.Time, c RecordedRange) (r cooldown) {
	r.freeAt = s.recordClock.fromRecord(c.Until)
	if !c.Since.IsZero() {
		if r.releasedAt = s.recordClock.fromRecord(c.Since); r.releasedAt.After(now) {
			r.releasedAt = now
		}
	}
	return r
}

// boundCooldown ends a cooldown at most the pool's current reuse delay after the release,
// and at most that delay after now.
func (p *Pool) boundCooldown(now time.Time, r cooldown) cooldown {
	if end := r.releasedAt.Add(p.ReuseDelay); !r.releasedAt.IsZero() && end.Before(r.freeAt) {
		r.freeAt = end
	}
	if end := now.Add(p.ReuseDelay); end.Before(r.freeAt) {
		r.freeAt = end
	}
	return r
}

// shortenCooldowns ends the cooldowns of a pool as early as they would have ended with
// the current reuse delay of the pool.
func (s *State) shortenCooldowns(now time.Time, p Pool) {
	end := func(h *holding) {
		if !h.freeAt.IsZero() && !h.isMoved() {
			h.freeAt = p.boundCooldown(now, cooldown{h.releasedAt, h.freeAt}).freeAt
		}
	}
	for h := range s.cooldowns.of(p.Key) {
		end(h)
	}
	for c := range s.claims.ownersOf(p.Key) { // also holdings that cooldowns does not list: of claims that are being deleted, with a recorded cooldown
		end(c.holding)
	}
}

// endCooldowns ends all cooldowns of a pool. If a pool with this key is created while a
// claim is being deleted, the cooldown of the claim begins again.
func (s *State) endCooldowns(pool Key) {
	s.cooldowns.forgetSum(pool)
	for h := range s.cooldowns.of(pool) {
		if !h.isMoved() {
			s.endCooldown(h)
		}
	}
	for c := range s.claims.ownersOf(pool) { // also holdings that cooldowns does not list: of claims that are being deleted, with a recorded cooldown
		c.cooldownBegan, c.cooldownRecorded = time.Time{}, false
		if h := c.holding; !h.freeAt.IsZero() && !h.isMoved() {
			s.endCooldown(h)
		}
	}
}

// endCooldown ends the cooldown of a holding, and frees the holding if no further state
// keeps it.
func (s *State) endCooldown(h *holding) {
	s.cooldowns.end(h)
	s.markChanged(h)
	s.freeIfUnused(h)
}

// applyRecordedRanges applies the release records and the cooldown list of a pool:
// cooldowns and moved ranges.
func (s *State) applyRecordedRanges(now time.Time, p *pool) {
	known := map[allocator.Range]*holding{}
	for h := range s.cooldowns.of(p.Key) {
		if !h.isMoved() {
			for _, r := range h.ranges {
				if known[r] == nil || h.freeAt.After(known[r].freeAt) {
					known[r] = h
				}
			}
		}
	}
	before := p.observedCooldowns
	p.observedCooldowns = make(map[cooldownRecordID]cooldown, len(p.Recorded))
	for _, c := range p.Recorded {
		if c.IsMoved() {
			s.recordListed(p, c)
			continue
		}
		id := cooldownRecordID{c.Range, c.Since.UnixMilli(), c.Until.UnixMilli()}
		r, seen := before[id]
		if !seen {
			r = s.convertRecord(now, c)
		}
		r = p.boundCooldown(now, r)
		h := known[c.Range]
		if h == nil {
			h = s.releasingHolding(p, c.Range)
		}
		if h != nil && h.claim != nil && !seen { // no release precedes the request of the deletion
			if end := h.claim.deletingSince.Add(p.ReuseDelay); !h.claim.deletingSince.IsZero() && end.After(r.freeAt) {
				r = cooldown{h.claim.deletingSince, end}
			}
		}
		p.observedCooldowns[id] = r
		if now.Before(r.freeAt) {
			s.applyRecordedCooldown(p, h, c, r)
		}
	}
}

// releasingHolding returns the holding of a claim that is being deleted and owns exactly
// this range: the pool may have recorded the cooldown of the range already. The result is
// nil if no holding meets that.
func (s *State) releasingHolding(p *pool, r allocator.Range) *holding {
	for owned := range s.domain(p.RoutingDomain).core.OwnedIn(r) {
		if h := s.holdings.find(owned.OwnerID); h.claim != nil && h.claim.Deleting && slices.Equal(h.ranges, []allocator.Range{r}) {
			return h
		}
	}
	return nil
}

// applyRecordedCooldown keeps a recorded range from being allocated until its cooldown
// ends. h is the holding of exactly this range that is in cooldown already, or will be
// when its claim is gone; nil otherwise. With nil the range gets a new holding: if a
// claim owns addresses of the range, the new holding is contested, as it is weaker than
// the holding of the claim (compareStrength).
func (s *State) applyRecordedCooldown(p *pool, h *holding, c RecordedRange, r cooldown) {
	if h == nil {
		h = s.addHolding(Key{}, p.Key, p.RoutingDomain, c.Range)
		s.cooldowns.begin(h, r)
		s.assignAddresses(h)
		return
	}
	if releasing := h.claim; releasing != nil && !r.freeAt.Before(h.freeAt) && isRecordOf(releasing, c) {
		releasing.cooldownRecorded = true
		s.changed[releasing.Key] = struct{}{}
		s.cooldowns.list(h) // so that the next cooldown list still has the range
	}
	if r.freeAt.After(h.freeAt) {
		h.freeAt = r.freeAt
		if r.releasedAt.After(h.releasedAt) { // the clock of the record may have been behind: a shorter reuse delay must not end the cooldown earlier
			h.releasedAt = r.releasedAt
		}
	}
}

// isRecordOf reports whether a record of the range of claim c can be of the release of
// the claim, and not of an earlier owner. The caller has checked that the record ends no
// earlier than the known cooldown of the range.
//
//   - This process has begun the cooldown (cooldownBegan): the check of the caller is
//     enough, as the cooldown of an earlier owner ends earlier.
//   - Otherwise (an IPAllocation, whose cooldown never begins before its release record;
//     or a claim whose cooldown an earlier leader has begun): the recorded release, by
//     the API server's clock as the leader that recorded it estimated it, is not before
//     the creation of the claim, by the clock of the API server. If the two clocks differ
//     and the answer is wrong, the cooldown still ends within the reuse delay, and not
//     before deletingSince + reuse delay (applyRecordedRanges).
func isRecordOf(c *claim, record RecordedRange) bool {
	return !c.cooldownBegan.IsZero() || c.Deleting && !record.Since.Before(c.Created)
}

// maxCooldowns bounds the number of ranges of a pool in cooldown: the cooldown list has
// room for 8192 cooldowns beside moved ranges.
const maxCooldowns = 8192

// CooldownsFull reports whether the claim with this UID has to stay stored, since the
// cooldown list of the pool has no room for the cooldown of the claim. A claim whose
// cooldown has begun, or is recorded, has a place in the list, also when the place is the
// last one. A claim that owns nothing needs no place.
func (s *State) CooldownsFull(pool Key, uid string) bool {
	if c := s.claims.find(uid); c != nil && (c.holding == nil || !c.cooldownBegan.IsZero() || c.cooldownRecorded) {
		return false
	}
	return s.cooldownsFull(pool)
}

// cooldownsFull reports whether maxCooldowns ranges of a pool are in cooldown: a claim
// without a place in the cooldown list waits until a cooldown has ended.
func (s *State) cooldownsFull(k Key) bool {
	p := s.pools.find(k)
	return p != nil && p.ReuseDelay > 0 && !p.Deleting && s.cooldowns.number(k) >= maxCooldowns
}

// recheckReleasing reports the claims of a pool that are being deleted as changed: some
// may wait for room in the cooldown list.
func (s *State) recheckReleasing(pool Key) {
	for c := range s.claims.ownersOf(pool) {
		if c.Deleting {
			s.changed[c.Key] = struct{}{}
		}
	}
}

// isReleased reports whether the freeAt of a listed holding is the end of the
// cooldown of its present owner, or the holding has no owner. Otherwise the freeAt is
// left over from an earlier owner: an address object took the holding over, or a second
// create of the same name, which was granted the same range (repeatableHolding), was
// stored after the first object was gone. The present owner may be stored for long.
func (h *holding) isReleased() bool {
	return h.claim == nil || !h.claim.cooldownBegan.IsZero() || h.claim.cooldownRecorded
}

// firstFreeAt returns when the first cooldown of a pool ends, by the clock of recorded
// times; zero if fewer addresses are in cooldown than the pool is missing for a request.
func (s *State) firstFreeAt(pool Key, missing int64) time.Time {
	if first, enough := s.cooldowns.firstOf(pool, missing); enough {
		return s.recordClock.toRecord(first)
	}
	return time.Time{}
}

// RangesToRecord lists the ranges that the release records or the cooldown list of a pool
// should contain, in address order: ranges in cooldown and moved ranges. If several
// claims in conflict released a range, only the longest cooldown is listed.
func (s *State) RangesToRecord(k Key) []RecordedRange {
	var list []RecordedRange
	for h := range s.cooldowns.of(k) {
		if h.isMoved() && s.moves.isUndecided(h) || !h.isMoved() && !h.isReleased() {
			continue
		}
		for _, r := range h.ranges {
			c := RecordedRange{Range: r}
			switch {
			case h.isMoved():
				c.Claim, c.MovedUID = h.key, h.movedUID
			case h.releasedAt.IsZero():
				c.Until = s.recordClock.toRecord(h.freeAt)
			default:
				c.Since, c.Until = s.recordClock.toRecord(h.releasedAt), s.recordClock.toRecord(h.freeAt)
			}
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(x, y RecordedRange) int { // a total order: a list in a different order would be written again
		return cmp.Or(x.Range.First.Compare(y.Range.First), x.Range.Last.Compare(y.Range.Last), y.Until.Compare(x.Until), cmp.Compare(x.Claim.Name, y.Claim.Name),
			cmp.Compare(x.Claim.Namespace, y.Claim.Namespace), cmp.Compare(x.MovedUID, y.MovedUID))
	})
	return slices.CompactFunc(list, func(x, y RecordedRange) bool { return x.Range == y.Range && !x.IsMoved() && !y.IsMoved() })
}

// BeginCooldown begins the cooldown of a claim that is being deleted, and returns a
// duration: for how long, at most, the finalizer of the claim has to stay. The cooldown
// list of the pool must contain the cooldown first, since only the list shows the
// cooldown once the claim is gone. 0 means that nothing is to be awaited:
//
//   - the pool has recorded the cooldown, or the time for the record has passed
//   - no pool is known, or the pool has no reuse delay: there is no cooldown
//   - the pool is being deleted: the record would be deleted with the pool. RemoveClaim
//     begins the cooldown, which ends with the pool (RemovePool)
func (s *State) BeginCooldown(now time.Time, uid string) time.Duration {
	c := s.claims.find(uid)
	if c == nil || c.holding == nil {
		return 0
	}
	p := s.poolOf(c)
	if p == nil || p.ReuseDelay == 0 || p.Deleting || c.cooldownRecorded {
		return 0
	}
	if c.cooldownBegan.IsZero() {
		c.cooldownBegan = now
		if end := now.Add(p.ReuseDelay); end.After(c.holding.freeAt) {
			s.cooldowns.begin(c.holding, cooldown{now, end})
		}
		s.cooldowns.list(c.holding)
		s.changed[p.Key] = struct{}{}
	}
	within := recordWithin + time.Duration(s.claims.numberOfOwners(c.Pool))*recordForEach
	return max(0, c.cooldownBegan.Add(min(within, p.ReuseDelay)).Sub(now)) // a cooldown that has ended needs no record
}

// A claim that is being deleted waits up to recordWithin for its pool to record the
// cooldown of the range, and recordForEach longer for each owner of the pool: the more
// owners, the less often the pool is written. After that time the release continues
// without the record. The log reports a failed write of the cooldown list, and an event
// reports missing room in the list (package pools).
const (
	recordWithin  = 5 * time.Second
	recordForEach = 2 * time.Millisecond
)
