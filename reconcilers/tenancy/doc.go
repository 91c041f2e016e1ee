// Package tenancy carries out what package tenants decides: it gives TenantClusters their addresses, tells their MetalLB of them, and takes
// back what nobody uses.
//
//	TenantCluster, ProviderConfig, NetworkPool ──▶ network      first blocks, NetworkReady, finalizer ──▶ a session for each tenant
//	IPAllocation, TenantCluster ───────────────▶ orphans      allocations whose tenant is gone
//	ProviderConfig, NetworkPool ───────────────▶ providers    how much its pools have left
//	Services, Nodes, Machines ─────────────────▶ platformUse  what the platform uses of a pool, to be avoided
//
//	session ◀── the tenant's Services, MetalLB's refusals and pool ──▶ tenants.Decide ──▶ MetalLB pool, blocks added and given back
//
// # What it promises
//
// Allocations are created like everybody's, so an answer is there when the create returns; where a pool has no room the next one is asked in
// the same moment. Whatever exists already is found by its tenantClusterRef, never by its name.
//
// A tenant that is slow, broken or hostile costs only itself: each has a goroutine, a client with bounds of its own, and a pause between
// attempts that grows with the outage. Of its Services so many are kept, and of each what matters; they are read in pages, and no answer or event is
// read beyond its bound. Nothing is given back of a tenant whose Services are not known whole, and before a range is given back the tenant is asked
// once more.
//
// Of TenantCluster and ProviderConfig only our own fields are written, by server-side apply. Where their CRDs are not installed nothing
// happens; when they come, it begins.
//
// # Concurrency
//
// Only the holder of the journal acts; everything comes up again when a replica takes over. One object is handled by one goroutine of its
// controller, the tenant side of a TenantCluster by its session. Two replicas at it for a moment do no harm: both would do the same, every
// delete names the version it was decided on, and a name is taken once only.
package tenancy
