package state

import (
	"fmt"
	"iter"
	"maps"
	"math"
	"time"
)

// cooldowns are the holdings with a freeAt, by pool: in cooldown, or moved, decided or
// not (DecideMoved). The range of a claim that is gone is in cooldown for the pool's
// reuse delay before the range is freed. The release records or the cooldown list of the
// pool contain the cooldown, and each event of the pool repeats them. The package
// documentation defines release records, cooldown list and moved record.
//
// Invariant: a listed holding has a freeAt, and is listed under its pool. A holding with
// a freeAt and without a claim is listed.
//
// A listed holding has a claim in these cases:
//
//   - the cooldown of the claim has begun (BeginCooldown), or is recorded
//     (claim.cooldownRecorded)
//   - the freeAt is the end of an earlier owner's cooldown (isReleased is false): a
//     second create of the same name was granted the range before the first object was
//     gone, or an address object took the holding over
//   - the pool's list or the moved record shows the range as moved (keepMoved), before
//     this replica has observed that the moved object is gone, or while an address object
//     of the claim owns the range
type cooldowns struct {
	byPool setsByKey[*holding]
	sums   map[Key]cooldownSum // pool -> sum of its cooldowns, as of the last sumUp
}

func newCooldowns() cooldowns {
	return cooldowns{byPool: setsByKey[*holding]{}, sums: map[Key]cooldownSum{}}
}

// cooldown is the cooldown of a range, by the state's clock. releasedAt is the begin of
// the cooldown; zero if it is not known.
type cooldown struct{ releasedAt, freeAt time.Time }

// cooldownSum sums up the cooldowns of a pool.
type cooldownSum struct {
	addresses   int64     // saturates
	firstFreeAt time.Time // end of the first cooldown
}

// begin sets the cooldown of a holding, and lists the holding.
func (c *cooldowns) begin(h *holding, r cooldown) {
	h.releasedAt, h.freeAt = r.releasedAt, r.freeAt
	c.list(h)
}

// end ends the cooldown of a holding, or its moved state.
func (c *cooldowns) end(h *holding) {
	c.unlist(h)
	h.releasedAt, h.freeAt = time.Time{}, time.Time{}
}

// list lists a holding whose freeAt is set, and unlist no longer does.
func (c *cooldowns) list(h *holding)   { c.byPool.add(h.pool, h) }
func (c *cooldowns) unlist(h *holding) { c.byPool.remove(h.pool, h) }

// moveTo gives a holding to another pool.
func (c *cooldowns) moveTo(h *holding, pool Key) {
	listed := c.byPool.has(h.pool, h)
	c.unlist(h)
	if h.pool = pool; listed {
		c.list(h)
	}
}

// of iterates over the listed holdings of a pool. The loop may add and remove holdings.
func (c *cooldowns) of(pool Key) iter.Seq[*holding] { return maps.Keys(c.byPool[pool]) }

// pools iterates over the pools with a listed holding. The loop may add and remove
// holdings.
func (c *cooldowns) pools() iter.Seq[Key] { return maps.Keys(c.byPool) }

// isEmpty reports whether a pool has no listed holding.
func (c *cooldowns) isEmpty(pool Key) bool { return len(c.byPool[pool]) == 0 }

// number returns the number of holdings of a pool in cooldown.
func (c *cooldowns) number(pool Key) (n int) {
	for h := range c.byPool[pool] {
		if !h.isMoved() {
			n++
		}
	}
	return n
}

// sumUp sums up the cooldowns of a pool, for firstOf. A contested range counts as owned.
func (c *cooldowns) sumUp(pool Key) {
	var all cooldownSum
	for h := range c.byPool[pool] {
		if h.isMoved() || h.contested || !h.isReleased() {
			continue
		}
		for _, r := range h.ranges {
			all.addresses = min(all.addresses, math.MaxInt64-r.Size()) + r.Size()
		}
		if all.firstFreeAt.IsZero() || h.freeAt.Before(all.firstFreeAt) {
			all.firstFreeAt = h.freeAt
		}
	}
	c.sums[pool] = all
}

// forgetSums forgets the sums of all pools, and forgetSum that of one.
func (c *cooldowns) forgetSums()        { clear(c.sums) }
func (c *cooldowns) forgetSum(pool Key) { delete(c.sums, pool) }

// firstOf returns when the first cooldown of a pool ends, and whether at least the given
// number of addresses is in cooldown. The sum is from the last sumUp: a pool may have
// thousands of cooldowns, and every denial reads the sum.
func (c *cooldowns) firstOf(pool Key, addresses int64) (freeAt time.Time, enough bool) {
	sum := c.sums[pool]
	return sum.firstFreeAt, sum.addresses >= addresses
}

// check verifies the invariant for all holdings.
func (c *cooldowns) check(all iter.Seq[*holding]) error {
	listed := 0
	for h := range all {
		switch isListed := c.byPool.has(h.pool, h); {
		case isListed && h.freeAt.IsZero():
			return fmt.Errorf("holding %d of %s %v is listed as in cooldown, without a freeAt", h.id, h.key, h.ranges)
		case isListed:
			listed++
		case h.claim == nil && !h.freeAt.IsZero():
			return fmt.Errorf("holding %d of %s %v is in cooldown or moved, and not listed so", h.id, h.key, h.ranges)
		}
	}
	for _, holdings := range c.byPool {
		listed -= len(holdings)
	}
	if listed != 0 {
		return fmt.Errorf("%d holdings are listed as in cooldown, and were removed or have another pool", -listed)
	}
	return nil
}

// recordClock is by how much the clock of recorded times (the API server's, as estimated)
// is ahead of the callers' clock.
type recordClock time.Duration

// fromRecord converts a recorded time, and toRecord converts a time to be recorded.
func (c recordClock) fromRecord(t time.Time) time.Time { return t.Add(-time.Duration(c)) }
func (c recordClock) toRecord(t time.Time) time.Time   { return t.Add(time.Duration(c)) }

// RecordClockAhead returns by how much the clock of recorded times is ahead of the clock
// of this state's times.
func (s *State) RecordClockAhead() time.Duration { return time.Duration(s.recordClock) }

// SetRecordClockAhead sets by how much the clock of recorded times is ahead of the clock
// of this state's times.
func (s *State) SetRecordClockAhead(d time.Duration) { s.recordClock = recordClock(d) }
