package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// checkCanGrant returns why the state denies a request regardless of the ranges that it
// asks for; nil if those decide.
func (s *State) checkCanGrant(q Request) error {
	switch {
	case !s.leadership.mayGrant():
		return ErrNotLeader
	case s.leadership.inQuarantine() && !s.ownsRequested(q):
		return s.leadership.quarantineError()
	case s.access.isDenied(q.Claim.Resource):
		return s.access.deniedError(q.Claim.Resource)
	case s.access.isDenied(q.Pool.Resource):
		return s.access.deniedError(q.Pool.Resource)
	case s.isBehind(q.UID, q.Version):
		return ErrBehind
	}
	return s.journalRoom.admit(q.Claim.Namespace, usualEntryBytes)
}

// ownsRequested reports whether a stored claim of an earlier allocator requests only what
// it owns already, itself or by its address object: the grant gives no range another
// owner. Without a record in the status of the claim the address object proves nothing:
// it may be stored without admission, on a range that the lost journal granted.
func (s *State) ownsRequested(q Request) bool {
	if c := s.claims.find(q.UID); c == nil || !c.AllocatedEarlier {
		return false
	}
	p, err := s.poolForRequest(q)
	if err != nil {
		return false
	}
	h := s.repeatableHolding(p, q)
	return h != nil && h.claim != nil || len(s.missingRanges(p, q)) == 0
}

// Grant allocates ranges for a request. The returned grant waits for the next commit; its
// response must not leave before that commit has landed.
func (s *State) Grant(now time.Time, q Request) (*OpenGrant, error) {
	if err := s.checkCanGrant(q); err != nil {
		return nil, err
	}
	if owned := s.ownedByOwnerClaim(q); owned != nil {
		return nil, owned
	}
	p, err := s.poolForRequest(q)
	if err != nil {
		return nil, err
	}
	if len(s.missingRanges(p, q)) == 0 { // the claim owns them all: there is nothing to commit
		return &OpenGrant{Entry: journal.Entry{Token: s.newToken(), RoutingDomain: p.RoutingDomain}, state: grantCommitted, lifeBegan: now}, nil
	}
	if h := s.repeatableHolding(p, q); h != nil {
		return s.addGrant(h, q), nil
	}
	return s.grantFree(now, p, q)
}

// addGrant adds an open grant to a holding, under a token of its own.
func (s *State) addGrant(h *holding, q Request) *OpenGrant {
	g := &OpenGrant{holding: h, Entry: journal.Entry{
		Token:         s.newToken(),
		RoutingDomain: h.routingDomain,
		Ranges:        h.ranges,
		Resource:      q.Claim.Resource,
		Namespace:     q.Claim.Namespace,
		NameHash:      journal.HashName(q.Claim.Name),
	}}
	if q.UID != "" {
		g.StoredName, g.UID, g.basedOn = q.Claim.Name, q.UID, q.Version
	}
	s.indexGrant(g)
	return g
}

// indexGrant adds a grant to the open grants, to its holding, and to the bytes of the
// journal.
func (s *State) indexGrant(g *OpenGrant) {
	s.grants.add(g)
	g.holding.grants = append(g.holding.grants, g)
	for _, r := range g.holding.ranges { // a moved range, or a range in cooldown, may be granted to its claim again
		s.updateAvoided(g.holding.routingDomain, r)
	}
	s.journalRoom.add(&g.Entry)
}

// endGrant ends a grant. A caller that waits for the commit of the grant gets a
// *NotServingError, and its client may call again.
func (s *State) endGrant(g *OpenGrant) {
	if !s.grants.isOpen(g) {
		return
	}
	s.grants.remove(g)
	if g.waiter != nil {
		g.waiter <- &NotServingError{Reason: "the pool or the claim has changed meanwhile"}
		g.waiter = nil
	}
	if g.unproven {
		s.proofs.dropGrant(g)
		g.notifyProven(&NotServingError{Reason: "the pool or the claim has changed meanwhile"})
	}
	h := g.holding
	h.grants = slices.DeleteFunc(h.grants, func(other *OpenGrant) bool { return other == g })
	h.journaledUntil = s.proofs.nextCommit()
	s.journalRoom.remove(&g.Entry)
	// The entry of a stored claim leaves the journal with the next commit, unless room is
	// short: see removeEntryOf.
	if h.claim == nil || s.journalRoom.isShort() {
		s.commitQueue.request()
	}
	if h.claim == nil && len(h.grants) == 0 { // a moved range and a range in cooldown are no longer granted, and stay allocated
		s.markChanged(h)
	}
	s.freeIfUnused(h)
}

// removeEntryOf makes a commit due if the journal still contains the entry of the grant
// of a claim that is being deleted: the next leader would not observe the claim, and take
// the grant for open for the life of a grant. The commit begins at once, so that it
// usually lands before the claim is gone.
func (s *State) removeEntryOf(c *claim) {
	if s.leadership.mayGrant() && c.holding != nil && c.holding.journaledUntil >= s.proofs.nextCommit() {
		s.commitQueue.requestNow()
	}
}

// WithdrawGrant ends a grant whose response never left. A grant in the commit in flight
// ends when that commit has landed.
func (s *State) WithdrawGrant(g *OpenGrant) {
	if !s.grants.isOpen(g) { // ended already, or without ranges
		return
	}
	g.waiter = nil
	if g.state == grantInFlight {
		g.withdrawn = true
		return
	}
	s.endGrant(g)
}

// WithdrawToken ends the open grant with this token. Precondition: the response of the
// grant has not left this process.
func (s *State) WithdrawToken(t journal.Token) {
	if g := s.grants.find(t); g != nil && g.state == grantCommitted {
		s.WithdrawGrant(g)
	}
}

// OpenGrant is a grant whose object has not been observed, or, without a UID and with a
// StoredName, a set of ranges that a pool update withholds.
type OpenGrant struct {
	journal.Entry
	holding      *holding
	state        grantState
	demand       *demand // of a standby grant that is not used yet
	unproven     bool    // awaits a proof that begins after usedAt
	usedAt       moment
	proofWaiters []chan<- error
	withdrawn    bool      // no caller waits for the response: the grant ends when its commit has landed
	lifeBegan    time.Time // when the commit of the grant landed; for an inherited grant, when this leader began to serve
	basedOn      uint64    // resourceVersion of the stored claim that the response overwrites; 0 if not known
	fenceVersion uint64    // resourceVersion of the stored object since which the response cannot be stored; 0 if not fenced
	fencedAt     time.Time
	fenceRetryAt time.Time  // earliest time of the next fence, after a failed fence; zero if no fence has failed
	carriers     []string   // UIDs of the stored claims with the grant's token, as read after the grant's life had passed
	finalName    string     // see FinalName
	waiter       chan error // see NotifyCommit; nil if no caller waits
	answer       any        // see SetAnswer; nil if unknown
}

// SetAnswer keeps an answer with an open grant. The state does not read the answer.
func (s *State) SetAnswer(t journal.Token, answer any) {
	if g := s.grants.find(t); g != nil {
		g.answer = answer
	}
}

// Answer returns the answer of an open grant; nil if there is none.
func (s *State) Answer(t journal.Token) any {
	if g := s.grants.find(t); g != nil {
		return g.answer
	}
	return nil
}

// NotifyCommit registers a buffered channel for the outcome of the grant's commit: nil
// once the journal contains the grant.
func (g *OpenGrant) NotifyCommit(committed chan error) { g.waiter = committed }

// AwaitsCommit reports whether a commit must land before the response of the grant may
// leave.
func (g *OpenGrant) AwaitsCommit() bool { return g.state != grantCommitted }

// isUnnamed reports whether the grant is to a create for which the API server had yet to
// generate the name.
func (g *OpenGrant) isUnnamed() bool { return g.NameHash == 0 && g.StoredName == "" }

// withholds reports whether the grant withholds ranges that a pool update removes.
func (g *OpenGrant) withholds() bool { return g.StoredName != "" && g.UID == "" }

type grantState int

const (
	grantQueued    grantState = iota // waits for a commit
	grantInFlight                    // part of the commit in flight
	grantCommitted                   // committed
)

// isFulfilledBy reports whether a claim is the object of the grant. The claim must carry
// the token. In addition, the claim of a create must name only ranges of the grant, since
// its token could be copied to a second object with its name. A grant to a stored claim
// was written to that claim, so its ranges may have changed since.
func (g *OpenGrant) isFulfilledBy(c *claim) bool {
	return g.Token == c.Token && g.isFor(c.Key, c.UID) &&
		(g.UID != "" || isSubset(c.Ranges, g.Ranges))
}

// isFor reports whether the grant is to the claim with this key and UID, or may be: the
// claim of an earlier leader's standby grant is not known.
func (g *OpenGrant) isFor(k Key, uid string) bool {
	return g.IsStandby() || g.Resource == k.Resource && g.Namespace == k.Namespace &&
		(g.NameHash == 0 || g.NameHash == journal.HashName(k.Name)) && (g.UID == "" || g.UID == uid)
}

// endFulfilledGrants ends the grants of a holding that its observed claim fulfils, or
// that cannot be stored any more:
//
//	the grant with the claim's token
//	further grants to a create without a name: an admission request stores at most one object
//	grants to the stored claim that were to overwrite an older version
func (s *State) endFulfilledGrants(h *holding, c *claim) (ended bool) {
	for _, g := range slices.Clone(h.grants) {
		if g.Token == c.Token || g.isUnnamed() || g.UID != "" && g.UID == c.UID && g.state == grantCommitted && 0 < g.basedOn && g.basedOn < c.ResourceVersion {
			s.endGrant(g)
			ended = true
		}
	}
	return ended
}

// endSpentGrant ends the grant whose token a claim carries, if the claim cannot take over
// the holding of that grant because the ranges differ: the claim also names ranges that
// it owned before, or names only a part of the granted ranges.
func (s *State) endSpentGrant(c *claim) {
	if g := s.grants.find(c.Token); g != nil && g.RoutingDomain == s.routingDomainOf(c) && g.isFulfilledBy(c) {
		c.hadGrant = s.endFulfilledGrants(g.holding, c)
	}
}

// findHoldingOf returns the holding of an open grant that a claim fulfils: by token; by
// name if the token was removed from the object before the object was observed; or by the
// hash of the name if the grant is one of several that an earlier leader gave to the
// create. An address object of a moved claim gets the holding that is kept for the claim.
// The result is nil if the claim has no holding.
func (s *State) findHoldingOf(c *claim) *holding {
	fits := func(h *holding) bool {
		return (h.claim == nil || h.isAddressObjectOf(c.Key, c.Pool)) && h.routingDomain == s.routingDomainOf(c) && slices.Equal(h.ranges, c.Ranges)
	}
	if g := s.grants.find(c.Token); g != nil && g.isFor(c.Key, c.UID) && fits(g.holding) {
		return g.holding
	}
	for _, h := range s.holdings.of(c.Key) {
		if fits(h) && (len(h.grants) > 0 || h.claim != nil || h.isMoved()) {
			return h
		}
	}
	if !c.Token.IsZero() { // one of several grants of the create: the grant of this token has left the journal, as an earlier leader observed the claim
		for owned := range s.domain(s.routingDomainOf(c)).core.OwnedIn(c.Ranges[0]) {
			if h := s.holdings.find(owned.OwnerID); h.inherited && fits(h) && len(h.grants) > 0 && h.grants[0].NameHash != 0 && h.grants[0].isFor(c.Key, c.UID) {
				return h
			}
		}
	}
	for _, h := range s.holdings.of(c.OwnerClaim) {
		if fits(h) && h.isMoved() && h.pool == c.Pool {
			return h
		}
	}
	return nil
}
