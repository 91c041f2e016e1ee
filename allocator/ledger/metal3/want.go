package metal3

import (
	"fmt"
	"net/netip"

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

// WantOfStandIn is the address that an address object holds for a claim, whoever its IPPool keeps it for: the claim may have had it before that.
func WantOfStandIn(held ledger.Claim) []ledger.Want {
	return []ledger.Want{{Exact: held.Ranges[0], Kept: held.Pool.Kind == KindIPPool}}
}

// WantOfClaim is what a claim of either kind asks a pool for. One that brings an answer of ours along, from another cluster or a backup, keeps its
// address as it would have there, whatever pins say by now. An answer that somebody wrote by hand opens nothing: who makes claims in the pool's
// namespace chooses their names, and pins are for names.
func WantOfClaim(p *v1alpha1.IPPool, c metav1.Object) (Want, error) {
	if !Answered(c) {
		return WantOf(p, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	}
	has, _ := Asked(c)
	if !reached(p, has) {
		return Want{}, FailureExhausted
	}
	return Want{Address: has, Kept: true}, nil
}

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
			return Want{}, fmt.Errorf("%w: the pool keeps %s for a claim of this name", failureContradiction, own)
		case err != nil || !reached(p, own):
			return Want{}, fmt.Errorf("%w: the pool keeps %q for a claim of this name, which is in none of its entries", FailureOutside, p.Spec.PreAllocations[name])
		}
		return Want{Address: own, Kept: true}, nil
	}
	switch {
	case !request.IsValid():
		return Want{}, nil
	case !reached(p, request):
		return Want{}, fmt.Errorf("%w: %s is in no entry of the pool", FailureExhausted, request)
	case keptForSome(p, request):
		return Want{}, fmt.Errorf("%w: the pool keeps %s for another claim", FailureHeld, request)
	}
	return Want{Address: request}, nil
}

// reached tells whether an entry of a pool gives an address.
func reached(p *v1alpha1.IPPool, a netip.Addr) bool {
	_, has := partWith(p, a)
	return has
}

// keptForSome tells whether a pool keeps an address for any claim.
func keptForSome(p *v1alpha1.IPPool, a netip.Addr) bool {
	for claim := range p.Spec.PreAllocations {
		if kept, err := readPin(p, claim); err == nil && kept == a {
			return true
		}
	}
	return false
}
