// Package plan decides which addresses a TenantCluster should have: its initial blocks,
// growth on demand, release of idle blocks, and the content of its MetalLB pool. The
// caller observes the cluster, passes the state, carries the decision out, and calls
// again after each change and at [Decision].Next.
//
//	ProviderConfig  ──▶ Policy ──┐
//	TenantCluster   ──▶ Tenant ──┼──▶ MissingBlocks ──▶ initial blocks to allocate: nodes, load balancers
//	IPAllocations   ──▶ Blocks ──┤
//	                             ├──▶ FindAdoptions ──▶ ranges that the tenant uses already, to allocate first
//	Services        ──▶ View ────┼──▶ Decide ──▶ Decision: addresses to allocate, blocks to mark idle or used, blocks to release,
//	IPAddressPool   ─────────────┘               content of the IPAddressPool
//
// # Blocks
//
//	initial   allocated with the tenant, one for nodes and one for load balancers, and one per adopted range; never released while the tenant exists
//	growth    allocated on demand for load balancers; released when idle
//
// The tenantClusterRef and, once recorded, the UID decide which tenant owns a block; the
// name does not. A failed block that IPAM created (label managed-by) is replaced, unless
// annotation keep is set. Never released: blocks whose author pinned the range, blocks
// with annotation keep, and blocks of other tenants.
//
// # Properties
//
//   - A tenant never gets more addresses than its quota.
//   - A MetalLB pool of others loses no address that a Service uses. Addresses that a
//     tenant used before are adopted, or an obstacle is reported.
//   - Every Service that MetalLB could serve from the pool is served while quota and
//     pools have room; with room for a part of the Services, a part is served.
//   - A growth block is released after none of the addresses has been used for
//     Timing.ShrinkAfter without a break. The range is first removed from the tenant's
//     pool, and released after an observed absence of Timing.Settle if no Service uses an
//     address.
//   - While the Services do not change, decisions reach a fixed point: addresses reserved
//     for waiting Services are not idle, so no address is released and allocated again.
//
// # Purity
//
// All functions are pure: plain values, no I/O, no state, no clock but the argument.
// Equal arguments in any order of objects give equal results. The package is not part of
// the allocator, which must not know tenants and Services. Safe for concurrent use.
package plan
