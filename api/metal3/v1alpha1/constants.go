package v1alpha1

// Finalizers.
const (
	FinalizerIPPool    = "ippool.ipam.metal3.io"    // keeps a pool while an address of the pool is owned
	FinalizerIPClaim   = "ipclaim.ipam.metal3.io"   // keeps a claim until its IPAddress is gone
	FinalizerIPAddress = "ipaddress.ipam.metal3.io" // keeps an IPAddress while its claim owns the address

	// FinalizerClusterAPIClaim and FinalizerClusterAPIAddress do the same for claims and
	// addresses of ipam.cluster.x-k8s.io with an IPPool.
	FinalizerClusterAPIClaim   = "ipam.metal3.io/ipaddressclaim"
	FinalizerClusterAPIAddress = "ipam.metal3.io/ipaddress"
)

// AnnotationIPAddress on a claim, of either API group, is the requested address, and the
// allocated address from the create response on.
const AnnotationIPAddress = "ipAddress"

// LabelProvider names the Cluster API provider of an object. Pools with a Cluster, and
// CRDs, have the value Provider.
const (
	LabelProvider = "cluster.x-k8s.io/provider"
	Provider      = "ipam-metal3"
)
