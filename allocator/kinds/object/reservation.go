package object

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// Reservation is an entry of the list in the spec of a pool that reserves addresses: a
// network for no claim, or one address for the claim with a name.
type Reservation struct {
	Name        string // of the claim; "" for a network
	Range       allocator.Range
	Description string
}

// ClaimTemplate is what a new claim requests, independent of its kind. A kind ignores the
// fields that its claims have not.
type ClaimTemplate struct {
	Metadata metav1.ObjectMeta
	Pool     ledger.Key // of a kind to which the claim may refer
	Ranges   []allocator.Range
	// Tenant is namespace/name of the TenantCluster of an IPAllocation, or the name of
	// the Cluster of an IPClaim or IPAddressClaim, in the namespace of the claim.
	Tenant  string
	Purpose Purpose  // of an IPAllocation
	Mode    string   // of a proxy
	Ports   []string // of a proxy
}
