package metal3

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Failure is why a claim gets no address, in the words that Metal3's users know from
// status.errorMessage and from condition Ready.
type Failure string

// Failures. NewUnreadableFailure returns the failure of an invalid annotation.
const (
	FailureExhausted     Failure = "Exhausted IP Pools"                                     // no address is free, or no pool offers the requested address
	FailureUnavailable   Failure = "Requested IP not available"                             // the requested address is owned or pre-allocated
	failureContradiction Failure = "PreAllocation and requested ip address are conflicting" // the pool reserves another address for the claim than the claim requests
	FailureOutside       Failure = "Pre-allocated IP out of bounds"                         // no entry of the pool offers the address reserved for the claim
)

func (f Failure) Error() string { return string(f) }

// UnofferedError reports that no entry of the pool offers the address that a claim
// requests.
type UnofferedError struct {
	Pool    ledger.Key
	Address netip.Addr
	Reason  string // why an entry with the address in its subnet does not offer the address; "" without such an entry
}

func (e *UnofferedError) Error() string {
	why := ""
	if e.Reason != "" {
		why = " (" + e.Reason + ")"
	}
	return fmt.Sprintf("%s: %s is in no entry of pool %s%s", FailureExhausted, e.Address, e.Pool, why)
}

// Unwrap returns Metal3's failure.
func (e *UnofferedError) Unwrap() error { return FailureExhausted }

// NewUnreadableFailure returns the failure of a claim whose requested address is invalid.
// The text has a bounded length.
func NewUnreadableFailure(asked string) Failure {
	return Failure(fmt.Sprintf("Invalid ipAddress annotation %q: not a valid IP address", fieldtext.Shorten(asked)))
}

// AddressError reports that the API server denied the creation or deletion of an address
// object.
type AddressError struct {
	Verb string // create or delete
	Err  error  // response of the API server
}

// Error returns one line of bounded length, in the words that Metal3's users know, with
// the reason.
func (e *AddressError) Error() string {
	return fmt.Sprintf("Failed to %s associated IPAddress object: %s", e.Verb, fieldtext.SingleLine(e.Err.Error(), 1024))
}

// Unwrap returns the response of the API server.
func (e *AddressError) Unwrap() error { return e.Err }

// AddressRequest is what a claim requests from its pool.
type AddressRequest struct {
	Address netip.Addr // exact address; a free address if not valid
	// IgnorePoolBlocks: the claim may get Address although the pool reserves it:
	// preAllocations reserves Address for this claim, or the claim names an earlier
	// allocation.
	IgnorePoolBlocks bool
}

// ToLedger converts a request for the ledger.
func (r AddressRequest) ToLedger() []ledger.RangeRequest {
	if !r.Address.IsValid() {
		return []ledger.RangeRequest{{Count: 1}}
	}
	return []ledger.RangeRequest{{Exact: allocator.Range{First: r.Address, Last: r.Address}, IgnorePoolBlocks: r.IgnorePoolBlocks}}
}

// FindAddressObject returns the first address object that owns an address of a pool on
// behalf of a claim: the address that the claim names, or any address if the claim names
// none. Objects of other pools do not count: claims of different pools may have the same
// name.
func FindAddressObject(pool ledger.Key, named netip.Addr, objects ...ledger.Claim) (ledger.Claim, bool) {
	for _, o := range objects {
		if o.Pool == pool && len(o.Ranges) == 1 && !o.Deleting && (!named.IsValid() || o.Ranges[0].First == named) {
			return o, true
		}
	}
	return ledger.Claim{}, false
}

// BuildObjectRequest requests the address of an address object, even if the IPPool
// reserves the address: the claim may have owned the address before the reservation, and
// only the manager and pool admins create address objects.
func BuildObjectRequest(owned ledger.Claim) []ledger.RangeRequest {
	return []ledger.RangeRequest{{Exact: owned.Ranges[0], IgnorePoolBlocks: owned.Pool.Resource == ResourceIPPool}}
}

// BuildClaimRequest returns the request of a claim of either kind.
//
//	the claim names an earlier allocation   that address, unless preAllocations keeps the address from every claim
//	otherwise                               the result of BuildRequest
//
// The annotations ipAddress and origin name an earlier allocation, for example in a
// backup; but every author of claims can write them. Therefore they permit only addresses
// that preAllocations keeps under a name that a claim can have: the same author could get
// such an address by creating the claim of that name. An entry under another name, such
// as _gateway, keeps its address from every claim. For such an address see
// BuildObjectRequest.
func BuildClaimRequest(p *v1alpha1.IPPool, c metav1.Object) (AddressRequest, error) {
	has, _ := ParseAddressAnnotation(c)
	switch {
	case !HasAllocatedAddress(c):
		return BuildRequest(p, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	case !isOffered(p, has):
		return AddressRequest{}, newUnofferedError(p, has)
	case isPreAllocated(p, has, func(name string) bool { return !isPossibleName(name) }):
		return AddressRequest{}, fmt.Errorf("%w: the pool keeps %s from every claim (spec.preAllocations)", FailureUnavailable, has)
	}
	return AddressRequest{Address: has, IgnorePoolBlocks: true}, nil
}

// isPossibleName reports whether a claim can have a name: the API server accepts DNS
// subdomains.
func isPossibleName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// BuildRequest returns the request of a claim without an allocated address. name is empty
// until generateName is expanded: no address is reserved then. asked is the annotation
// ipAddress, or empty. The error wraps a Failure and adds the reason.
func BuildRequest(p *v1alpha1.IPPool, name, asked string) (AddressRequest, error) {
	var request netip.Addr
	if asked != "" {
		a, err := netip.ParseAddr(asked)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return AddressRequest{}, NewUnreadableFailure(asked)
		}
		request = a
	}
	if _, pinned := p.Spec.PreAllocations[name]; pinned && name != "" {
		own, err := parsePreAllocation(p, name)
		switch {
		case err == nil && request.IsValid() && request != own:
			return AddressRequest{}, fmt.Errorf("%w: the pool keeps %s for a claim of this name (spec.preAllocations)", failureContradiction, own)
		case err != nil || !isOffered(p, own):
			return AddressRequest{}, fmt.Errorf("%w: the pool keeps %q for a claim of this name (spec.preAllocations), which is in none of its entries", FailureOutside, p.Spec.PreAllocations[name])
		}
		return AddressRequest{Address: own, IgnorePoolBlocks: true}, nil
	}
	switch {
	case !request.IsValid():
		return AddressRequest{}, nil
	case !isOffered(p, request):
		return AddressRequest{}, newUnofferedError(p, request)
	case isPreAllocated(p, request, func(string) bool { return true }):
		return AddressRequest{}, fmt.Errorf("%w: the pool keeps %s for another claim (spec.preAllocations)", FailureUnavailable, request)
	}
	return AddressRequest{Address: request}, nil
}

// isOffered reports whether an entry of a pool offers an address.
func isOffered(p *v1alpha1.IPPool, a netip.Addr) bool {
	_, has := findOfferedRange(p, a)
	return has
}

// newUnofferedError returns the error for a requested address that no entry of the pool
// offers.
func newUnofferedError(p *v1alpha1.IPPool, a netip.Addr) error {
	e := &UnofferedError{Pool: IPPoolKey(p.Namespace, p.Name), Address: a}
	for i, declared := range p.Spec.Pools {
		read, errs := parseEntry(i, declared)
		if len(errs) > 0 || !read.subnet.IsValid() || !read.subnet.Contains(a) {
			continue
		}
		e.Reason = fmt.Sprintf("%s has it in its subnet, but starts behind it", entryPath(i))
		if last := read.offeredRange().Last; last.Less(a) {
			e.Reason = fmt.Sprintf("%s has it in its subnet, but ends before it", entryPath(i))
		}
		break
	}
	return e
}

// isPreAllocated reports whether a pool reserves an address under a name accepted by
// counts.
func isPreAllocated(p *v1alpha1.IPPool, a netip.Addr, counts func(name string) bool) bool {
	for name := range p.Spec.PreAllocations {
		if kept, err := parsePreAllocation(p, name); err == nil && kept == a && counts(name) {
			return true
		}
	}
	return false
}
