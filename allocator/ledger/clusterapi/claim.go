package clusterapi

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/allocator/ledger/fields"
	"butlerlabs.dev/ipam/allocator/ledger/metal3"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Values of ledger.Key.Kind.
const (
	KindIPAddressClaim = "ipaddressclaims.ipam.cluster.x-k8s.io"
	KindIPAddress      = "ipaddresses.ipam.cluster.x-k8s.io"
)

// ipAddressClaimKey names an IPAddressClaim. name is empty where generateName has not been expanded yet.
func ipAddressClaimKey(namespace, name string) ledger.Key {
	return ledger.Key{Kind: KindIPAddressClaim, Namespace: namespace, Name: name}
}

// PoolKeyOf names the pool that a claim draws from: it lies in the claim's own namespace. False says that the claim is another provider's.
func PoolKeyOf(c *ipamv1.IPAddressClaim) (ledger.Key, bool) {
	return poolKeyOf(c.Namespace, c.Spec.PoolRef)
}

func poolKeyOf(namespace string, ref ipamv1.IPPoolReference) (ledger.Key, bool) {
	switch [2]string{ref.APIGroup, ref.Kind} {
	case [2]string{metal3v1.GroupVersion.Group, "IPPool"}:
		return metal3.IPPoolKey(namespace, ref.Name), true
	case [2]string{butlerv1.GroupVersion.Group, "NetworkPool"}:
		return butler.NetworkPoolKey(namespace, ref.Name), true
	}
	return ledger.Key{}, false
}

// UnknownPool warns of a reference to a kind of pool that its API group does not have: another provider has neither.
func UnknownPool(ref ipamv1.IPPoolReference) []string {
	kinds := map[string]string{metal3v1.GroupVersion.Group: "IPPool", butlerv1.GroupVersion.Group: "NetworkPool"}
	kind, ours := kinds[ref.APIGroup]
	if !ours || ref.Kind == kind {
		return nil
	}
	remedy := "write " + kind
	for group, other := range kinds {
		if other == ref.Kind {
			remedy += fmt.Sprintf(", or %s as apiGroup", group)
		}
	}
	return []string{fmt.Sprintf("spec.poolRef.kind: %q is no kind of pool in apiGroup %s, whose pools are of kind %s: no address is assigned: %s; a reference cannot be changed, so create the object anew",
		fields.Short(ref.Kind), ref.APIGroup, kind, remedy)}
}

// ClaimOf is what the ledger needs to know of a stored claim. Of one that is another provider's it is that nothing is held.
func ClaimOf(c *ipamv1.IPAddressClaim) ledger.Claim {
	pool, ours := PoolKeyOf(c)
	var a netip.Addr
	if ours {
		a, _ = metal3.Asked(c)
	}
	claim := metal3.Held(c, ipAddressClaimKey(c.Namespace, c.Name), pool, a)
	claim.Vouched = c.Status.AddressRef.Name != ""
	claim.Ready = meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ReadyCondition)
	claim.Flagged = Flagged(c)
	if name := c.Spec.ClusterName; claim.Away && name != "" && !slices.Contains(claim.Clusters, name) {
		claim.Clusters = append(claim.Clusters, name)
	}
	return claim
}

// ReasonAddressConflict is the reason of condition Ready=False for a claim whose address another has.
const ReasonAddressConflict = butlerv1.ReasonAddressConflict

// Flagged tells whether a claim is marked as one whose address another has.
func Flagged(c *ipamv1.IPAddressClaim) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == ReasonAddressConflict
}

// ValidateIPAddressClaim holds a claim to the rules on its annotation; those of its spec are Cluster API's. old is nil for a create.
func ValidateIPAddressClaim(old, c *ipamv1.IPAddressClaim) field.ErrorList {
	return metal3.ValidateAsked(old, c)
}

// Finalizers of a claim and of its IPAddress, by the pool that serves it.
func Finalizers(c *ipamv1.IPAddressClaim) (claim, address string) {
	if c.Spec.PoolRef.Kind == "NetworkPool" {
		return butlerv1.FinalizerIPAddressClaim, butlerv1.FinalizerIPAddress
	}
	return metal3v1.FinalizerClusterAPIClaim, metal3v1.FinalizerClusterAPIAddress
}

// ClusterOf names the Cluster, in the claim's own namespace, whose pause a claim heeds; empty where there is none. The field goes before
// the label.
func ClusterOf(c *ipamv1.IPAddressClaim) string {
	if c.Spec.ClusterName != "" {
		return c.Spec.ClusterName
	}
	return c.Labels[clusterv1.ClusterNameLabel]
}

// Wait returns a *metal3.WaitError while a claim must be left alone: it carries the annotation cluster.x-k8s.io/paused, or its Cluster does, is paused
// by spec.paused, or does not exist.
func Wait(c *ipamv1.IPAddressClaim, clusters metal3.Clusters) error {
	const kind = "IPAddressClaim"
	name := ClusterOf(c)
	if err := metal3.Wait(c, kind, name, clusters); err != nil || name == "" {
		return err
	}
	if cluster, there := clusters.Cluster(c.Namespace, name); there && cluster.Annotated {
		return &metal3.WaitError{Why: fmt.Sprintf("Cluster %s of %s %s is paused", name, kind, c.Name)}
	}
	return nil
}

// WaitForNetworkPool returns a *metal3.WaitError while a NetworkPool carries the annotation cluster.x-k8s.io/paused.
func WaitForNetworkPool(p *butlerv1.NetworkPool) error { return metal3.Wait(p, "NetworkPool", "", nil) }

// ReasonFor is the reason of condition Ready=False for a claim that got no address.
func ReasonFor(err error) string {
	if errors.Is(err, metal3.FailureExhausted) || errors.Is(err, allocator.ErrExhausted) {
		return ipamv1.IPAddressClaimReadyPoolExhaustedReason
	}
	return ipamv1.IPAddressClaimReadyAllocationFailedReason
}

// WantsOfNetworkPool is what a claim asks of a NetworkPool: the address that it names, or any.
func WantsOfNetworkPool(c *ipamv1.IPAddressClaim) []ledger.Want {
	a, _ := metal3.Asked(c)
	return metal3.Want{Address: a}.Ledger()
}
