package clusterapi

import (
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// FailurePrefix: the prefix of the pool is invalid. Package metal3 has the other
// failures.
const FailurePrefix annotated.Failure = "Invalid prefix value, it must be between 0 and 128"

// ipAddressKey returns the key of an IPAddress.
func ipAddressKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPAddress, Namespace: namespace, Name: name}
}

// ConvertAddress converts a stored IPAddress for the ledger: the IPAddress owns its
// address on behalf of its claim. An IPAddress of another provider's pool owns no address
// in the ledger.
func ConvertAddress(o *ipamv1.IPAddress) ledger.Claim {
	pool, ours := findPoolKey(o.Namespace, o.Spec.PoolRef)
	var a netip.Addr
	if ours {
		a, _ = fieldtext.At(nil, o.Spec.Address).ParseAddress()
	}
	claim := annotated.ConvertObject(o, ipAddressKey(o.Namespace, o.Name), pool, a)
	claim.OwnerClaim = ipAddressClaimKey(o.Namespace, o.Spec.ClaimRef.Name)
	claim.Ready, claim.Flagged = true, true
	return claim
}

// IsManaged reports whether an IPAddress belongs to an IPPool or NetworkPool. Cluster API
// denies invalid addresses.
func IsManaged(o *ipamv1.IPAddress) bool {
	_, ours := findPoolKey(o.Namespace, o.Spec.PoolRef)
	_, err := netip.ParseAddr(o.Spec.Address)
	return ours && err == nil
}

// ValidateIPAddress requires the notation of the pools' addresses. Cluster API also
// accepts zones and IPv4 written as IPv6, which could name an address that is already
// owned.
func ValidateIPAddress(o *ipamv1.IPAddress) field.ErrorList {
	if _, err := fieldtext.At(field.NewPath("spec", "address"), o.Spec.Address).ParseAddress(); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// BuildAddress returns name and spec of the IPAddress for a claim with an address of its
// pool. The error is FailurePrefix.
func BuildAddress(
	pool metav1.Object, c *ipamv1.IPAddressClaim, a netip.Addr,
) (name string, spec ipamv1.IPAddressSpec, err error) {
	if p, ok := pool.(*butlerv1.NetworkPool); ok {
		name, spec = buildNetworkPoolAddress(p, c, a)
		return name, spec, nil
	}
	return buildIPPoolAddress(pool.(*metal3v1.IPPool), c, a)
}

// buildIPPoolAddress returns name and spec of the IPAddress for a claim with an address
// of an IPPool; the name follows Metal3's rule. IPAddress has no field for name servers;
// clients find them in the pool.
func buildIPPoolAddress(p *metal3v1.IPPool, c *ipamv1.IPAddressClaim, a netip.Addr) (string, ipamv1.IPAddressSpec, error) {
	settings := metal3.FindSettings(p, a)
	if settings.Prefix < 0 || settings.Prefix > 128 {
		return "", ipamv1.IPAddressSpec{}, FailurePrefix
	}
	return metal3.AddressName(p, a), buildAddressSpec(c, a, settings.Prefix, string(ptr.Deref(settings.Gateway, ""))), nil
}

// buildNetworkPoolAddress returns name and spec of the IPAddress for a claim with an
// address of a NetworkPool; the name is the name of the claim. A pool with an invalid
// cidr offers no addresses; an address owned nevertheless gets the prefix length of a
// single address.
func buildNetworkPoolAddress(p *butlerv1.NetworkPool, c *ipamv1.IPAddressClaim, a netip.Addr) (string, ipamv1.IPAddressSpec) {
	prefix := a.BitLen()
	if network, err := netip.ParsePrefix(p.Spec.CIDR); err == nil {
		prefix = network.Bits()
	}
	return c.Name, buildAddressSpec(c, a, prefix, p.Spec.Gateway)
}

func buildAddressSpec(c *ipamv1.IPAddressClaim, a netip.Addr, prefix int, gateway string) ipamv1.IPAddressSpec {
	return ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: c.Name},
		PoolRef:  c.Spec.PoolRef,
		Address:  a.String(),
		Prefix:   ptr.To(int32(prefix)),
		Gateway:  gateway,
	}
}
