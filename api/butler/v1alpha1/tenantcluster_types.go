package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Phases of a TenantCluster that address management looks at. Others write them, and know more.
const (
	TenantClusterReady    = "Ready"
	TenantClusterDeleting = "Deleting"
)

// TenantClusterSpec is what address management reads of a tenant. Fields that are not named here are kept as they are.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantClusterSpec struct {
	// teamRef names the team that the tenant belongs to.
	// +optional
	TeamRef *LocalObjectReference `json:"teamRef,omitempty"`

	// providerConfigRef names the ProviderConfig. Without it the platform's default counts.
	// +optional
	ProviderConfigRef *ProviderReference `json:"providerConfigRef,omitempty"`

	// networking is what the tenant asks for instead of its provider's defaults.
	// +optional
	Networking *TenantNetworking `json:"networking,omitempty"`

	// addons is what is installed in the tenant.
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

	// namespace of the ProviderConfig; where absent that of --tenants-namespace, butler-system by default.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`
}

// TenantNetworking is what a tenant asks for.
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

	// lbPoolSize is how many addresses for load balancers the tenant gets at first, instead of its provider's or its pool's number. A change counts for no
	// block that is there: condition NetworkReady says so.
	// +optional
	// +kubebuilder:validation:Minimum=1
	LBPoolSize *int32 `json:"lbPoolSize,omitempty"`

	// loadBalancerPool is addresses for load balancers that were given by hand, before there were NetworkPools.
	// +optional
	LoadBalancerPool *LoadBalancerPool `json:"loadBalancerPool,omitempty"`
}

// LoadBalancerPool is all addresses from start to end, both included.
// +kubebuilder:pruning:PreserveUnknownFields
type LoadBalancerPool struct {
	// start is the first address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	Start string `json:"start"`

	// end is the last address.
	// +required
	// +kubebuilder:validation:MaxLength=39
	End string `json:"end"`
}

// TenantAddons is what is installed in a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantAddons struct {
	// ingress is the ingress controller, which takes one address for load balancers.
	// +optional
	Ingress *IngressAddon `json:"ingress,omitempty"`
}

// IngressAddon is the ingress controller of a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type IngressAddon struct {
	// enabled says whether it is installed.
	// +optional
	// +kubebuilder:default=true
	Enabled *bool `json:"enabled,omitempty"`
}

// TenantClusterStatus is what address management reads and writes of a tenant's status. Fields that are not named here are others',
// and kept.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantClusterStatus struct {
	// conditions holds NetworkReady and LoadBalancerIPsAvailable, and what others say.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// phase is where the tenant is in its life: Pending, Provisioning, Installing, Ready, Updating, Deleting or Failed.
	// +optional
	Phase string `json:"phase,omitempty"`

	// tenantNamespace is the namespace with the tenant's control plane and its kubeconfig.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	TenantNamespace string `json:"tenantNamespace,omitempty"`

	// lastTransitionTime is when phase changed last.
	// +optional
	LastTransitionTime *metav1.Time `json:"lastTransitionTime,omitempty"`

	// ipAllocationRef names the IPAllocation for the tenant's nodes.
	// +optional
	IPAllocationRef *LocalObjectReference `json:"ipAllocationRef,omitempty"`

	// lbAllocationRef names the first IPAllocation for the tenant's load balancers.
	// +optional
	LBAllocationRef *LocalObjectReference `json:"lbAllocationRef,omitempty"`
}

// TenantCluster is a Kubernetes cluster of a tenant, which gets its addresses from NetworkPools.
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

	// spec is what the tenant asks for.
	// +optional
	Spec TenantClusterSpec `json:"spec,omitempty"`

	// status is what is seen of the tenant.
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
