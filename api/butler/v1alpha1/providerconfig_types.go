package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NetworkMode is who manages the addresses of tenants.
// +kubebuilder:validation:Enum=ipam;cloud
type NetworkMode string

const (
	// NetworkModeIPAM takes them from NetworkPools.
	NetworkModeIPAM NetworkMode = "ipam"
	// NetworkModeCloud leaves them to the cloud.
	NetworkModeCloud NetworkMode = "cloud"
)

// LBAllocationMode is how many addresses for load balancers a tenant gets, and when.
// +kubebuilder:validation:Enum=static;elastic
type LBAllocationMode string

const (
	// LBAllocationStatic is one block of fixed size.
	LBAllocationStatic LBAllocationMode = "static"
	// LBAllocationElastic is a small block, and more as Services ask for it.
	LBAllocationElastic LBAllocationMode = "elastic"
)

// ScopeType is who may use a ProviderConfig.
// +kubebuilder:validation:Enum=platform;team
type ScopeType string

const (
	// ScopePlatform is every team.
	ScopePlatform ScopeType = "platform"
	// ScopeTeam is one team.
	ScopeTeam ScopeType = "team"
)

// ProviderConfigSpec is how tenants get their addresses from an infrastructure provider. Fields that are not named here, such as
// credentials, are kept as they are.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.provider != 'azure' || has(self.azure)",fieldPath=".azure",reason=FieldValueRequired,message="provider azure needs spec.azure with subscriptionID and resourceGroup"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || has(self.aws)",fieldPath=".aws",reason=FieldValueRequired,message="provider aws needs spec.aws with region"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || has(self.gcp)",fieldPath=".gcp",reason=FieldValueRequired,message="provider gcp needs spec.gcp with projectID and region"
// +kubebuilder:validation:XValidation:rule="!(self.provider in ['azure', 'aws', 'gcp']) || self.?network.mode.orValue('cloud') != 'ipam'",fieldPath=".network",reason=FieldValueForbidden,message="mode ipam is not for the providers azure, aws and gcp, whose clouds manage the addresses: use mode cloud"
type ProviderConfigSpec struct {
	// provider is the kind of infrastructure, such as harvester, nutanix, proxmox, azure, aws or gcp.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// azure is needed for provider azure.
	// +optional
	Azure *AzureConfig `json:"azure,omitempty"`

	// aws is needed for provider aws.
	// +optional
	AWS *AWSConfig `json:"aws,omitempty"`

	// gcp is needed for provider gcp.
	// +optional
	GCP *GCPConfig `json:"gcp,omitempty"`

	// network is where the addresses of tenants come from, and how many each gets.
	// +optional
	Network *ProviderNetwork `json:"network,omitempty"`

	// scope is who may use this provider.
	// +optional
	Scope *ProviderScope `json:"scope,omitempty"`

	// limits is how much of it each team may use.
	// +optional
	Limits *ProviderLimits `json:"limits,omitempty"`
}

// AzureConfig is what provider azure needs.
// +kubebuilder:pruning:PreserveUnknownFields
type AzureConfig struct {
	// subscriptionID of the subscription.
	// +required
	// +kubebuilder:validation:MinLength=1
	SubscriptionID string `json:"subscriptionID"`

	// resourceGroup in that subscription.
	// +required
	// +kubebuilder:validation:MinLength=1
	ResourceGroup string `json:"resourceGroup"`
}

// AWSConfig is what provider aws needs.
// +kubebuilder:pruning:PreserveUnknownFields
type AWSConfig struct {
	// region of AWS.
	// +required
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
}

// GCPConfig is what provider gcp needs.
// +kubebuilder:pruning:PreserveUnknownFields
type GCPConfig struct {
	// projectID of the project.
	// +required
	// +kubebuilder:validation:MinLength=1
	ProjectID string `json:"projectID"`

	// region of the Google Cloud.
	// +required
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
}

// ProviderNetwork is where the addresses of tenants come from, and how many each gets.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.?mode.orValue('cloud') != 'ipam' || (has(self.poolRefs) && size(self.poolRefs) > 0)",fieldPath=".poolRefs",reason=FieldValueRequired,message="mode ipam needs at least one NetworkPool in poolRefs"
type ProviderNetwork struct {
	// mode is "ipam", where addresses come from NetworkPools, or "cloud", where the cloud gives them.
	// +optional
	// +kubebuilder:default=cloud
	Mode NetworkMode `json:"mode,omitempty"`

	// poolRefs is the NetworkPools to try, by priority and then in this order.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	PoolRefs []PoolReference `json:"poolRefs,omitempty"`

	// subnet is the network that machines are attached to.
	// +optional
	Subnet string `json:"subnet,omitempty"`

	// gateway is the gateway of that network. It is allocated like any other address unless a pool reserves it.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// loadBalancer is how many addresses for load balancers a tenant gets.
	// +optional
	LoadBalancer *ProviderLoadBalancer `json:"loadBalancer,omitempty"`

	// quotaPerTenant is how many addresses a tenant may have.
	// +optional
	QuotaPerTenant *TenantQuota `json:"quotaPerTenant,omitempty"`
}

// PoolReference names a NetworkPool, and when to try it.
// +kubebuilder:pruning:PreserveUnknownFields
type PoolReference struct {
	// name of the NetworkPool.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	Name string `json:"name"`

	// priority says when the pool is tried: lower comes first; among equals, the order of the list.
	// +optional
	// +kubebuilder:default=0
	Priority *int32 `json:"priority,omitempty"`
}

// ProviderLoadBalancer is how many addresses for load balancers a tenant gets.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderLoadBalancer struct {
	// defaultPoolSize is the size of a static tenant's block. 8, the default, leaves it to the pool (tenantAllocation.defaults.lbPoolPerTenant), which has 8
	// where it says nothing.
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	DefaultPoolSize *int32 `json:"defaultPoolSize,omitempty"`

	// allocationMode is "static", one block of defaultPoolSize, or "elastic", a block of initialPoolSize that is added to as Services
	// ask for addresses and reduced when they are gone.
	// +optional
	// +kubebuilder:default=static
	AllocationMode LBAllocationMode `json:"allocationMode,omitempty"`

	// initialPoolSize is the size of an elastic tenant's first block.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	InitialPoolSize *int32 `json:"initialPoolSize,omitempty"`

	// growthIncrement is how many addresses an elastic tenant gets more, at least.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	GrowthIncrement *int32 `json:"growthIncrement,omitempty"`
}

// TenantQuota is how many addresses a tenant may have. What it has already stays when a quota is lowered.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantQuota struct {
	// maxNodeIPs is for nodes. Unlimited where absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodeIPs *int32 `json:"maxNodeIPs,omitempty"`

	// maxLoadBalancerIPs is for load balancers. Unlimited where absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxLoadBalancerIPs *int32 `json:"maxLoadBalancerIPs,omitempty"`
}

// ProviderScope is who may use a provider.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.?type.orValue('platform') != 'team' || has(self.teamRef)",fieldPath=".teamRef",reason=FieldValueRequired,message="scope team needs teamRef, the team that may use the provider"
type ProviderScope struct {
	// type is "platform", every team, or "team", the one in teamRef.
	// +optional
	// +kubebuilder:default=platform
	Type ScopeType `json:"type,omitempty"`

	// teamRef names the team.
	// +optional
	TeamRef *LocalObjectReference `json:"teamRef,omitempty"`
}

// ProviderLimits is how much of a provider each team may use.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderLimits struct {
	// maxClustersPerTeam is how many TenantClusters. Unlimited where absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxClustersPerTeam *int32 `json:"maxClustersPerTeam,omitempty"`

	// maxNodesPerTeam is how many nodes. Unlimited where absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodesPerTeam *int32 `json:"maxNodesPerTeam,omitempty"`
}

// ProviderConfigStatus is what is seen of a provider. Fields that are not named here are others', and kept.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderConfigStatus struct {
	// conditions holds PoolAvailable, and what others say.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is how much its NetworkPools have left.
	// +optional
	Capacity *ProviderCapacity `json:"capacity,omitempty"`
}

// ProviderCapacity is how much the NetworkPools of a provider have left. Counts saturate at the largest int32.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderCapacity struct {
	// availableIPs is how many of their addresses are free.
	// +optional
	AvailableIPs int32 `json:"availableIPs"`

	// estimatedTenants is how many more tenants they suffice for, each with what a new tenant gets at first.
	// +optional
	EstimatedTenants int32 `json:"estimatedTenants"`
}

// ProviderConfig is an infrastructure provider, and how tenants on it get their addresses.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=ipam,shortName=pc
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider"
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=".spec.scope.type"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=".spec.network.mode"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.capacity.availableIPs"
// +kubebuilder:printcolumn:name="Tenants",type=integer,JSONPath=".status.capacity.estimatedTenants"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type ProviderConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how tenants get their addresses.
	// +required
	Spec ProviderConfigSpec `json:"spec"`

	// status is what is seen of the provider.
	// +optional
	Status ProviderConfigStatus `json:"status,omitempty"`
}

// ProviderConfigList is a list of ProviderConfigs.
// +kubebuilder:object:root=true
type ProviderConfigList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ProviderConfig `json:"items"`
}
