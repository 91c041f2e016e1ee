package state

import (
	"math"
	"slices"
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// The sum of a pool has the ranges in cooldown whose owner is gone, saturated.
func TestCooldowns_Sum(t *testing.T) {
	other := Key{Resource: modelPools, Namespace: "ns", Name: "other"}
	c, end := newCooldowns(), modelStart.Add(time.Minute)
	inCooldown := func(ranges string, until time.Time, change func(*holding)) *holding {
		h := &holding{pool: modelPool, ranges: []allocator.Range{mustRange(ranges)}}
		change(h)
		c.begin(h, cooldown{modelStart, until})
		return h
	}
	all := []*holding{
		inCooldown("10.0.0.0-10.0.0.9", end.Add(time.Minute), func(*holding) {}),
		inCooldown("10.0.0.10", end, func(*holding) {}),
		inCooldown("10.0.0.11", modelStart, func(h *holding) { h.contested = true }),
		inCooldown("10.0.0.12", modelStart, func(h *holding) { h.claim = &claim{} }), // of an earlier owner
		inCooldown("10.0.0.13", noEnd, func(*holding) {}),
		inCooldown("10.0.0.14", modelStart, func(h *holding) { h.pool = other }),
	}
	expect := func(addresses int64, first time.Time) {
		t.Helper()
		c.sumUp(modelPool)
		if at, enough := c.firstOf(modelPool, addresses); !enough || !at.Equal(first) {
			t.Errorf("%d addresses in cooldown: %t, the first until %s", addresses, enough, at)
		}
		if _, enough := c.firstOf(modelPool, addresses+1); enough && addresses < math.MaxInt64 {
			t.Errorf("more than %d addresses are in cooldown", addresses)
		}
	}
	expect(11, end)
	if n := c.number(modelPool); n != 4 {
		t.Errorf("%d holdings in cooldown, want all but the moved one", n)
	}
	c.moveTo(all[1], other)
	expect(10, end.Add(time.Minute))
	all = append(all, inCooldown("fd00::/64", end, func(*holding) {}))
	expect(math.MaxInt64, end)
	if err := c.check(slices.Values(all)); err != nil {
		t.Error(err)
	}
	if c.check(slices.Values(all[1:])) == nil {
		t.Error("check accepts a listed holding that was removed")
	}
	c.end(all[0])
	if c.byPool.has(modelPool, all[0]) || !all[0].freeAt.IsZero() {
		t.Error("the ended cooldown is listed")
	}
}
