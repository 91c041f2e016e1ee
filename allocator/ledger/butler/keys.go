package butler

import (
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Values of ledger.Key.Kind.
const (
	KindIPAllocation = "ipallocations.butler.butlerlabs.dev"
	KindNetworkPool  = "networkpools.butler.butlerlabs.dev"
)

// NetworkPoolKey names a NetworkPool.
func NetworkPoolKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindNetworkPool, Namespace: namespace, Name: name}
}

// IPAllocationKey names an IPAllocation. name is empty where generateName has not been expanded yet.
func IPAllocationKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPAllocation, Namespace: namespace, Name: name}
}

// PoolKeyOf names the pool that an allocation draws from: it lies in the allocation's own namespace.
func PoolKeyOf(a *v1alpha1.IPAllocation) ledger.Key {
	return NetworkPoolKey(a.Namespace, a.Spec.PoolRef.Name)
}
