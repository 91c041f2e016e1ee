package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// NetworkMode selects the manager of the tenants' addresses.
// +kubebuilder:validation:Enum=ipam;cloud
type NetworkMode string

const (
	// NetworkModeIPAM allocates addresses from NetworkPools.
	NetworkModeIPAM NetworkMode = "ipam"
	// NetworkModeCloud leaves addresses to the cloud.
	NetworkModeCloud NetworkMode = "cloud"
)

// LBAllocationMode selects how the number of a tenant's load balancer addresses develops.
// +kubebuilder:validation:Enum=static;elastic
type LBAllocationMode string

const (
	// LBAllocationStatic is one block of fixed size.
	LBAllocationStatic LBAllocationMode = "static"
	// LBAllocationElastic is a small block, extended as Services request addresses.
	LBAllocationElastic LBAllocationMode = "elastic"
)

// IngressDisabledMode selects the first load balancer addresses of elastic tenants whose
// ingress is disabled.
// +kubebuilder:validation:Enum=none;headroom
type IngressDisabledMode string

const (
	// IngressDisabledNone is no block: the first Service gets addresses on demand.
	IngressDisabledNone IngressDisabledMode = "none"
	// IngressDisabledHeadroom is the block of the other elastic tenants, as headroom for
	// the tenant's own Services.
	IngressDisabledHeadroom IngressDisabledMode = "headroom"
)

// ScopeType selects the teams that may use a ProviderConfig.
// +kubebuilder:validation:Enum=platform;team
type ScopeType string

const (
	// ScopePlatform permits every team.
	ScopePlatform ScopeType = "platform"
	// ScopeTeam permits one team.
	ScopeTeam ScopeType = "team"
)

// ProviderConfigSpec configures how tenants of an infrastructure provider get their
// addresses. Fields outside this schema, such as credentials, are preserved.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.provider != 'azure' || has(self.azure)",fieldPath=".azure",reason=FieldValueRequired,message="provider azure needs spec.azure with subscriptionID and resourceGroup"
// +kubebuilder:validation:XValidation:rule="self.provider != 'aws' || has(self.aws)",fieldPath=".aws",reason=FieldValueRequired,message="provider aws needs spec.aws with region"
// +kubebuilder:validation:XValidation:rule="self.provider != 'gcp' || has(self.gcp)",fieldPath=".gcp",reason=FieldValueRequired,message="provider gcp needs spec.gcp with projectID and region"
// +kubebuilder:validation:XValidation:rule="!(self.provider in ['azure', 'aws', 'gcp']) || self.?network.mode.orValue('cloud') != 'ipam'",fieldPath=".network",reason=FieldValueForbidden,message="mode ipam is not for the providers azure, aws and gcp, whose clouds manage the addresses: use mode cloud"
type ProviderConfigSpec struct {
	// provider is the kind of infrastructure, such as harvester, nutanix, proxmox, azure,
	// aws or gcp.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// azure is required for provider azure.
	// +optional
	Azure *AzureConfig `json:"azure,omitempty"`

	// aws is required for provider aws.
	// +optional
	AWS *AWSConfig `json:"aws,omitempty"`

	// gcp is required for provider gcp.
	// +optional
	GCP *GCPConfig `json:"gcp,omitempty"`

	// network is the source of the tenants' addresses, and the number of addresses for
	// each tenant.
	// +optional
	Network *ProviderNetwork `json:"network,omitempty"`

	// scope selects the teams that may use this provider.
	// +optional
	Scope *ProviderScope `json:"scope,omitempty"`

	// limits bounds the use of this provider by each team.
	// +optional
	Limits *ProviderLimits `json:"limits,omitempty"`
}

// AzureConfig is the configuration of provider azure.
// +kubebuilder:pruning:PreserveUnknownFields
type AzureConfig struct {
	// subscriptionID of the subscription.
	// +required
	// +kubebuilder:validation:MinLength=1
	SubscriptionID string `json:"subscriptionID"`

	// resourceGroup in the subscription.
	// +required
	// +kubebuilder:validation:MinLength=1
	ResourceGroup string `json:"resourceGroup"`
}

// AWSConfig is the configuration of provider aws.
// +kubebuilder:pruning:PreserveUnknownFields
type AWSConfig struct {
	// region of AWS.
	// +required
	// +kubebuilder:validation:MinLength=1
	Region string `json:"region"`
}

// GCPConfig is the configuration of provider gcp.
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

// ProviderNetwork is the source of the tenants' addresses, and the number of addresses
// for each tenant.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.?mode.orValue('cloud') != 'ipam' || (has(self.poolRefs) && size(self.poolRefs) > 0)",fieldPath=".poolRefs",reason=FieldValueRequired,message="mode ipam needs at least one NetworkPool in poolRefs"
type ProviderNetwork struct {
	// mode is "ipam" (addresses come from NetworkPools) or "cloud" (the cloud assigns
	// addresses).
	// +optional
	// +kubebuilder:default=cloud
	Mode NetworkMode `json:"mode,omitempty"`

	// poolRefs lists the NetworkPools to try, by priority and then in the order of the
	// list.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	PoolRefs []PoolReference `json:"poolRefs,omitempty"`

	// subnet is the network to which machines are attached.
	// +optional
	Subnet string `json:"subnet,omitempty"`

	// gateway is the gateway of subnet. It is allocated like any other address unless a
	// pool reserves it.
	// +optional
	Gateway string `json:"gateway,omitempty"`

	// loadBalancer is the number of load balancer addresses for a tenant.
	// +optional
	LoadBalancer *ProviderLoadBalancer `json:"loadBalancer,omitempty"`

	// quotaPerTenant is the maximum number of addresses of a tenant.
	// +optional
	QuotaPerTenant *TenantQuota `json:"quotaPerTenant,omitempty"`
}

// PoolReference names a NetworkPool, with the priority of the pool.
// +kubebuilder:pruning:PreserveUnknownFields
type PoolReference struct {
	// name of the NetworkPool.
	// +required
	Name formats.ObjectName `json:"name"`

	// priority orders the pools: lower numbers are tried first, equal numbers in the
	// order of the list.
	// +optional
	// +kubebuilder:default=0
	Priority *int32 `json:"priority,omitempty"`
}

// ProviderLoadBalancer is the number of load balancer addresses for a tenant.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderLoadBalancer struct {
	// defaultPoolSize is the size of a static tenant's block. The default, 8, selects the
	// default of the pool (tenantAllocation.defaults.lbPoolPerTenant), which is 8 if
	// unset.
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	DefaultPoolSize *int32 `json:"defaultPoolSize,omitempty"`

	// allocationMode is "static", one block of defaultPoolSize, or "elastic", a block of
	// initialPoolSize that is extended as Services request addresses and reduced when
	// they release addresses.
	// +optional
	// +kubebuilder:default=static
	AllocationMode LBAllocationMode `json:"allocationMode,omitempty"`

	// initialPoolSize is the size of an elastic tenant's first block.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	InitialPoolSize *int32 `json:"initialPoolSize,omitempty"`

	// growthIncrement is the minimum number of addresses by which the addresses of an
	// elastic tenant grow.
	// +optional
	// +kubebuilder:default=2
	// +kubebuilder:validation:Minimum=1
	GrowthIncrement *int32 `json:"growthIncrement,omitempty"`

	// ingressDisabled is what an elastic tenant with spec.addons.ingress.enabled false
	// gets first: "none", no block before a Service requests an address, or "headroom", a
	// block of initialPoolSize like other tenants. The default is the annotation
	// butler.butlerlabs.dev/ingress-disabled, and then none.
	// +optional
	IngressDisabled IngressDisabledMode `json:"ingressDisabled,omitempty"`
}

// TenantQuota is the maximum number of addresses of a tenant. A tenant keeps its
// addresses when a quota is lowered.
// +kubebuilder:pruning:PreserveUnknownFields
type TenantQuota struct {
	// maxNodeIPs is for nodes. The default is unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodeIPs *int32 `json:"maxNodeIPs,omitempty"`

	// maxLoadBalancerIPs is for load balancers. The default is unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxLoadBalancerIPs *int32 `json:"maxLoadBalancerIPs,omitempty"`
}

// ProviderScope selects the teams that may use a provider.
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self.?type.orValue('platform') != 'team' || has(self.teamRef)",fieldPath=".teamRef",reason=FieldValueRequired,message="scope team needs teamRef, the team that may use the provider"
type ProviderScope struct {
	// type is "platform" (every team) or "team" (the team in teamRef).
	// +optional
	// +kubebuilder:default=platform
	Type ScopeType `json:"type,omitempty"`

	// teamRef names the team.
	// +optional
	TeamRef *LocalObjectReference `json:"teamRef,omitempty"`
}

// ProviderLimits bounds the use of a provider by each team.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderLimits struct {
	// maxClustersPerTeam is the maximum number of TenantClusters. The default is
	// unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxClustersPerTeam *int32 `json:"maxClustersPerTeam,omitempty"`

	// maxNodesPerTeam is the maximum number of nodes. The default is unlimited.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxNodesPerTeam *int32 `json:"maxNodesPerTeam,omitempty"`
}

// ProviderConfigStatus is the observed state of a provider. Fields outside this schema
// belong to other authors and are preserved.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderConfigStatus struct {
	// conditions holds PoolAvailable, and conditions of other authors.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// capacity is the free capacity of the provider's NetworkPools.
	// +optional
	Capacity *ProviderCapacity `json:"capacity,omitempty"`
}

// ProviderCapacity is the free capacity of the NetworkPools of a provider. Counts
// saturate at the largest int32.
// +kubebuilder:pruning:PreserveUnknownFields
type ProviderCapacity struct {
	// availableIPs is the number of free addresses of the pools. An address that several
	// pools offer counts once.
	// +optional
	AvailableIPs int32 `json:"availableIPs"`

	// estimatedTenants is the number of further tenants that get all of their initial
	// addresses, if they have ingress and no sizes of their own: each takes the sizes of
	// the first pools with room, as "kubectl ipam fit --provider" counts. It is a lower
	// bound for more than 50,000 tenants of pools with common addresses, and for pools in
	// very many pieces.
	// +optional
	EstimatedTenants int32 `json:"estimatedTenants"`
}

// ProviderConfig is an infrastructure provider, with the source of its tenants'
// addresses.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=ipam,shortName=bpc
// +kubebuilder:printcolumn:name="Provider",type=string,JSONPath=".spec.provider"
// +kubebuilder:printcolumn:name="Scope",type=string,JSONPath=".spec.scope.type"
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=".spec.network.mode"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=".status.capacity.availableIPs"
// +kubebuilder:printcolumn:name="Further Tenants",type=integer,JSONPath=".status.capacity.estimatedTenants"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
type ProviderConfig struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec configures how tenants get their addresses.
	// +required
	Spec ProviderConfigSpec `json:"spec"`

	// status is the observed state of the provider.
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
