package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// breaks switches off rules of the state machine. The model check must find a violation
// for each break; modelBreaks has the breaks of the replicas.
type breaks struct {
	shareToken         bool // a repeated range is granted under the token of the earlier grant
	grantWithoutCommit bool // a repeated range is granted without a journal commit
	noInheritance      bool // an address object does not inherit the holding of its claim
	ownByName          bool // a claim owns every address object that names the claim, whatever ranges the address object has
	freeMoved          bool // the range of a moved claim becomes free
	approveUnproven    bool // a create is approved although no proof of leadership has followed its request
	oldProof           bool // a read of the journal that began before the request counts as a proof
	reuseStandby       bool // the token of a used standby grant is used again
	dropStandby        bool // a new leader does not inherit the standby grants of the earlier leader
	followPool         bool // a claim owns its addresses in the routing domain of its pool
	believeRecord      bool // a changed record of a claim's routing domain moves the claim, without a grant
	reuseInherited     bool // a full pool grants the ranges of standby grants of an earlier leader again
	ignoreShares       bool // a namespace may use the journal regardless of what others leave
	missingListFrees   bool // a pool stored without its list of moved ranges frees the moved ranges
	avoidsTooMuch      bool // the avoided addresses are not updated when the first pool in the default routing domain is added
	avoidsTooLittle    bool // the avoided addresses are not updated when the last pool in the default routing domain is removed
	grantUnowned       bool // in quarantine a stored claim gets the range that it requests, whether it owns the range or not
}

// brokenState is a State with breaks.
type brokenState struct {
	*State
	breaks      breaks
	usedStandby *OpenGrant // the standby grant that was used last
}

func (b *brokenState) Grant(now time.Time, q Request) (*OpenGrant, error) {
	if b.breaks.grantUnowned && b.leadership.quarantined && q.UID != "" {
		defer func() { b.leadership.quarantined = true }()
		b.leadership.quarantined = false
	}
	if h := b.repeatedGrant(q); h != nil && b.breaks.shareToken {
		return h.grants[0], nil
	} else if h != nil && b.breaks.grantWithoutCommit {
		g := b.addGrant(h, q)
		g.state, g.lifeBegan = grantCommitted, now
		b.grants.queued--
		return g, nil
	}
	if g := b.usedStandby; g != nil && b.breaks.reuseStandby && q.UID == "" && b.checkCanGrant(q) == nil && b.grants.find(g.Token) == g && len(q.Ranges) == len(g.Ranges) && !q.Ranges[0].Exact.IsValid() {
		return g, nil
	}
	g, err := b.grantAsBroken(q, func() (*OpenGrant, error) { return b.State.Grant(now, q) })
	if err != nil || !g.unproven {
		return g, err
	}
	if b.breaks.oldProof {
		g.usedAt.reads = 0
		b.applyProofs(now)
	}
	b.usedStandby = g
	return g, nil
}

func (b *brokenState) CheckGrant(c Claim, uid string, version uint64) error {
	err := b.State.CheckGrant(c, uid, version)
	if err == ErrUnproven && b.breaks.approveUnproven {
		return nil
	}
	return err
}

func (b *brokenState) TakeOver(v journal.Revision) {
	if b.breaks.dropStandby {
		v.Entries = slices.DeleteFunc(slices.Clone(v.Entries), func(e journal.Entry) bool { return e.IsStandby() })
	}
	b.State.TakeOver(v)
}

// repeatedGrant returns the holding with open grants that Grant would grant again; nil if
// there is none.
func (b *brokenState) repeatedGrant(q Request) *holding {
	if b.checkCanGrant(q) != nil {
		return nil
	}
	p, err := b.poolForRequest(q)
	if err != nil || len(b.missingRanges(p, q)) == 0 {
		return nil
	}
	if h := b.repeatableHolding(p, q); h != nil && len(h.grants) > 0 {
		return h
	}
	return nil
}

func (b *brokenState) ObserveClaim(now time.Time, c Claim) {
	if b.breaks.ownByName {
		for _, h := range b.holdings.of(c.OwnerClaim) {
			if h.claim != nil && h.claim.Key == c.OwnerClaim && h.pool == c.Pool {
				c.Ranges = slices.Clone(h.ranges)
			}
		}
	}
	if b.breaks.followPool {
		c.RoutingDomainGranted = false
	}
	if known := b.claims.find(c.UID); b.breaks.believeRecord && known != nil && known.RoutingDomain != c.RoutingDomain {
		known.Token = journal.Token{1} // as if another grant had been stored
	}
	defer b.withoutAddressObjects(c.UID)()
	b.State.ObserveClaim(now, c)
}

func (b *brokenState) RemoveClaim(now time.Time, gone Claim, resourceVersion uint64) {
	defer b.withoutAddressObjects(gone.UID)()
	b.State.RemoveClaim(now, gone, resourceVersion)
	if b.breaks.freeMoved {
		b.DecideMoved(now, gone.UID, false)
	}
}

// withoutAddressObjects hides the address objects of a claim until the returned function
// is called.
func (b *brokenState) withoutAddressObjects(uid string) (restore func()) {
	c := b.claims.find(uid)
	if !b.breaks.noInheritance || c == nil || len(b.claims.objects[c.Key]) == 0 {
		return func() {}
	}
	key, objects := c.Key, b.claims.objects[c.Key]
	delete(b.claims.objects, key)
	return func() { b.claims.objects[key] = objects }
}

func (b *brokenState) ObservePool(now time.Time, p Pool) {
	if b.breaks.missingListFrees && p.MovedListRevision == 0 {
		p.MovedListRevision = EmptiedList
	}
	defer b.withOneDefaultPoolMore(b.breaks.avoidsTooMuch && p.RoutingDomain == "")()
	b.State.ObservePool(now, p)
}

func (b *brokenState) RemovePool(k Key, resourceVersion uint64) {
	defer b.withOneDefaultPoolMore(b.breaks.avoidsTooLittle)()
	b.State.RemovePool(k, resourceVersion)
}

// withOneDefaultPoolMore counts one pool more in the default routing domain, if a break
// is on, until the returned function is called: no pool is the first or the last there.
func (b *brokenState) withOneDefaultPoolMore(broken bool) (restore func()) {
	if !broken {
		return func() {}
	}
	b.inUse.defaultPools++
	return func() { b.inUse.defaultPools-- }
}
