package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// AllocationStrategy is how one address is picked inside an entry of spec.pools. An entry is used up before the next is looked at.
// +kubebuilder:validation:Enum=sequential;random
type AllocationStrategy string

const (
	// StrategySequential takes the lowest free address.
	StrategySequential AllocationStrategy = "sequential"
	// StrategyRandom takes any free address.
	StrategyRandom AllocationStrategy = "random"
)

// IPPoolSpec is the addresses of the pool, and what they come with.
// +kubebuilder:validation:XValidation:rule="self.namePrefix == oldSelf.namePrefix",fieldPath=".namePrefix",reason=FieldValueForbidden,message="namePrefix cannot be changed, the IPAddress objects of the pool are named after it: create another IPPool"
// +kubebuilder:validation:XValidation:rule="!has(self.allocationStrategy) || !has(oldSelf.allocationStrategy) || self.allocationStrategy == oldSelf.allocationStrategy",fieldPath=".allocationStrategy",reason=FieldValueForbidden,message="allocationStrategy cannot be changed: create another IPPool"
type IPPoolSpec struct {
	// clusterName names the Cluster of Cluster API, in the same namespace, that the pool belongs to. The pool is owned by it, moves with
	// it, and rests while it is paused.
	// +optional
	ClusterName *string `json:"clusterName,omitempty"`

	// pools is the addresses of the pool: each entry is used up before the next is looked at.
	// +optional
	// +kubebuilder:validation:MaxItems=49152
	Pools []Pool `json:"pools,omitempty"`

	// allocationStrategy is how an address is picked inside an entry of pools. Immutable.
	// +optional
	// +kubebuilder:default=sequential
	AllocationStrategy AllocationStrategy `json:"allocationStrategy,omitempty"`

	// preAllocations keeps addresses for claims: name of the claim, of either kind, to address. Nobody else gets one of them, whether or
	// not that claim exists. An address that must not be given at all is kept for a name that no claim can have, such as _gateway.
	// +optional
	// +kubebuilder:validation:MaxProperties=49152
	PreAllocations map[string]IP `json:"preAllocations,omitempty"`

	// prefix is the length of the network's prefix, for entries of pools that have none.
	// +optional
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`

	// gateway is for entries of pools that have none.
	// +optional
	Gateway *IP `json:"gateway,omitempty"`

	// dnsServers is for entries of pools that have none.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	DNSServers []IP `json:"dnsServers,omitempty"`

	// namePrefix is what the name of every IPAddress of the pool begins with. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	NamePrefix string `json:"namePrefix"`
}

// Pool is a part of the addresses of an IPPool:
//
//	start, end       from the one to the other, both included
//	start, subnet    from start to the last address of subnet; none where start is not inside
//	start            from start on
//	subnet           from behind the address that subnet is written with to its last one
//
// +kubebuilder:validation:XValidation:rule="has(self.start) || has(self.end) || has(self.subnet)",message="an entry of pools needs addresses: set start and end, or subnet"
type Pool struct {
	// start is the first address.
	// +optional
	Start *IP `json:"start,omitempty"`

	// end is the last address. It counts where start is set.
	// +optional
	End *IP `json:"end,omitempty"`

	// subnet is the network that every address of the entry lies in.
	// +optional
	Subnet *Subnet `json:"subnet,omitempty"`

	// prefix is the length of the network's prefix. 0 is the pool's own.
	// +optional
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`

	// gateway of these addresses. It can be handed out where it lies among them; keep it with preAllocations.
	// +optional
	Gateway *IP `json:"gateway,omitempty"`

	// dnsServers of these addresses, in place of all of the pool's own.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	DNSServers []NameServer `json:"dnsServers,omitempty"`
}

// IPPoolStatus is what is held of a pool.
type IPPoolStatus struct {
	// lastUpdated is when indexes changed last.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`

	// indexes is which claim has which address.
	// +optional
	// +kubebuilder:validation:MaxProperties=49152
	Indexes map[string]IP `json:"indexes,omitempty"`

	// capacity is how many addresses pools has, held or not. It saturates at the largest int64.
	// +optional
	Capacity *int64 `json:"capacity,omitempty"`

	// availableIPCount is how many of them are free; absent where capacityCapped.
	// +optional
	AvailableIPCount *int64 `json:"availableIPCount,omitempty"`

	// capacityCapped says that there are more addresses than capacity can say.
	// +optional
	CapacityCapped *bool `json:"capacityCapped,omitempty"`
}

// IPPool is addresses for the machines of a cluster.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:storageversion
// +kubebuilder:resource:scope=Namespaced,categories=cluster-api;ipam,shortName=ipp;ippool;m3ipp;m3ippool;m3ippools;metal3ipp;metal3ippool;metal3ippools
// +kubebuilder:metadata:labels={"clusterctl.cluster.x-k8s.io=","cluster.x-k8s.io/provider=ipam-metal3","cluster.x-k8s.io/v1alpha2=v1alpha2","cluster.x-k8s.io/v1alpha3=v1alpha3_v1alpha4","cluster.x-k8s.io/v1alpha4=v1alpha5","cluster.x-k8s.io/v1beta1=v1beta1"}
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=".metadata.labels.cluster\\.x-k8s\\.io/cluster-name",description="Cluster that the pool belongs to"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp",description="Time since the pool was created"
// +kubebuilder:printcolumn:name="Capacity",type=integer,JSONPath=".status.capacity",description="Addresses of the pool"
// +kubebuilder:printcolumn:name="Available IPs",type=integer,JSONPath=".status.availableIPCount",description="Free addresses of the pool"
// +kubebuilder:printcolumn:name="Capacity Capped",type=boolean,JSONPath=".status.capacityCapped",description="Whether the pool has more addresses than can be counted"
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=".spec.gateway",priority=1,description="Gateway of the pool"
// +kubebuilder:printcolumn:name="Prefix",type=integer,JSONPath=".spec.prefix",priority=1,description="Length of the network prefix"
// +kubebuilder:printcolumn:name="Routing domain",type=string,JSONPath=".metadata.labels.butler\\.butlerlabs\\.dev/routing-domain",priority=1,description="Routing domain of the pool"
type IPPool struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the addresses of the pool.
	// +optional
	Spec IPPoolSpec `json:"spec,omitempty"`

	// status is written by the allocator.
	// +optional
	Status IPPoolStatus `json:"status,omitempty"`
}

// IPPoolList is a list of IPPools.
// +kubebuilder:object:root=true
type IPPoolList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []IPPool `json:"items"`
}
