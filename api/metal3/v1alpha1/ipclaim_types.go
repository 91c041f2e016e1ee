package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// IPClaimSpec names the pool of a claim. The annotation ipAddress requests an exact
// address.
// +kubebuilder:validation:XValidation:rule="self.pool.?name.orValue(\"\") != \"\"",fieldPath=".pool.name",reason=FieldValueRequired,message="name the IPPool, in the same namespace, that the address is to come from"
// +kubebuilder:validation:XValidation:rule="self.pool == oldSelf.pool || [self.pool.?name, self.pool.?__namespace__, self.pool.?kind].map(v, v.orValue(\"\")) == [oldSelf.pool.?name, oldSelf.pool.?__namespace__, oldSelf.pool.?kind].map(v, v.orValue(\"\"))",fieldPath=".pool",reason=FieldValueForbidden,message="name, namespace and kind of the pool cannot be changed: create another IPClaim in the other pool and delete this one"
type IPClaimSpec struct {
	// pool names the IPPool, in the same namespace, that provides the address. The pool
	// may be created later. Only name counts; name, namespace and kind are immutable.
	// +required
	Pool corev1.ObjectReference `json:"pool"`
}

// IPClaimStatus is the result of a claim: an address, or the reason for no address.
type IPClaimStatus struct {
	// address names the IPAddress of the claim.
	// +optional
	Address *corev1.ObjectReference `json:"address,omitempty"`

	// errorMessage is the reason why the claim has no address (yet).
	// +optional
	ErrorMessage *string `json:"errorMessage,omitempty"`
}

// IPClaim requests an address of an IPPool. The create response already contains the
// address, in the annotation ipAddress.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=cluster-api;ipam,shortName=ipc;ipclaim;m3ipc;m3ipclaim;m3ipclaims;metal3ipc;metal3ipclaim;metal3ipclaims
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=ipam-metal3","cluster.x-k8s.io/v1alpha2=v1alpha2","cluster.x-k8s.io/v1alpha3=v1alpha3_v1alpha4","cluster.x-k8s.io/v1alpha4=v1alpha5","cluster.x-k8s.io/v1beta1=v1beta1"}
// +kubebuilder:selectablefield:JSONPath=".spec.pool.name"
// +kubebuilder:printcolumn:name="Address",type=string,JSONPath=".metadata.annotations.ipAddress",description="Address that the claim has"
// +kubebuilder:printcolumn:name="Pool",type=string,JSONPath=".spec.pool.name",description="Pool that the address comes from"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the claim was created"
// +kubebuilder:printcolumn:name="IPAddress",type=string,JSONPath=".status.address.name",priority=1,description="IPAddress object of the claim"
// +kubebuilder:printcolumn:name="Error",type=string,JSONPath=".status.errorMessage",priority=1,description="Why the claim has no address"
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".metadata.labels.butler\\.butlerlabs\\.dev/routing-domain",priority=1,description="Routing domain of the address"
type IPClaim struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the request.
	// +optional
	Spec IPClaimSpec `json:"spec,omitempty"`

	// status is written by the allocator.
	// +optional
	Status IPClaimStatus `json:"status,omitempty"`
}

// IPClaimList is a list of IPClaims.
// +kubebuilder:object:root=true
type IPClaimList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPClaim `json:"items"`
}
