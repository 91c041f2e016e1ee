package allocator

import (
	"iter"
	"slices"
	"sort"
)

// pane is one usable span of a pool.
type pane struct {
	span
	pool  *Pool
	reach number // the highest last address of this pane and all before it
}

// Offer is what a pool declares.
type Offer struct {
	Name string
	// Window is the ranges it offers, which may touch or overlap.
	Window []Range
	// Blocked is held back from every request in the whole space, whichever
	// pool's it is, for as long as this pool names it; what is held there stays
	// held.
	Blocked []Range
}

// SetPool creates or resizes a pool: see Offer. Ranges that are not valid are
// left out. A pool that is resized stays the same *Pool, and nothing held is
// lost.
//
// Calling it with what the pool already has costs a comparison; else the cost
// grows with the pieces in every pool whose usable addresses change.
func (s *Space) SetPool(name string, window, blocked []Range) *Pool {
	return s.SetPools(Offer{name, window, blocked})[0]
}

// SetPools is SetPool for each of the offers, at less cost where they are many.
func (s *Space) SetPools(offers ...Offer) []*Pool {
	all := make([]*Pool, len(offers))
	shapes := make([]shape, len(offers))
	for i, o := range offers {
		p := s.pools[o.Name]
		if p == nil {
			p = &Pool{space: s}
			s.pools[o.Name] = p
		}
		all[i], shapes[i] = p, shape{p, declared(o.Window), declared(o.Blocked)}
	}
	s.reshape(shapes)
	return all
}

// RemovePool forgets a pool and its blocks; what is held stays held. The *Pool
// offers nothing from then on.
func (s *Space) RemovePool(name string) { s.RemovePools(name) }

// RemovePools is RemovePool for each of the names, at less cost where they are
// many.
func (s *Space) RemovePools(names ...string) {
	var shapes []shape
	for _, name := range names {
		if p := s.pools[name]; p != nil {
			delete(s.pools, name)
			shapes = append(shapes, shape{pool: p})
		}
	}
	s.reshape(shapes)
}

// declared is the valid ranges, sorted.
func declared(ranges []Range) []Range {
	valid := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return !r.IsValid() })
	slices.SortFunc(valid, Range.compare)
	return valid
}

// shape is what a pool becomes.
type shape struct {
	pool            *Pool
	window, blocked []Range
}

// reshape gives pools new windows and new blocks, and every pool that shows an
// address of the old or the new blocks its usable addresses.
func (s *Space) reshape(shapes []shape) {
	var (
		changed []*Pool
		blocks  []Range // of which some are new, or gone
	)
	for _, to := range shapes {
		p, before := to.pool, to.pool.blocked
		same := slices.Equal(before, to.blocked)
		if same && slices.Equal(p.window, to.window) {
			continue
		}
		p.window, p.blocked = to.window, to.blocked
		changed = append(changed, p)
		if !same {
			s.block(before, to.blocked)
			blocks = append(append(blocks, before...), to.blocked...)
		}
	}
	if len(blocks) > 0 {
		over := union(blocks)
		for _, q := range s.pools {
			if touches(over, q.window) {
				changed = append(changed, q)
			}
		}
	}
	s.reopen(changed)
}

// block has a pool block other ranges than before.
func (s *Space) block(before, blocked []Range) {
	gone := spansOf(before) // sorted, as all of these
	s.blocks = slices.DeleteFunc(s.blocks, func(sp span) bool {
		is := len(gone) > 0 && gone[0] == sp
		if is {
			gone = gone[1:]
		}
		return is
	})
	s.blocks = append(s.blocks, spansOf(blocked)...)
	slices.SortFunc(s.blocks, span.compare)
	s.blocked = merge(slices.Clone(s.blocks))
}

// few pools are shown one after the other, each at the cost of a search and of
// moving the panes behind its own; more are shown at once, at that of a look at
// all panes.
const few = 2

// reopen gives pools the usable spans that follow from their windows and all
// blocks.
func (s *Space) reopen(pools []*Pool) {
	usable := map[*Pool][]span{}
	for _, p := range pools {
		if is := subtract(union(p.window), s.blocked); !slices.Equal(is, p.usable) {
			usable[p] = is
		}
	}
	from := len(s.panes)
	if len(usable) > few {
		from = s.exchange(usable)
	} else {
		for p, is := range usable {
			from = min(from, s.hide(p), s.show(p, is))
		}
	}
	for p, is := range usable {
		p.rebuild(is)
	}
	reach := number{}
	if from > 0 {
		reach = s.panes[from-1].reach
	}
	for i := range s.panes[from:] {
		x := &s.panes[from+i]
		if reach.less(x.last) {
			reach = x.last
		}
		x.reach = reach
	}
}

// exchange shows pools as others than before, and says from where on the panes
// are others.
func (s *Space) exchange(usable map[*Pool][]span) (from int) {
	stay := slices.DeleteFunc(s.panes, func(x pane) bool { _, goes := usable[x.pool]; return goes })
	var come []pane
	for p, is := range usable {
		for _, sp := range is {
			come = append(come, pane{span: sp, pool: p})
		}
	}
	slices.SortFunc(come, func(x, y pane) int { return x.compare(y.span) })
	s.panes = make([]pane, 0, len(stay)+len(come))
	for len(stay) > 0 && len(come) > 0 {
		next := &stay
		if come[0].compare(stay[0].span) < 0 {
			next = &come
		}
		s.panes, *next = append(s.panes, (*next)[0]), (*next)[1:]
	}
	s.panes = append(append(s.panes, stay...), come...)
	return 0
}

// hide takes a pool's panes out, and show puts some in. Each returns the first
// place from which the panes are others. One pane costs a search: a pool may be
// shown as thousands of parts, each of which is a pool of one.
func (s *Space) hide(p *Pool) (from int) {
	if len(p.usable) == 0 {
		return len(s.panes)
	}
	from = s.place(p.usable[0])
	for s.panes[from].pool != p {
		from++
	}
	if len(p.usable) == 1 {
		s.panes = slices.Delete(s.panes, from, from+1)
	} else {
		s.panes = slices.DeleteFunc(s.panes, func(x pane) bool { return x.pool == p })
	}
	return from
}

func (s *Space) show(p *Pool, usable []span) (from int) {
	if len(usable) == 0 {
		return len(s.panes)
	}
	from = s.place(usable[0])
	if len(usable) == 1 {
		s.panes = slices.Insert(s.panes, from, pane{span: usable[0], pool: p})
		return from
	}
	for _, sp := range usable {
		s.panes = append(s.panes, pane{span: sp, pool: p})
	}
	slices.SortStableFunc(s.panes[from:], func(x, y pane) int { return x.compare(y.span) })
	return from
}

// place is that of the first pane which is not before sp.
func (s *Space) place(sp span) int {
	at, _ := slices.BinarySearchFunc(s.panes, sp, func(x pane, sp span) int { return x.compare(sp) })
	return at
}

// panesOver yields every pane that overlaps sp. Going down from the last that
// starts in or before sp, it stops where no earlier one reaches sp.
func (s *Space) panesOver(sp span) iter.Seq[pane] {
	return func(yield func(pane) bool) {
		i := sort.Search(len(s.panes), func(i int) bool { return sp.last.less(s.panes[i].first) })
		for i--; i >= 0 && !s.panes[i].reach.less(sp.first); i-- {
			if s.panes[i].overlaps(sp) && !yield(s.panes[i]) {
				return
			}
		}
	}
}

// blockedIn is the lowest blocked range that has an address of sp, as declared.
func (s *Space) blockedIn(sp span) (Range, bool) {
	at, _ := slices.BinarySearchFunc(s.blocked, sp.first, func(b span, n number) int { return b.last.compare(n) })
	if at == len(s.blocked) || !s.blocked[at].overlaps(sp) { // nearly always, and faster than this:
		return Range{}, false
	}
	at = slices.IndexFunc(s.blocks, sp.overlaps)
	return s.blocks[at].asRange(), true
}
