// Package tenants has the controllers that give TenantClusters their addresses and
// release them.
//
//	TenantCluster, ProviderConfig, NetworkPool ──▶ tenantReconciler          initial blocks, NetworkReady, finalizer, a session per tenant
//	TenantCluster being deleted                ──▶ tenantReconciler          release of the blocks once the machines are gone
//	IPAllocation, TenantCluster                ──▶ orphanReconciler          release of allocations whose TenantCluster is gone
//	ProviderConfig, NetworkPool                ──▶ capacityReconciler        free addresses of the pools of a ProviderConfig
//
// Subpackages, which do not import this package:
//
//	plan          decisions: pure functions
//	session       one goroutine per tenant: load balancer addresses on demand, MetalLB, release of idle blocks
//	remote        access to the API server of a tenant
//	kubeconfig    checks of the kubeconfig of a tenant
//	platform      objects of the management cluster beside the allocator
//	allocations   IPAllocations of tenants: list, create, delete
//	report        conditions, events, metrics
//
// # Guarantees
//
//   - Allocations are created through the webhooks: the response contains the addresses.
//     If a pool has no room, the next pool is asked at once.
//   - The blocks of a tenant are found by their tenantClusterRef and the recorded UID,
//     never by name.
//   - A tenant that is slow, broken or hostile delays no other: each tenant has a
//     goroutine, a bounded client, and pauses that grow with the outage.
//   - No address is released while some Services of a tenant are unknown, and the tenant
//     is read once more before each release.
//   - What the MetalLB and the Services of a tenant use is recorded before any free
//     addresses are allocated. No write moves the address of a Service that had it
//     before.
//   - Server-side apply writes only IPAM's own fields of TenantClusters and
//     ProviderConfigs.
//   - The controllers start when TenantCluster and ProviderConfig are served. Missing
//     CRDs are no error.
//
// # Concurrency
//
// Only the leader acts, and a new leader reconciles every object. A controller handles an
// object in one goroutine at a time; a session handles the tenant side of one
// TenantCluster. Two replicas that act at the same time for a moment make equal
// decisions: each delete names the resourceVersion on which the decision was based, and a
// name can be created only once.
package tenants
