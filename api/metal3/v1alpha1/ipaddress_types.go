package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPAddressSpec is an address with its owner and its network settings.
// +kubebuilder:validation:XValidation:rule="self.pool.?name.orValue(\"\") != \"\"",fieldPath=".pool.name",reason=FieldValueRequired,message="name the IPPool that the address belongs to"
// +kubebuilder:validation:XValidation:rule="self.claim.?name.orValue(\"\") != \"\"",fieldPath=".claim.name",reason=FieldValueRequired,message="name the claim that owns the address or, to reserve the address, a name that no claim can have, such as _reserved"
// +kubebuilder:validation:XValidation:rule="self.address == oldSelf.address",fieldPath=".address",reason=FieldValueForbidden,message="address cannot be changed: create another IPAddress and delete this one"
// +kubebuilder:validation:XValidation:rule="self.pool == oldSelf.pool || [self.pool.?name, self.pool.?__namespace__, self.pool.?kind].map(v, v.orValue(\"\")) == [oldSelf.pool.?name, oldSelf.pool.?__namespace__, oldSelf.pool.?kind].map(v, v.orValue(\"\"))",fieldPath=".pool",reason=FieldValueForbidden,message="name, namespace and kind of the pool cannot be changed: create another IPAddress and delete this one"
// +kubebuilder:validation:XValidation:rule="self.claim == oldSelf.claim || [self.claim.?name, self.claim.?__namespace__, self.claim.?kind].map(v, v.orValue(\"\")) == [oldSelf.claim.?name, oldSelf.claim.?__namespace__, oldSelf.claim.?kind].map(v, v.orValue(\"\"))",fieldPath=".claim",reason=FieldValueForbidden,message="name, namespace and kind of the claim cannot be changed: create another IPAddress and delete this one"
type IPAddressSpec struct {
	// claim names the IPClaim, in the same namespace, that owns the address. The claim
	// may not exist (yet).
	// +required
	Claim corev1.ObjectReference `json:"claim"`

	// pool names the IPPool, in the same namespace, of the address.
	// +required
	Pool corev1.ObjectReference `json:"pool"`

	// prefix is the prefix length of the network.
	// +optional
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`

	// gateway of the network.
	// +optional
	Gateway *IP `json:"gateway,omitempty"`

	// address is owned exclusively by the claim as long as this object exists. Immutable.
	// +required
	Address IP `json:"address"`

	// dnsServers of the network.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	DNSServers []IP `json:"dnsServers,omitempty"`
}

// IPAddress is an address owned by an IPClaim. The allocator creates one IPAddress for
// each claim; an IPAddress created by another client owns its address too.
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=metal3;ipam,shortName=ipaddress;m3ipa;m3ipaddress;m3ipaddresses;metal3ipa;metal3ipaddress;metal3ipaddresses
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=ipam-metal3","cluster.x-k8s.io/v1alpha2=v1alpha2","cluster.x-k8s.io/v1alpha3=v1alpha3_v1alpha4","cluster.x-k8s.io/v1alpha4=v1alpha5","cluster.x-k8s.io/v1beta1=v1beta1"}
// +kubebuilder:selectablefield:JSONPath=".spec.pool.name"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=".spec.address",description="The address"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.pool.name",description="Pool of the address"
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=".spec.claim.name",description="Claim that the address is for"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the address was created"
// +kubebuilder:printcolumn:name="Prefix",type=integer,JSONPath=".spec.prefix",priority=1,description="Length of the network prefix"
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=".spec.gateway",priority=1,description="Gateway of the address"
type IPAddress struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the address with its owner.
	// +optional
	Spec IPAddressSpec `json:"spec,omitempty"`
}

// IPAddressList is a list of IPAddresses.
// +kubebuilder:object:root=true
type IPAddressList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPAddress `json:"items"`
}
