package metal3

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Failure is why a claim gets no address, in the words that Metal3's users know from status.errorMessage and from condition Ready.
type Failure string

// Failures. Every other one quotes the annotation that cannot be read.
const (
	FailureExhausted     Failure = "Exhausted IP Pools"                                     // no address is free, or the one asked for is in no pool
	FailureHeld          Failure = "Requested IP not available"                             // somebody has the address asked for, or it is kept
	failureContradiction Failure = "PreAllocation and requested ip address are conflicting" // the pool keeps one address for the claim, which asks for another
	FailureOutside       Failure = "Pre-allocated IP out of bounds"                         // no entry of the pool reaches the address that it keeps for the claim
)

func (f Failure) Error() string { return string(f) }

// UnofferedError is an address that a claim asks for and no entry of its pool gives.
type UnofferedError struct {
	Pool    ledger.Key
	Address netip.Addr
	Why     string // an entry that could give it does not, "" where none could
}

func (e *UnofferedError) Error() string {
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("%s: %s is in no entry of pool %s%s", FailureExhausted, e.Address, e.Pool, why)
}

// Unwrap gives the failure of Metal3.
func (e *UnofferedError) Unwrap() error { return FailureExhausted }

// FailureUnreadable says that a claim asks for something that is no address. It is of a bounded length.
func FailureUnreadable(asked string) Failure {
	return Failure(fmt.Sprintf("Invalid ipAddress annotation %q: not a valid IP address", fields.Short(asked)))
}

// AddressError is an address object that the API server refuses to have created, or deleted.
type AddressError struct {
	Verb string // create or delete
	Err  error  // its answer
}

// Error is in the words that Metal3's users know, and says why. It is one line of a bounded length.
func (e *AddressError) Error() string {
	return fmt.Sprintf("Failed to %s associated IPAddress object: %s", e.Verb, fields.OneLine(e.Err.Error(), 1024))
}

// Unwrap gives the answer of the API server.
func (e *AddressError) Unwrap() error { return e.Err }

// Want is what a claim asks its pool for.
type Want struct {
	Address netip.Addr // this very one; any where it is not valid
	Kept    bool       // for this claim the pool keeps Address, or lets it be what it was: that it is blocked for everybody does not matter
}

// Ledger is the want in the ledger's words.
func (w Want) Ledger() []ledger.Want {
	if !w.Address.IsValid() {
		return []ledger.Want{{Count: 1}}
	}
	return []ledger.Want{{Exact: allocator.Range{First: w.Address, Last: w.Address}, Kept: w.Kept}}
}

// HeldFor is the claim that the first of some address objects makes, which holds an address of a pool for a claim: the address that the claim names, or any
// where the claim names none. False where no object does. Objects of other pools do not count: the name of a claim is the same in every pool.
func HeldFor(pool ledger.Key, named netip.Addr, objects ...ledger.Claim) (ledger.Claim, bool) {
	for _, o := range objects {
		if o.Pool == pool && len(o.Ranges) == 1 && !o.Deleting && (!named.IsValid() || o.Ranges[0].First == named) {
			return o, true
		}
	}
	return ledger.Claim{}, false
}

// WantOfStandIn is the address that an address object holds for a claim, whatever its IPPool keeps: the claim may have had it before that, and only the
// manager and admins of pools make such objects.
func WantOfStandIn(held ledger.Claim) []ledger.Want {
	return []ledger.Want{{Exact: held.Ranges[0], Kept: held.Pool.Kind == KindIPPool}}
}

// WantOfClaim is what a claim of either kind asks a pool for.
//
//	the claim brings an answer   its address, unless preAllocations keeps that under a name that no claim can have
//	else                         what WantOf returns
//
// An answer is an annotation, and every author of claims can write it. So it opens only addresses that are kept for a possible name, which the same
// author gets by creating the claim of that name. For the others see WantOfStandIn.
func WantOfClaim(p *v1alpha1.IPPool, c metav1.Object) (Want, error) {
	has, _ := Asked(c)
	switch {
	case !Answered(c):
		return WantOf(p, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	case !reached(p, has):
		return Want{}, unoffered(p, has)
	case isKept(p, has, func(name string) bool { return !canName(name) }):
		return Want{}, fmt.Errorf("%w: the pool keeps %s from every claim (spec.preAllocations)", FailureHeld, has)
	}
	return Want{Address: has, Kept: true}, nil
}

// canName tells whether a claim can have a name: the API server takes DNS subdomains.
func canName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// WantOf is what a claim asks a pool for that has no answer of ours. name is empty while it is to be generated: no address is kept for it then. asked is
// its annotation ipAddress, empty without one. The error has a Failure in it, and says more.
func WantOf(p *v1alpha1.IPPool, name, asked string) (Want, error) {
	var request netip.Addr
	if asked != "" {
		a, err := netip.ParseAddr(asked)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return Want{}, FailureUnreadable(asked)
		}
		request = a
	}
	if _, pinned := p.Spec.PreAllocations[name]; pinned && name != "" {
		own, err := readPin(p, name)
		switch {
		case err == nil && request.IsValid() && request != own:
			return Want{}, fmt.Errorf("%w: the pool keeps %s for a claim of this name (spec.preAllocations)", failureContradiction, own)
		case err != nil || !reached(p, own):
			return Want{}, fmt.Errorf("%w: the pool keeps %q for a claim of this name (spec.preAllocations), which is in none of its entries", FailureOutside, p.Spec.PreAllocations[name])
		}
		return Want{Address: own, Kept: true}, nil
	}
	switch {
	case !request.IsValid():
		return Want{}, nil
	case !reached(p, request):
		return Want{}, unoffered(p, request)
	case isKept(p, request, func(string) bool { return true }):
		return Want{}, fmt.Errorf("%w: the pool keeps %s for another claim (spec.preAllocations)", FailureHeld, request)
	}
	return Want{Address: request}, nil
}

// reached tells whether an entry of a pool gives an address.
func reached(p *v1alpha1.IPPool, a netip.Addr) bool {
	_, has := partWith(p, a)
	return has
}

// unoffered is the error of a claim that names an address which no entry of its pool gives.
func unoffered(p *v1alpha1.IPPool, a netip.Addr) error {
	e := &UnofferedError{Pool: IPPoolKey(p.Namespace, p.Name), Address: a}
	for i, declared := range p.Spec.Pools {
		read, errs := readEntry(i, declared)
		if len(errs) > 0 || !read.subnet.IsValid() || !read.subnet.Contains(a) {
			continue
		}
		e.Why = fmt.Sprintf("%s has it in its subnet, but starts behind it", entryPath(i))
		if last := read.reachable().Last; last.Less(a) {
			e.Why = fmt.Sprintf("%s has it in its subnet, but ends before it", entryPath(i))
		}
		break
	}
	return e
}

// isKept tells whether a pool keeps an address under a name that counts.
func isKept(p *v1alpha1.IPPool, a netip.Addr, counts func(name string) bool) bool {
	for name := range p.Spec.PreAllocations {
		if kept, err := readPin(p, name); err == nil && kept == a && counts(name) {
			return true
		}
	}
	return false
}
