package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"
)

// claims are the stored claims and address objects, with a range or without.
//
// Invariants:
//
//   - a claim is listed under its UID, an address object also under its claim
//   - a claim with a holding of a pool is listed as an owner of that pool
//   - a claim with deferredFor is listed as deferred for that pool, and has no holding
type claims struct {
	byUID    map[string]*claim // UID -> claim
	objects  map[Key][]*claim  // claim, stored or not -> address objects whose OwnerClaim is the claim
	owners   setsByKey[*claim] // pool, known or not -> claims that own a range of the pool
	deferred setsByKey[*claim] // pool, known or not -> claims that name ranges of the pool and are deferred
}

func newClaims() claims {
	return claims{byUID: map[string]*claim{}, objects: map[Key][]*claim{}, owners: setsByKey[*claim]{}, deferred: setsByKey[*claim]{}}
}

// setsByKey are sets of elements by a key. There is no empty set.
type setsByKey[E comparable] map[Key]map[E]struct{}

func (s setsByKey[E]) add(k Key, e E) {
	if s[k] == nil {
		s[k] = map[E]struct{}{}
	}
	s[k][e] = struct{}{}
}

func (s setsByKey[E]) remove(k Key, e E) {
	if delete(s[k], e); len(s[k]) == 0 {
		delete(s, k)
	}
}

func (s setsByKey[E]) has(k Key, e E) bool {
	_, found := s[k][e]
	return found
}

// claim is a stored claim or address object.
type claim struct {
	Claim
	unserved    bool     // the API of the claim is switched off
	holding     *holding // nil if the claim has no range, is deferred, or is an address object whose owner claim owns the range
	deferredFor Key      // pool for which the claim is deferred; zero if the claim is not deferred
	hadGrant    bool     // this process has known an open grant of the ranges: as leader, or in the journal that it took over
	// unverified: the stored status is of other addresses than the claim names, and no
	// grant covers the addresses, so Ready does not prove ownership. The addresses
	// changed after the status became Ready, or the claim is altered.
	unverified bool
	// altered: the claim names other ranges than the allocator's records of the claim, as
	// of the last check (isAltered).
	altered bool
	// tokenSpent: the ranges changed and the token did not, so the token proves nothing
	// about the ranges.
	tokenSpent bool
	// boundAt is when the claim was bound. StartGranting sets the zero moment for the
	// claims bound before the term. Invariant: boundAt is not later than the present
	// moment of proofs while granting
	boundAt moment
	// journaled: the claim was bound by a grant that the journal contained. The next
	// leader either inherits the grant, or waits until it has observed the claim: so a
	// consistent read that began after the claim was bound and shows this term confirms
	// the claim, as a commit does.
	journaled bool
	// inheritedGrant: the claim was bound by a grant of an earlier leader. That leader
	// may have confirmed the claim by a read, before this leader observed it.
	inheritedGrant bool
	// cooldownBegan is when the cooldown of the range began, before the claim is gone;
	// zero if the cooldown has not begun.
	cooldownBegan    time.Time
	cooldownRecorded bool // the pool has recorded the cooldown, while the claim is stored
	// deletingSince is when the state first observed that the deletion of the claim was
	// requested (Deleting); zero if the first observed version was being deleted already.
	deletingSince time.Time
	// deletionVersion is the first observed version of the claim whose deletion was
	// requested; 0 if the deletion was not requested.
	deletionVersion uint64
}

// ready reports whether the stored status proves that the claim owns its addresses.
func (c *claim) ready() bool { return c.Ready && !c.unverified }

// find returns the claim with a UID; nil if there is none.
func (c *claims) find(uid string) *claim { return c.byUID[uid] }

// all iterates over all claims. The loop may add and remove claims.
func (c *claims) all() iter.Seq[*claim] { return maps.Values(c.byUID) }

// number returns the number of claims.
func (c *claims) number() int { return len(c.byUID) }

// add adds a claim that is observed for the first time.
func (c *claims) add(observed Claim, unserved bool) *claim {
	added := &claim{unserved: unserved}
	c.byUID[observed.UID] = added
	if observed.OwnerClaim != (Key{}) {
		c.objects[observed.OwnerClaim] = append(c.objects[observed.OwnerClaim], added)
	}
	return added
}

// remove removes a claim that is gone.
func (c *claims) remove(gone *claim) {
	delete(c.byUID, gone.UID)
	c.resume(gone)
	if of := gone.OwnerClaim; of != (Key{}) {
		if c.objects[of] = slices.DeleteFunc(c.objects[of], func(o *claim) bool { return o == gone }); len(c.objects[of]) == 0 {
			delete(c.objects, of)
		}
	}
}

// objectsOf returns the address objects of a claim, which need not be stored.
func (c *claims) objectsOf(k Key) []*claim { return c.objects[k] }

// addOwner lists a claim as an owner of its pool.
func (c *claims) addOwner(owner *claim) {
	if owner.Pool != (Key{}) {
		c.owners.add(owner.Pool, owner)
	}
}

// removeOwner removes a claim from the owners of the pool of its holding.
func (c *claims) removeOwner(owner *claim) { c.owners.remove(owner.holding.pool, owner) }

// ownersOf iterates over the claims that own a range of a pool. The loop may add and
// remove owners.
func (c *claims) ownersOf(pool Key) iter.Seq[*claim] { return maps.Keys(c.owners[pool]) }

// numberOfOwners returns the number of claims that own a range of a pool.
func (c *claims) numberOfOwners(pool Key) int { return len(c.owners[pool]) }

// postpone makes a claim wait until its pool offers the ranges that the claim names.
func (c *claims) postpone(deferred *claim) {
	deferred.deferredFor = deferred.Pool
	c.deferred.add(deferred.Pool, deferred)
}

// resume removes a claim from the deferred claims.
func (c *claims) resume(deferred *claim) {
	c.deferred.remove(deferred.deferredFor, deferred)
	deferred.deferredFor = Key{}
}

// deferredFor returns the claims that are deferred for a pool.
func (c *claims) deferredFor(pool Key) []*claim { return slices.Collect(maps.Keys(c.deferred[pool])) }

// poolsAwaited returns the pools for which claims are deferred.
func (c *claims) poolsAwaited() []Key { return slices.Collect(maps.Keys(c.deferred)) }

// check verifies the invariants.
func (c *claims) check() error {
	for uid, o := range c.byUID {
		switch {
		case uid != o.UID:
			return fmt.Errorf("claim %s has UID %s, indexed as %s", o.Key, o.UID, uid)
		case o.OwnerClaim != (Key{}) && !slices.Contains(c.objects[o.OwnerClaim], o):
			return fmt.Errorf("address object %s is not listed under its claim %s", o.Key, o.OwnerClaim)
		case o.holding != nil && o.holding.pool != (Key{}) && !c.owners.has(o.holding.pool, o):
			return fmt.Errorf("claim %s is not among the owners of pool %s", o.Key, o.holding.pool)
		case o.holding != nil && o.deferredFor != (Key{}):
			return fmt.Errorf("claim %s is deferred and owns a range", o.Key)
		case c.deferred.has(o.deferredFor, o) != (o.deferredFor != Key{}):
			return fmt.Errorf("claim %s: deferred for %q, not listed so", o.Key, o.deferredFor)
		}
	}
	return nil
}
