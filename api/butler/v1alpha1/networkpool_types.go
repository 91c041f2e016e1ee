package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// The rules do not use containsCIDR: Kubernetes 1.31 evaluates it to false unless both
// networks have the same first address.
//
// Kubernetes 1.31 and 1.32 evaluate every rule at each write of the status, later
// versions only those of fields that change. A pool stored under an earlier schema, such
// as Butler's own, may have host bits in its networks, or ranges outside cidr: the rules
// about these accept what is stored.

// NetworkPoolSpec is the network, and the part of the network for tenants.
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !isCIDR(oldSelf.cidr) || (cidr(self.cidr).containsIP(cidr(oldSelf.cidr).ip()) && cidr(self.cidr).prefixLength() <= cidr(oldSelf.cidr).prefixLength())",fieldPath=".cidr",reason=FieldValueForbidden,message="cidr may grow but never shrink or move: use a network that contains the present one, or add another pool"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.reserved) || !isCIDR(self.cidr) || self.reserved.all(r, !isCIDR(r.cidr) || (cidr(self.cidr).containsIP(cidr(r.cidr).ip()) && cidr(self.cidr).prefixLength() <= cidr(r.cidr).prefixLength()))",fieldPath=".reserved",optionalOldSelf=true,message="every reserved cidr must lie inside spec.cidr: correct it or remove the entry"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.tenantAllocation) || !has(self.tenantAllocation.ranges) || !isCIDR(self.cidr) || self.tenantAllocation.ranges.all(r, !isIP(r.start) || !isIP(r.end) || (cidr(self.cidr).containsIP(r.start) && cidr(self.cidr).containsIP(r.end)))",fieldPath=".tenantAllocation.ranges",optionalOldSelf=true,message="every range must lie inside spec.cidr: correct start and end, or grow cidr"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.tenantAllocation) || (has(self.tenantAllocation.ranges) && size(self.tenantAllocation.ranges) > 0) || !isCIDR(self.cidr) || [self.tenantAllocation.?start.orValue(\"\"), self.tenantAllocation.?end.orValue(\"\")].all(a, !isIP(a) || cidr(self.cidr).containsIP(a))",fieldPath=".tenantAllocation",optionalOldSelf=true,message="start and end must lie inside spec.cidr: correct them, or grow cidr"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.gateway) || (cidr(self.cidr).ip().family() == 6 && ip(self.gateway).family() == 6 && ip(self.gateway).isLinkLocalUnicast())",fieldPath=".gateway",message="gateway must lie inside spec.cidr, or be link-local IPv6 in an IPv6 pool: correct it or remove it"
type NetworkPoolSpec struct {
	// cidr is the network of the pool, IPv4 or IPv6, without host bits. The network may
	// grow (the new network contains the old one), but not shrink or move.
	// +required
	CIDR formats.PoolNetwork `json:"cidr"`

	// gateway is the router of the network, passed to machines whose claims have a field
	// for a gateway. The gateway lies inside cidr and is never allocated in the whole
	// routing domain, or is link-local in an IPv6 pool.
	// +optional
	Gateway formats.Address `json:"gateway,omitempty"`

	// reserved lists the parts of cidr that are never allocated, in the whole routing
	// domain.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || self.all(r, !isCIDR(r.cidr) || string(cidr(r.cidr).masked()) == r.cidr)",optionalOldSelf=true,messageExpression="self.exists(r, isCIDR(r.cidr) && string(cidr(r.cidr)) == r.cidr && string(cidr(r.cidr).masked()) != r.cidr) ? 'a reserved cidr has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24' : 'every reserved cidr must be in canonical form, in lower case, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64'"
	Reserved []ReservedRange `json:"reserved,omitempty"`

	// tenantAllocation is the part of cidr for tenants, with the default counts. Without
	// tenantAllocation, every unreserved address of cidr is allocatable, first and last
	// address included.
	// +optional
	TenantAllocation *TenantAllocation `json:"tenantAllocation,omitempty"`

	// routingDomain names the network (VRF) in which an address is unique. Pools of one
	// routing domain never allocate an address twice; pools of different routing domains
	// may. Empty means the default routing domain. Immutable while addresses are owned.
	// Must be a label value.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="routingDomain must be a label value: at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
	RoutingDomain string `json:"routingDomain,omitempty"`

	// reuseDelay is the cooldown of a released range, during which the range is not
	// allocated again: from 0s (the default) to 720h, such as 10m.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^(0|([0-9]+([.][0-9]*)?(h|m|s|ms|us|ns))+)$') && duration(self) <= duration('720h')",message="reuseDelay must be a duration from 0s to 720h, such as 10m"
	ReuseDelay *metav1.Duration `json:"reuseDelay,omitempty"`
}

// ReservedRange is a network that is never allocated.
type ReservedRange struct {
	// cidr of the reserved network, inside the pool's.
	// +required
	CIDR formats.Network `json:"cidr"`

	// description is the purpose of the reservation.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// TenantAllocation is the part of a pool for tenants. ranges has priority over start and
// end; without ranges, start and end the whole cidr is offered.
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || (self.?start.orValue(\"\") == \"\") == (self.?end.orValue(\"\") == \"\")",optionalOldSelf=true,message="start and end must be set together: set both, or use ranges instead"
type TenantAllocation struct {
	// start is the first address for tenants. Deprecated: use ranges.
	// +optional
	Start formats.AddressOrEmpty `json:"start,omitempty"`

	// end is the last address for tenants. Deprecated: use ranges.
	// +optional
	End formats.AddressOrEmpty `json:"end,omitempty"`

	// ranges lists the addresses for tenants: inside cidr, in ascending order, without
	// overlaps.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ranges []IPRange `json:"ranges,omitempty"`

	// defaults is the number of addresses for an IPAllocation without count.
	// +optional
	Defaults *AllocationDefaults `json:"defaults,omitempty"`
}

// IPRange is the addresses from start to end, inclusive.
type IPRange struct {
	// start is the first address.
	// +required
	Start formats.Address `json:"start"`

	// end is the last address, not lower than start.
	// +required
	End formats.Address `json:"end"`
}

// AllocationDefaults is the number of addresses for an IPAllocation without count.
type AllocationDefaults struct {
	// nodesPerTenant is for type nodes.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	NodesPerTenant int32 `json:"nodesPerTenant,omitempty"`

	// lbPoolPerTenant is for type loadbalancer, and for the first block of a static
	// tenant whose ProviderConfig has no defaultPoolSize but the default.
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	LBPoolPerTenant int32 `json:"lbPoolPerTenant,omitempty"`
}

// NetworkPoolStatus is the usage of a pool. Counts are addresses and saturate at the
// largest int64.
type NetworkPoolStatus struct {
	// conditions holds Ready, CapacityWarning, CapacityCritical and CapacityExhausted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// totalIPs is the number of allocatable addresses: tenant ranges without reserved
	// addresses. Counts saturate at 9223372036854775807.
	// +optional
	TotalIPs int64 `json:"totalIPs"`

	// allocatedIPs is the part of totalIPs that is not free: owned by claims, promised to
	// creates in progress, or in cooldown.
	// +optional
	AllocatedIPs int64 `json:"allocatedIPs"`

	// grantedIPs is the part of allocatedIPs that is promised to creates in progress.
	// After a failed create it counts the addresses for two more minutes.
	// +optional
	GrantedIPs int64 `json:"grantedIPs,omitempty"`

	// availableIPs is the free part of totalIPs.
	// +optional
	AvailableIPs int64 `json:"availableIPs"`

	// summary describes the usage: "993 of 1536 free, largest 869", or "6000 allocated of
	// a /64" of a pool with more than 4,294,967,296 addresses.
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Summary string `json:"summary,omitempty"`

	// allocationCount is the number of IPAllocations of this pool with addresses.
	// +optional
	AllocationCount int64 `json:"allocationCount"`

	// fragmentationPercent is the share of free addresses outside the largest free block:
	// 0 for one block, near 100 for many small blocks.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FragmentationPercent *int32 `json:"fragmentationPercent,omitempty"`

	// largestFreeBlock is the size of the largest block of consecutive free addresses:
	// the largest count that can be allocated now.
	// +optional
	LargestFreeBlock int64 `json:"largestFreeBlock"`

	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// poolSizeIPs is the number of addresses of cidr, first and last included.
	// +optional
	PoolSizeIPs int64 `json:"poolSizeIPs"`

	// reservedIPs is the reserved part of poolSizeIPs.
	// +optional
	ReservedIPs int64 `json:"reservedIPs"`

	// unmanagedScopeIPs is the number of addresses in unmanagedRanges.
	// +optional
	UnmanagedScopeIPs int64 `json:"unmanagedScopeIPs"`

	// unmanagedRanges lists the parts of cidr that are neither reserved nor in
	// tenantAllocation, without the first and the last address. If tenantAllocation has
	// no ranges, unmanagedRanges lists every unreserved part of cidr, although the pool
	// allocates these addresses.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	UnmanagedRanges []UnmanagedRange `json:"unmanagedRanges,omitempty"`

	// infrastructureConsumedIPs is the number of addresses of the pool that the cluster
	// of the manager uses beside the claims, listed or not.
	// +optional
	InfrastructureConsumedIPs int64 `json:"infrastructureConsumedIPs"`

	// infrastructureAllocations lists addresses of the pool that Nodes, Machines and
	// Services of the cluster of the manager use beside the claims, first those in ranges
	// for tenants, as far as the object has room. A pool that is not in the routing
	// domain of the cluster's network lists none.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=4096
	InfrastructureAllocations []InfrastructureAllocation `json:"infrastructureAllocations,omitempty"`

	// releases lists the last released ranges, oldest first, as an audit record. An entry
	// in cooldown is never dropped; with 1,024 entries in cooldown, further releases
	// wait. Entries after cooldown are dropped, oldest first, while there are more than
	// 32 entries; the allocator's log has every release.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Releases []Release `json:"releases,omitempty"`
}

// UnmanagedRange is the addresses from start to end, inclusive.
type UnmanagedRange struct {
	// start is the first address.
	// +required
	Start formats.RecordedAddress `json:"start"`

	// end is the last address.
	// +required
	End formats.RecordedAddress `json:"end"`
}

// InfrastructureAllocation is one address in use beside the claims, with the user.
type InfrastructureAllocation struct {
	// ip is the address.
	// +required
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="ip must be an IPv4 or IPv6 address"
	IP formats.RecordedAddress `json:"ip"`

	// source is the origin of the information: "metallb", "node", "machine" or "static".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source"`

	// serviceRef is the Service with this address.
	// +optional
	ServiceRef *ServiceReference `json:"serviceRef,omitempty"`

	// nodeRef is the Node with this address.
	// +optional
	NodeRef *NodeReference `json:"nodeRef,omitempty"`

	// machineRef is the Machine with this address.
	// +optional
	MachineRef *MachineReference `json:"machineRef,omitempty"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	// name of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the Service.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// NodeReference names a Node.
type NodeReference struct {
	// name of the Node.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// MachineReference names a Machine.
type MachineReference struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// RecordedReference names an object as written in another object, without validation of
// the name.
type RecordedReference struct {
	// name of the object.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
}

// Release records one range released by an IPAllocation.
type Release struct {
	// name of the IPAllocation.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// tenant names the TenantCluster that used the range.
	// +required
	Tenant RecordedReference `json:"tenant"`

	// startAddress is the first address of the range.
	// +required
	StartAddress formats.RecordedAddress `json:"startAddress"`

	// endAddress is the last address of the range.
	// +required
	EndAddress formats.RecordedAddress `json:"endAddress"`

	// allocatedAt is the time of the allocation, if known.
	// +optional
	AllocatedAt *metav1.Time `json:"allocatedAt,omitempty"`

	// releasedAt is the time of the release.
	// +required
	ReleasedAt metav1.Time `json:"releasedAt"`

	// reusableAt is the end of the cooldown; absent without reuseDelay.
	// +optional
	ReusableAt *metav1.Time `json:"reusableAt,omitempty"`
}

// NetworkPool offers the addresses of one network to the IPAllocations in its namespace.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=ipam,shortName=np
// +kubebuilder:printcolumn:name="CIDR",type=string,JSONPath=".spec.cidr"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.availableIPs"
// +kubebuilder:printcolumn:name="Allocated",type=integer,JSONPath=".status.allocatedIPs"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=".status.totalIPs"
// +kubebuilder:printcolumn:name="Summary",type=string,JSONPath=".status.summary"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status",priority=1
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=".spec.gateway",priority=1
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".spec.routingDomain",priority=1
// +kubebuilder:printcolumn:name="Largest free block",type=integer,JSONPath=".status.largestFreeBlock",priority=1
// +kubebuilder:printcolumn:name="Fragmentation",type=integer,JSONPath=".status.fragmentationPercent",priority=1
// +kubebuilder:printcolumn:name="Reserved",type=integer,JSONPath=".status.reservedIPs",priority=1
// +kubebuilder:printcolumn:name="Granted",type=integer,JSONPath=".status.grantedIPs",priority=1
type NetworkPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the network and the addresses that the pool offers.
	// +required
	Spec NetworkPoolSpec `json:"spec"`

	// status is written by the allocator. The default of Ready is Unknown: clients
	// consider an object without conditions finished.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Pending", message: "Waiting for the allocator", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	Status NetworkPoolStatus `json:"status,omitempty"`
}

// NetworkPoolList is a list of NetworkPools.
// +kubebuilder:object:root=true
type NetworkPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []NetworkPool `json:"items"`
}
