package v1alpha1

import "time"

// Labels. Values above the length limit of labels are shortened; spec has the full
// values.
const (
	// LabelNetworkPool is the name of an IPAllocation's pool.
	LabelNetworkPool = "butler.butlerlabs.dev/network-pool"
	// LabelTenant is the name of the TenantCluster that an IPAllocation is for.
	LabelTenant = "butler.butlerlabs.dev/tenant"
	// LabelTeam is the team of the TenantCluster (spec.teamRef), else the namespace of
	// the TenantCluster, or the name of a team set by the author.
	LabelTeam = "butler.butlerlabs.dev/team"
	// LabelAllocationType repeats spec.type.
	LabelAllocationType = "butler.butlerlabs.dev/allocation-type"
	// LabelAllocationRole distinguishes a tenant's first load balancer block from blocks
	// added on demand.
	LabelAllocationRole = "butler.butlerlabs.dev/allocation-role"
	// LabelRoutingDomain names the routing domain of a pool, and the routing domain that
	// a claim without a pool requests; the default routing domain without the label. On a
	// claim with a pool the label is informative: AnnotationGrantedDomain records the
	// routing domain of its addresses.
	LabelRoutingDomain = "butler.butlerlabs.dev/routing-domain"
	// LabelManagedBy has the value ManagedByIPAM on an IPAllocation that address
	// management created for a TenantCluster and may replace. IPAllocations of people or
	// Git have another value or no label.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPlatformLB marks, with the value "true", a Service of a tenant that belongs to
	// the platform.
	LabelPlatformLB = "butler.butlerlabs.dev/platform-lb"
)

// ManagedByIPAM is a value of LabelManagedBy.
const ManagedByIPAM = "butler-ipam"

// Values of LabelAllocationRole.
const (
	RoleInitial = "initial"
	RoleGrowth  = "growth"
)

// Finalizers.
const (
	// FinalizerNetworkPool keeps a pool while a claim owns addresses of the pool.
	FinalizerNetworkPool = "butler.butlerlabs.dev/networkpool"
	// FinalizerIPAllocation keeps an IPAllocation until the release is recorded.
	FinalizerIPAllocation = "butler.butlerlabs.dev/ipallocation"
	// FinalizerIPAddressClaim keeps a Cluster API IPAddressClaim with a NetworkPool until
	// the IPAddress of the claim is gone and the pool has the cooldown.
	FinalizerIPAddressClaim = "butler.butlerlabs.dev/ipaddressclaim"
	// FinalizerIPAddress keeps the IPAddress while the claim owns the address.
	FinalizerIPAddress = "butler.butlerlabs.dev/ipaddress"
	// FinalizerTenantAddresses keeps a TenantCluster until its machines are gone and its
	// addresses are released.
	FinalizerTenantAddresses = "butler.butlerlabs.dev/tenant-addresses"
)

// Annotations in the admission response of a claim.
const (
	// AnnotationGrant is the random token of an admission response: 16 characters of
	// base64url. A token belongs to one response to one request, and distinguishes the
	// stored claim from other claims that request the same range.
	AnnotationGrant = "butler.butlerlabs.dev/grant"
	// AnnotationOrigin is the origin of a claim's range: OriginAuto, OriginPinned or
	// OriginAdopted.
	AnnotationOrigin = "butler.butlerlabs.dev/origin"
	// AnnotationChosen lists the addresses of a claim that the allocator chose, separated
	// by commas, if a client chose another address of the claim: the origin, which is the
	// same for all addresses of a claim, is not OriginAuto then. An address that the
	// claim does not have any more means nothing.
	AnnotationChosen = "butler.butlerlabs.dev/chosen"
	// AnnotationGrantedDomain is the routing domain in which the addresses of a claim or
	// address object were granted, DefaultDomain for the default routing domain. The
	// object owns its addresses there, whatever becomes of its pool and of its label
	// LabelRoutingDomain.
	AnnotationGrantedDomain = "butler.butlerlabs.dev/granted-domain"
)

// DefaultDomain is the default routing domain in AnnotationGrantedDomain. No routing
// domain has this name: it is not a label value.
const DefaultDomain = "(default)"

// Annotations on pools.
const (
	// AnnotationCooldown on a pool is a JSON list, written by the allocator, of ranges
	// without an owner in this cluster that are not free: each range is in cooldown until
	// a time, or moved to another cluster with its claim. An administrator may remove the
	// entry of a moved range that is unused; to end cooldowns, shorten the reuse delay. A
	// list that does not fit beside the pool's other annotations is compressed: "gzip:",
	// and the compressed JSON in base64.
	AnnotationCooldown = "butler.butlerlabs.dev/cooldown"
	// AnnotationReuseDelay on an IPPool is the cooldown of released addresses, such as
	// 10m. NetworkPools have spec.reuseDelay.
	AnnotationReuseDelay = "butler.butlerlabs.dev/reuse-delay"
)

// MaxReuseDelay is the longest cooldown, in spec.reuseDelay and in AnnotationReuseDelay.
const MaxReuseDelay = 720 * time.Hour

// Annotations around TenantClusters.
const (
	// AnnotationTenantUID on an IPAllocation is the UID of the TenantCluster for which
	// the IPAllocation was created or first observed. Another TenantCluster of equal name
	// does not inherit the IPAllocation. The webhooks remove the annotation from an
	// IPAllocation restored from a backup, since the restored TenantCluster has another
	// UID.
	AnnotationTenantUID = "butler.butlerlabs.dev/tenant-uid"
	// AnnotationIdleSince on an IPAllocation of role growth is the time, in RFC 3339,
	// since when no address of the IPAllocation is used. The annotation keeps the timer
	// across restarts.
	AnnotationIdleSince = "butler.butlerlabs.dev/idle-since"
	// AnnotationKeep on an IPAllocation, with the value "true", prevents address
	// management from deleting the IPAllocation.
	AnnotationKeep = "butler.butlerlabs.dev/keep"
	// AnnotationNodeAddresses on a ProviderConfig, with the value NodeAddressesExternal,
	// declares that nodes get their addresses elsewhere, for instance from DHCP: tenants
	// then get no IPAllocation of type nodes.
	AnnotationNodeAddresses = "butler.butlerlabs.dev/node-addresses"
	// AnnotationIngressDisabled on a ProviderConfig is an IngressDisabledMode, for
	// clusters with Butler's own CRD, which has no field
	// spec.network.loadBalancer.ingressDisabled. The field has precedence.
	AnnotationIngressDisabled = "butler.butlerlabs.dev/ingress-disabled"
)

// NodeAddressesExternal is a value of AnnotationNodeAddresses.
const NodeAddressesExternal = "external"

// Values of AnnotationOrigin.
const (
	OriginAuto    = "auto"    // chosen by the allocator
	OriginPinned  = "pinned"  // an exact range was requested, at least one: by the author, by the pool for this claim, or by a restored object
	OriginAdopted = "adopted" // found on the object: written by an earlier allocator, without admission, or before its pool existed
)

// Condition types.
const (
	// ConditionReady on a NetworkPool: the pool is valid and serves. On an IPAllocation:
	// the IPAllocation is the single owner of its range, and clients may use the range.
	ConditionReady = "Ready"
	// ConditionStalled is True on a Failed IPAllocation and absent otherwise. It repeats
	// Ready=False for clients of kstatus.
	ConditionStalled = "Stalled"
	// ConditionNetworkReady on a TenantCluster: the tenant has its initial addresses.
	ConditionNetworkReady = "NetworkReady"
	// ConditionLoadBalancerIPsAvailable on a TenantCluster: every waiting Service can get
	// an address. The message of False names the obstacle, such as a quota. For a tenant
	// whose addresses do not grow, the condition only reports the number of addresses.
	ConditionLoadBalancerIPsAvailable = "LoadBalancerIPsAvailable"
	// ConditionAddressesAdopted on a TenantCluster: the load balancer addresses that the
	// tenant used before are allocated to the tenant, and IPAddressPool default-pool
	// belongs to address management. The message of False names the addresses and the
	// obstacle.
	ConditionAddressesAdopted = "AddressesAdopted"
	// ConditionTenantClusterMissing on an IPAllocation: the TenantCluster does not exist,
	// or was replaced by another TenantCluster of equal name. lastTransitionTime is the
	// begin of this state.
	ConditionTenantClusterMissing = "TenantClusterMissing"
	// ConditionNotOffered on an IPAllocation, IPAddressClaim or ProxyVIP: the pool does
	// not exist, or does not offer some of the addresses. The claim owns its addresses
	// nevertheless. Absent otherwise.
	ConditionNotOffered = "NotOffered"
	// ConditionPoolAvailable on a ProviderConfig: the pools have free addresses.
	ConditionPoolAvailable = "PoolAvailable"
	// ConditionCapacityWarning is True from 70 % of a pool's addresses allocated.
	ConditionCapacityWarning = "CapacityWarning"
	// ConditionCapacityCritical is True from 85 %.
	ConditionCapacityCritical = "CapacityCritical"
	// ConditionCapacityExhausted is True from 95 %.
	ConditionCapacityExhausted = "CapacityExhausted"
)

// CauseOwner is the type of the cause in a denial that names the owner of the requested
// address as RESOURCE.GROUP/[NAMESPACE/]NAME. The cause is absent if the caller may not
// know the owner.
const CauseOwner = "butler.butlerlabs.dev/Owner"

// CauseTransient is the type of the cause in a denial of an address that is free within
// two minutes, unless the create or the update of a pool that the address was promised to
// is stored by then.
const CauseTransient = "butler.butlerlabs.dev/Transient"

// Condition reasons.
const (
	ReasonPending          = "Pending"          // the object has not been reconciled yet, Ready=Unknown; this is the default in the CRDs
	ReasonReady            = "Ready"            // NetworkPool Ready=True
	ReasonNoAddresses      = "NoAddresses"      // NetworkPool Ready=False: every address that the pool offers is reserved
	ReasonAllocated        = "Allocated"        // IPAllocation Ready=True
	ReasonValidationFailed = "ValidationFailed" // the spec breaks a rule; the message names field, value and rule
	ReasonDeleting         = "Deleting"         // the pool waits for claims that still own addresses of the pool
	ReasonPoolExhausted    = "PoolExhausted"    // no free block is large enough
	ReasonPoolNotFound     = "PoolNotFound"     // the pool named in poolRef does not exist (yet)
	ReasonOutsidePool      = "OutsidePool"      // NotOffered=True: the pool exists, and does not offer some of the addresses
	ReasonPoolPaused       = "PoolPaused"       // the pool carries the annotation cluster.x-k8s.io/paused
	ReasonAllocationFailed = "AllocationFailed" // the requested range cannot be allocated
	ReasonAddressConflict  = "AddressConflict"  // another claim owns the range, or a part of the range
	ReasonReleased         = "Released"         // the claim is being deleted; its cooldown counts from releasedAt

	ReasonPoolAvailable   = "PoolAvailable"   // ProviderConfig PoolAvailable=True
	ReasonNetworkNotReady = "NetworkNotReady" // the provider of a TenantCluster names no pool, does not exist, or is for another team
	ReasonReconciling     = "Reconciling"     // an IPAllocation of a TenantCluster waits for its range
	ReasonQuotaExceeded   = "QuotaExceeded"   // a tenant's quota prevents the allocation

	ReasonTenantUnreachable = "TenantUnreachable" // the API server of a TenantCluster does not respond, LoadBalancerIPsAvailable=Unknown
	ReasonAccessDenied      = "AccessDenied"      // the tenant's kubeconfig is missing, refused, or lacks a right
	ReasonTooManyServices   = "TooManyServices"   // the tenant has more Services than address management reads, LoadBalancerIPsAvailable=Unknown
	ReasonAdopted           = "Adopted"           // AddressesAdopted=True
	ReasonNotOffered        = "NotOffered"        // AddressesAdopted=False: no pool of the ProviderConfig offers addresses that the tenant uses
	ReasonMetalLBMissing    = "MetalLBMissing"    // AddressesAdopted=Unknown: MetalLB is not installed in the tenant
	ReasonTenantGone        = "TenantGone"        // IPAllocation TenantClusterMissing=True: the TenantCluster of the IPAllocation was deleted
	ReasonTenantNeverSeen   = "TenantNeverSeen"   // IPAllocation TenantClusterMissing=True: the TenantCluster was never observed

	// ReasonUtilizationAboveThreshold is the reason of a capacity condition that is True.
	ReasonUtilizationAboveThreshold = "UtilizationAboveThreshold"
	// ReasonUtilizationBelowThreshold is the reason of a capacity condition that is
	// False.
	ReasonUtilizationBelowThreshold = "UtilizationBelowThreshold"
)
