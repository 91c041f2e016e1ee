package v1alpha1

// FinalizerProxyIPPool keeps a pool while a ProxyVIP owns addresses of the pool.
const FinalizerProxyIPPool = "novaedge.io/proxyippool"

// Condition types.
const (
	// ConditionReady on a ProxyIPPool: the pool is valid and serves.
	ConditionReady = "Ready"
	// ConditionBound on a ProxyVIP: the ProxyVIP is the single owner of its addresses,
	// and clients may use the addresses.
	ConditionBound = "Bound"
	// ConditionConflict on a ProxyVIP: True while another object owns one of the
	// addresses; absent otherwise.
	ConditionConflict = "Conflict"
)

// Condition reasons.
const (
	ReasonPoolReady        = "PoolReady"        // ProxyIPPool Ready=True; the message has the live count
	ReasonNoAddresses      = "NoAddresses"      // every address that the pool offers is reserved by a pool of its routing domain
	ReasonPoolConfigError  = "PoolConfigError"  // the spec breaks a rule; the message names field, value and rule
	ReasonDeleting         = "Deleting"         // the pool waits for ProxyVIPs that still own its addresses
	ReasonAddressAllocated = "AddressAllocated" // ProxyVIP Bound=True
	ReasonPoolNotFound     = "PoolNotFound"     // the pool named in poolRef does not exist (yet)
	ReasonPoolExhausted    = "PoolExhausted"    // the pool has no free address
	ReasonAllocationFailed = "AllocationFailed" // the requested addresses cannot be allocated
	ReasonAddressConflict  = "AddressConflict"  // another object owns one of the addresses
)

// Annotations of a Service of type LoadBalancer. With AnnotationVIPMode the manager
// creates a ProxyVIP for the Service; the other annotations configure the ProxyVIP.
const (
	AnnotationVIPMode       = "novaedge.io/vip-mode"       // L2ARP, BGP or OSPF
	AnnotationAddressPool   = "novaedge.io/address-pool"   // name of a ProxyIPPool; the default is DefaultAddressPool
	AnnotationAddressFamily = "novaedge.io/address-family" // ipv4 (the default), ipv6 or dual
	AnnotationBGPConfig     = "novaedge.io/bgp-config"     // spec.bgpConfig, as JSON
	AnnotationOSPFConfig    = "novaedge.io/ospf-config"    // spec.ospfConfig, as JSON
	AnnotationNodeSelector  = "novaedge.io/node-selector"  // spec.nodeSelector, as JSON
	// AnnotationVIPAddresses lists the addresses of the Service, separated by commas, for
	// backups. The manager writes the annotation. The addresses belong to the Service
	// with the UID in AnnotationServiceUID.
	AnnotationVIPAddresses = "novaedge.io/vip-addresses"
	AnnotationBFDEnabled   = "novaedge.io/bfd-enabled" // spec.bfd.enabled: true or false
)

// DefaultAddressPool is the pool of a Service without AnnotationAddressPool.
const DefaultAddressPool = "default"

// Labels and annotation of a ProxyVIP that was created for a Service. An owner reference
// is impossible: a cluster-scoped object cannot have a namespaced owner.
const (
	LabelManagedBy        = "novaedge.io/managed-by" // ManagedByServices
	LabelServiceNamespace = "novaedge.io/service-namespace"
	LabelServiceName      = "novaedge.io/service-name"
	AnnotationServiceUID  = "novaedge.io/service-uid"

	ManagedByServices = "service-lb"
)
