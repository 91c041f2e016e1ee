package claims

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// Adapter adapts one claim kind, whose objects are T. Methods change the given copy, and
// write nothing to the API server unless they get Deps. Pausable, Releaser,
// ReleaseRecorded, Dependents and OriginSetter are optional interfaces of an adapter.
type Adapter[T client.Object] interface {
	NewObject() T
	NewList() client.ObjectList
	// ToClaim converts the object for the ledger.
	ToClaim(T) ledger.Claim
	// CheckReadable returns why the claim's addresses cannot be read; nil if they can be
	// read, or the claim has none.
	CheckReadable(T) error
	// HasAddresses reports whether the claim names all its addresses.
	HasAddresses(T) bool
	// AllocatedByUs reports whether the claim carries an allocation of this manager.
	AllocatedByUs(T) bool
	// AllocatedEarlier reports whether an earlier allocator recorded addresses for the
	// claim, and returns these addresses if they differ from the claim's.
	AllocatedEarlier(context.Context, *Deps, T) (others []allocator.Range, yes bool, err error)
	// IsFlagged reports whether the claim is marked as one in conflict.
	IsFlagged(T) bool
	// HasFailed reports whether the claim is marked as one that gets no addresses.
	HasFailed(T) bool
	// OwnershipCondition returns the condition that reports whether the claim owns its
	// addresses; nil if the status has no report.
	OwnershipCondition(T) *metav1.Condition
	// Requests returns what the claim requests from its pool, which may be missing, and
	// the origin of the result; the error is why the claim gets nothing.
	Requests(context.Context, *Deps, T) (requests []ledger.RangeRequest, origin string, err error)
	// FillSpec writes ranges into the absent fields of spec.
	FillSpec(T, []allocator.Range)
	// CompleteMetadata adds missing metadata of a claim in a routing domain, and reports
	// whether metadata was missing.
	CompleteMetadata(c T, routingDomain string) bool
	// SetAllocated writes into the status that the claim owns its addresses. It returns a
	// RequeueError while a dependent object is missing, and a DeniedError if the API
	// server denies the dependent object.
	SetAllocated(context.Context, *Deps, T) error
	// SetNotOffered writes into the status of the owner of addresses that its pool does
	// not offer some of them (nil: that the pool offers all of them), and reports whether
	// that is news. A kind whose status has no room for that remembers what it has
	// reported.
	SetNotOffered(T, *ledger.NotOfferedError) bool
	// SetConflict writes into the status that another claim owns some of the addresses.
	SetConflict(T, string)
	// SetDenied writes into the status that the ledger denies the request.
	SetDenied(T, []ledger.RangeRequest, error)
	// FenceWrites updates a stored claim so that no write of addresses based on an older
	// version can be stored, and returns the new resourceVersion; 0 if no claim with the
	// UID is stored.
	FenceWrites(ctx context.Context, to client.Client, live client.Reader, k ledger.Key, uid string) (uint64, error)
}

// Pausable is implemented by adapters of kinds whose claims belong to Clusters of Cluster
// API, which are paused and moved to other control planes by clusterctl.
type Pausable[T client.Object] interface {
	// CheckManaged returns why the manager must not write to the claim: a
	// *clusterpause.WaitError for now, ErrForeign for ever; nil if the manager may write.
	CheckManaged(context.Context, *Deps, T, clusterpause.Clusters) error
}

// Releaser is implemented by adapters of kinds whose claims keep a finalizer of this
// manager until their release is complete.
type Releaser[T client.Object] interface {
	// Release continues the release of a claim that is being deleted. It is called again
	// after the returned time, 0 for never. A DeniedError reports that the API server
	// denies a deletion.
	Release(context.Context, *Deps, T) (time.Duration, error)
}

// ReleaseRecorded is implemented by adapters of kinds whose finalizer stays until the
// pool has the release record of the claim (pools.releaseRecorder).
type ReleaseRecorded[T client.Object] interface {
	// AwaitsRecord reports whether a claim is stored only until its pool has its release
	// record.
	AwaitsRecord(T) bool
}

// Dependents is implemented by adapters of kinds for whose claims the manager creates
// further objects.
type Dependents[T client.Object] interface {
	// Forget forgets a claim that is not stored.
	Forget(*Deps, types.NamespacedName)
	// CleanUp deletes the objects of a claim that is gone. It is called again after the
	// returned time, 0 for never.
	CleanUp(context.Context, *Deps, types.NamespacedName) (time.Duration, error)
	// DeleteStrays deletes the objects of an earlier claim of the same name. It is called
	// again after the returned time, 0 for never.
	DeleteStrays(context.Context, *Deps, T) (time.Duration, error)
}

// OriginSetter is implemented by adapters of claims whose addresses may have different
// origins.
type OriginSetter[T client.Object] interface {
	// SetOrigin writes the origins of the addresses into the annotations of a claim that
	// gets an allocation; before is the stored claim.
	SetOrigin(before, c T)
}

// ErrForeign is why claims of other providers are not managed.
var ErrForeign = errors.New("its pool is another provider's")

// RequeueError requeues a claim after a duration, without a fault. An event requeues the
// claim where the duration is 0.
type RequeueError time.Duration

func (e RequeueError) Error() string { return "to be reconciled again in " + time.Duration(e).String() }

// DeniedError reports that the API server denies a write for a claim for a lasting
// reason: a policy, a quota, a missing right, or other objects with the same names.
type DeniedError struct{ Err error }

func (e *DeniedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause, which is written into the status of the claim.
func (e *DeniedError) Unwrap() error { return e.Err }
