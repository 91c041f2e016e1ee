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
	reach number // the highest last address of this pane and all earlier panes
}

// Offer is the declaration of a pool.
type Offer struct {
	Name string
	// Window lists the offered ranges, which may touch or overlap.
	Window []Range
	// Blocked ranges are not allocated to any request in the whole space, through any
	// pool, while this pool lists them. Current owners keep their addresses.
	Blocked []Range
}

// SetPool creates or resizes a pool: see Offer. Invalid ranges are ignored. A resized
// pool stays the same *Pool, and owners keep their addresses.
//
// A call without a change costs a comparison; otherwise the cost grows with the pieces in
// every pool whose usable addresses change.
func (s *Space) SetPool(name string, window, blocked []Range) *Pool {
	return s.SetPools(Offer{name, window, blocked})[0]
}

// SetPools is SetPool for several offers, at a lower cost for many offers.
func (s *Space) SetPools(offers ...Offer) []*Pool {
	all := make([]*Pool, len(offers))
	shapes := make([]shape, len(offers))
	for i, o := range offers {
		p := s.pools[o.Name]
		if p == nil {
			p = &Pool{space: s}
			s.pools[o.Name] = p
		}
		all[i], shapes[i] = p, shape{p, validSorted(o.Window), validSorted(o.Blocked)}
	}
	s.reshapePools(shapes)
	return all
}

// RemovePool removes a pool and its blocks; owners keep their addresses. The removed
// *Pool offers no addresses.
func (s *Space) RemovePool(name string) { s.RemovePools(name) }

// RemovePools is RemovePool for several names, at a lower cost for many names.
func (s *Space) RemovePools(names ...string) {
	var shapes []shape
	for _, name := range names {
		if p := s.pools[name]; p != nil {
			delete(s.pools, name)
			shapes = append(shapes, shape{pool: p})
		}
	}
	s.reshapePools(shapes)
}

// validSorted returns the valid ranges, sorted.
func validSorted(ranges []Range) []Range {
	valid := slices.DeleteFunc(slices.Clone(ranges), func(r Range) bool { return !r.IsValid() })
	slices.SortFunc(valid, Range.compare)
	return valid
}

// shape is the new content of a pool.
type shape struct {
	pool            *Pool
	window, blocked []Range
}

// reshapePools gives pools new windows and blocks, and updates the usable addresses of
// every pool that offers an address of the old or the new blocks.
func (s *Space) reshapePools(shapes []shape) {
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
			s.setBlocks(before, to.blocked)
			blocks = append(append(blocks, before...), to.blocked...)
		}
	}
	if len(blocks) > 0 {
		over := unionOf(blocks)
		for _, q := range s.pools {
			if overlapsUnion(over, q.window) {
				changed = append(changed, q)
			}
		}
	}
	s.reopenPools(changed)
}

// setBlocks replaces the blocks of a pool.
func (s *Space) setBlocks(before, blocked []Range) {
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
	s.blocked = mergeSorted(slices.Clone(s.blocks))
}

// few pools are shown one after the other, each at the cost of a search and of moving the
// following panes; more pools are shown together, at the cost of one pass over all panes.
const few = 2

// reopenPools gives pools the usable spans that follow from their windows and all blocks.
func (s *Space) reopenPools(pools []*Pool) {
	usable := map[*Pool][]span{}
	for _, p := range pools {
		if is := subtractSpans(unionOf(p.window), s.blocked); !slices.Equal(is, p.usable) {
			usable[p] = is
		}
	}
	from := len(s.panes)
	if len(usable) > few {
		from = s.replacePanes(usable)
	} else {
		for p, is := range usable {
			from = min(from, s.hidePanes(p), s.showPanes(p, is))
		}
	}
	for p, is := range usable {
		p.rebuildRuns(is)
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

// replacePanes replaces the panes of pools, and returns the first changed place.
func (s *Space) replacePanes(usable map[*Pool][]span) (from int) {
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

// hidePanes removes a pool's panes, and showPanes adds panes. Each returns the first
// changed place. A single pane costs a search: a pool may be shown as thousands of parts,
// each of which is a pool with one pane.
func (s *Space) hidePanes(p *Pool) (from int) {
	if len(p.usable) == 0 {
		return len(s.panes)
	}
	from = s.placeOfPane(p.usable[0])
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

func (s *Space) showPanes(p *Pool, usable []span) (from int) {
	if len(usable) == 0 {
		return len(s.panes)
	}
	from = s.placeOfPane(usable[0])
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

// placeOfPane returns the place of the first pane that is not before sp.
func (s *Space) placeOfPane(sp span) int {
	at, _ := slices.BinarySearchFunc(s.panes, sp, func(x pane, sp span) int { return x.compare(sp) })
	return at
}

// panesOver yields every pane that overlaps sp. It goes down from the last pane that
// starts in or before sp, and stops where no earlier pane reaches sp.
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

// blockedIn returns the lowest blocked range with an address of sp, as declared.
func (s *Space) blockedIn(sp span) (Range, bool) {
	at, _ := slices.BinarySearchFunc(s.blocked, sp.first, func(b span, n number) int { return b.last.compare(n) })
	if at == len(s.blocked) || !s.blocked[at].overlaps(sp) { // nearly always, and faster than this:
		return Range{}, false
	}
	at = slices.IndexFunc(s.blocks, sp.overlaps)
	return s.blocks[at].asRange(), true
}
