package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrExhausted is wrapped by every *ExhaustedError.
	ErrExhausted = errors.New("no free block is large enough")
	// ErrCount is the error of a request for less than one address.
	ErrCount = errors.New("the number of addresses must be at least 1")
	// ErrNoOwner is the error of a request for owner 0.
	ErrNoOwner = errors.New("owner 0 is no owner and can own nothing")
)

// ExhaustedError reports that no free run of a pool has Requested addresses. The numbers
// count addresses and saturate at MaxInt64.
type ExhaustedError struct {
	Requested int64
	Available int64 // free addresses of the pool
	Largest   int64 // longest run of free addresses
	Total     int64 // free or owned addresses: 0 if all declared addresses are blocked
	// Family is "IPv4" or "IPv6", set by a caller that requested one family from a pool
	// with both.
	Family string
}

func (e *ExhaustedError) Error() string {
	noun, advice := "address", "release some or enlarge the pool"
	switch {
	case e.Total == 0 && e.Available == 0:
		advice = "the pool offers no address that is not reserved: reserve fewer or enlarge the pool"
	case e.Largest > 0: // and fewer than requested
		advice = "ask for fewer, " + advice
	}
	if e.Family != "" {
		noun = e.Family + " " + noun
	}
	return fmt.Sprintf("%s requested, %d free, largest free block %d: %s", Counted(e.Requested, noun), e.Available, e.Largest, advice)
}

func (e *ExhaustedError) Unwrap() error { return ErrExhausted }

// OutsideError reports that no declared range of a pool contains Range.
type OutsideError struct {
	Range  Range
	Window []Range // all declared ranges of the pool, in address order
	// Why is the reason why the pool leaves Range out, set by the caller: "a network
	// address, which spec.cidrs leaves out".
	Why string
}

func (e *OutsideError) Error() string {
	if touched := e.Straddled(); len(touched) > 1 {
		return fmt.Sprintf("%s spans more than one range (%s): it must lie inside one of them", e.Range, formatRanges(touched))
	}
	if len(e.Window) == 0 {
		return fmt.Sprintf("%s is outside the pool, which offers no addresses", e.Range)
	}
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("%s is outside the pool%s: it must lie inside one of %s", e.Range, why, formatRanges(e.Window))
}

// Straddled returns the declared ranges that Range touches.
func (e *OutsideError) Straddled() []Range {
	var touched []Range
	for _, r := range e.Window {
		if r.Overlaps(e.Range) {
			touched = append(touched, r)
		}
	}
	return touched
}

// BlockedError reports that an address of the request is blocked for all requests: Range
// is the blocked range as declared by a pool of the space.
type BlockedError struct {
	Range Range
	// What describes Range to the pool that declares it, set by the caller: "is the
	// gateway (spec.gateway)".
	What string
}

func (e *BlockedError) Error() string { return e.Text() + ": choose a range outside it" }

// Text returns the message without advice.
func (e *BlockedError) Text() string { return e.Range.String() + " " + cmp.Or(e.What, "is reserved") }

// OwnedError reports that OwnerID owns Range, the first part of the request that has an
// owner.
type OwnedError struct {
	Range   Range
	OwnerID OwnerID
}

func (e *OwnedError) Error() string {
	return fmt.Sprintf("%s is already owned by owner %d: choose another range or release it first", e.Range, e.OwnerID)
}

// maxNamed bounds the ranges that an error names: a pool may declare thousands.
const maxNamed = 8

func formatRanges(ranges []Range) string {
	named := ranges[:min(len(ranges), maxNamed)]
	all := make([]string, len(named))
	for i, r := range named {
		all[i] = r.String()
	}
	text := strings.Join(all, ", ")
	if more := len(ranges) - len(named); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
