package annotated

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
)

// Failure is why a claim gets no address, in the words that Metal3's users know from
// status.errorMessage and from condition Ready.
type Failure string

// Failures. NewUnreadableFailure returns the failure of an invalid annotation.
const (
	FailureExhausted     Failure = "Exhausted IP Pools"                                     // no address is free, or no pool offers the requested address
	FailureUnavailable   Failure = "Requested IP not available"                             // the requested address is owned or pre-allocated
	FailureContradiction Failure = "PreAllocation and requested ip address are conflicting" // the pool reserves another address for the claim than the claim requests
	FailureOutside       Failure = "Pre-allocated IP out of bounds"                         // no entry of the pool offers the address reserved for the claim
)

func (f Failure) Error() string { return string(f) }

// Fault implements object.UnfitError.
func (f Failure) Fault() (at *field.Path, remedy string) {
	if f == FailureOutside {
		return field.NewPath("metadata", "name"), "take another name, or have the pool's spec.preAllocations corrected"
	}
	return AddressAnnotationPath(), "omit the annotation, or request an address that the pool offers to this claim"
}

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
