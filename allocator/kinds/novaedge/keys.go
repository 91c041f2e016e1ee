package novaedge

import (
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Values of ledger.Key.Resource.
const (
	ResourceProxyVIP    = "proxyvips.novaedge.io"
	ResourceProxyIPPool = "proxyippools.novaedge.io"
)

// ProxyIPPoolKey returns the key of a ProxyIPPool.
func ProxyIPPoolKey(name string) ledger.Key {
	return ledger.Key{Resource: ResourceProxyIPPool, Name: name}
}

// proxyVIPKey returns the key of a ProxyVIP. name is empty until generateName is
// expanded.
func proxyVIPKey(name string) ledger.Key { return ledger.Key{Resource: ResourceProxyVIP, Name: name} }

// poolKey returns the key of a VIP's pool; empty for a VIP without poolRef.
func poolKey(v *v1alpha1.ProxyVIP) ledger.Key {
	if v.Spec.PoolRef == nil {
		return ledger.Key{}
	}
	return ProxyIPPoolKey(v.Spec.PoolRef.Name)
}
