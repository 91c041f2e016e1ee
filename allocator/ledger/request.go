package ledger

import (
	"errors"
	"fmt"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Want is one range that a claim asks for.
type Want struct {
	// Exact asks for this very range; where it is zero, Count addresses are chosen by the pool's policy.
	Exact allocator.Range
	// Kept says that the pool blocks Exact for everybody but this claim.
	Kept  bool
	Count int64
	// Bits is the length of the addresses to choose, 32 or 128; 0 where the pool has one family anyway.
	Bits int
}

// Request asks for the ranges of one claim, all or none. Those among them that a stored claim has already are not given again.
type Request struct {
	Claim Key    // Name is empty where the API server is yet to generate it
	UID   string // of a claim that is stored; empty for a create
	// Version is the resourceVersion of the stored claim that the answer is written over: one that is written over another cannot land.
	Version uint64
	ID      string // of the admission request, the same for each repetition of one call; empty for a reconciler
	Pool    Key    // zero for a claim that asks for exact ranges, of no certain pool
	Space   string // of a claim of no pool
	// Unoffered asks for exact ranges of the pool's routing domain, whatever the pool says of them: what stands in for a claim holds what it names.
	Unoffered bool
	Wants     []Want // that share no address
}

// Grant is the answer to a Request: committed to the journal, and marked by a token that no other answer carries.
type Grant struct {
	Ranges []allocator.Range // one for each want, in their order
	Space  string
	Token  journal.Token
}

// NoPoolError says that the pool is not known (yet).
type NoPoolError struct{ Pool Key }

func (e *NoPoolError) Error() string { return fmt.Sprintf("pool %s does not exist", e.Pool) }

// PoolDeletingError says that the pool is going.
type PoolDeletingError struct{ Pool Key }

func (e *PoolDeletingError) Error() string {
	return fmt.Sprintf("pool %s is being deleted and gives out no more addresses: use another pool", e.Pool)
}

// PoolPausedError reports that the pool gives only ranges that are asked for by name until the annotation that pauses it is removed.
type PoolPausedError struct{ Pool Key }

func (e *PoolPausedError) Error() string {
	return fmt.Sprintf("pool %s is paused (annotation cluster.x-k8s.io/paused): addresses are allocated when the annotation is removed", e.Pool)
}

// FaultyPoolError says that the pool, as it is stored, breaks a rule and offers nothing.
type FaultyPoolError struct {
	Pool  Key
	Fault string
}

func (e *FaultyPoolError) Error() string {
	return fmt.Sprintf("pool %s breaks a rule and gives out no addresses until it is corrected: %s", e.Pool, e.Fault)
}

// NotAutomaticError says that the pool gives only addresses that are asked for by name.
type NotAutomaticError struct{ Pool Key }

func (e *NotAutomaticError) Error() string {
	return fmt.Sprintf("pool %s does not assign addresses by itself: ask for a certain one of its addresses, or set the pool's spec.autoAssign to true", e.Pool)
}

// FamilyError says that the pool has no addresses of a family.
type FamilyError struct {
	Pool Key
	Bits int // of the addresses asked for: 32 or 128
}

func (e *FamilyError) Error() string {
	return fmt.Sprintf("pool %s offers no %s addresses: use a pool that does, or add some to it", e.Pool, FamilyName(e.Bits))
}

// FamilyName is "IPv4" or "IPv6", by the bits of an address.
func FamilyName(bits int) string {
	if bits == 32 {
		return "IPv4"
	}
	return "IPv6"
}

// PoolError puts the pool's name to what the core says (ExhaustedError, OutsideError, BlockedError, ErrCount).
type PoolError struct {
	Pool  Key // that the claim asks, zero for none
	By    Key // that reserves the range, where it is another
	Err   error
	Until time.Time // of an exhausted pool: when the first of what rests there is free again, zero where too little rests to help
	// Withheld is set where addresses of an exhausted pool are withheld: Range is the first of them.
	Withheld *HeldError
}

func (e *PoolError) Error() string {
	switch {
	case e.Withheld != nil:
		return fmt.Sprintf("pool %s: %v, or wait: %s", e.Pool, e.Err, e.Withheld.SeenFrom(e.Pool.Namespace))
	case !e.Until.IsZero():
		return fmt.Sprintf("pool %s: %v, or wait: what was released rests, the first of it until %s", e.Pool, e.Err, e.Until.UTC().Format(time.RFC3339))
	case e.By == Key{}:
		return fmt.Sprintf("pool %s: %v", e.Pool, e.Err)
	case e.Pool == Key{}:
		return fmt.Sprintf("pool %s: %v", e.By, e.Err)
	case e.Pool.Namespace != "" && e.By.hiddenFrom(e.Pool.Namespace): // pools, unlike owners, are named to readers of cluster-scoped objects
		return fmt.Sprintf("pool %s: in a pool of another namespace %v", e.Pool, e.Err)
	}
	return fmt.Sprintf("pool %s: in pool %s %v", e.Pool, e.By, e.Err)
}

func (e *PoolError) Unwrap() error { return e.Err }

// HeldError says that somebody has the range already.
type HeldError struct {
	Range  allocator.Range // the part of the wanted range that is held
	Holder Key             // of the stored claim or the open grant; zero where only a release rests on it
	Pool   Key             // that the holder draws from, zero where that is not known
	Until  time.Time       // set where the range was released and rests for the pool's reuse delay, or is withheld
	Moved  bool            // the range went to another cluster with Holder, a claim that is no longer stored here
	// Withheld reports that the range is withheld: Holder is a pool whose update removes the range and is not observed yet. The range is free at Until, zero
	// where that is not known, if the update is not stored.
	Withheld bool
	// Promised says that the holder is an open grant to a create alone, which is under way or has failed.
	Promised bool
}

func (e *HeldError) Error() string { return e.SeenFrom(everywhere) }

// SeenFrom words the error for a reader in a namespace, who may not know the owners in other ones; "" is no namespace.
func (e *HeldError) SeenFrom(namespace string) string {
	switch {
	case e.Moved:
		return fmt.Sprintf("%s went to another cluster, where it is held %s", e.Range, e.Holder.SeenFrom(namespace))
	case e.Withheld && e.Holder.hiddenFrom(namespace):
		return withheldText(e.Range, "a pool", e.Until)
	case e.Withheld:
		return withheldText(e.Range, "pool "+e.Holder.String(), e.Until)
	case !e.Until.IsZero():
		return fmt.Sprintf("%s was released and rests until %s", e.Range, e.Until.UTC().Format(time.RFC3339))
	}
	text := fmt.Sprintf("%s is held %s", e.Range, e.Holder.SeenFrom(namespace))
	if e.Promised && e.Holder.Name != "" && !e.Holder.hiddenFrom(namespace) {
		text += ", whose create is under way or has failed"
	}
	return text
}

// OwnerSeenFrom returns the object that owns the range, or false where no stored object is known to (the range is in cooldown, withheld, moved, or granted to
// a create that is under way or has failed) or where a reader in the namespace may not know the owner.
func (e *HeldError) OwnerSeenFrom(namespace string) (Key, bool) {
	owned := !e.Moved && !e.Withheld && !e.Promised && e.Until.IsZero() && e.Holder.Name != ""
	return e.Holder, owned && !e.Holder.hiddenFrom(namespace)
}

// ErrForged says that what is about to be stored is not what was granted.
var ErrForged = errors.New("range and token are not those of an open grant")

// ErrNoGrant is the ErrForged of a token that no open grant has: it was not given just now.
var ErrNoGrant = fmt.Errorf("%w: there is none with that token", ErrForged)

// NotServingError says that this replica cannot answer now, and that the same call may succeed shortly.
type NotServingError struct {
	Reason     string
	RetryAfter time.Duration
	// Here reports whether a repetition should come to this same replica later (the journal is full), rather than try another one.
	Here bool
}

// errNotHolding is the answer of a replica that follows.
var errNotHolding = &NotServingError{Reason: "this replica does not hold the journal"}

// errBehind is the answer about a stored claim that has yet to be seen as it is.
var errBehind = &NotServingError{Reason: "the informers have yet to show the object as it is stored", RetryAfter: time.Second, Here: true}

func (e *NotServingError) Error() string { return "cannot allocate now: " + e.Reason }
