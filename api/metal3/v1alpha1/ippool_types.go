package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/formats"
)

// AllocationStrategy is the order in which addresses of an entry of spec.pools are
// allocated. An entry is exhausted before the next entry is used.
// +kubebuilder:validation:Enum=sequential;random
type AllocationStrategy string

const (
	// StrategySequential takes the lowest free address.
	StrategySequential AllocationStrategy = "sequential"
	// StrategyRandom takes any free address.
	StrategyRandom AllocationStrategy = "random"
)

// IPPoolSpec is the addresses of the pool, with their network settings.
// +kubebuilder:validation:XValidation:rule="self.namePrefix == oldSelf.namePrefix",fieldPath=".namePrefix",reason=FieldValueForbidden,message="namePrefix cannot be changed, the IPAddress objects of the pool are named after it: create another IPPool"
// +kubebuilder:validation:XValidation:rule="!has(self.allocationStrategy) || !has(oldSelf.allocationStrategy) || self.allocationStrategy == oldSelf.allocationStrategy",fieldPath=".allocationStrategy",reason=FieldValueForbidden,message="allocationStrategy cannot be changed: create another IPPool"
type IPPoolSpec struct {
	// clusterName names the Cluster of Cluster API, in the same namespace, to which the
	// pool belongs. The Cluster owns the pool: the pool moves with the Cluster, and is
	// paused while the Cluster is paused.
	// +optional
	ClusterName *string `json:"clusterName,omitempty"`

	// pools lists the addresses of the pool. Each entry is exhausted before the next
	// entry is used.
	// +optional
	// +kubebuilder:validation:MaxItems=49152
	Pools []Pool `json:"pools,omitempty"`

	// allocationStrategy is the order in which addresses of an entry of pools are
	// allocated. Immutable.
	// +optional
	// +kubebuilder:default=sequential
	AllocationStrategy AllocationStrategy `json:"allocationStrategy,omitempty"`

	// preAllocations reserves addresses for claims: name of the claim, of either kind, to
	// address. Other claims do not get a reserved address, even if the named claim does
	// not exist. Reserve an address that must never be allocated for a name that no claim
	// can have, such as _gateway.
	// +optional
	// +kubebuilder:validation:MaxProperties=49152
	PreAllocations map[string]IP `json:"preAllocations,omitempty"`

	// prefix is the prefix length of the network, for entries of pools without prefix.
	// +optional
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`

	// gateway is for entries of pools without gateway.
	// +optional
	Gateway *IP `json:"gateway,omitempty"`

	// dnsServers is for entries of pools without dnsServers.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	DNSServers []IP `json:"dnsServers,omitempty"`

	// namePrefix begins the name of every IPAddress of the pool. Immutable.
	// +required
	// +kubebuilder:validation:MinLength=1
	NamePrefix string `json:"namePrefix"`
}

// Pool is a part of the addresses of an IPPool:
//
//	start, end       from start to end, inclusive
//	start, subnet    from start to the last address of subnet; no addresses if start is outside subnet
//	start            from start to the last address of the family
//	subnet           from the address after the address in subnet to the last address of the network
//
// +kubebuilder:validation:XValidation:rule="has(self.start) || has(self.end) || has(self.subnet)",message="an entry of pools needs addresses: set start and end, or subnet"
type Pool struct {
	// start is the first address.
	// +optional
	Start *IP `json:"start,omitempty"`

	// end is the last address. It has no effect without start.
	// +optional
	End *IP `json:"end,omitempty"`

	// subnet is the network that contains every address of the entry.
	// +optional
	Subnet *formats.Network `json:"subnet,omitempty"`

	// prefix is the prefix length of the network. 0 selects the prefix of the pool.
	// +optional
	// +kubebuilder:validation:Maximum=128
	Prefix int `json:"prefix,omitempty"`

	// gateway of these addresses. If the entry contains the gateway, the gateway is
	// allocatable: reserve it with preAllocations.
	// +optional
	Gateway *IP `json:"gateway,omitempty"`

	// dnsServers of these addresses, instead of the dnsServers of the pool.
	// +optional
	// +kubebuilder:validation:MaxItems=1024
	DNSServers []NameServer `json:"dnsServers,omitempty"`
}

// IPPoolStatus is the usage of a pool.
type IPPoolStatus struct {
	// lastUpdated is the time of the last change of indexes.
	// +optional
	LastUpdated *metav1.Time `json:"lastUpdated,omitempty"`

	// indexes maps the name of each claim to its address, as far as the object has room:
	// 1 MiB of names and addresses.
	// +optional
	// +kubebuilder:validation:MaxProperties=49152
	Indexes map[string]IP `json:"indexes,omitempty"`

	// capacity is the number of addresses in pools, owned or free. It saturates at the
	// largest int64.
	// +optional
	Capacity *int64 `json:"capacity,omitempty"`

	// availableIPCount is the number of free addresses; absent if capacityCapped is true.
	// +optional
	AvailableIPCount *int64 `json:"availableIPCount,omitempty"`

	// capacityCapped is true if the pool has more addresses than capacity can count.
	// +optional
	CapacityCapped *bool `json:"capacityCapped,omitempty"`
}

// IPPool offers addresses for the machines of a cluster.
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

	// spec is the addresses that the pool offers.
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
