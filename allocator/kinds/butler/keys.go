package butler

import (
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Values of ledger.Key.Resource.
const (
	ResourceIPAllocation = "ipallocations.butler.butlerlabs.dev"
	ResourceNetworkPool  = "networkpools.butler.butlerlabs.dev"
)

// NetworkPoolKey returns the key of a NetworkPool.
func NetworkPoolKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceNetworkPool, Namespace: namespace, Name: name}
}

// IPAllocationKey returns the key of an IPAllocation. name is empty until generateName is
// expanded.
func IPAllocationKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPAllocation, Namespace: namespace, Name: name}
}

// PoolKey returns the key of an allocation's pool, which lies in the namespace of the
// allocation.
func PoolKey(a *v1alpha1.IPAllocation) ledger.Key {
	return NetworkPoolKey(a.Namespace, a.Spec.PoolRef.Name)
}
