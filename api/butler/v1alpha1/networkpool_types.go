package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// The rules do not use containsCIDR: Kubernetes 1.31 evaluates it to false unless both networks have the same first address.
//
// Kubernetes 1.31 and 1.32 evaluate every rule at each write of the status, later versions only those of fields that change. A pool stored under an
// earlier schema, such as Butler's own, may have host bits in its networks, or ranges outside cidr: the rules about these accept what is stored.

// NetworkPoolSpec is the network, and which part of it tenants may have.
// +kubebuilder:validation:XValidation:rule="!isCIDR(self.cidr) || !isCIDR(oldSelf.cidr) || (cidr(self.cidr).containsIP(cidr(oldSelf.cidr).ip()) && cidr(self.cidr).prefixLength() <= cidr(oldSelf.cidr).prefixLength())",fieldPath=".cidr",reason=FieldValueForbidden,message="cidr may grow but never shrink or move: use a network that contains the present one, or add another pool"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.reserved) || !isCIDR(self.cidr) || self.reserved.all(r, !isCIDR(r.cidr) || (cidr(self.cidr).containsIP(cidr(r.cidr).ip()) && cidr(self.cidr).prefixLength() <= cidr(r.cidr).prefixLength()))",fieldPath=".reserved",optionalOldSelf=true,message="every reserved cidr must lie inside spec.cidr: correct it or remove the entry"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.tenantAllocation) || !has(self.tenantAllocation.ranges) || !isCIDR(self.cidr) || self.tenantAllocation.ranges.all(r, !isIP(r.start) || !isIP(r.end) || (cidr(self.cidr).containsIP(r.start) && cidr(self.cidr).containsIP(r.end)))",fieldPath=".tenantAllocation.ranges",optionalOldSelf=true,message="every range must lie inside spec.cidr: correct start and end, or grow cidr"
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !has(self.tenantAllocation) || (has(self.tenantAllocation.ranges) && size(self.tenantAllocation.ranges) > 0) || !isCIDR(self.cidr) || [self.tenantAllocation.?start.orValue(\"\"), self.tenantAllocation.?end.orValue(\"\")].all(a, !isIP(a) || cidr(self.cidr).containsIP(a))",fieldPath=".tenantAllocation",optionalOldSelf=true,message="start and end must lie inside spec.cidr: correct them, or grow cidr"
// +kubebuilder:validation:XValidation:rule="!has(self.gateway) || !isIP(self.gateway) || !isCIDR(self.cidr) || cidr(self.cidr).containsIP(self.gateway) || (cidr(self.cidr).ip().family() == 6 && ip(self.gateway).family() == 6 && ip(self.gateway).isLinkLocalUnicast())",fieldPath=".gateway",message="gateway must lie inside spec.cidr, or be link-local IPv6 in an IPv6 pool: correct it or remove it"
type NetworkPoolSpec struct {
	// cidr is the network of the pool, IPv4 or IPv6, without host bits. It may grow (the new network contains the old one), never
	// shrink or move.
	// +required
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self.trim() != self ? 'must have no blanks around it' : isIP(self) ? 'must have a prefix length: write ' + self + (ip(self).family() == 4 ? '/32' : '/128') + ' for this address alone, a smaller one for a network' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64'"
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || !isCIDR(self) || string(cidr(self).masked()) == self",optionalOldSelf=true,messageExpression="string(cidr(self).masked()) == self.lowerAscii() ? 'must be in lower case: write ' + self.lowerAscii() : string(cidr(self)) == self.lowerAscii() ? 'has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24' : 'must be in canonical form, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64'"
	// +kubebuilder:validation:XValidation:rule="self != '::/0'",message="cidr ::/0 is more than a pool can hold: use a longer prefix"
	CIDR string `json:"cidr"`

	// gateway is the router of the network, told to machines whose claims have a field for it. It is inside cidr and never allocated,
	// in the whole routing domain, or link-local where the pool is IPv6.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
	Gateway string `json:"gateway,omitempty"`

	// reserved is the parts of cidr that are never allocated, in the whole routing domain.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || self.all(r, !isCIDR(r.cidr) || string(cidr(r.cidr).masked()) == r.cidr)",optionalOldSelf=true,messageExpression="self.exists(r, isCIDR(r.cidr) && string(cidr(r.cidr)) == r.cidr && string(cidr(r.cidr).masked()) != r.cidr) ? 'a reserved cidr has bits set after the prefix: write the first address of the network before it, as in 10.40.0.0/24 for 10.40.0.5/24' : 'every reserved cidr must be in canonical form, in lower case, as short as can be and without bits set after the prefix: 2001:db8::/64, not 2001:0DB8:0::1/64'"
	Reserved []ReservedRange `json:"reserved,omitempty"`

	// tenantAllocation is which part of cidr tenants may have, and how much of it by default. Without it, all of cidr that is not
	// reserved, first and last address included.
	// +optional
	TenantAllocation *TenantAllocation `json:"tenantAllocation,omitempty"`

	// routingDomain names the network in which the addresses of this pool mean one thing. Pools of one routing domain never give
	// the same address twice; pools of two may. Empty is the default domain. Immutable while anything is held. A label value.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$')",message="routingDomain must be a label value: at most 63 letters, digits, '-', '_' and '.', starting and ending with a letter or digit"
	RoutingDomain string `json:"routingDomain,omitempty"`

	// reuseDelay is how long a released range rests before it is handed out again: from 0s (the default) to 720h, such as 10m.
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
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self)",messageExpression="self.trim() != self ? 'must have no blanks around it' : isIP(self) ? 'must have a prefix length: write ' + self + (ip(self).family() == 4 ? '/32' : '/128') + ' for this address alone, a smaller one for a network' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 network, such as 10.40.0.0/24 or 2001:db8::/64'"
	CIDR string `json:"cidr"`

	// description says what the network is reserved for.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Description string `json:"description,omitempty"`
}

// TenantAllocation is what tenants may have of a pool. ranges wins over start and end; with none of them, the whole cidr counts.
// +kubebuilder:validation:XValidation:rule="oldSelf.hasValue() && self == oldSelf.value() || (self.?start.orValue(\"\") == \"\") == (self.?end.orValue(\"\") == \"\")",optionalOldSelf=true,message="start and end must be set together: set both, or use ranges instead"
type TenantAllocation struct {
	// start is the first address that tenants may have. Deprecated: use ranges.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="self == \"\" || (isIP(self) && ip.isCanonical(self))",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
	Start string `json:"start,omitempty"`

	// end is the last address that tenants may have. Deprecated: use ranges.
	// +optional
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="self == \"\" || (isIP(self) && ip.isCanonical(self))",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
	End string `json:"end,omitempty"`

	// ranges is all that tenants may have: inside cidr, in ascending order, none overlapping another.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Ranges []IPRange `json:"ranges,omitempty"`

	// defaults is how many addresses an IPAllocation gets that does not say.
	// +optional
	Defaults *AllocationDefaults `json:"defaults,omitempty"`
}

// IPRange is all addresses from start to end, both included.
type IPRange struct {
	// start is the first address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
	Start string `json:"start"`

	// end is the last address, not lower than start.
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self) && ip.isCanonical(self)",messageExpression="isIP(self) ? (ip.isCanonical(self.lowerAscii()) ? 'must be in lower case: write ' + self.lowerAscii() : 'must be in canonical form, as short as can be: 2001:db8::1, not 2001:0DB8:0::1') : self.trim() != self ? 'must have no blanks around it' : self.matches('^(.*[.])?0[0-9]') ? 'must have no leading zeros' : self.contains('/') ? 'must be an address without a prefix length' : self.contains('%') ? 'must not have a zone' : self.matches('^.*:.*[.]') ? 'must not be IPv4 written as IPv6: write it as IPv4' : 'must be an IPv4 or IPv6 address, such as 10.40.0.100 or 2001:db8::100'"
	End string `json:"end"`
}

// AllocationDefaults is how many addresses an IPAllocation without count gets.
type AllocationDefaults struct {
	// nodesPerTenant is for type nodes.
	// +optional
	// +kubebuilder:default=5
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	NodesPerTenant int32 `json:"nodesPerTenant,omitempty"`

	// lbPoolPerTenant is for type loadbalancer, and for the first block of a static tenant whose ProviderConfig has no defaultPoolSize but the default.
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	LBPoolPerTenant int32 `json:"lbPoolPerTenant,omitempty"`
}

// NetworkPoolStatus is what a pool holds. All counts are addresses and saturate at the largest int64.
type NetworkPoolStatus struct {
	// conditions holds Ready, CapacityWarning, CapacityCritical and CapacityExhausted.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// totalIPs is all addresses that can be allocated: the tenant ranges without what is reserved in them. It and the other counts end at
	// 9223372036854775807.
	// +optional
	TotalIPs int64 `json:"totalIPs"`

	// allocatedIPs is how many of totalIPs are held: by claims, by creates that are under way, and by releases that rest.
	// +optional
	AllocatedIPs int64 `json:"allocatedIPs"`

	// availableIPs is how many of totalIPs are free.
	// +optional
	AvailableIPs int64 `json:"availableIPs"`

	// allocationCount is how many IPAllocations of this pool hold addresses.
	// +optional
	AllocationCount int64 `json:"allocationCount"`

	// fragmentationPercent is how much of the free addresses lies outside the largest free block: 0 for one block, near 100 for many
	// small ones.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FragmentationPercent *int32 `json:"fragmentationPercent,omitempty"`

	// largestFreeBlock is the longest run of free addresses: the largest count that can be allocated now.
	// +optional
	LargestFreeBlock int64 `json:"largestFreeBlock"`

	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// poolSizeIPs is all addresses of cidr, first and last included.
	// +optional
	PoolSizeIPs int64 `json:"poolSizeIPs"`

	// reservedIPs is how many of poolSizeIPs are reserved.
	// +optional
	ReservedIPs int64 `json:"reservedIPs"`

	// unmanagedScopeIPs is how many addresses the unmanaged ranges have.
	// +optional
	UnmanagedScopeIPs int64 `json:"unmanagedScopeIPs"`

	// unmanagedRanges is what of cidr is neither reserved nor in a range of tenantAllocation, without the first and the last address: where
	// tenantAllocation names no range, all of cidr that is not reserved, though allocations may have it then.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=512
	UnmanagedRanges []UnmanagedRange `json:"unmanagedRanges,omitempty"`

	// infrastructureConsumedIPs is how many addresses infrastructureAllocations has.
	// +optional
	InfrastructureConsumedIPs int64 `json:"infrastructureConsumedIPs"`

	// infrastructureAllocations is the addresses of the pool that the platform itself is seen to use.
	// +optional
	// +listType=map
	// +listMapKey=ip
	// +kubebuilder:validation:MaxItems=4096
	InfrastructureAllocations []InfrastructureAllocation `json:"infrastructureAllocations,omitempty"`

	// releases is the last ranges given back, oldest first: the audit record. An entry whose range still rests is never dropped;
	// with 1,024 of those, further releases wait. Of the others the last 32 are kept; the allocator's log has every release.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Releases []Release `json:"releases,omitempty"`
}

// UnmanagedRange is all addresses from start to end, both included.
type UnmanagedRange struct {
	// start is the first address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	Start string `json:"start"`

	// end is the last address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	End string `json:"end"`
}

// InfrastructureAllocation is one address that the platform uses, and what for.
type InfrastructureAllocation struct {
	// ip is the address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	// +kubebuilder:validation:XValidation:rule="isIP(self)",message="ip must be an IPv4 or IPv6 address"
	IP string `json:"ip"`

	// source is how it was found: "metallb", "node", "machine" or "static".
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Source string `json:"source"`

	// serviceRef is the Service of type LoadBalancer that has the address.
	// +optional
	ServiceRef *ServiceReference `json:"serviceRef,omitempty"`

	// nodeRef is the Node that has the address.
	// +optional
	NodeRef *NodeReference `json:"nodeRef,omitempty"`

	// machineRef is the Machine that has the address.
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

// RecordedReference names an object as another object did, by whatever rules that followed.
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

// Release records one range that an IPAllocation gave back.
type Release struct {
	// name of the IPAllocation.
	// +required
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// tenant names the TenantCluster that had the range.
	// +required
	Tenant RecordedReference `json:"tenant"`

	// startAddress is the first address of the range.
	// +required
	// +kubebuilder:validation:MaxLength=39
	StartAddress string `json:"startAddress"`

	// endAddress is the last address of the range.
	// +required
	// +kubebuilder:validation:MaxLength=39
	EndAddress string `json:"endAddress"`

	// allocatedAt is when the range was allocated, where that is known.
	// +optional
	AllocatedAt *metav1.Time `json:"allocatedAt,omitempty"`

	// releasedAt is when it was given back.
	// +required
	ReleasedAt metav1.Time `json:"releasedAt"`

	// reusableAt is when it may be handed out again; absent where the pool had no reuseDelay.
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
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status",priority=1
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=".spec.gateway",priority=1
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".spec.routingDomain",priority=1
// +kubebuilder:printcolumn:name="Largest free block",type=integer,JSONPath=".status.largestFreeBlock",priority=1
// +kubebuilder:printcolumn:name="Fragmentation",type=integer,JSONPath=".status.fragmentationPercent",priority=1
type NetworkPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the pool offers.
	// +required
	Spec NetworkPoolSpec `json:"spec"`

	// status is written by the allocator. Until then Ready is Unknown: who sees no condition at all takes an object for finished.
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
