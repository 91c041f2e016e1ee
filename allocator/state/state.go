package state

import (
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// State is the state machine behind a Ledger: the owners of all ranges and the open
// grants. A State is not safe for concurrent use, has no clock and does no I/O; equal
// sequences of calls give equal results. All times passed to a State come from a single
// clock of the caller.
//
// A State is composed of parts, and owns only the order of their steps. A part is a type
// with an invariant and a check of its own; only its methods read its fields, which a
// test ensures. Claims, holdings, grants and pools are the elements of the parts: an
// event changes several of them together, and Check verifies what holds between them.
type State struct {
	limits   *Limits
	newToken func() journal.Token

	leadership   leadership
	proofs       proofs
	commitQueue  commitQueue
	pools        knownPools
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

	domains map[string]*domain // routing domain -> its addresses
	changed map[Key]struct{}   // claims and pools whose ownership or usage may have changed, see TakeChanged
	inUse   addressesInUse     // see inuse.go
}

// Limits bound the grants that a State accepts.
type Limits struct {
	GrantLife     time.Duration // of a grant, from its commit
	JournalBytes  int           // of all open grants
	StandbyGrants int           // of one demand; 0 for none
	StandbyShare  int64         // standby grants use at most one in StandbyShare of a pool's free addresses
	StandbyRoom   int64         // a pool with fewer free addresses has no standby grants
}

// domain is a routing domain: its addresses and their owners. Fields and variables with
// the name of a routing domain are called RoutingDomain, or routingDomain.
type domain struct {
	core      *allocator.Space
	contested map[*holding]struct{} // holdings that own only a part of their ranges, since other holdings own the remaining addresses
	avoided   *allocator.Space      // addresses in use that no claim owns, see inuse.go
	// avoidedShown: core blocks the avoided addresses, see blockAvoided
	avoidedShown bool
}

// New returns the state of a follower that counts the objects of the given resources.
func New(resources []string, lim Limits, newToken func() journal.Token) *State {
	s := &State{
		limits:       &lim,
		newToken:     newToken,
		leadership:   leadership{limits: &lim},
		pools:        newKnownPools(),
		claims:       newClaims(),
		holdings:     newHoldings(),
		grants:       newOpenGrants(),
		standby:      newStandbyGrants(&lim),
		cooldowns:    newCooldowns(),
		moves:        newMoves(),
		journalRoom:  newJournalRoom(&lim),
		movedRecords: newMovedRecords(),
		access:       newAccess(resources, &lim),
		domains:      map[string]*domain{},
		changed:      map[Key]struct{}{},
		inUse:        newAddressesInUse(),
	}
	return s
}

// domain returns a routing domain, and creates the routing domain if it is new.
func (s *State) domain(name string) *domain {
	d := s.domains[name]
	if d == nil {
		d = &domain{core: allocator.NewSpace(), contested: map[*holding]struct{}{}, avoided: allocator.NewSpace()}
		s.domains[name] = d
		for _, all := range everyAddress {
			for _, r := range s.inUse.rangesIn(name, all) {
				d.avoided.Assign(r, inUseID)
			}
		}
	}
	return d
}

// AllKeys lists all claims and pools, pools first, and the claims of address objects.
func (s *State) AllKeys() []Key {
	all := make([]Key, 0, s.pools.number()+s.claims.number())
	for p := range s.pools.all() {
		all = append(all, p.Key)
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
