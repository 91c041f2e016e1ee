package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// VIPMode is the protocol by which the proxy announces an address.
// +kubebuilder:validation:Enum=L2ARP;BGP;OSPF
type VIPMode string

// Values of VIPMode.
const (
	ModeL2ARP VIPMode = "L2ARP"
	ModeBGP   VIPMode = "BGP"
	ModeOSPF  VIPMode = "OSPF"
)

// AddressFamily is the family of a ProxyVIP's addresses.
// +kubebuilder:validation:Enum=ipv4;ipv6;dual
type AddressFamily string

// Values of AddressFamily.
const (
	FamilyIPv4 AddressFamily = "ipv4"
	FamilyIPv6 AddressFamily = "ipv6"
	FamilyDual AddressFamily = "dual" // one address of each family
)

// PoolReference names a ProxyIPPool.
type PoolReference struct {
	// name of the pool. The pool may be created later.
	// +required
	Name formats.ObjectName `json:"name"`
}

// ProxyVIPSpec is the request and, after admission of the create, the allocated
// addresses.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.address) || has(self.ipv6Address) || has(self.poolRef)",reason=FieldValueRequired,message="name an address (address, ipv6Address), or the pool to take one from (poolRef)"
type ProxyVIPSpec struct {
	// address is the allocated address, filled in by the allocator during the create. Set
	// address to request an exact address instead of a free address: an address of the
	// pool with poolRef, an arbitrary address without poolRef. With addressFamily ipv6,
	// address may hold the IPv6 address instead of ipv6Address.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address, such as 10.200.0.50/32"
	Address formats.HostAddress `json:"address,omitempty"`

	// ipv6Address is the IPv6 address of a VIP of family ipv6 or dual, filled in or
	// requested like address.
	// +optional
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an IPv6 address, such as 2001:db8::50/128"
	IPv6Address formats.HostAddress `json:"ipv6Address,omitempty"`

	// addressFamily is "ipv4", "ipv6" or "dual": one address, or one address of each
	// family.
	// +optional
	// +kubebuilder:default=ipv4
	AddressFamily AddressFamily `json:"addressFamily,omitempty"`

	// poolRef names the ProxyIPPool that provides the addresses. Without poolRef, address
	// or ipv6Address must be set. Removing poolRef after allocation keeps the addresses.
	// +optional
	PoolRef *PoolReference `json:"poolRef,omitempty"`

	// mode is how the proxy announces the addresses.
	// +required
	Mode VIPMode `json:"mode"`

	// ports that the proxy listens on.
	// +required
	// +listType=atomic
	// +kubebuilder:validation:MinItems=1
	Ports []int32 `json:"ports"`
}

// ProxyVIPStatus mirrors the addresses in spec, with their state. The proxy's own fields
// are kept.
// +kubebuilder:pruning:PreserveUnknownFields
type ProxyVIPStatus struct {
	// allocatedAddress is the address, as in 10.200.0.1/32; with addressFamily ipv6 the
	// IPv6 address.
	// +optional
	AllocatedAddress formats.HostAddress `json:"allocatedAddress,omitempty"`

	// allocatedIPv6Address is the IPv6 address, as in 2001:db8::1/128.
	// +optional
	AllocatedIPv6Address formats.HostAddress `json:"allocatedIPv6Address,omitempty"`

	// conditions holds Bound: this object is the single owner of the addresses, and
	// clients may use the addresses. During an address conflict conditions also holds
	// Conflict. The proxy adds conditions of its own.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxyVIP is an address that the proxy announces, or one address of each family, owned
// as long as the object exists. The create response already contains the addresses, in
// spec.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:validation:XValidation:rule="!has(self.spec.poolRef) || (has(oldSelf.spec.poolRef) && self.spec.poolRef.name == oldSelf.spec.poolRef.name) || !(has(oldSelf.spec.address) || has(oldSelf.spec.ipv6Address)) || (has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Bound' && c.status == 'False'))",fieldPath=".spec.poolRef",reason=FieldValueForbidden,message="poolRef cannot be changed while addresses are owned: create another ProxyVIP in the other pool and delete this one"
// +kubebuilder:resource:scope=Cluster,categories=ipam
// +kubebuilder:selectablefield:JSONPath=".spec.poolRef.name"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=".spec.address"
// +kubebuilder:printcolumn:name="IPv6",type=string,JSONPath=".spec.ipv6Address"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=".spec.mode"
// +kubebuilder:printcolumn:name="Family",type=string,JSONPath=".spec.addressFamily"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.poolRef.name"
// +kubebuilder:printcolumn:name="Bound",type=string,JSONPath=".status.conditions[?(@.type==\"Bound\")].status"
// +kubebuilder:printcolumn:name="Active Node",type=string,JSONPath=".status.activeNode"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".metadata.labels.butler\\.butlerlabs\\.dev/routing-domain",priority=1
type ProxyVIP struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request and the allocated addresses.
	// +required
	Spec ProxyVIPSpec `json:"spec"`

	// status is written by the allocator and by the proxy.
	// +optional
	Status ProxyVIPStatus `json:"status,omitempty"`
}

// ProxyVIPList is a list of ProxyVIPs.
// +kubebuilder:object:root=true
type ProxyVIPList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProxyVIP `json:"items"`
}
