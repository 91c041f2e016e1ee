package metal3

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

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
	return fmt.Sprintf("%s: %s is in no entry of pool %s%s", annotated.FailureExhausted, e.Address, e.Pool, why)
}

// Unwrap returns Metal3's failure.
func (e *UnofferedError) Unwrap() error { return annotated.FailureExhausted }

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
func BuildClaimRequest(p *v1alpha1.IPPool, c metav1.Object) (annotated.AddressRequest, error) {
	has, _ := annotated.ParseAddressAnnotation(c)
	switch {
	case !annotated.HasAllocatedAddress(c):
		return BuildRequest(p, c.GetName(), c.GetAnnotations()[v1alpha1.AnnotationIPAddress])
	case !isOffered(p, has):
		return annotated.AddressRequest{}, newUnofferedError(p, has)
	case isPreAllocated(p, has, func(name string) bool { return !isPossibleName(name) }):
		return annotated.AddressRequest{}, fmt.Errorf("%w: the pool keeps %s from every claim (spec.preAllocations)", annotated.FailureUnavailable, has)
	}
	return annotated.AddressRequest{Address: has, IgnorePoolBlocks: true}, nil
}

// isPossibleName reports whether a claim can have a name: the API server accepts DNS
// subdomains.
func isPossibleName(name string) bool { return len(validation.NameIsDNSSubdomain(name, false)) == 0 }

// BuildRequest returns the request of a claim without an allocated address. name is empty
// until generateName is expanded: no address is reserved then. asked is the annotation
// ipAddress, or empty. The error wraps a Failure and adds the reason.
func BuildRequest(p *v1alpha1.IPPool, name, asked string) (annotated.AddressRequest, error) {
	var request netip.Addr
	if asked != "" {
		a, err := netip.ParseAddr(asked)
		if err != nil || a.Zone() != "" || a.Is4In6() {
			return annotated.AddressRequest{}, annotated.NewUnreadableFailure(asked)
		}
		request = a
	}
	if _, pinned := p.Spec.PreAllocations[name]; pinned && name != "" {
		own, err := parsePreAllocation(p, name)
		switch {
		case err == nil && request.IsValid() && request != own:
			return annotated.AddressRequest{}, fmt.Errorf("%w: the pool keeps %s for a claim of this name (spec.preAllocations)", annotated.FailureContradiction, own)
		case err != nil || !isOffered(p, own):
			return annotated.AddressRequest{}, fmt.Errorf("%w: the pool keeps %q for a claim of this name (spec.preAllocations), which is in none of its entries", annotated.FailureOutside, p.Spec.PreAllocations[name])
		}
		return annotated.AddressRequest{Address: own, IgnorePoolBlocks: true}, nil
	}
	switch {
	case !request.IsValid():
		return annotated.AddressRequest{}, nil
	case !isOffered(p, request):
		return annotated.AddressRequest{}, newUnofferedError(p, request)
	case isPreAllocated(p, request, func(string) bool { return true }):
		return annotated.AddressRequest{}, fmt.Errorf("%w: the pool keeps %s for another claim (spec.preAllocations)", annotated.FailureUnavailable, request)
	}
	return annotated.AddressRequest{Address: request}, nil
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
