package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// VIPMode is how the proxy announces an address.
// +kubebuilder:validation:Enum=L2ARP;BGP;OSPF
type VIPMode string

// Values of VIPMode.
const (
	ModeL2ARP VIPMode = "L2ARP"
	ModeBGP   VIPMode = "BGP"
	ModeOSPF  VIPMode = "OSPF"
)

// AddressFamily is which addresses a ProxyVIP has.
// +kubebuilder:validation:Enum=ipv4;ipv6;dual
type AddressFamily string

// Values of AddressFamily.
const (
	FamilyIPv4 AddressFamily = "ipv4"
	FamilyIPv6 AddressFamily = "ipv6"
	FamilyDual AddressFamily = "dual" // one of each
)

// PoolReference names a ProxyIPPool.
type PoolReference struct {
	// name of the pool. It need not exist yet.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`
}

// ProxyVIPSpec is what is asked for and, from the answer to its creation on, what is held.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.address) || has(self.ipv6Address) || has(self.poolRef)",reason=FieldValueRequired,message="name an address (address, ipv6Address), or the pool to take one from (poolRef)"
type ProxyVIPSpec struct {
	// address is the address, filled in by the allocator while the object is being created. Set it to ask for exactly that one instead of a
	// free one, with poolRef as one of the pool's, without as any. With addressFamily ipv6 it may hold the IPv6 address in the place of
	// ipv6Address.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an address, such as 10.200.0.50/32"
	Address string `json:"address,omitempty"`

	// ipv6Address is the IPv6 address of a VIP of family ipv6 or dual, in the same way.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	// +kubebuilder:validation:XValidation:rule="isIP(self) || isCIDR(self)",message="must be an IPv6 address, such as 2001:db8::50/128"
	IPv6Address string `json:"ipv6Address,omitempty"`

	// addressFamily is "ipv4", "ipv6" or "dual": one address, or one of each.
	// +optional
	// +kubebuilder:default=ipv4
	AddressFamily AddressFamily `json:"addressFamily,omitempty"`

	// poolRef names the ProxyIPPool that the addresses come from. Without it, address or ipv6Address must be set. Removed from a VIP that has
	// its addresses, it leaves them to it.
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

// ProxyVIPStatus mirrors what spec holds and says whether it may be used. The proxy's own fields stand beside these.
// +kubebuilder:pruning:PreserveUnknownFields
type ProxyVIPStatus struct {
	// allocatedAddress is the address, as in 10.200.0.1/32; with addressFamily ipv6 the IPv6 one.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	AllocatedAddress string `json:"allocatedAddress,omitempty"`

	// allocatedIPv6Address is the IPv6 address, as in 2001:db8::1/128.
	// +optional
	// +kubebuilder:validation:MaxLength=49
	AllocatedIPv6Address string `json:"allocatedIPv6Address,omitempty"`

	// conditions holds Bound: the addresses belong to this object alone and may be used; and Conflict while they do not. The proxy has
	// others here.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ProxyVIP is an address that the proxy announces, or one of each family, held as long as the object exists. The object that comes back
// from its creation already says which, in spec.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:validation:XValidation:rule="!has(self.spec.poolRef) || (has(oldSelf.spec.poolRef) && self.spec.poolRef.name == oldSelf.spec.poolRef.name) || !(has(oldSelf.spec.address) || has(oldSelf.spec.ipv6Address)) || (has(oldSelf.status) && has(oldSelf.status.conditions) && oldSelf.status.conditions.exists(c, c.type == 'Bound' && c.status == 'False'))",fieldPath=".spec.poolRef",reason=FieldValueForbidden,message="poolRef cannot be changed while addresses are held: create another ProxyVIP in the other pool and delete this one"
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

	// spec is what is asked for and held.
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
