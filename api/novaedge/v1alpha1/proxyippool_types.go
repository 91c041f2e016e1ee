package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// ProxyIPPoolSpec is the addresses that a pool offers.
// +kubebuilder:validation:XValidation:rule="size(self.?cidrs.orValue([])) + size(self.?addresses.orValue([])) > 0",reason=FieldValueRequired,message="name at least one network in cidrs or one address in addresses"
type ProxyIPPoolSpec struct {
	// cidrs lists networks whose addresses the pool offers, in numeric order. IPv4
	// networks of /30 and larger are offered without the first and the last address
	// (network and broadcast), IPv6 networks of /126 and larger without the first
	// (subnet-router anycast). Bits after the prefix do not count: 10.0.0.200/28 is
	// 10.0.0.192/28.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="must be an IPv4 or IPv6 network in CIDR notation, such as 10.200.0.0/24 or 2001:db8::/120"
	CIDRs []string `json:"cidrs,omitempty"`

	// addresses lists single addresses that the pool offers, including first and last
	// addresses of the networks in cidrs. A prefix length has no effect: 203.0.113.10/32
	// and 203.0.113.10 are equal.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	// +kubebuilder:validation:items:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an IPv4 or IPv6 address, such as 203.0.113.10/32 or 2001:db8::1/128"
	Addresses []formats.HostAddress `json:"addresses,omitempty"`

	// autoAssign allocates free addresses to ProxyVIPs without an address. If false, each
	// ProxyVIP must request an exact address of the pool.
	// +optional
	// +kubebuilder:default=false
	AutoAssign bool `json:"autoAssign"`
}

// ProxyIPAllocation is an address of a pool, with its owner.
type ProxyIPAllocation struct {
	// address, as in 10.200.0.1/32 or 2001:db8::1/128.
	// +required
	Address formats.HostAddress `json:"address"`

	// vipRef is the name of the ProxyVIP.
	// +required
	// +kubebuilder:validation:MaxLength=253
	VIPRef string `json:"vipRef"`

	// allocatedAt is the time of the allocation.
	// +optional
	AllocatedAt *metav1.Time `json:"allocatedAt,omitempty"`
}

// ProxyIPPoolStatus is the usage of a pool, with the owners.
type ProxyIPPoolStatus struct {
	// allocated is the number of addresses of the pool that are not free: owned, or
	// promised to creates in progress. It saturates at the largest int64.
	// +optional
	Allocated int64 `json:"allocated"`

	// available is the number of free addresses of the pool. It saturates at the largest
	// int64.
	// +optional
	Available int64 `json:"available"`

	// granted is the part of allocated that is promised to creates in progress. After a
	// failed create it counts the addresses for two more minutes.
	// +optional
	Granted int64 `json:"granted,omitempty"`

	// summary describes the usage: "123 of 126 free", or "6000 allocated of a /64" of a
	// pool with more than 4,294,967,296 addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Summary string `json:"summary,omitempty"`

	// allocations lists the addresses of the pool owned by ProxyVIPs, in numeric order:
	// the first 1,000.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Allocations []ProxyIPAllocation `json:"allocations,omitempty"`

	// allocationsNotListed is the number of further allocations.
	// +optional
	AllocationsNotListed int64 `json:"allocationsNotListed,omitempty"`

	// conditions holds Ready: the spec is valid and the pool serves.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// ProxyIPPool offers addresses to ProxyVIPs.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Cluster,categories=ipam
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=".status.allocated"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.available"
// +kubebuilder:printcolumn:name="Auto-Assign",type=boolean,JSONPath=".spec.autoAssign"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Summary",type=string,JSONPath=".status.summary",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status",priority=1
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".metadata.labels.butler\\.butlerlabs\\.dev/routing-domain",priority=1
// +kubebuilder:printcolumn:name="CIDRs",type=string,JSONPath=".spec.cidrs",priority=1
// +kubebuilder:printcolumn:name="Granted",type=integer,JSONPath=".status.granted",priority=1
type ProxyIPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the addresses that the pool offers.
	// +required
	Spec ProxyIPPoolSpec `json:"spec"`

	// status is written by the allocator.
	// +optional
	Status ProxyIPPoolStatus `json:"status,omitempty"`
}

// ProxyIPPoolList is a list of ProxyIPPools.
// +kubebuilder:object:root=true
type ProxyIPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxyIPPool `json:"items"`
}
