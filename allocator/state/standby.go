package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// standbyGrants are grants that the journal contains before a create requests them: the
// leader predicts which ranges the next creates get, and commits these ranges under
// tokens of their own, without a claim. A create whose range was predicted need not wait
// for a commit.
//
//	note ──▶ BeginCommit: planStandby ──▶ CommitLanded: ready ──▶ take: an open grant of the create
//	                                                       └──▶ drop: given up
//
// A standby grant never changes which range a create gets: the pool's policy chooses the
// range as if no standby grant existed, and a standby grant with exactly that range is
// used if there is one. The ranges of standby grants count as free.
//
//	Invariant: a standby grant is used for one create at most, and each range of it is free until then.
//	Invariant: the ranges of two standby grants of a routing domain do not overlap.
//	Invariant: the journal contains an entry of the token of each used standby grant until the object of the create is observed, or the grant expires.
//
// The third invariant holds because a standby grant is used only as long as no begun
// commit omits it: planStandby, which begins a commit, is the only function that chooses
// which standby grants a commit omits, and what it omits is not used any more.
//
// The next leader cannot know which standby grants were used, and approved by a read: an
// object with such a token may be stored as long as every other granted object. It
// inherits all of them as grants without a claim, which any claim with the token fulfils,
// and keeps their ranges for the life of a grant. So that no pool is full because of
// them, a pool with few free addresses has none (hasStandbyRoom), which also costs the
// least where creates are few.
//
//	Invariant: no commit contains a standby grant of an address that a pool with fewer free addresses than Limits.StandbyRoom offers
//
// A record of each use in the journal, before the approval, would make unused ranges
// known: that is the commit which a standby grant saves.
type standbyGrants struct {
	limits  *Limits
	demands map[demandKey]*demand   // empty in a follower
	ready   map[string][]*OpenGrant // routing domain -> grants that no create has used yet
}

func newStandbyGrants(limits *Limits) standbyGrants {
	return standbyGrants{limits: limits, demands: map[demandKey]*demand{}, ready: map[string][]*OpenGrant{}}
}

const (
	minStandby    = 8                // standby grants of one demand at first; Limits.StandbyGrants at most
	maxDemands    = 8                // demands with standby grants at a time
	demandLife    = 10 * time.Second // a demand ends when no create has requested its ranges for so long
	standbyRanges = 2                // ranges that one standby grant has at most
)

// demand is a series of creates that request the same number of addresses from one pool.
type demand struct {
	demandKey
	lastAt time.Time
	target int // wanted standby grants
	given  int // standby grants in the last commit
	ready  int // of these, not used yet
	recent int // creates since the last Tick
}

// demandKey identifies a demand. Its sizes are those of the range requests, followed by
// zeros.
type demandKey struct {
	pool  Key
	sizes [standbyRanges]rangeSize
}

// rangeSize is the part of a RangeRequest that a policy needs to choose a range.
type rangeSize struct {
	count int64
	bits  int
}

func (k demandKey) compare(o demandKey) int {
	c := cmp.Compare(k.pool.coreName(), o.pool.coreName())
	for i := range k.sizes {
		c = cmp.Or(c, cmp.Compare(k.sizes[i].count, o.sizes[i].count), cmp.Compare(k.sizes[i].bits, o.sizes[i].bits))
	}
	return c
}

// requests returns the range requests of a create of the demand.
func (k demandKey) requests() (requests []RangeRequest) {
	for _, size := range k.sizes {
		if size.count > 0 {
			requests = append(requests, RangeRequest{Count: size.count, Bits: size.bits})
		}
	}
	return requests
}

// note records a create, whose ranges may be predicted from now on.
func (t *standbyGrants) note(now time.Time, k demandKey) *demand {
	d := t.demands[k]
	if d == nil {
		if len(t.demands) >= maxDemands {
			oldest := slices.MinFunc(t.byAge(), func(x, y *demand) int { return x.lastAt.Compare(y.lastAt) })
			delete(t.demands, oldest.demandKey)
		}
		d = &demand{demandKey: k, target: min(minStandby, t.limits.StandbyGrants)}
		t.demands[k] = d
	}
	d.lastAt = now
	d.recent++
	return d
}

// byAge lists the demands, the latest first, in an order that does not depend on
// the map.
func (t *standbyGrants) byAge() []*demand {
	list := make([]*demand, 0, len(t.demands))
	for _, d := range t.demands {
		list = append(list, d)
	}
	slices.SortFunc(list, func(x, y *demand) int { return cmp.Or(y.lastAt.Compare(x.lastAt), x.compare(y.demandKey)) })
	return list
}

// endIdle ends the demands without a recent create, and wants fewer standby grants
// where creates have become rare. The next commit gives the standby grants up.
func (t *standbyGrants) endIdle(now time.Time) {
	for k, d := range t.demands {
		if now.Sub(d.lastAt) >= demandLife {
			delete(t.demands, k)
		}
		if d.recent < d.target {
			d.target = max(min(minStandby, t.limits.StandbyGrants), d.target/2)
		}
		d.recent = 0
	}
}

// takeAll gives up all grants, and returns them for the plan of a commit: routing domain
// -> grants.
func (t *standbyGrants) takeAll() map[string][]*OpenGrant {
	earlier := t.ready
	if len(earlier) == 0 {
		return nil
	}
	t.ready = make(map[string][]*OpenGrant, len(earlier))
	return earlier
}

// offer adds a grant of ranges to those of a demand, in a routing domain: the earlier
// grant of exactly these ranges, or a new one.
func (t *standbyGrants) offer(d *demand, routingDomain string, ranges []allocator.Range, earlier []*OpenGrant, newToken func() journal.Token) {
	var g *OpenGrant
	if i := slices.IndexFunc(earlier, func(g *OpenGrant) bool { return slices.Equal(g.Ranges, ranges) }); i >= 0 {
		g = earlier[i]
	} else {
		g = &OpenGrant{Entry: journal.Entry{Token: newToken(), RoutingDomain: routingDomain, Ranges: ranges}, state: grantInFlight}
	}
	g.demand = d
	t.ready[routingDomain] = append(t.ready[routingDomain], g)
	d.given++
	d.ready++
}

// indexOf returns the index of the first grant of a routing domain that has an address of
// the ranges; -1 if there is none.
func (t *standbyGrants) indexOf(routingDomain string, ranges []allocator.Range) int {
	return slices.IndexFunc(t.ready[routingDomain], func(g *OpenGrant) bool {
		return slices.ContainsFunc(ranges, func(r allocator.Range) bool { return slices.ContainsFunc(g.Ranges, r.Overlaps) })
	})
}

// drop gives up the grants of a routing domain that have an address of the ranges.
func (t *standbyGrants) drop(routingDomain string, ranges []allocator.Range) {
	for i := t.indexOf(routingDomain, ranges); i >= 0; i = t.indexOf(routingDomain, ranges) {
		t.remove(routingDomain, i)
	}
}

// dropDomain gives up all grants of a routing domain.
func (t *standbyGrants) dropDomain(routingDomain string) { delete(t.ready, routingDomain) }

// remove removes and returns a grant of a routing domain.
func (t *standbyGrants) remove(routingDomain string, i int) *OpenGrant {
	g := t.ready[routingDomain][i]
	g.demand.ready--
	t.ready[routingDomain] = slices.Delete(t.ready[routingDomain], i, i+1)
	return g
}

// take removes and returns the grant of exactly these ranges, for a create of a demand;
// nil if there is none. A demand that ran out of grants gets more. fewLeft reports that a
// commit with further grants is due.
func (t *standbyGrants) take(routingDomain string, d *demand, ranges []allocator.Range) (g *OpenGrant, fewLeft bool) {
	i := slices.IndexFunc(t.ready[routingDomain], func(g *OpenGrant) bool { return slices.Equal(g.Ranges, ranges) })
	if i < 0 {
		if d.ready == 0 && d.given > 0 {
			d.target = min(2*d.target, t.limits.StandbyGrants)
		}
		return nil, false
	}
	g = t.remove(routingDomain, i)
	fewLeft = g.demand.ready <= g.demand.target/4
	g.demand = nil
	return g, fewLeft
}

// commitLands makes the grants committed.
func (t *standbyGrants) commitLands() {
	for _, grants := range t.ready {
		for _, g := range grants {
			g.state = grantCommitted
		}
	}
}

// end gives up all grants and demands: this replica is a follower.
func (t *standbyGrants) end() {
	clear(t.ready)
	clear(t.demands)
}

// entries returns the entries of the grants, in an order that does not depend on maps.
func (t *standbyGrants) entries() (entries []journal.Entry) {
	for _, grants := range t.ready {
		for _, g := range grants {
			entries = append(entries, g.Entry)
		}
	}
	slices.SortFunc(entries, func(x, y journal.Entry) int { return bytes.Compare(x.Token[:], y.Token[:]) })
	return entries
}

// check verifies that no grant is used, that each is in a commit, and that no two of a
// routing domain overlap.
func (t *standbyGrants) check(isCommitInFlight bool) error {
	for routingDomain, grants := range t.ready {
		for i, g := range grants {
			switch {
			case g.holding != nil || g.unproven || !g.IsStandby():
				return fmt.Errorf("standby grant %s is used", g.Token)
			case g.state == grantQueued || g.state == grantInFlight && !isCommitInFlight:
				return fmt.Errorf("standby grant %s is in no commit", g.Token)
			case t.indexOf(routingDomain, g.Ranges) != i:
				return fmt.Errorf("standby grant %s of %v in domain %q overlaps another", g.Token, g.Ranges, routingDomain)
			}
		}
	}
	return nil
}

// all calls f for each grant and its routing domain, until f returns an error.
func (t *standbyGrants) all(f func(routingDomain string, g *OpenGrant) error) error {
	for routingDomain, grants := range t.ready {
		for _, g := range grants {
			if err := f(routingDomain, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// demandOf returns the demand of a request; false if the ranges of the request cannot be
// predicted: the request is not a create, or names addresses, or the pool's policy is
// random.
func (s *State) demandOf(p *pool, q Request) (k demandKey, ok bool) {
	predictable := p.Policy == nil || p.Policy == allocator.BestFit || p.Policy == allocator.Sequential
	if s.limits.StandbyGrants == 0 || q.UID != "" || p.core == nil || !predictable || len(q.Ranges) > standbyRanges {
		return k, false
	}
	k.pool = q.Pool
	for i, w := range q.Ranges {
		if w.Exact.IsValid() {
			return k, false
		}
		k.sizes[i] = rangeSize{w.Count, w.Bits}
	}
	return k, true
}

// planStandby chooses the standby grants of the commit that begins: for each demand the
// ranges that its next creates would get if nothing else happened. Earlier standby grants
// of these ranges stay, all others are given up.
func (s *State) planStandby() {
	earlier := s.standby.takeAll()
	if !s.leadership.mayGrant() || s.leadership.inQuarantine() || s.journalRoom.isShort() {
		return
	}
	for _, d := range s.standby.byAge() {
		d.given, d.ready = 0, 0
		p, err := s.poolForRequest(Request{Pool: d.pool, Ranges: d.requests()})
		if err != nil || s.access.isDenied(d.pool.Resource) {
			continue
		}
		for _, ranges := range s.predictRanges(p, d) {
			if s.standby.indexOf(p.RoutingDomain, ranges) >= 0 { // of another demand, whose next create may take the range first
				break
			}
			if s.hasStandbyRoom(s.domain(p.RoutingDomain), ranges) {
				s.standby.offer(d, p.RoutingDomain, ranges, earlier[p.RoutingDomain], s.newToken)
			}
		}
	}
}

// predictRanges returns the ranges that the next creates of a demand would get.
func (s *State) predictRanges(p *pool, d *demand) (next [][]allocator.Range) {
	requests := d.requests()
	n := int64(d.target)
	for _, w := range requests {
		offer, err := p.familyWindow(w)
		if err != nil {
			return nil
		}
		free := offer.Available()
		if free < s.limits.StandbyRoom {
			return nil
		}
		n = min(n, free/s.limits.StandbyShare/w.Count)
	}
	id := s.holdings.nextID() // of no holding
	core := s.domain(p.RoutingDomain).core
	for range n {
		var ranges []allocator.Range
		for _, w := range requests {
			r, err := s.allocateRange(p, w, id, nil)
			if err != nil {
				break
			}
			ranges = append(ranges, r)
		}
		next = append(next, ranges)
	}
	for _, ranges := range next {
		for _, r := range ranges {
			core.Release(r, id)
		}
	}
	return slices.DeleteFunc(next, func(ranges []allocator.Range) bool { return len(ranges) < len(requests) })
}

// hasStandbyRoom reports whether each pool that offers an address of the ranges has so
// many free addresses, of the family, that it may have standby grants.
func (s *State) hasStandbyRoom(domain *domain, ranges []allocator.Range) bool {
	for _, r := range ranges {
		for part := range domain.core.PoolsOffering(r) {
			if p := s.pools.find(s.pools.ofWindow(part)); p.families[r.First.BitLen()].Available() < s.limits.StandbyRoom {
				return false
			}
		}
	}
	return true
}

// useStandby makes a standby grant the open grant of a create. The journal contains the
// claim after the next commit.
func (s *State) useStandby(now time.Time, g *OpenGrant, h *holding, q Request) {
	g.holding, g.lifeBegan = h, now
	g.Resource, g.Namespace, g.NameHash = q.Claim.Resource, q.Claim.Namespace, journal.HashName(q.Claim.Name)
	s.indexGrant(g)
	s.proofs.awaitGrant(g)
}

// IsStandby reports whether the grant is a standby grant of an earlier leader: the
// resource of its claim is not known.
func (g *OpenGrant) IsStandby() bool { return g.Entry.IsStandby() }
