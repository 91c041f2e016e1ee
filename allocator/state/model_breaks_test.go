package state

import (
	"slices"
	"time"
)

// breaks switches off rules of the state machine. The model check must find a violation for each break; modelBreaks has the breaks of the replicas.
type breaks struct {
	shareToken         bool // a repeated range is granted under the token of the earlier grant
	grantWithoutCommit bool // a repeated range is granted without a journal commit
	noInheritance      bool // an address object does not inherit the holding of its claim
	ownByName          bool // a claim owns every address object that names the claim, whatever ranges the address object has
	freeMoved          bool // the range of a moved claim becomes free
	missingListFrees   bool // a pool stored without its list of moved ranges frees the moved ranges
}

// brokenState is a State with breaks.
type brokenState struct {
	*State
	breaks breaks
}

func (b *brokenState) Grant(now time.Time, q Request) (*OpenGrant, error) {
	if h := b.repeatedGrant(q); h != nil && b.breaks.shareToken {
		return h.grants[0], nil
	} else if h != nil && b.breaks.grantWithoutCommit {
		g := b.addGrant(h, q)
		g.state, g.lifeBegan = grantCommitted, now
		b.queuedGrants--
		return g, nil
	}
	return b.State.Grant(now, q)
}

// repeatedGrant returns the holding with open grants that Grant would grant again; nil if there is none.
func (b *brokenState) repeatedGrant(q Request) *holding {
	if b.checkCanGrant(q) != nil || len(b.missingRanges(q)) == 0 {
		return nil
	}
	p, err := b.poolForRequest(q)
	if err != nil {
		return nil
	}
	if h := b.repeatableHolding(p, q); h != nil && len(h.grants) > 0 {
		return h
	}
	return nil
}

func (b *brokenState) ObserveClaim(now time.Time, c Claim) {
	if b.breaks.ownByName {
		for _, h := range b.holdingsByKey[c.OwnerClaim] {
			if h.claim != nil && h.claim.Key == c.OwnerClaim && h.pool == c.Pool {
				c.Ranges = slices.Clone(h.ranges)
			}
		}
	}
	defer b.withoutAddressObjects(c.UID)()
	b.State.ObserveClaim(now, c)
}

func (b *brokenState) RemoveClaim(now time.Time, resource, uid string, resourceVersion uint64) {
	defer b.withoutAddressObjects(uid)()
	b.State.RemoveClaim(now, resource, uid, resourceVersion)
	if b.breaks.freeMoved {
		b.DecideMoved(now, uid, false)
	}
}

// withoutAddressObjects hides the address objects of a claim until the returned function is called.
func (b *brokenState) withoutAddressObjects(uid string) (restore func()) {
	c := b.claims[uid]
	if !b.breaks.noInheritance || c == nil || len(b.addressObjects[c.Key]) == 0 {
		return func() {}
	}
	key, objects := c.Key, b.addressObjects[c.Key]
	delete(b.addressObjects, key)
	return func() { b.addressObjects[key] = objects }
}

func (b *brokenState) ObservePool(now time.Time, p Pool) {
	if b.breaks.missingListFrees && p.MovedListRevision == 0 {
		p.MovedListRevision = EmptiedList
	}
	b.State.ObservePool(now, p)
}
