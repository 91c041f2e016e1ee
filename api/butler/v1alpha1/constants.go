package v1alpha1

import "time"

// Labels. Values longer than a label may be are shortened; the spec holds them whole.
const (
	// LabelNetworkPool is the name of the pool that an IPAllocation draws from.
	LabelNetworkPool = "butler.butlerlabs.dev/network-pool"
	// LabelTenant is the name of the TenantCluster that an IPAllocation is for.
	LabelTenant = "butler.butlerlabs.dev/tenant"
	// LabelTeam is the namespace of that TenantCluster, or a team's name where its author says so.
	LabelTeam = "butler.butlerlabs.dev/team"
	// LabelAllocationType repeats spec.type.
	LabelAllocationType = "butler.butlerlabs.dev/allocation-type"
	// LabelAllocationRole tells a tenant's first load balancer block from those that were added on demand.
	LabelAllocationRole = "butler.butlerlabs.dev/allocation-role"
	// LabelRoutingDomain names the routing domain that a pool or a claim belongs to; without it, the default one.
	LabelRoutingDomain = "butler.butlerlabs.dev/routing-domain"
	// LabelManagedBy says, with the value ManagedByIPAM, that an IPAllocation was made for a TenantCluster by address management
	// itself, which may therefore replace it. What people or Git made has another value or none.
	LabelManagedBy = "app.kubernetes.io/managed-by"
	// LabelPlatformLB marks, with the value "true", a Service of a tenant that belongs to the platform.
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
	// FinalizerNetworkPool keeps a pool while a claim holds addresses of it.
	FinalizerNetworkPool = "butler.butlerlabs.dev/networkpool"
	// FinalizerIPAllocation keeps an IPAllocation until its release is recorded.
	FinalizerIPAllocation = "butler.butlerlabs.dev/ipallocation"
	// FinalizerIPAddressClaim keeps an IPAddressClaim of Cluster API that draws from a NetworkPool until its IPAddress is gone.
	FinalizerIPAddressClaim = "butler.butlerlabs.dev/ipaddressclaim"
	// FinalizerIPAddress keeps that IPAddress while its claim has it.
	FinalizerIPAddress = "butler.butlerlabs.dev/ipaddress"
	// FinalizerTenantAddresses keeps a TenantCluster until its machines are gone and its addresses are given back.
	FinalizerTenantAddresses = "butler.butlerlabs.dev/tenant-addresses"
)

// Annotations, part of the answer that a claim gets at admission.
const (
	// AnnotationGrant is the random token of the answer: 16 characters of base64url. It marks one answer to one request, so that
	// the stored claim can be told from every other that asks for the same range.
	AnnotationGrant = "butler.butlerlabs.dev/grant"
	// AnnotationOrigin says where a claim's range comes from: one of OriginAuto, OriginPinned, OriginAdopted.
	AnnotationOrigin = "butler.butlerlabs.dev/origin"
)

// Annotations on pools.
const (
	// AnnotationResting on a pool is written by the allocator: a list, in JSON, of ranges that nobody holds here and that are not free. Each rests
	// until a time, or went to another cluster with its claim. Whoever knows that nobody has one there may take its entry out. One that would not
	// fit beside the pool's other annotations is packed: "gzip:", and the JSON compressed, in base64.
	AnnotationResting = "butler.butlerlabs.dev/resting"
	// AnnotationReuseDelay on an IPPool is how long a released address rests before somebody else gets it, such as 10m. NetworkPools have
	// spec.reuseDelay.
	AnnotationReuseDelay = "butler.butlerlabs.dev/reuse-delay"
)

// MaxReuseDelay bounds how long a released range rests, in spec.reuseDelay as well as in AnnotationReuseDelay.
const MaxReuseDelay = 720 * time.Hour

// Annotations around TenantClusters.
const (
	// AnnotationTenantUID on an IPAllocation is the UID of the TenantCluster that it was made for, or was first seen to be for.
	// Another TenantCluster of the same name does not inherit it. An IPAllocation that is restored from a backup loses it on its way through
	// the webhooks: its TenantCluster is another object then too.
	AnnotationTenantUID = "butler.butlerlabs.dev/tenant-uid"
	// AnnotationIdleSince on an IPAllocation of role growth is since when none of its addresses is used, in RFC 3339. It is persisted
	// so that a restart does not begin to wait anew.
	AnnotationIdleSince = "butler.butlerlabs.dev/idle-since"
	// AnnotationKeep on an IPAllocation, with the value "true", keeps it from ever being deleted by address management.
	AnnotationKeep = "butler.butlerlabs.dev/keep"
	// AnnotationNodeAddresses on a ProviderConfig says, with the value NodeAddressesExternal, that nodes get their addresses
	// elsewhere, from DHCP for instance: tenants then get no IPAllocation of type nodes.
	AnnotationNodeAddresses = "butler.butlerlabs.dev/node-addresses"
)

// NodeAddressesExternal is a value of AnnotationNodeAddresses.
const NodeAddressesExternal = "external"

// Values of AnnotationOrigin.
const (
	OriginAuto    = "auto"    // chosen by the allocator
	OriginPinned  = "pinned"  // asked for by the claim's author
	OriginAdopted = "adopted" // found on the object, put there by an earlier allocator or around the webhooks
)

// Condition types.
const (
	// ConditionReady on a NetworkPool: it is valid and serves. On an IPAllocation: its range is its own, alone, and may be used.
	ConditionReady = "Ready"
	// ConditionStalled is True on an IPAllocation that has Failed, and absent on others. It says what Ready does, in the word of kstatus.
	ConditionStalled = "Stalled"
	// ConditionNetworkReady on a TenantCluster: it has the addresses that it starts with.
	ConditionNetworkReady = "NetworkReady"
	// ConditionLoadBalancerIPsAvailable on a TenantCluster: every Service that waits for an address can be given one. False says
	// what is in the way, such as a quota. Of a tenant whose addresses do not grow it says only how many it has.
	ConditionLoadBalancerIPsAvailable = "LoadBalancerIPsAvailable"
	// ConditionTenantClusterMissing on an IPAllocation: the TenantCluster that it is for does not exist, or is another one of the same
	// name. Its lastTransitionTime says since when.
	ConditionTenantClusterMissing = "TenantClusterMissing"
	// ConditionPoolAvailable on a ProviderConfig: its pools have free addresses.
	ConditionPoolAvailable = "PoolAvailable"
	// ConditionCapacityWarning is True from 70 % of a pool's addresses allocated.
	ConditionCapacityWarning = "CapacityWarning"
	// ConditionCapacityCritical is True from 85 %.
	ConditionCapacityCritical = "CapacityCritical"
	// ConditionCapacityExhausted is True from 95 %.
	ConditionCapacityExhausted = "CapacityExhausted"
)

// CauseOwner is the type of the cause in a denial that names the owner of the requested address as RESOURCE.GROUP/[NAMESPACE/]NAME. The cause is left out
// where the caller may not know the owner.
const CauseOwner = "butler.butlerlabs.dev/Owner"

// Condition reasons.
const (
	ReasonPending          = "Pending"          // nobody has looked at the object yet, Ready=Unknown; it is the default in the CRDs
	ReasonReady            = "Ready"            // NetworkPool Ready=True
	ReasonNoAddresses      = "NoAddresses"      // NetworkPool Ready=False: every address that the pool offers is reserved
	ReasonAllocated        = "Allocated"        // IPAllocation Ready=True
	ReasonValidationFailed = "ValidationFailed" // the spec breaks a rule; the message names field, value and rule
	ReasonDeleting         = "Deleting"         // the pool waits for claims that still hold addresses of it
	ReasonPoolExhausted    = "PoolExhausted"    // no free block is large enough
	ReasonPoolNotFound     = "PoolNotFound"     // the pool that poolRef names does not exist (yet)
	ReasonPoolPaused       = "PoolPaused"       // the pool carries the annotation cluster.x-k8s.io/paused
	ReasonAllocationFailed = "AllocationFailed" // the range asked for cannot be given
	ReasonAddressConflict  = "AddressConflict"  // another claim holds the range, or a part of it
	ReasonReleased         = "Released"         // the claim is being deleted and its addresses are given back

	ReasonPoolAvailable   = "PoolAvailable"   // ProviderConfig PoolAvailable=True
	ReasonNetworkNotReady = "NetworkNotReady" // the provider of a TenantCluster names no pool, does not exist, or is not for it
	ReasonReconciling     = "Reconciling"     // an IPAllocation of a TenantCluster waits for its range
	ReasonQuotaExceeded   = "QuotaExceeded"   // a tenant's quota is in the way

	ReasonTenantUnreachable = "TenantUnreachable" // the API server of a TenantCluster does not answer, LoadBalancerIPsAvailable=Unknown
	ReasonAccessDenied      = "AccessDenied"      // the tenant's kubeconfig is missing, refused, or lacks a right
	ReasonTooManyServices   = "TooManyServices"   // the tenant has more Services than are looked at, LoadBalancerIPsAvailable=Unknown
	ReasonTenantGone        = "TenantGone"        // IPAllocation TenantClusterMissing=True: the tenant that it was for is gone
	ReasonTenantNeverSeen   = "TenantNeverSeen"   // IPAllocation TenantClusterMissing=True: there never was such a tenant

	// ReasonUtilizationAboveThreshold is the reason of a capacity condition that is True.
	ReasonUtilizationAboveThreshold = "UtilizationAboveThreshold"
	// ReasonUtilizationBelowThreshold is the reason of a capacity condition that is False.
	ReasonUtilizationBelowThreshold = "UtilizationBelowThreshold"
)
