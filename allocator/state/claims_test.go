package state

import (
	"slices"
	"testing"
)

func TestClaims_AreListedWhileStored(t *testing.T) {
	c := newClaims()
	add := func(name string, of Key) *claim {
		observed := Claim{Key: key(name), UID: name, Pool: modelPool, OwnerClaim: of}
		added := c.add(observed, false)
		added.Claim = observed
		return added
	}
	owner, object, waits := add("a", Key{}), add("object", key("a")), add("waits", Key{})
	h := &holding{pool: modelPool, claim: owner}
	owner.holding = h
	if c.check() == nil {
		t.Error("check accepts an owner that is not listed under its pool")
	}
	c.addOwner(owner)
	c.postpone(waits)
	if err := c.check(); err != nil {
		t.Error(err)
	}
	if list := c.objectsOf(key("a")); len(list) != 1 || list[0] != object {
		t.Errorf("address objects: %v", list)
	}
	if !slices.Equal(c.deferredFor(modelPool), []*claim{waits}) || !slices.Equal(c.poolsAwaited(), []Key{modelPool}) || waits.deferredFor != modelPool {
		t.Errorf("deferred: %v for %v", c.deferredFor(modelPool), c.poolsAwaited())
	}
	if c.numberOfOwners(modelPool) != 1 || c.number() != 3 {
		t.Errorf("%d owners, %d claims", c.numberOfOwners(modelPool), c.number())
	}
	c.removeOwner(owner)
	owner.holding = nil
	for _, gone := range []*claim{owner, object, waits} {
		c.remove(gone)
	}
	if c.number() != 0 || len(c.objects) != 0 || len(c.owners) != 0 || len(c.deferred) != 0 || c.find("a") != nil {
		t.Errorf("in the end: %+v", c)
	}
}
