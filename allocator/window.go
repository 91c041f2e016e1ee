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

// Pool returns the pool of that name, nil when there is none.
func (s *Space) Pool(name string) *Pool { return s.pools[name] }

// SetPool creates or resizes a pool. window is the ranges it offers, which may
// touch or overlap. blocked is held back from every request in the whole space,
// whichever pool's it is, for as long as this pool names it; what is held there
// stays held. Ranges that are not valid are left out. A pool that is resized
// stays the same *Pool, and nothing held is lost.
//
// Calling it with what the pool already has costs a comparison; else the cost
// grows with the pieces in every pool whose usable addresses change.
func (s *Space) SetPool(name string, window, blocked []Range) *Pool {
	p := s.pools[name]
	if p == nil {
		p = &Pool{space: s}
		s.pools[name] = p
	}
	s.reshape(p, declared(window), declared(blocked))
	return p
}

// RemovePool forgets a pool and its blocks; what is held stays held. The *Pool
// offers nothing from then on.
func (s *Space) RemovePool(name string) {
	if p := s.pools[name]; p != nil {
		delete(s.pools, name)
		s.reshape(p, nil, nil)
	}
}

// declared is the valid ranges, sorted.
func declared(ranges []Range) []Range {
	valid := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return !r.IsValid() })
	slices.SortFunc(valid, Range.compare)
	return valid
}

// reshape gives p a new window and new blocks, and every pool that shows an
// address of the old or the new blocks its usable addresses.
func (s *Space) reshape(p *Pool, window, blocked []Range) {
	before := p.blocked
	if slices.Equal(before, blocked) && slices.Equal(p.window, window) {
		return
	}
	p.window, p.blocked = window, blocked
	if !slices.Equal(before, blocked) {
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
		changed := slices.Concat(before, blocked)
		for _, q := range s.pools {
			if q != p && slices.ContainsFunc(q.window, func(r Range) bool { return slices.ContainsFunc(changed, r.Overlaps) }) {
				s.reopen(q)
			}
		}
	}
	s.reopen(p)
}

// reopen gives a pool the usable spans that follow from its window and all
// blocks.
func (s *Space) reopen(p *Pool) {
	usable := subtract(union(p.window), s.blocked)
	if slices.Equal(usable, p.usable) {
		return
	}
	from := min(s.hide(p), s.show(p, usable))
	p.rebuild(usable)
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
