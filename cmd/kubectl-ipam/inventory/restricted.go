package inventory

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/state"
)

// anonymous contains the objects hidden from the reader of an Inventory. The state
// machine gets each hidden object under a pseudonym: for every reader, the addresses of a
// hidden object are owned, reserved or in cooldown. An Inventory keeps no other data of a
// hidden object.
//
//	Invariant: outside of type anonymous, an Inventory has no name, namespace or text of a hidden object
type anonymous struct {
	mayRead    func(Key) bool    // false for a hidden object
	pseudonyms map[Key]Key       // object -> pseudonym
	names      map[string]string // name of a pseudonym -> name of the object
	blocked    map[Key]blocked   // pseudonym of a pool -> ranges blocked by the pool
}

// blocked lists the ranges that a hidden pool blocks in its routing domain.
type blocked struct {
	domain string
	ranges []allocator.Range
}

// pseudonymNamespace is the namespace of every pseudonym, and begins its name. Kubernetes
// permits no namespace and no claim of such a name. So messages of the state machine
// describe a hidden object as an object "in another namespace", and no visible claim has
// the name of a pseudonym.
const pseudonymNamespace = "?"

// NewRestricted returns an Inventory for a reader who may see only the objects for which
// mayRead returns true. The caller adds all stored objects, and declares the resources of
// hidden objects by LeaveOut. The Inventory shows the addresses of hidden objects as
// owned, reserved or in cooldown, without names.
func NewRestricted(now time.Time, mayRead func(Key) bool) *Inventory {
	i := New(now, nil)
	i.anonymous = &anonymous{mayRead: mayRead, pseudonyms: map[Key]Key{}, names: map[string]string{}, blocked: map[Key]blocked{}}
	return i
}

// IsAnonymous reports whether a key is the pseudonym of a hidden object. Only the
// resource of a pseudonym has a meaning.
func IsAnonymous(k Key) bool { return k.Namespace == pseudonymNamespace }

// isHidden reports whether an object is hidden from the reader.
func (i *Inventory) isHidden(k Key) bool { return i.anonymous != nil && !i.anonymous.mayRead(k) }

// mask returns the pseudonym of a hidden object, and the unchanged key of a visible
// object.
func (i *Inventory) mask(k Key) Key {
	if k == (Key{}) || !i.isHidden(k) {
		return k
	}
	a := i.anonymous
	p, known := a.pseudonyms[k]
	if !known {
		p = Key{Resource: k.Resource, Namespace: pseudonymNamespace, Name: pseudonymNamespace + fmt.Sprint(len(a.pseudonyms)+1)}
		a.pseudonyms[k], a.names[p.Name] = p, k.Name
	}
	return p
}

// maskPool replaces the keys of hidden objects in a pool, and removes the texts of a
// hidden pool.
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
