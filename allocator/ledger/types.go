package ledger

import "butlerlabs.dev/ipam/allocator/state"

// Aliases of the types in the methods of Ledger. They let webhooks, reconcilers and kinds
// import package ledger alone: about 500 uses in 14 packages, and none of these packages
// can reach a state.State outside the ledger's mutex.
type (
	// Key is state.Key.
	Key = state.Key
	// Pool is state.Pool.
	Pool = state.Pool
	// RecordedRange is state.RecordedRange.
	RecordedRange = state.RecordedRange
	// Claim is state.Claim.
	Claim = state.Claim
	// ListedClaim is state.ListedClaim.
	ListedClaim = state.ListedClaim
	// RangeRequest is state.RangeRequest.
	RangeRequest = state.RangeRequest
	// Request is state.Request.
	Request = state.Request
	// Grant is state.Grant.
	Grant = state.Grant
	// Ownership is state.Ownership.
	Ownership = state.Ownership
	// Owned is state.Owned.
	Owned = state.Owned
	// Owner is state.Owner.
	Owner = state.Owner
	// Usage is state.Usage.
	Usage = state.Usage
	// Moved is state.Moved.
	Moved = state.Moved
	// MovedRecord is state.MovedRecord.
	MovedRecord = state.MovedRecord
	// MovedRecordPart is state.MovedRecordPart.
	MovedRecordPart = state.MovedRecordPart
	// MovedCount is state.MovedCount.
	MovedCount = state.MovedCount
	// UndecidedMove is state.UndecidedMove.
	UndecidedMove = state.UndecidedMove
)

// Aliases of the errors in the methods of Ledger.
type (
	// NoPoolError is state.NoPoolError.
	NoPoolError = state.NoPoolError
	// PoolDeletingError is state.PoolDeletingError.
	PoolDeletingError = state.PoolDeletingError
	// PoolPausedError is state.PoolPausedError.
	PoolPausedError = state.PoolPausedError
	// OtherDomainError is state.OtherDomainError.
	OtherDomainError = state.OtherDomainError
	// StrandedError is state.StrandedError.
	StrandedError = state.StrandedError
	// FaultyPoolError is state.FaultyPoolError.
	FaultyPoolError = state.FaultyPoolError
	// NotAutomaticError is state.NotAutomaticError.
	NotAutomaticError = state.NotAutomaticError
	// FamilyError is state.FamilyError.
	FamilyError = state.FamilyError
	// PoolError is state.PoolError.
	PoolError = state.PoolError
	// OwnedError is state.OwnedError.
	OwnedError = state.OwnedError
	// NotOfferedError is state.NotOfferedError.
	NotOfferedError = state.NotOfferedError
	// InUseError is state.InUseError.
	InUseError = state.InUseError
	// NotServingError is state.NotServingError.
	NotServingError = state.NotServingError
)

// ErrForged and ErrNoGrant are errors of package state.
var (
	ErrForged  = state.ErrForged
	ErrNoGrant = state.ErrNoGrant
)

// EmptiedList is the Pool.MovedListRevision of a list of moved ranges that a person
// emptied.
const EmptiedList = state.EmptiedList

// FamilyName returns "IPv4" or "IPv6" for the bits of an address.
func FamilyName(bits int) string { return state.FamilyName(bits) }
