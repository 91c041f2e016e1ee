package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// Phases of a TenantCluster on which address management depends. The platform writes the
// phase, and has more phases.
const (
	TenantClusterReady    = "Ready"
	TenantClusterDeleting = "Deleting"
)

// TenantClusterSpec is the part of a tenant's spec that address management reads. Fields
// outside this schema are preserved.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantClusterSpec struct {
	// teamRef names the team of the tenant.
	// +optional
	TeamRef *LocalObjectReference `json:"teamRef,omitempty"`

	// providerConfigRef names the ProviderConfig. The default is the ProviderConfig of
	// the platform.
	// +optional
	ProviderConfigRef *ProviderReference `json:"providerConfigRef,omitempty"`

	// networking overrides the defaults of the provider.
	// +optional
	Networking *TenantNetworking `json:"networking,omitempty"`

	// addons lists the components installed in the tenant.
	// +optional
	Addons *TenantAddons `json:"addons,omitempty"`
}

// ProviderReference names a ProviderConfig.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderReference struct {
	// name of the ProviderConfig.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// namespace of the ProviderConfig. The default is the namespace of
	// --tenants-namespace, butler-system unless set.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// TenantNetworking is the network configuration of a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantNetworking struct {
	// podCIDR is the network of the tenant's pods.
	// +optional
	// +kubebuilder:default="10.244.0.0/16"
	PodCIDR string `json:"podCIDR,omitempty"`

	// serviceCIDR is the network of the tenant's Services.
	// +optional
	// +kubebuilder:default="10.96.0.0/12"
	ServiceCIDR string `json:"serviceCIDR,omitempty"`

	// lbPoolSize is the initial number of load balancer addresses of the tenant, instead
	// of the number of the provider or pool. A change does not affect existing blocks:
	// condition NetworkReady reports the difference.
	// +optional
	// +kubebuilder:validation:Minimum=1
	LBPoolSize *int32 `json:"lbPoolSize,omitempty"`

	// loadBalancerPool is a range of load balancer addresses assigned by hand, before
	// NetworkPools existed. Where a pool of the provider offers the range, it is the
	// first block of the tenant, whatever lbPoolSize is.
	// +optional
	LoadBalancerPool *LoadBalancerPool `json:"loadBalancerPool,omitempty"`
}

// LoadBalancerPool is the addresses from start to end, inclusive.
// +kubebuilder:pruning:PreserveUnknownFields
type LoadBalancerPool struct {
	// start is the first address.
	// +required
	Start formats.RecordedAddress `json:"start"`

	// end is the last address.
	// +required
	End formats.RecordedAddress `json:"end"`
}

// TenantAddons lists the components installed in a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantAddons struct {
	// ingress is the ingress controller, which uses one load balancer address.
	// +optional
	Ingress *IngressAddon `json:"ingress,omitempty"`
}

// IngressAddon is the ingress controller of a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type IngressAddon struct {
	// enabled is true if the ingress controller is installed.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// TenantClusterStatus is the part of a tenant's status that address management reads and
// writes. Fields outside this schema belong to other authors and are preserved.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantClusterStatus struct {
	// conditions holds NetworkReady, AddressesAdopted and LoadBalancerIPsAvailable, and
	// conditions of other authors.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is the phase in the life of the tenant: Pending, Provisioning, Installing,
	// Ready, Updating, Deleting or Failed.
	// +optional
	Phase string `json:"phase,omitempty"`

	// tenantNamespace is the namespace with the tenant's control plane and its
	// kubeconfig.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// lastTransitionTime is the time of the last change of phase.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// ipAllocationRef names the IPAllocation for the tenant's nodes.
	// +optional
	IPAllocationRef *LocalObjectReference `json:"ipAllocationRef,omitempty"`

	// lbAllocationRef names the first IPAllocation for the tenant's load balancers.
	// +optional
	LBAllocationRef *LocalObjectReference `json:"lbAllocationRef,omitempty"`
}

// TenantCluster is a Kubernetes cluster of a tenant, which gets its addresses from
// NetworkPools.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=ipam,shortName=tc
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="Network",type=string,JSONPath=".status.conditions[?(@.type=='NetworkReady')].status"
// +kubebuilder:printcolumn:name="Load balancers",type=string,JSONPath=".status.lbAllocationRef.name"
// +kubebuilder:printcolumn:name="Nodes",type=string,JSONPath=".status.ipAllocationRef.name",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type TenantCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the configuration of the tenant.
	// +optional
	Spec TenantClusterSpec `json:"spec,omitempty"`

	// status is the observed state of the tenant.
	// +optional
	Status TenantClusterStatus `json:"status,omitempty"`
}

// TenantClusterList is a list of TenantClusters.
// +kubebuilder:object:root=true
type TenantClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []TenantCluster `json:"items"`
}
