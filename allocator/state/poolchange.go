package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Ranges that a pool update removes are withheld from the admission of the update until
// the update is observed or cannot be stored any more.

// firstWithheld describes the first withheld range of the addresses that a pool offers;
// nil if none of the pool's addresses is withheld.
func (s *State) firstWithheld(p *pool) *OwnedError {
	var first *OwnedError
	isOffered := allocator.OverlapsAny(p.Window)
	for g := range s.grants.all() {
		if !g.withholds() || g.RoutingDomain != p.RoutingDomain {
			continue
		}
		for _, r := range g.Ranges {
			if first != nil && r.First.Compare(first.Range.First) > 0 || !isOffered([]allocator.Range{r}) {
				continue
			}
			if e := (&OwnedError{Range: r, Owner: g.holding.key, Withheld: true, Until: s.expiryOf(g.holding)}); first == nil || e.sortsBefore(first) {
				first = e
			}
		}
	}
	return first
}

// sortsBefore orders withheld ranges by first address; with equal first addresses, the
// range that is withheld longer comes first, then the larger range.
func (e *OwnedError) sortsBefore(o *OwnedError) bool {
	return cmp.Or(e.Range.First.Compare(o.Range.First), o.Until.Compare(e.Until), o.Range.Last.Compare(e.Range.Last), cmp.Compare(e.Owner.coreName(), o.Owner.coreName())) < 0
}

// expiryOf returns when granted or withheld ranges are free again if no object or update
// with them is observed, by the clock of recorded times; zero while the commit is
// outstanding.
func (s *State) expiryOf(h *holding) (until time.Time) {
	for _, g := range h.grants {
		if g.lifeBegan.IsZero() {
			return time.Time{}
		}
		if end := g.lifeBegan.Add(s.limits.GrantLife); end.After(until) {
			until = end
		}
	}
	return s.recordClock.toRecord(until)
}

// withheldText describes a withheld range: which range, why, and until when.
func withheldText(r allocator.Range, pool string, until time.Time) string {
	text := fmt.Sprintf("%s is withheld, as an update of %s that removes it was admitted and is not observed yet", r, pool)
	if until.IsZero() {
		return text
	}
	return text + ": if the update is not stored, it is free again at " + until.UTC().Format(time.RFC3339)
}

// UpdatePool checks a new version of a pool before the API server stores the version.
// Addresses that the version removes are withheld by a journal entry until the version is
// observed or a grant life has passed. Current owners keep their addresses; after release
// those addresses are withheld too. The returned grant is nil if the version removes
// nothing.
func (s *State) UpdatePool(p Pool) (*OpenGrant, error) {
	if !s.leadership.mayGrant() {
		return nil, ErrNotLeader
	}
	if s.access.isDenied(p.Key.Resource) {
		return nil, s.access.deniedError(p.Key.Resource)
	}
	old := s.pools.find(p.Key)
	if old == nil {
		return nil, nil
	}
	core := s.domain(old.RoutingDomain).core
	offered := old.Window
	if old.Fault != "" && p.Fault == "" { // a pool with a fault offers nothing, and may have allocated some of these ranges before
		offered = old.Readable
	}
	isOffered := allocator.OverlapsAny(offered)
	inUse := &ownerCount{seen: map[Key]struct{}{}}
	if old.RoutingDomain != p.RoutingDomain {
		for h := range s.holdings.all() {
			if h.isInUse() && h.routingDomain == old.RoutingDomain && h.mayBelongTo(old, isOffered) && !inUse.add(h, h.ranges[0]) {
				break
			}
		}
		if inUse.first != nil {
			return nil, inUse.error(p.Key, "would change its routing domain", "leave that as it is")
		}
	}
	leaving := allocator.Subtract(offered, p.Window)
	blocked := allocator.Subtract(p.Blocked, old.Blocked)
	for _, loss := range []struct {
		ranges     []allocator.Range
		what, stay string
		all        bool
	}{{leaving, "would leave the pool's ranges", "keep the range in the pool", false}, {blocked, "would become reserved", "leave the range out of the reserved ranges", true}} {
		if loss.all && p.MayBlockOwned {
			continue
		}
		for _, r := range loss.ranges {
			for owned := range core.OwnedIn(r) {
				h := s.holdings.find(owned.OwnerID)
				if h.isInUse() && (loss.all || h.mayBelongTo(old, isOffered)) && !inUse.add(h, owned.Range) {
					break
				}
			}
		}
		if inUse.first != nil {
			return nil, inUse.error(p.Key, loss.what, loss.stay)
		}
	}
	gone := allocator.Union(append(slices.Clone(leaving), blocked...))
	if len(gone) == 0 {
		return nil, nil
	}
	g := &OpenGrant{Entry: journal.Entry{
		Token: s.newToken(), RoutingDomain: old.RoutingDomain, Ranges: gone,
		Resource: p.Key.Resource, Namespace: p.Key.Namespace, NameHash: journal.HashName(p.Key.Name), StoredName: p.Key.Name,
	}}
	if err := s.journalRoom.admit(g.Namespace, g.EncodedSize()); err != nil {
		return nil, err
	}
	h := s.addHolding(p.Key, Key{}, old.RoutingDomain, gone...)
	g.holding = h
	s.indexGrant(g)
	s.assignAddresses(h)
	return g, nil
}

// maxCountedOwners bounds the cost of a denied update.
const maxCountedOwners = 1000

// ownerCount counts the owners of addresses that an update removes from a pool.
type ownerCount struct {
	first *holding
	at    allocator.Range
	seen  map[Key]struct{}
	more  int // owners without a name: creates for which the API server has yet to generate the name
}

// add counts the owner of a range, and reports whether the count goes on.
func (c *ownerCount) add(h *holding, r allocator.Range) (goesOn bool) {
	if c.first == nil || r.First.Less(c.at.First) {
		c.first, c.at = h, r
	}
	if h.key.Name == "" {
		c.more++
	} else {
		c.seen[h.key] = struct{}{}
	}
	return len(c.seen)+c.more <= maxCountedOwners
}

// error returns the error of an update of a pool that is denied because of the owners.
func (c *ownerCount) error(pool Key, what, otherwise string) error {
	others := min(len(c.seen)+c.more-1, maxCountedOwners)
	return &InUseError{Pool: pool, What: what, Else: otherwise, Range: c.at, Owner: c.first.key, Others: others, AtLeast: others >= maxCountedOwners}
}

// endWithholding ends the withholding of ranges of which the pool's observed version
// offers no address. While the observed version offers some address of the ranges, the
// update that removes the ranges can still be stored: the ranges stay withheld until the
// journal entry expires. So do ranges that an earlier leader withheld: the observed
// version may be older than the version that the update replaces.
func (s *State) endWithholding(p *pool) {
	withheld := slices.Clone(s.holdings.of(p.Key))
	if len(withheld) == 0 {
		return
	}
	isOffered := allocator.OverlapsAny(allocator.Subtract(p.Window, p.Blocked))
	for _, h := range withheld {
		if h.inherited || isOffered(h.ranges) {
			continue
		}
		for _, g := range slices.Clone(h.grants) {
			s.endGrant(g)
		}
	}
}

// HasPendingUpdate reports whether an admitted update of a pool has not been observed.
func (s *State) HasPendingUpdate(k Key) bool {
	return slices.ContainsFunc(s.holdings.of(k), func(h *holding) bool { return len(h.grants) > 0 })
}
