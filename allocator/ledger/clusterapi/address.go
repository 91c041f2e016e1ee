package clusterapi

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// FailurePrefix is why a claim gets no address of a pool whose prefix none can have. The others are metal3's.
const FailurePrefix metal3.Failure = "Invalid prefix value, it must be between 0 and 128"

// ipAddressKey names an IPAddress.
func ipAddressKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPAddress, Namespace: namespace, Name: name}
}

// AddressClaimOf is what the ledger needs to know of a stored IPAddress: it holds its address for the claim that it names. One of another
// provider's pool holds none that we know of.
func AddressClaimOf(o *ipamv1.IPAddress) ledger.Claim {
	pool, ours := poolKeyOf(o.Namespace, o.Spec.PoolRef)
	var a netip.Addr
	if ours {
		a, _ = fields.At(nil, o.Spec.Address).Address()
	}
	claim := metal3.Held(o, ipAddressKey(o.Namespace, o.Name), pool, a)
	claim.For = ipAddressClaimKey(o.Namespace, o.Spec.ClaimRef.Name)
	claim.Ready, claim.Flagged = true, true
	return claim
}

// Ours tells whether an IPAddress is of one of our pools. One whose address nobody can read Cluster API refuses itself.
func Ours(o *ipamv1.IPAddress) bool {
	_, ours := poolKeyOf(o.Namespace, o.Spec.PoolRef)
	_, err := netip.ParseAddr(o.Spec.Address)
	return ours && err == nil
}

// ValidateIPAddress wants an address that is written as every other of a pool is: what Cluster API takes beyond that, with a zone or IPv4 as IPv6, would
// be one that is held already.
func ValidateIPAddress(o *ipamv1.IPAddress) field.ErrorList {
	if _, err := fields.At(field.NewPath("spec", "address"), o.Spec.Address).Address(); err != nil {
		return field.ErrorList{err}
	}
	return nil
}

// AddressOfIPPool is the IPAddress of a claim that has an address of an IPPool: its name, by Metal3's rule, and its spec. Name servers have no
// field in it; who wants them reads the pool. The error is FailurePrefix.
func AddressOfIPPool(p *metal3v1.IPPool, c *ipamv1.IPAddressClaim, a netip.Addr) (string, ipamv1.IPAddressSpec, error) {
	settings := metal3.SettingsFor(p, a)
	if settings.Prefix < 0 || settings.Prefix > 128 {
		return "", ipamv1.IPAddressSpec{}, FailurePrefix
	}
	return metal3.AddressName(p, a), specOf(c, a, settings.Prefix, string(ptr.Deref(settings.Gateway, ""))), nil
}

// AddressOfNetworkPool is the IPAddress of a claim that has an address of a NetworkPool: its name, which is the claim's, and its spec. A pool
// whose cidr cannot be read offers no addresses; one that is held all the same stands for itself alone.
func AddressOfNetworkPool(p *butlerv1.NetworkPool, c *ipamv1.IPAddressClaim, a netip.Addr) (string, ipamv1.IPAddressSpec) {
	prefix := a.BitLen()
	if network, err := netip.ParsePrefix(p.Spec.CIDR); err == nil {
		prefix = network.Bits()
	}
	return c.Name, specOf(c, a, prefix, p.Spec.Gateway)
}

func specOf(c *ipamv1.IPAddressClaim, a netip.Addr, prefix int, gateway string) ipamv1.IPAddressSpec {
	return ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: c.Name},
		PoolRef:  c.Spec.PoolRef,
		Address:  a.String(),
		Prefix:   ptr.To(int32(prefix)),
		Gateway:  gateway,
	}
}
