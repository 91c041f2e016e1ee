package object

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// PoolDescription is what people want to know of a pool, beside its addresses.
type PoolDescription struct {
	// Finalizer is the finalizer of the manager for pools of this kind.
	Finalizer string
	// Free is the number of free addresses in the status; nil if the manager has not yet
	// written the number.
	Free *int64
	// Granted is the number of granted addresses in the status; 0 if the status does not
	// record the number.
	Granted    int64
	Conditions []metav1.Condition // in the status
	// Releases lists the release records in the status. A record that cannot be parsed is
	// left out.
	Releases []Release
	// FullLists lists the lists in the status that have no room for their entries.
	FullLists []FullList
	// DefaultCounts lists the numbers of addresses of claims that request no number;
	// empty if each claim has one address.
	DefaultCounts []DefaultCount
}

// Release is a release record in the status of a pool.
type Release struct {
	Claim                  ledger.Key
	Tenant                 string // namespace/name
	Range                  allocator.Range
	AllocatedAt            time.Time // zero if not known
	ReleasedAt, ReusableAt time.Time
}

// FullList describes a list in the status of a pool that has no room for its entries.
type FullList struct {
	Text   string // what the pool lists, or does not list: follows the name of the pool
	Remedy string
}

// DefaultCount is the number of addresses of a claim that requests no number.
type DefaultCount struct {
	Purpose Purpose
	Count   int64
}
