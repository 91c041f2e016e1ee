package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

// anonymous has the objects that the reader of an Inventory may not see. They take part in the state machine under pseudonyms: their addresses are owned,
// reserved or in cooldown as ever, and nothing else of them is kept.
//
//	Invariant: neither a name nor a namespace of such an object, nor a text from it, is in the Inventory outside of this type
type anonymous struct {
	mayRead    func(Key) bool
	pseudonyms map[Key]Key       // object -> pseudonym
	names      map[string]string // name of a pseudonym -> name of the object
	blocked    map[Key]blocked   // pseudonym of a pool -> what the pool blocks
}

// blocked is the ranges that a pool blocks in a routing domain.
type blocked struct {
	domain string
	ranges []allocator.Range
}

// pseudonymNamespace is the namespace of a pseudonym. No object can be in a namespace of this name, so that messages of the state machine call the object one of
// another namespace.
const pseudonymNamespace = "?"

// NewRestricted returns an Inventory for a reader who may see only the objects for which mayRead returns true. All objects may be added: the Inventory shows the
// addresses of other objects as owned, reserved or in cooldown, and has no name of them. Declare with LeaveOut what mayRead denies.
func NewRestricted(now time.Time, mayRead func(Key) bool) *Inventory {
	i := New(now, nil)
	i.anonymous = &anonymous{mayRead: mayRead, pseudonyms: map[Key]Key{}, names: map[string]string{}, blocked: map[Key]blocked{}}
	return i
}

// IsAnonymous reports whether a key stands for an object that the reader may not see: only the resource of the key has a meaning.
func IsAnonymous(k Key) bool { return k.Namespace == pseudonymNamespace }

// isHidden reports whether the reader may not see an object.
func (i *Inventory) isHidden(k Key) bool { return i.anonymous != nil && !i.anonymous.mayRead(k) }

// mask returns the pseudonym of an object that the reader may not see, and the key of any other object.
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

// maskPool replaces the names in a pool. Of a pool that the reader may not see, the texts go too.
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

// maskClaim replaces the names in a claim.
func (i *Inventory) maskClaim(c state.Claim) state.Claim {
	if i.anonymous != nil {
		c.Key, c.Pool, c.OwnerClaim = i.mask(c.Key), i.mask(c.Pool), i.mask(c.OwnerClaim)
	}
	return c
}
