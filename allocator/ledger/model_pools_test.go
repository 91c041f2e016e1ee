package ledger

import (
	"errors"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// This part of the model changes the pool: addresses become reserved, leave its ranges, and come back. Nothing may be stored that the pool does not
// offer at that time.

// errNotOffered is the violation.
var errNotOffered = errors.New("given though the pool does not offer it")

// poolChange is an update of the pool by a user, inside the API server.
type poolChange struct {
	old      uint64 // version of the pool that it was made for
	next     Pool
	started  time.Time
	call     *call
	answered bool
	over     bool
}

// firstPool is the pool as it was created.
func firstPool() Pool {
	return Pool{Key: modelPool, ResourceVersion: 1, Window: []allocator.Range{modelRange, modelSix}, Policy: allocator.BestFit}
}

// changePool reserves an address or no longer does, or lets go of the end of the IPv4 range or takes it back.
func (w *world) changePool() {
	next := w.pool
	r := w.someRange()
	if w.freed.IsValid() && w.rng.IntN(2) == 0 {
		r = w.freed
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
		next.Window = []allocator.Range{v4, modelSix}
	case i >= 0:
		next.Blocked, w.freed = slices.Delete(slices.Clone(next.Blocked), i, i+1), r
	default:
		next.Blocked = append(slices.Clone(next.Blocked), r)
	}
	c := &poolChange{old: w.pool.ResourceVersion, next: next, started: w.now}
	c.call = w.newCall("")
	w.changes = append(w.changes, c)
	w.logf("change of the pool rv=%d: blocked %v window %v", c.old, next.Blocked, next.Window)
}

// serveChange is what the API server does with a change of the pool.
func (w *world) serveChange(c *poolChange) {
	k, r := c.call, c.call.to
	switch {
	case w.now.Sub(c.started) > 34*time.Second:
		c.over = true
	case c.answered && w.rng.IntN(2) == 0: // takes its time
	case c.answered:
		c.over = true
		if w.rng.IntN(4) == 0 || w.pool.ResourceVersion != c.old {
			w.logf("the change of the pool rv=%d fails after its answer", c.old)
			return
		}
		w.pool.Blocked, w.pool.Window = c.next.Blocked, c.next.Window
		w.storePool(w.pool.Cooling, w.pool.Listed, "changed")
		w.tally.changes++
	case w.broken(k):
		k.ended = true
		if c.over = w.rng.IntN(3) == 0; !c.over {
			c.call = w.newCall("")
		}
	case w.now.Before(r.paused):
	case k.line != nil:
		select {
		case err := <-k.done:
			k.ended, c.answered = true, err == nil
		default:
		}
	default:
		w.reviewChange(c, k)
	}
}

// reviewChange is the validating webhook.
func (w *world) reviewChange(c *poolChange, k *call) {
	b := k.to.book
	if !b.knows(modelPool, c.old) && !w.breaks.staleChange {
		b.learnPool(w.now, w.pool)
	}
	l, err := b.change(c.next)
	switch {
	case errors.Is(err, errNotHolding):
		k.ended = true
	case err != nil:
		w.logf("%s refuses the change of the pool rv=%d: %v", k.to.name(), c.old, err)
		c.over = true
	case l == nil:
		c.answered = true
	default:
		w.logf("%s holds %v back for the change of the pool rv=%d, token %s", k.to.name(), l.Ranges, c.old, l.Token)
		k.line, k.done = l, make(chan error, 1)
		l.done = k.done
	}
}

// offered checks that a claim gets nothing that its pool does not offer. What came in around admission may have it, and leave it to another of its
// name.
func (w *world) offered(o, before *object) {
	if w.intruders || o.intruder || o.Pool != modelPool {
		return
	}
	for _, r := range o.Ranges {
		switch {
		case before != nil && before.UID == o.UID && slices.Contains(before.Ranges, r):
		case o.For != (Key{}) && w.objects[o.For.Name] != nil && slices.Contains(w.objects[o.For.Name].Ranges, r): // the claim has it, perhaps of no pool
		case w.departed[r] != nil && w.departed[r].claim == o.holder(): // it comes back with what is its own
		case !slices.ContainsFunc(w.pool.Window, func(window allocator.Range) bool { return window.Contains(r.First) }), slices.Contains(w.pool.Blocked, r):
			w.failf("%w: %s holds %s", errNotOffered, o.Key.Name, r)
		}
	}
}
