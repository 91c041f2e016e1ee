package novaedge

import (
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Values of ledger.Key.Kind.
const (
	KindProxyVIP    = "proxyvips.novaedge.io"
	KindProxyIPPool = "proxyippools.novaedge.io"
)

// ProxyIPPoolKey names a ProxyIPPool.
func ProxyIPPoolKey(name string) ledger.Key { return ledger.Key{Kind: KindProxyIPPool, Name: name} }

// proxyVIPKey names a ProxyVIP. name is empty where generateName has not been expanded yet.
func proxyVIPKey(name string) ledger.Key { return ledger.Key{Kind: KindProxyVIP, Name: name} }

// poolKeyOf names the pool that a VIP draws from: none for one that asks for its addresses by themselves.
func poolKeyOf(v *v1alpha1.ProxyVIP) ledger.Key {
	if v.Spec.PoolRef == nil {
		return ledger.Key{}
	}
	return ProxyIPPoolKey(v.Spec.PoolRef.Name)
}
