package clusterapi

import (
	"errors"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// KindIPAddressClaim is the ledger.Key.Kind of an IPAddressClaim.
const KindIPAddressClaim = "ipaddressclaims.ipam.cluster.x-k8s.io"

// IPAddressClaimKey names an IPAddressClaim. name is empty where generateName has not been expanded yet.
func IPAddressClaimKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPAddressClaim, Namespace: namespace, Name: name}
}

// PoolKeyOf names the pool that a claim draws from: it lies in the claim's own namespace. False says that the claim is another provider's.
func PoolKeyOf(c *ipamv1.IPAddressClaim) (ledger.Key, bool) {
	switch ref := c.Spec.PoolRef; [2]string{ref.APIGroup, ref.Kind} {
	case [2]string{metal3v1.GroupVersion.Group, "IPPool"}:
		return metal3.IPPoolKey(c.Namespace, ref.Name), true
	case [2]string{butlerv1.GroupVersion.Group, "NetworkPool"}:
		return butler.NetworkPoolKey(c.Namespace, ref.Name), true
	}
	return ledger.Key{}, false
}

// ClusterOf names the Cluster, in the claim's own namespace, whose pause a claim heeds; empty where there is none. The field goes before
// the label.
func ClusterOf(c *ipamv1.IPAddressClaim) string {
	if c.Spec.ClusterName != "" {
		return c.Spec.ClusterName
	}
	return c.Labels[clusterv1.ClusterNameLabel]
}

// ReasonFor is the reason of condition Ready=False for a claim that got no address.
func ReasonFor(err error) string {
	if errors.Is(err, metal3.FailureExhausted) || errors.Is(err, allocator.ErrExhausted) {
		return ipamv1.IPAddressClaimReadyPoolExhaustedReason
	}
	return ipamv1.IPAddressClaimReadyAllocationFailedReason
}
