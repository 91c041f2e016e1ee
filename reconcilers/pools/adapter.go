package pools

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
)

// Adapter adapts one pool kind, whose objects are P. pausable and releaseRecorder are
// optional interfaces of an adapter.
type Adapter[P client.Object] interface {
	NewObject() P
	NewList() client.ObjectList
	// ToPool converts the object for the ledger. A pool that breaks a rule offers
	// nothing; the errors name the rule.
	ToPool(P) (ledger.Pool, field.ErrorList)

	finalizerName() string
	// writeStatus writes the status of a pool. before is the informer's object, and must
	// not be changed.
	writeStatus(ctx context.Context, d *deps, before, p P, usage ledger.Usage, m *memory) (reconcile.Result, error)
}

// pausable is implemented by adapters of kinds whose pools belong to Clusters of Cluster
// API.
type pausable[P client.Object] interface {
	// checkManaged returns why the manager must not write to a pool now; nil if the
	// manager may write.
	checkManaged(*deps, P) error
}

// releaseRecorder is implemented by adapters of kinds whose pools have release records:
// NetworkPools, with the releases of IPAllocations.
type releaseRecorder[P client.Object] interface {
	// hasReleasedAllocations reports whether released allocations wait for the next write
	// to a pool.
	hasReleasedAllocations(ctx context.Context, d *deps, pool types.NamespacedName) (bool, error)
	// requeueReleasedAllocations requeues the released allocations that wait for a pool
	// that is gone.
	requeueReleasedAllocations(ctx context.Context, d *deps, pool types.NamespacedName) error
}
