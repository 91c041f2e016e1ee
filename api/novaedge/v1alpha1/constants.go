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
	ReasonPoolConfigError  = "PoolConfigError"  // the spec breaks a rule; the message names field, value and rule
	ReasonDeleting         = "Deleting"         // the pool waits for ProxyVIPs that still hold addresses of it
	ReasonAddressAllocated = "AddressAllocated" // ProxyVIP Bound=True
	ReasonPoolNotFound     = "PoolNotFound"     // the pool that poolRef names does not exist (yet)
	ReasonPoolExhausted    = "PoolExhausted"    // the pool has no free address
	ReasonAllocationFailed = "AllocationFailed" // the addresses asked for cannot be given
	ReasonAddressConflict  = "AddressConflict"  // another holds one of the addresses
)
