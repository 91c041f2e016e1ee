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
	"butlerlabs.dev/ipam/allocator/kinds/annotated"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/fieldtext"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
)

// Values of ledger.Key.Resource.
const (
	ResourceIPAddressClaim = "ipaddressclaims.ipam.cluster.x-k8s.io"
	ResourceIPAddress      = "ipaddresses.ipam.cluster.x-k8s.io"
)

// ipAddressClaimKey returns the key of an IPAddressClaim. name is empty until
// generateName is expanded.
func ipAddressClaimKey(namespace, name string) ledger.Key {
	return ledger.Key{Resource: ResourceIPAddressClaim, Namespace: namespace, Name: name}
}

// FindPoolKey returns the key of a claim's pool, which lies in the namespace of the
// claim; false for a claim of another provider.
func FindPoolKey(c *ipamv1.IPAddressClaim) (ledger.Key, bool) {
	return findPoolKey(c.Namespace, c.Spec.PoolRef)
}

func findPoolKey(namespace string, ref ipamv1.IPPoolReference) (ledger.Key, bool) {
	switch [2]string{ref.APIGroup, ref.Kind} {
	case [2]string{metal3v1.GroupVersion.Group, "IPPool"}:
		return metal3.IPPoolKey(namespace, ref.Name), true
	case [2]string{butlerv1.GroupVersion.Group, "NetworkPool"}:
		return butler.NetworkPoolKey(namespace, ref.Name), true
	}
	return ledger.Key{}, false
}

// FindClaimWarnings warns of a reference to an unknown kind of pool in an API group of
// ours: no provider serves the claim.
func FindClaimWarnings(ref ipamv1.IPPoolReference) []string {
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
		fieldtext.Shorten(ref.Kind), ref.APIGroup, kind, remedy)}
}

// ConvertClaim converts a stored claim for the ledger. A claim of another provider owns
// no addresses.
func ConvertClaim(c *ipamv1.IPAddressClaim) ledger.Claim {
	pool, ours := FindPoolKey(c)
	var a netip.Addr
	if ours {
		a, _ = annotated.ParseAddressAnnotation(c)
	}
	claim := annotated.ConvertObject(c, ipAddressClaimKey(c.Namespace, c.Name), pool, a)
	claim.AllocatedEarlier = c.Status.AddressRef.Name != ""
	claim.Ready = meta.IsStatusConditionTrue(c.Status.Conditions, clusterv1.ReadyCondition)
	claim.Flagged = IsFlagged(c)
	if name := c.Spec.ClusterName; claim.MarkedMoved && name != "" && !slices.Contains(claim.Clusters, name) {
		claim.Clusters = append(claim.Clusters, name)
	}
	return claim
}

// ReasonAddressConflict is the reason of condition Ready=False for the loser of an
// address conflict.
const ReasonAddressConflict = butlerv1.ReasonAddressConflict

// IsFlagged reports whether a claim is marked as the loser of an address conflict.
func IsFlagged(c *ipamv1.IPAddressClaim) bool {
	ready := meta.FindStatusCondition(c.Status.Conditions, clusterv1.ReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionFalse && ready.Reason == ReasonAddressConflict
}

// ValidateIPAddressClaim checks the annotation of a claim; Cluster API checks the spec.
// old is nil for a create.
func ValidateIPAddressClaim(old, c *ipamv1.IPAddressClaim) field.ErrorList {
	return annotated.ValidateAddressAnnotation(old, c)
}

// SelectFinalizers returns the finalizers of a claim and of its IPAddress, by the kind of
// the pool.
func SelectFinalizers(c *ipamv1.IPAddressClaim) (claim, address string) {
	if c.Spec.PoolRef.Kind == "NetworkPool" {
		return butlerv1.FinalizerIPAddressClaim, butlerv1.FinalizerIPAddress
	}
	return metal3v1.FinalizerClusterAPIClaim, metal3v1.FinalizerClusterAPIAddress
}

// FindClusterName returns the name of a claim's Cluster, in the namespace of the claim;
// empty for none. The field has priority over the label.
func FindClusterName(c *ipamv1.IPAddressClaim) string {
	if c.Spec.ClusterName != "" {
		return c.Spec.ClusterName
	}
	return c.Labels[clusterv1.ClusterNameLabel]
}

// CheckWait returns a *clusterpause.WaitError while a claim must not be reconciled: the
// claim or its Cluster has the annotation cluster.x-k8s.io/paused, the Cluster is paused
// by spec.paused, or the Cluster does not exist.
func CheckWait(c *ipamv1.IPAddressClaim, clusters clusterpause.Clusters) error {
	const kind = "IPAddressClaim"
	name := FindClusterName(c)
	if err := clusterpause.Check(c, kind, name, clusters); err != nil || name == "" {
		return err
	}
	if cluster, there := clusters.Cluster(c.Namespace, name); there && cluster.HasPausedAnnotation {
		return &clusterpause.WaitError{Reason: fmt.Sprintf("Cluster %s of %s %s is paused", name, kind, c.Name)}
	}
	return nil
}

// CheckNetworkPoolWait returns a *clusterpause.WaitError while a NetworkPool has the
// annotation cluster.x-k8s.io/paused.
func CheckNetworkPoolWait(p *butlerv1.NetworkPool) error {
	return clusterpause.Check(p, "NetworkPool", "", nil)
}

// SelectReadyReason returns the reason of condition Ready=False for a claim without an
// address.
func SelectReadyReason(err error) string {
	if errors.Is(err, annotated.FailureExhausted) || errors.Is(err, allocator.ErrExhausted) {
		return ipamv1.IPAddressClaimReadyPoolExhaustedReason
	}
	return ipamv1.IPAddressClaimReadyAllocationFailedReason
}

// BuildNetworkPoolRequest returns the request of a claim to a NetworkPool: the address in
// the annotation, or a free address.
func BuildNetworkPoolRequest(c *ipamv1.IPAddressClaim) []ledger.RangeRequest {
	a, _ := annotated.ParseAddressAnnotation(c)
	return annotated.AddressRequest{Address: a}.ToLedger()
}
