package state

import (
	"errors"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Pool updates: addresses become blocked, leave the ranges of the pool, and return.
//
//	Invariant: a stored claim names only addresses that its pool offers at the time.

// errNotOffered reports a claim with an address that its pool does not offer.
var errNotOffered = errors.New("owned but not offered by the pool")

// poolUpdate is an update of the pool by a user, inside the API server.
type poolUpdate struct {
	baseVersion uint64 // version of the pool that the update is based on
	next        Pool
	started     time.Time
	call        *admissionCall
	responded   bool
	over        bool
}

// firstPool returns the first version of the pool.
func firstPool() Pool {
	return Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{modelRange, modelIPv6}, Policy: allocator.BestFit}
}

// sendPoolUpdate sends an update of the pool that blocks or unblocks an address, or
// removes or restores the end of the IPv4 range.
func (w *world) sendPoolUpdate() {
	next := w.pool
	r := w.pickAddress()
	if w.lastUnblocked.IsValid() && w.rng.IntN(2) == 0 {
		r = w.lastUnblocked
	}
	if n := len(next.Blocked); n > 0 && w.rng.IntN(3) == 0 {
		r = next.Blocked[w.rng.IntN(n)]
	}
	switch i := slices.Index(next.Blocked, r); {
	case w.rng.IntN(4) == 0:
		v4 := allocator.Range{First: modelRange.First, Last: r.First}
		if next.Window[0] != modelRange {
			v4 = modelRange
		}
		next.Window = []allocator.Range{v4, modelIPv6}
	case i >= 0:
		next.Blocked, w.lastUnblocked = slices.Delete(slices.Clone(next.Blocked), i, i+1), r
	default:
		next.Blocked = append(slices.Clone(next.Blocked), r)
	}
	c := &poolUpdate{baseVersion: w.pool.ResourceVersion, next: next, started: w.now}
	c.call = w.newCall("")
	w.poolUpdates = append(w.poolUpdates, c)
	w.logf("client: update pool rv=%d blocked %v window %v", c.baseVersion, next.Blocked, next.Window)
}

// admitPoolUpdate advances an update of the pool in the API server.
func (w *world) admitPoolUpdate(c *poolUpdate) {
	k, r := c.call, c.call.to
	switch {
	case w.now.Sub(c.started) > 34*time.Second:
		c.over = true
	case c.responded && w.rng.IntN(2) == 0: // the update is stored in a later step
	case c.responded:
		c.over = true
		if w.rng.IntN(4) == 0 || w.pool.ResourceVersion != c.baseVersion {
			w.logf("api: drop pool update rv=%d after its response", c.baseVersion)
			return
		}
		w.pool.Blocked, w.pool.Window = c.next.Blocked, c.next.Window
		w.storePool(w.pool.Recorded, w.pool.MovedListRevision, "pool update")
		w.tally.poolUpdates++
	case w.callFailed(k):
		k.ended = true
		if c.over = w.rng.IntN(3) == 0; !c.over {
			c.call = w.newCall("")
		}
	case w.now.Before(r.pausedUntil):
	case k.grant != nil:
		select {
		case err := <-k.committed:
			k.ended, c.responded = true, err == nil
		default:
		}
	default:
		w.validatePoolUpdate(c, k)
	}
}

// validatePoolUpdate is the validating webhook for pools.
func (w *world) validatePoolUpdate(c *poolUpdate, k *admissionCall) {
	b := k.to.state
	if !b.HasObserved(modelPool, c.baseVersion) && !w.breaks.staleValidation {
		b.AddReadPool(w.now, w.pool)
	}
	g, err := b.UpdatePool(c.next)
	switch {
	case errors.Is(err, ErrNotLeader):
		k.ended = true
	case err != nil:
		w.logf("%s: deny pool update rv=%d: %v", k.to.name(), c.baseVersion, err)
		c.over = true
	case g == nil:
		c.responded = true
	default:
		w.logf("%s: withhold %v for pool update rv=%d token %s", k.to.name(), g.Ranges, c.baseVersion, g.Token)
		k.grant, k.committed = g, make(chan error, 1)
		g.waiter = k.committed
	}
}

// checkOffered checks that a claim receives only addresses that its pool offers. Claims
// stored without admission are exempt, and so is every claim of a schedule with such
// claims: a later claim of the same name inherits the address.
func (w *world) checkOffered(o, before *object) {
	if w.bypassesAdmission || o.unadmitted || o.Pool != modelPool {
		return
	}
	for _, r := range o.Ranges {
		switch {
		case before != nil && before.UID == o.UID && slices.Contains(before.Ranges, r):
		case o.OwnerClaim != (Key{}) && w.objects[o.OwnerClaim.Name] != nil && slices.Contains(w.objects[o.OwnerClaim.Name].Ranges, r): // the claim of the address object owns the range, perhaps without a pool
		case o.OwnerClaim == (Key{}) && slices.ContainsFunc(w.addressObjectsOf(o.Key), func(a *object) bool { return slices.Contains(a.Ranges, r) }):
			// The claim inherits the range of its address object. A person had removed
			// the finalizer of an earlier claim of the same name while the address object
			// was created, and no leader had observed the address object when the pool
			// update was admitted.
		case w.moved[r] != nil && w.moved[r].claim == o.owner(): // a moved claim returns with its range
		case !slices.ContainsFunc(w.pool.Window, func(window allocator.Range) bool { return window.Contains(r.First) }), slices.Contains(w.pool.Blocked, r):
			w.failf("%w: %s owns %s", errNotOffered, o.Key.Name, r)
		}
	}
}
