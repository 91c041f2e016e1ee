package ledger

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// InUseError says that a change of a pool would take addresses from somebody who has them.
type InUseError struct {
	Pool   Key
	What   string // what the change does to the addresses: "leaves the pool's ranges", "becomes reserved", …
	Range  allocator.Range
	Holder Key // of a claim or an open grant
}

func (e *InUseError) Error() string {
	holder := fmt.Sprintf("%s %s", e.Holder.Kind, e.Holder)
	if e.Holder.Name == "" {
		holder = "a create that is under way in namespace " + e.Holder.Namespace
	}
	return fmt.Sprintf("%s %s while %s holds it: delete the holder first, or keep the range in the pool", e.Range, e.What, holder)
}

// name of the pool in its space.
func (k Key) coreName() string { return k.Kind + "/" + k.Namespace + "/" + k.Name }

// setPool takes in a pool as stored. Versions older than the one known are ignored.
func (b *book) setPool(now time.Time, p Pool) {
	known, moved := b.pools[p.Key], true
	switch {
	case known == nil:
		known = &pool{}
		b.pools[p.Key] = known
	case p.ResourceVersion <= known.ResourceVersion:
		return
	case known.Space != p.Space:
		b.space(known.Space).core.RemovePool(p.Key.coreName())
	default:
		moved = false
	}
	known.Pool = p
	if known.Policy == nil {
		known.Policy = allocator.BestFit
	}
	known.core = b.space(p.Space).core.SetPool(p.Key.coreName(), p.Window, p.Blocked)
	if moved {
		b.rehome(known)
	}
	b.endWithdrawals(known)
	for _, c := range p.Cooling {
		if now.Before(c.Until) {
			b.rest(known, c)
		}
	}
	b.changed[p.Key] = struct{}{}
}

// removePool takes in that a pool is gone. What is held of it stays held.
func (b *book) removePool(k Key, resourceVersion uint64) {
	b.saw(k.Kind, resourceVersion)
	if p := b.pools[k]; p != nil {
		b.space(p.Space).core.RemovePool(k.coreName())
		delete(b.pools, k)
		b.changed[k] = struct{}{}
	}
}

// rehome moves claims that were read before their pool was, into the pool's space.
func (b *book) rehome(p *pool) {
	for c := range maps.Clone(b.ofPool[p.Key]) {
		if c.holding.space != p.Space {
			b.detach(c, time.Time{})
			b.bind(c)
		}
	}
}

// rest keeps a recorded release from being handed out before its time, whether or not its claim is gone yet.
func (b *book) rest(p *pool, c Cooling) {
	for held := range b.space(p.Space).core.HeldIn(c.Range) {
		h := b.holdings[held.Holder]
		if slices.Equal(h.ranges, []allocator.Range{c.Range}) && (h.claim == nil && len(h.lines) == 0 || h.claim != nil && h.claim.Deleting) {
			if c.Until.After(h.until) {
				h.until = c.Until
			}
			if h.claim == nil {
				b.resting[h] = struct{}{}
			}
			return
		}
	}
	h := b.newHolding(Key{}, p.Key, p.Space, c.Range)
	h.until = c.Until
	b.resting[h] = struct{}{}
	b.place(h)
}

// Usage of a pool.
type Usage struct {
	allocator.Stats
	Claims int // stored claims that have a range of it
}

func (b *book) usage(k Key) (Usage, bool) {
	p := b.pools[k]
	if p == nil {
		return Usage{}, false
	}
	return Usage{Stats: p.core.Stats(), Claims: len(b.ofPool[k])}, true
}

// change checks a new version of a pool before it is stored. Addresses that it takes away are held back from then on, under a line
// of the journal, until the new version is seen or a grant's life has passed. The line is nil where nothing is taken away.
func (b *book) change(p Pool) (*line, error) {
	if !b.serving {
		return nil, &NotServingError{Reason: "this replica does not hold the journal"}
	}
	old := b.pools[p.Key]
	if old == nil {
		return nil, nil
	}
	core := b.space(old.Space).core
	if old.Space != p.Space {
		for _, h := range b.holdings {
			if h.pool == p.Key && (h.claim != nil || len(h.lines) > 0) {
				return nil, &InUseError{Pool: p.Key, What: "would change its routing domain", Range: h.ranges[0], Holder: h.key}
			}
		}
	}
	leaving := allocator.Subtract(old.Window, p.Window)
	blocked := allocator.Subtract(p.Blocked, old.Blocked)
	for _, loss := range []struct {
		ranges []allocator.Range
		what   string
		all    bool
	}{{leaving, "would leave the pool's ranges", false}, {blocked, "would become reserved", true}} {
		for _, r := range loss.ranges {
			for held := range core.HeldIn(r) {
				h := b.holdings[held.Holder]
				if (loss.all || h.pool == p.Key) && (h.claim != nil || len(h.lines) > 0) && h.key != p.Key {
					return nil, &InUseError{Pool: p.Key, What: loss.what, Range: held.Range, Holder: h.key}
				}
			}
		}
	}
	gone := allocator.Union(append(slices.Clone(leaving), blocked...))
	for _, r := range slices.Clone(gone) {
		for held := range core.HeldIn(r) {
			gone = allocator.Subtract(gone, []allocator.Range{held.Range})
		}
	}
	if len(gone) == 0 {
		return nil, nil
	}
	l := &line{Line: journal.Line{
		Token: b.newToken(), Space: old.Space, Ranges: gone,
		Kind: p.Key.Kind, Namespace: p.Key.Namespace, NameHash: journal.HashName(p.Key.Name), Stored: p.Key.Name,
	}}
	if err := b.full(l.Size()); err != nil {
		return nil, err
	}
	h := b.newHolding(p.Key, Key{}, old.Space, gone...)
	l.holding = h
	b.queued++
	b.file(l)
	b.place(h)
	return l, nil
}

// endWithdrawals lets go of addresses that were held back for a change of the pool which is now seen.
func (b *book) endWithdrawals(p *pool) {
	offered := allocator.Subtract(p.Window, p.Blocked)
	for _, h := range slices.Clone(b.byName[p.Key]) {
		if h.overlaps(offered) {
			continue
		}
		for _, l := range slices.Clone(h.lines) {
			b.retire(l)
		}
	}
}

// overlapping lists the other pools of p's space that offer some of the same addresses.
func (b *book) overlapping(p Pool) []Key {
	var keys []Key
	for k, o := range b.pools {
		if k != p.Key && o.Space == p.Space && slices.ContainsFunc(o.Window, func(r allocator.Range) bool { return slices.ContainsFunc(p.Window, r.Overlaps) }) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, func(x, y Key) int { return cmp.Compare(x.coreName(), y.coreName()) })
	return keys
}
