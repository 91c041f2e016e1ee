package state

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// NoPoolError reports that the pool is not known: it does not exist, or it has not been
// observed.
type NoPoolError struct{ Pool Key }

func (e *NoPoolError) Error() string { return fmt.Sprintf("pool %s does not exist", e.Pool) }

// OtherDomainError reports that the pool of a claim is in another routing domain than the
// addresses of the claim.
type OtherDomainError struct {
	Pool              Key
	PoolRoutingDomain string // routing domain of the pool
	RoutingDomain     string // routing domain of the claim's addresses
}

func (e *OtherDomainError) Error() string {
	return fmt.Sprintf("pool %s is in routing domain %q, and the addresses of the claim are in routing domain %q: create another claim for addresses of the pool", e.Pool, e.PoolRoutingDomain, e.RoutingDomain)
}

// PoolDeletingError reports that the pool is being deleted.
type PoolDeletingError struct{ Pool Key }

func (e *PoolDeletingError) Error() string {
	return fmt.Sprintf("pool %s is being deleted and allocates no more addresses: use another pool", e.Pool)
}

// PoolPausedError reports that the pool allocates only ranges that are requested by
// address until the annotation that pauses it is removed.
type PoolPausedError struct{ Pool Key }

func (e *PoolPausedError) Error() string {
	return fmt.Sprintf("pool %s is paused (annotation cluster.x-k8s.io/paused): addresses are allocated when the annotation is removed", e.Pool)
}

// FaultyPoolError reports that the stored pool breaks a rule and offers nothing.
type FaultyPoolError struct {
	Pool  Key
	Fault string
}

func (e *FaultyPoolError) Error() string {
	return fmt.Sprintf("pool %s breaks a rule and allocates no addresses until it is corrected: %s", e.Pool, e.Fault)
}

// NotAutomaticError reports that the pool allocates only ranges that are requested by
// address.
type NotAutomaticError struct{ Pool Key }

func (e *NotAutomaticError) Error() string {
	return fmt.Sprintf("pool %s does not assign addresses automatically (spec.autoAssign is false): request one of its addresses, or set spec.autoAssign to true", e.Pool)
}

// FamilyError reports that the pool has no addresses of a family.
type FamilyError struct {
	Pool Key
	Bits int // of the requested addresses: 32 or 128
}

func (e *FamilyError) Error() string {
	return fmt.Sprintf("pool %s offers no %s addresses: use a pool that does, or add some to it", e.Pool, FamilyName(e.Bits))
}

// FamilyName returns "IPv4" or "IPv6" for the bits of an address.
func FamilyName(bits int) string {
	if bits == 32 {
		return "IPv4"
	}
	return "IPv6"
}

// PoolError adds the pool's name to an error of package allocator (ExhaustedError,
// OutsideError, BlockedError, ErrCount).
type PoolError struct {
	Pool  Key // of the claim; zero for none
	By    Key // pool that blocks the range, if it is not Pool
	Err   error
	Until time.Time // of an exhausted pool: end of its first cooldown; zero if the cooldowns of the pool free too few addresses
	// Withheld is set if addresses of an exhausted pool are withheld: Withheld.Range is
	// the first withheld range.
	Withheld *OwnedError
	// Promised is the number of addresses of an exhausted pool that are promised to
	// creates in progress. From PromisedUntil on, the first of them are free again if
	// their objects have not been stored; zero while the commit of their grant is
	// outstanding.
	Promised      int64
	PromisedUntil time.Time
}

// Error returns the message for a reader in the namespace of the claim's pool. Only
// SeenFrom serves the Service of a ProxyVIP, whose pool has no namespace.
func (e *PoolError) Error() string { return e.text(e.Pool.Namespace, e.Err.Error()) }

// SeenFrom returns the message for a reader in a place, who may not know the pools and
// owners in other namespaces; "" is no namespace.
func (e *PoolError) SeenFrom(place string) string {
	cause := e.Err.Error()
	if owned := (*OwnedError)(nil); errors.As(e.Err, &owned) {
		cause = owned.SeenFrom(place)
	}
	return e.text(place, cause)
}

func (e *PoolError) text(place, cause string) string {
	if errors.Is(e.Err, allocator.ErrExhausted) {
		return "pool exhausted: " + e.where(place, cause) // the words that the documents of the APIs let users look for
	}
	return e.where(place, cause)
}

// where names the pool before the cause, and what to wait for after it.
func (e *PoolError) where(place, cause string) string {
	var wait []string
	switch {
	case e.Withheld != nil:
		wait = append(wait, e.Withheld.SeenFrom(place))
	case !e.Until.IsZero():
		wait = append(wait, "released addresses are in cooldown, the first of them until "+e.Until.UTC().Format(time.RFC3339))
	}
	if e.Promised > 0 {
		wait = append(wait, e.promisedText())
	}
	switch {
	case len(wait) > 0:
		return fmt.Sprintf("pool %s: %s, or wait: %s", e.Pool, cause, strings.Join(wait, "; "))
	case e.By == Key{}:
		return fmt.Sprintf("pool %s: %s", e.Pool, cause)
	case e.Pool == Key{}:
		return fmt.Sprintf("pool %s: %s", e.By, cause)
	case place != "" && place != placeUnknown && e.By.isHiddenFrom(place): // pools, unlike owners, are named to readers of cluster-scoped objects
		return fmt.Sprintf("pool %s: in a pool of another namespace %s", e.Pool, cause)
	}
	return fmt.Sprintf("pool %s: in pool %s %s", e.Pool, e.By, cause)
}

// promisedText describes the addresses that are promised to creates in progress.
func (e *PoolError) promisedText() string {
	until := "soon"
	if !e.PromisedUntil.IsZero() {
		until = "from " + e.PromisedUntil.UTC().Format(time.RFC3339) + " on"
	}
	return fmt.Sprintf("%s %s promised to creates in progress, and those of failed creates are free again %s",
		allocator.Counted(e.Promised, "address"), allocator.Agree(e.Promised, "is", "are"), until)
}

func (e *PoolError) Unwrap() error { return e.Err }

// OwnedError reports that a range is not free: owned, granted, in cooldown, moved or
// withheld.
type OwnedError struct {
	Range         allocator.Range // the part of the requested range that is not free
	Owner         Key             // stored claim, claim of the open grant, moved claim, or pool of a withheld range; zero for a range in cooldown
	Pool          Key             // of the owner; zero if not known
	RoutingDomain string          // routing domain of the owner
	Until         time.Time       // set if the range is in cooldown or withheld
	Moved         bool            // the range was moved to another cluster with Owner, a claim that is not stored here
	// Withheld: Owner is a pool whose update removes the range and has not been observed.
	// If the update is not stored, the range is free at Until; Until is zero while the
	// commit of the withheld range is outstanding.
	Withheld bool
	// Promised: the owner is an open grant to a create that is in flight or has failed.
	Promised bool
}

func (e *OwnedError) Error() string { return e.SeenFrom(placeOfLog) }

// SeenFrom returns the message for a reader in a namespace, without the names of owners
// in namespaces that are not the reader's; "" is the place of readers of cluster-scoped
// objects.
func (e *OwnedError) SeenFrom(place string) string {
	switch {
	case e.Moved:
		return fmt.Sprintf("%s was moved to another cluster, where it is owned %s", e.Range, e.Owner.SeenFrom(place))
	case e.Withheld && e.Owner.isHiddenFrom(place):
		return withheldText(e.Range, "a pool", e.Until)
	case e.Withheld:
		return withheldText(e.Range, "pool "+e.Owner.String(), e.Until)
	case !e.Until.IsZero():
		return fmt.Sprintf("%s was released and is in cooldown until %s", e.Range, e.Until.UTC().Format(time.RFC3339))
	}
	text := fmt.Sprintf("%s is owned %s", e.Range, e.Owner.SeenFrom(place))
	if e.Promised && e.Owner.Name != "" && !e.Owner.isHiddenFrom(place) {
		text += ", whose create is in flight or has failed"
	}
	return text
}

// OwnerSeenFrom returns the stored object that owns the range. The result is false in
// each of these cases:
//
//   - the range is in cooldown, withheld or moved
//   - the range is granted to a create that is in flight or has failed
//   - a reader in the place may not know the owner
func (e *OwnedError) OwnerSeenFrom(place string) (Key, bool) {
	owned := !e.Moved && !e.Withheld && !e.Promised && e.Until.IsZero() && e.Owner.Name != ""
	return e.Owner, owned && !e.Owner.isHiddenFrom(place)
}

// ErrForged reports that the ranges and the token of an object do not belong to an open
// grant of the object.
var ErrForged = errors.New("range and token are not those of an open grant")

// ErrNoGrant is an ErrForged: no open grant has the token.
var ErrNoGrant = fmt.Errorf("%w: there is none with that token", ErrForged)

// StrandedError reports that a pool would be in another routing domain than a stored
// claim that names it, while an address of the claim has another owner in the routing
// domain of the pool.
type StrandedError struct {
	Pool              Key
	PoolRoutingDomain string // routing domain of the pool
	Range             allocator.Range
	Owner             Key    // stored claim that names the pool
	RoutingDomain     string // routing domain of the claim's addresses
	Other             Key    // owner in the routing domain of the pool
}

func (e *StrandedError) Error() string { return e.SeenFrom(placeOfLog) }

// SeenFrom returns the message for a reader in a namespace, without the names of owners
// in namespaces that are not the reader's.
func (e *StrandedError) SeenFrom(place string) string {
	return fmt.Sprintf("pool %s cannot be in routing domain %q: %s is owned %s in routing domain %q through a pool of this name, and %s in routing domain %q: "+
		"delete the first owner before, or give the pool another name", e.Pool, e.PoolRoutingDomain, e.Range, e.Owner.SeenFrom(place), e.RoutingDomain, e.Other.SeenFrom(place), e.PoolRoutingDomain)
}

// NotServingError reports that this replica cannot allocate now. A repetition of the call
// may succeed shortly.
type NotServingError struct {
	Reason     string
	RetryAfter time.Duration
	// NoOtherReplica: no other replica can serve the call either, as the reason does not
	// depend on the replica (the journal is full). The call is neither forwarded nor
	// answered in a way that sends it to another replica: the client repeats it after
	// RetryAfter.
	NoOtherReplica bool
	// JournalFull: the journal has no room for another grant of the namespace.
	JournalFull bool
}

// ErrNotLeader is the error of a follower.
var ErrNotLeader = &NotServingError{Reason: "this replica does not lead"}

// ErrBehind is the error for a stored claim whose version has not been observed.
var ErrBehind = &NotServingError{Reason: "the stored version of the object has not been observed yet", RetryAfter: time.Second, NoOtherReplica: true}

func (e *NotServingError) Error() string { return "cannot allocate now: " + e.Reason }

// InUseError reports that a pool update would remove addresses from their owner.
type InUseError struct {
	Pool  Key
	What  string // what the update does to the addresses: "would leave the pool's ranges", "would become reserved", …
	Else  string // alternative to deleting the owner
	Range allocator.Range
	Owner Key // claim, stored or with an open grant
	// Others is the number of further owners whose addresses the update would remove.
	// With AtLeast, there may be more.
	Others  int
	AtLeast bool
}

func (e *InUseError) Error() string { return e.SeenFrom(placeOfLog) }

// SeenFrom returns the message for a reader in a namespace, without the names of owners
// in namespaces that are not the reader's; "" is the place of readers of cluster-scoped
// objects.
func (e *InUseError) SeenFrom(place string) string {
	others, owners := "", "the owner"
	if e.Others > 0 {
		others, owners = fmt.Sprintf(", and further addresses by %d others", e.Others), "the owners"
		switch {
		case e.AtLeast:
			others = fmt.Sprintf(", and further addresses by at least %d others", e.Others)
		case e.Others == 1:
			others = ", and further addresses by 1 other"
		}
	}
	return fmt.Sprintf("pool %s: %s %s while it is owned %s%s: delete %s first, or %s", e.Pool, e.Range, e.What, e.Owner.SeenFrom(place), others, owners, e.Else)
}
