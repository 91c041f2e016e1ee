package v1alpha1

// Finalizers.
const (
	FinalizerIPPool    = "ippool.ipam.metal3.io"    // keeps a pool while an address of it is held
	FinalizerIPClaim   = "ipclaim.ipam.metal3.io"   // keeps a claim until its IPAddress is gone
	FinalizerIPAddress = "ipaddress.ipam.metal3.io" // keeps an IPAddress while its claim has it

	// The same for the claims and addresses of ipam.cluster.x-k8s.io that an IPPool serves.
	FinalizerClusterAPIClaim   = "ipam.metal3.io/ipaddressclaim"
	FinalizerClusterAPIAddress = "ipam.metal3.io/ipaddress"
)

// AnnotationIPAddress on a claim, of either group, is the address that it asks for and, from the answer to its creation on, has.
const AnnotationIPAddress = "ipAddress"

// LabelProvider names the Cluster API provider that an object belongs to: Provider, on pools that have a Cluster and on CRDs.
const (
	LabelProvider = "cluster.x-k8s.io/provider"
	Provider      = "ipam-metal3"
)
