package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// State is the state machine behind a Ledger: the owners of all ranges and the open
// grants. A State is not safe for concurrent use, has no clock and does no I/O; equal
// sequences of calls give equal results. All times passed to a State come from a single
// clock of the caller.
type State struct {
	limits   *Limits
	newToken func() journal.Token

	leadership   leadership
	proofs       proofs
	commitQueue  commitQueue
	claims       claims
	holdings     holdings
	grants       openGrants
	standby      standbyGrants
	cooldowns    cooldowns
	moves        moves
	recordClock  recordClock
	journalRoom  journalRoom
	access       access
	movedRecords movedRecords

	spaces       map[string]*space       // routing domain -> its addresses
	pools        map[Key]*pool           // pool key -> known pool
	poolByWindow map[*allocator.Pool]Key // window of a pool in its routing domain (pool.core, pool.families, pool.orderedParts) -> pool key
	changed      map[Key]struct{}        // claims and pools whose ownership or usage may have changed, see TakeChanged
	inUse        addressesInUse          // see inuse.go
}

// Limits bound the grants that a State accepts.
type Limits struct {
	GrantLife     time.Duration // of a grant, from its commit
	JournalBytes  int           // of all open grants
	StandbyGrants int           // of one demand; 0 for none
	StandbyShare  int64         // standby grants use at most one in StandbyShare of a pool's free addresses
	StandbyRoom   int64         // a pool with fewer free addresses has no standby grants
}

// space is a routing domain. Fields that name a routing domain are called Space here, in
// package journal and in package allocator.
type space struct {
	core      *allocator.Space
	contested map[*holding]struct{} // holdings that own only a part of their ranges, since other holdings own the remaining addresses
	avoided   *allocator.Space      // addresses in use that no claim owns, see inuse.go
	// avoidedShown: core blocks the avoided addresses, see blockAvoided
	avoidedShown bool
}

// pool is a known pool; or, with a zero Key and without core, a stand-in for a request
// for exact ranges that no pool serves (poolForRequest).
type pool struct {
	Pool
	exactChecker
	core              *allocator.Pool               // nil in a stand-in
	families          map[int]*allocator.Pool       // bits of an address -> part of the pool with that family; core itself if the pool has a single family
	orderedRanges     []allocator.Range             // the pool's ranges if allocated in order; nil otherwise
	orderedParts      []*allocator.Pool             // a part for each of orderedRanges
	readAhead         bool                          // the pool comes from a live read; the event of this version is outstanding
	eventOverdueSince time.Time                     // since when later events have been applied without the pool's event; zero if the event is not overdue
	observedCooldowns map[cooldownRecordID]cooldown // record -> cooldown to which the record was converted when first observed
}

// exactChecker checks whether an exact range is free: in a pool, or, for claims without a
// pool, in the whole routing domain.
type exactChecker interface {
	CheckExact(allocator.Range) error
}

// windowsFor lists the parts of a pool from which a range request may be served, in the
// order in which to try them. The last part covers the whole pool (of the wanted family),
// so the error of the last part has the numbers of the pool.
func (p *pool) windowsFor(w RangeRequest) ([]*allocator.Pool, error) {
	offer, err := p.familyWindow(w)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(p.orderedParts), offer), nil
}

// familyWindow returns the part of a pool that has addresses of the wanted family.
func (p *pool) familyWindow(w RangeRequest) (*allocator.Pool, error) {
	family := p.families[w.Bits]
	switch {
	case p.core == nil:
		return nil, &NoPoolError{}
	case p.Manual:
		return nil, &NotAutomaticError{Pool: p.Key}
	case w.Bits == 0:
		return p.core, nil
	case family == nil:
		return nil, &FamilyError{Pool: p.Key, Bits: w.Bits}
	}
	return family, nil
}

// New returns the state of a follower that counts the objects of the given resources.
func New(resources []string, lim Limits, newToken func() journal.Token) *State {
	s := &State{
		limits:       &lim,
		newToken:     newToken,
		leadership:   leadership{limits: &lim},
		claims:       newClaims(),
		holdings:     newHoldings(),
		grants:       newOpenGrants(),
		standby:      newStandbyGrants(&lim),
		cooldowns:    newCooldowns(),
		moves:        newMoves(),
		journalRoom:  newJournalRoom(&lim),
		movedRecords: newMovedRecords(),
		access:       newAccess(resources, &lim),
		spaces:       map[string]*space{},
		pools:        map[Key]*pool{},
		poolByWindow: map[*allocator.Pool]Key{},
		changed:      map[Key]struct{}{},
		inUse:        newAddressesInUse(),
	}
	return s
}

// space returns a routing domain, and creates the routing domain if it is new.
func (s *State) space(name string) *space {
	domain := s.spaces[name]
	if domain == nil {
		domain = &space{core: allocator.NewSpace(), contested: map[*holding]struct{}{}, avoided: allocator.NewSpace()}
		s.spaces[name] = domain
		for _, all := range everyAddress {
			for _, r := range s.inUse.rangesIn(name, all) {
				domain.avoided.Assign(r, inUseID)
			}
		}
	}
	return domain
}

// AllKeys lists all claims and pools, pools first, and the claims of address objects.
func (s *State) AllKeys() []Key {
	all := make([]Key, 0, len(s.pools)+s.claims.number())
	for k := range s.pools {
		all = append(all, k)
	}
	for c := range s.claims.all() {
		all = append(all, c.Key)
		if c.OwnerClaim != (Key{}) {
			all = append(all, c.OwnerClaim)
		}
	}
	return all
}

// TakeChanged returns the claims and pools whose ownership or usage may have changed
// since the last call, in no order.
func (s *State) TakeChanged() []Key {
	if len(s.changed) == 0 {
		return nil
	}
	keys := make([]Key, 0, len(s.changed))
	for k := range s.changed {
		keys = append(keys, k)
	}
	clear(s.changed)
	return keys
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// DefaultGrantLife is how long a grant stays open after its commit if no claim with its
// token is observed. The API server stores or aborts a create within 34 s of the
// response.
const DefaultGrantLife = 120 * time.Second
