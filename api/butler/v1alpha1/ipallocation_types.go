package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// IPAllocationType is the purpose of an IPAllocation's addresses.
// +kubebuilder:validation:Enum=nodes;loadbalancer
type IPAllocationType string

const (
	// TypeNodes is for worker nodes, one address each.
	TypeNodes IPAllocationType = "nodes"
	// TypeLoadBalancer is for Services of type LoadBalancer.
	TypeLoadBalancer IPAllocationType = "loadbalancer"
)

// IPAllocationPhase is the phase in the life of an IPAllocation.
// +kubebuilder:validation:Enum=Pending;Allocated;Released;Failed
type IPAllocationPhase string

const (
	// PhasePending waits for its pool: missing, paused or being deleted.
	PhasePending IPAllocationPhase = "Pending"
	// PhaseAllocated owns its range.
	PhaseAllocated IPAllocationPhase = "Allocated"
	// PhaseReleased is being deleted and still owns its range. The cooldown (reuseDelay
	// of the pool) counts from releasedAt; the range is free when the object is gone and
	// the cooldown is over.
	PhaseReleased IPAllocationPhase = "Released"
	// PhaseFailed cannot get the requested addresses; condition Ready has the reason.
	PhaseFailed IPAllocationPhase = "Failed"
)

// IPAllocationSpec is the request and, after admission of the create, the allocated
// range.
type IPAllocationSpec struct {
	// poolRef names the NetworkPool, in the same namespace, that provides the addresses.
	// The pool may be created later. Immutable once addresses are allocated.
	// +required
	PoolRef LocalObjectReference `json:"poolRef"`

	// tenantClusterRef names the TenantCluster that uses the addresses; it need not
	// exist. Immutable once addresses are allocated.
	// +required
	TenantClusterRef NamespacedObjectReference `json:"tenantClusterRef"`

	// type is the purpose of the addresses: "nodes" or "loadbalancer". Immutable once
	// addresses are allocated.
	// +required
	Type IPAllocationType `json:"type"`

	// count is the number of contiguous addresses to allocate. The default is the pool's
	// default for the type (tenantAllocation.defaults). If the author sets pinnedRange,
	// count is ignored. The allocator fills in the count of the allocated range.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2147483647
	Count *int32 `json:"count,omitempty"`

	// pinnedRange is the allocated range, filled in by the allocator during the create.
	// Set pinnedRange to request an exact range instead of a free range. Immutable once
	// allocated; a range that cannot be allocated may be changed or removed.
	// +optional
	PinnedRange *PinnedIPRange `json:"pinnedRange,omitempty"`
}

// PinnedIPRange is the addresses from startAddress to endAddress, inclusive.
// +kubebuilder:validation:XValidation:rule="self.startAddress.contains(':') == self.endAddress.contains(':') || !isIP(self.startAddress) || !isIP(self.endAddress)",message="startAddress and endAddress must both be IPv4 or both IPv6"
type PinnedIPRange struct {
	// startAddress is the first address.
	// +required
	StartAddress formats.Address `json:"startAddress"`

	// endAddress is the last address, not lower than startAddress.
	// +required
	EndAddress formats.Address `json:"endAddress"`
}

// LocalObjectReference names an object in the same namespace.
type LocalObjectReference struct {
	// name of the object.
	// +required
	Name formats.ObjectName `json:"name"`
}

// NamespacedObjectReference names an object in any namespace.
type NamespacedObjectReference struct {
	// name of the object.
	// +required
	Name formats.ObjectName `json:"name"`

	// namespace of the object.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Namespace string `json:"namespace"`
}

// IPAllocationStatus mirrors the range in spec, with the state of the range.
type IPAllocationStatus struct {
	// phase is Pending (waiting for the pool), Allocated (owns the addresses), Released
	// (being deleted) or Failed (an administrator must act: condition Ready has the
	// reason). phase is empty in the response to a create, whose spec has the addresses:
	// the API server stores a new object without status.
	// +optional
	Phase IPAllocationPhase `json:"phase,omitempty"`

	// conditions holds Ready: True once this object is the single owner of the addresses
	// and clients may use the addresses. In phase Failed conditions also holds Stalled,
	// for Flux and other clients of kstatus.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// cidr is the range as a network; empty for a range that is not a network.
	// +optional
	// +kubebuilder:validation:MaxLength=83
	CIDR string `json:"cidr,omitempty"`

	// startAddress is the first address of the range.
	// +optional
	StartAddress formats.RecordedAddress `json:"startAddress,omitempty"`

	// endAddress is the last address of the range.
	// +optional
	EndAddress formats.RecordedAddress `json:"endAddress,omitempty"`

	// addresses lists every address of a range of up to 4,096 addresses. Larger ranges
	// are not listed, and condition Ready reports the omission.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=65536
	Addresses []formats.RecordedAddress `json:"addresses,omitempty"`

	// allocatedCount is the size of the range, in addresses. It saturates at the largest
	// int64.
	// +optional
	AllocatedCount int64 `json:"allocatedCount,omitempty"`

	// observedGeneration is the metadata.generation that this status describes.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// allocatedAt is when the range was allocated.
	// +optional
	AllocatedAt *metav1.Time `json:"allocatedAt,omitempty"`

	// allocatedBy names the component that allocated the range.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	AllocatedBy string `json:"allocatedBy,omitempty"`

	// releasedAt is the time of the release; set while the object is being deleted.
	// +optional
	ReleasedAt *metav1.Time `json:"releasedAt,omitempty"`
}

// One rule at the root keeps every field of an allocated spec, because the API server
// evaluates rules at each write, also of the status, and copies the schema of a whole
// object for each field that a rule reads of it. Its clauses are in the order of what
// they cost (bytes that the API server allocates for one evaluation of the rule, measured
// with version 1.36.3):
//
//	27 KB   the phase appears: a write of the status, which cannot change the spec
//	99 KB   the spec is the same: a write of metadata, or a later one of the status
//	        the phase is Pending or Failed: the allocation does not own what it names, as far as the allocator has written
//	        otherwise, the fields one by one; count may become what was allocated, where the author asked for another number beside a range
//
// The webhooks know more: whether an allocation without a phase, or with one of these
// phases, owns its range by now. A rule of the root may read status, which a rule of the
// spec cannot. Kubernetes 1.31 estimates the comparison of two optional values (a.?b ==
// c.?d) as unbounded, and rejects the CRD: compare with has().

// IPAllocation is one contiguous range of addresses of a NetworkPool, owned for a
// TenantCluster as long as the object exists. The create response already contains the
// range, in spec.pinnedRange.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:validation:XValidation:rule="self.?status.?phase.hasValue() != oldSelf.?status.?phase.hasValue() || self.spec == oldSelf.spec || !has(oldSelf.spec.pinnedRange) || oldSelf.?status.?phase.orValue('None') in ['Pending', 'Failed'] || (has(self.spec.pinnedRange) && self.spec.pinnedRange == oldSelf.spec.pinnedRange && self.spec.poolRef == oldSelf.spec.poolRef && self.spec.tenantClusterRef == oldSelf.spec.tenantClusterRef && self.spec.type == oldSelf.spec.type && (!has(oldSelf.spec.count) || (has(self.spec.count) && (self.spec.count == oldSelf.spec.count || self.spec.count == oldSelf.?status.?allocatedCount.orValue(0)))))",fieldPath=".spec",reason=FieldValueForbidden,messageExpression="!has(self.spec.pinnedRange) ? 'pinnedRange holds the allocated addresses and cannot be removed: delete the IPAllocation to release them' : self.spec.pinnedRange != oldSelf.spec.pinnedRange ? 'pinnedRange cannot be changed once it is set: delete the IPAllocation and create another one to move to other addresses' : self.spec.poolRef != oldSelf.spec.poolRef ? 'poolRef cannot be changed while addresses are owned: create another IPAllocation in the other pool and delete this one' : self.spec.tenantClusterRef != oldSelf.spec.tenantClusterRef ? 'tenantClusterRef cannot be changed while addresses are owned: create another IPAllocation for the other cluster and delete this one' : self.spec.type != oldSelf.spec.type ? 'type cannot be changed while addresses are owned: create another IPAllocation of the other type and delete this one' : 'count cannot be changed while addresses are owned: create another IPAllocation for more addresses, or a smaller one and delete this one'"
// +kubebuilder:resource:scope=Namespaced,categories=ipam,shortName=ipa
// +kubebuilder:selectablefield:JSONPath=".spec.poolRef.name"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.poolRef.name"
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".spec.tenantClusterRef.name"
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=".spec.type"
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Start",type=string,JSONPath=".spec.pinnedRange.startAddress"
// +kubebuilder:printcolumn:name="End",type=string,JSONPath=".spec.pinnedRange.endAddress"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=".spec.count",priority=1
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=".status.conditions[?(@.type=='Ready')].status",priority=1
// +kubebuilder:printcolumn:name="Tenant namespace",type=string,JSONPath=".spec.tenantClusterRef.namespace",priority=1
// +kubebuilder:printcolumn:name="Team",type=string,JSONPath=".metadata.labels.butler\\.butlerlabs\\.dev/team",priority=1
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=".metadata.annotations.butler\\.butlerlabs\\.dev/origin",priority=1
type IPAllocation struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request and the allocated range.
	// +required
	Spec IPAllocationSpec `json:"spec"`

	// status is written by the allocator. The default of Ready is Unknown: clients
	// consider an object without conditions finished.
	// +optional
	// +kubebuilder:default={conditions: {{type: "Ready", status: "Unknown", reason: "Pending", message: "Waiting for the allocator", lastTransitionTime: "1970-01-01T00:00:00Z"}}}
	Status IPAllocationStatus `json:"status,omitempty"`
}

// IPAllocationList is a list of IPAllocations.
// +kubebuilder:object:root=true
type IPAllocationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAllocation `json:"items"`
}
