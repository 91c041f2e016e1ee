package allocator

import (
	"cmp"
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrExhausted is inside every *ExhaustedError.
	ErrExhausted = errors.New("no free block is large enough")
	// ErrCount answers a request for less than one address.
	ErrCount = errors.New("the number of addresses must be at least 1")
	// ErrNobody answers a request in the name of holder 0.
	ErrNobody = errors.New("holder 0 is nobody and can hold nothing")
)

// ExhaustedError says that no free run of a pool has Requested addresses. The
// numbers count addresses and saturate at MaxInt64.
type ExhaustedError struct {
	Requested int64
	Available int64 // free addresses of the pool
	Largest   int64 // the longest run of them
	Total     int64 // free or held: 0 where the pool blocks all that it declares
	// Family is set by who asked for the addresses of one, in a pool of two:
	// "IPv4" or "IPv6".
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

// OutsideError says that Range does not lie inside one of the ranges that a
// pool declares.
type OutsideError struct {
	Range  Range
	Window []Range // all that the pool declares, in address order
	// Why is set by who knows why the pool leaves Range out: "a network address, which spec.cidrs leaves out".
	Why string
}

func (e *OutsideError) Error() string {
	if touched := e.Straddled(); len(touched) > 1 {
		return fmt.Sprintf("%s spans more than one range (%s): it must lie inside one of them", e.Range, texts(touched))
	}
	if len(e.Window) == 0 {
		return fmt.Sprintf("%s is outside the pool, which offers no addresses", e.Range)
	}
	why := ""
	if e.Why != "" {
		why = " (" + e.Why + ")"
	}
	return fmt.Sprintf("%s is outside the pool%s: it must lie inside one of %s", e.Range, why, texts(e.Window))
}

// Straddled is the declared ranges that Range touches.
func (e *OutsideError) Straddled() []Range {
	var touched []Range
	for _, r := range e.Window {
		if r.Overlaps(e.Range) {
			touched = append(touched, r)
		}
	}
	return touched
}

// BlockedError says that an address of the request is held back for everybody:
// Range is the blocked range as some pool of the space declares it.
type BlockedError struct {
	Range Range
	// What is set by who knows what Range is to the pool that declares it: "is the gateway (spec.gateway)".
	What string
}

func (e *BlockedError) Error() string { return e.Text() + ": choose a range outside it" }

// Text is the error without advice.
func (e *BlockedError) Text() string { return e.Range.String() + " " + cmp.Or(e.What, "is reserved") }

// HeldError says that Holder has Range, the first part of the request that
// somebody has.
type HeldError struct {
	Range  Range
	Holder Holder
}

func (e *HeldError) Error() string {
	return fmt.Sprintf("%s is already held by holder %d: choose another range or release it first", e.Range, e.Holder)
}

// maxTold ranges are named in an error: a pool may declare thousands.
const maxTold = 8

func texts(ranges []Range) string {
	told := ranges[:min(len(ranges), maxTold)]
	all := make([]string, len(told))
	for i, r := range told {
		all[i] = r.String()
	}
	text := strings.Join(all, ", ")
	if more := len(ranges) - len(told); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
