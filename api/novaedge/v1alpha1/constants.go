package v1alpha1

// FinalizerProxyIPPool keeps a pool while a ProxyVIP holds addresses of it.
const FinalizerProxyIPPool = "novaedge.io/proxyippool"

// Condition types.
const (
	// ConditionReady on a ProxyIPPool: it is valid and serves.
	ConditionReady = "Ready"
	// ConditionBound on a ProxyVIP: its addresses are its own, alone, and may be used.
	ConditionBound = "Bound"
	// ConditionConflict on a ProxyVIP: True while another holds one of its addresses; absent otherwise.
	ConditionConflict = "Conflict"
)

// Condition reasons.
const (
	ReasonPoolReady        = "PoolReady"        // ProxyIPPool Ready=True; the message has the live count
	ReasonNoAddresses      = "NoAddresses"      // every address that the pool offers is reserved by a pool of its routing domain
	ReasonPoolConfigError  = "PoolConfigError"  // the spec breaks a rule; the message names field, value and rule
	ReasonDeleting         = "Deleting"         // the pool waits for ProxyVIPs that still hold addresses of it
	ReasonAddressAllocated = "AddressAllocated" // ProxyVIP Bound=True
	ReasonPoolNotFound     = "PoolNotFound"     // the pool that poolRef names does not exist (yet)
	ReasonPoolExhausted    = "PoolExhausted"    // the pool has no free address
	ReasonAllocationFailed = "AllocationFailed" // the addresses asked for cannot be given
	ReasonAddressConflict  = "AddressConflict"  // another holds one of the addresses
)

// Annotations of a Service of type LoadBalancer. The first has a ProxyVIP made for it; the others say how.
const (
	AnnotationVIPMode       = "novaedge.io/vip-mode"       // L2ARP, BGP or OSPF
	AnnotationAddressPool   = "novaedge.io/address-pool"   // a ProxyIPPool, DefaultAddressPool where absent
	AnnotationAddressFamily = "novaedge.io/address-family" // ipv4 (where absent), ipv6 or dual
	AnnotationBGPConfig     = "novaedge.io/bgp-config"     // spec.bgpConfig, as JSON
	AnnotationOSPFConfig    = "novaedge.io/ospf-config"    // spec.ospfConfig, as JSON
	AnnotationNodeSelector  = "novaedge.io/node-selector"  // spec.nodeSelector, as JSON
	// AnnotationVIPAddresses is written by the manager: the addresses of the Service, separated by commas, as a backup needs them. They are those of the
	// Service with the UID in AnnotationServiceUID.
	AnnotationVIPAddresses = "novaedge.io/vip-addresses"
	AnnotationBFDEnabled   = "novaedge.io/bfd-enabled" // spec.bfd.enabled: true or false
)

// DefaultAddressPool is the pool of a Service that names none.
const DefaultAddressPool = "default"

// Marks of a ProxyVIP that was made for a Service. It cannot be owned by it: an object of no namespace has no owner in one.
const (
	LabelManagedBy        = "novaedge.io/managed-by" // ManagedByServices
	LabelServiceNamespace = "novaedge.io/service-namespace"
	LabelServiceName      = "novaedge.io/service-name"
	AnnotationServiceUID  = "novaedge.io/service-uid"

	ManagedByServices = "service-lb"
)
