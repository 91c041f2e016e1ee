package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

// anonymous has the objects that the reader of an Inventory may not see. The state machine gets each under a pseudonym: the addresses of a hidden object are
// owned, reserved or in cooldown as for every reader. Nothing else of a hidden object is kept.
//
//	Invariant: outside of type anonymous, an Inventory has no name, namespace or text of a hidden object
type anonymous struct {
	mayRead    func(Key) bool    // false for a hidden object
	pseudonyms map[Key]Key       // object -> pseudonym
	names      map[string]string // name of a pseudonym -> name of the object
	blocked    map[Key]blocked   // pseudonym of a pool -> what the pool blocks
}

// blocked is the ranges that a pool blocks in a routing domain.
type blocked struct {
	domain string
	ranges []allocator.Range
}

// pseudonymNamespace is the namespace of every pseudonym. The name is not valid for a namespace: messages of the state machine call a hidden object an object "in
// another namespace".
const pseudonymNamespace = "?"

// NewRestricted returns an Inventory for a reader who may see only the objects for which mayRead returns true. Add all stored objects: the Inventory shows the
// addresses of hidden objects as owned, reserved or in cooldown, without names. Declare the resources of hidden objects by LeaveOut.
func NewRestricted(now time.Time, mayRead func(Key) bool) *Inventory {
	i := New(now, nil)
	i.anonymous = &anonymous{mayRead: mayRead, pseudonyms: map[Key]Key{}, names: map[string]string{}, blocked: map[Key]blocked{}}
	return i
}

// IsAnonymous reports whether a key is the pseudonym of a hidden object. Only the resource of a pseudonym has a meaning.
func IsAnonymous(k Key) bool { return k.Namespace == pseudonymNamespace }

// isHidden reports whether the reader may not see an object.
func (i *Inventory) isHidden(k Key) bool { return i.anonymous != nil && !i.anonymous.mayRead(k) }

// mask returns the pseudonym of a hidden object, and the key of any other object.
func (i *Inventory) mask(k Key) Key {
	if k == (Key{}) || !i.isHidden(k) {
		return k
	}
	a := i.anonymous
	p, known := a.pseudonyms[k]
	if !known {
		p = Key{Resource: k.Resource, Namespace: pseudonymNamespace, Name: fmt.Sprint(len(a.pseudonyms) + 1)}
		a.pseudonyms[k], a.names[p.Name] = p, k.Name
	}
	return p
}

// maskPool replaces the keys of hidden objects in a pool, and removes the texts of a hidden pool.
func (i *Inventory) maskPool(p state.Pool) state.Pool {
	if i.anonymous == nil {
		return p
	}
	if kept := p.KeptFor; kept != nil {
		p.KeptFor = func(claim string) allocator.Range {
			return kept(cmp.Or(i.anonymous.names[claim], claim))
		}
	}
	p.Recorded = slices.Clone(p.Recorded)
	for n := range p.Recorded {
		p.Recorded[n].Claim = i.mask(p.Recorded[n].Claim)
	}
	if !i.isHidden(p.Key) {
		return p
	}
	p.Key, p.WhatIsBlocked, p.WhyOutside = i.mask(p.Key), nil, nil
	if p.Fault != "" {
		p.Fault = "breaks a rule"
	}
	return p
}

// maskClaim replaces the keys of hidden objects in a claim.
func (i *Inventory) maskClaim(c state.Claim) state.Claim {
	if i.anonymous != nil {
		c.Key, c.Pool, c.OwnerClaim = i.mask(c.Key), i.mask(c.Pool), i.mask(c.OwnerClaim)
	}
	return c
}
