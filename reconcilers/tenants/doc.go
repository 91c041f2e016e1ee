// Package tenants decides which addresses a TenantCluster should have: with which blocks it starts, when it gets more, when it gives
// back, and what its MetalLB is told. It only decides. Who calls it reads the state of the world, asks it, carries the answer out, and
// asks again when anything has changed or [Plan.Next] has come.
//
//	ProviderConfig ──▶ Policy ─┐
//	TenantCluster  ──▶ Tenant ─┼──▶ Missing ──▶ the blocks to begin with: nodes, load balancers
//	IPAllocations  ──▶ Blocks ─┤
//	tenant's Services ─▶ Needs ┼──▶ Decide  ──▶ Plan: addresses to ask for, clocks to start and stop, blocks to give back,
//	tenant's MetalLB pool ─────┘                      and the content of the MetalLB pool
//
// # What it promises
//
// A tenant never gets more than its quota. Every Service that MetalLB could serve from our pool is served while quota and pools have
// room; where they have room for a part, for that part. A block that was added is given back when none of its addresses has been used
// for Timing.ShrinkAfter without a break, and first leaves the tenant's pool: the range is released only when it was seen to be gone
// from there for Timing.Settle and still nobody uses it. With Services that do not change, decisions come to an end: what a waiting
// Service keeps busy is not idle, so nothing is given back in order to be asked for again.
//
// The first blocks stay, and so do those whose range was pinned by an author, of annotation keep, and of other tenants: a block belongs to
// a tenant by its tenantClusterRef and, once recorded, the tenant's UID; never by its name. One that address management made (label
// managed-by) and that cannot have what it names is replaced, or given up, unless it is kept.
//
// # How it is built
//
// It stands beside the reconcilers rather than in the allocator, because it knows tenants and Services, which the allocator must not;
// and apart from them, because nothing here needs a client. All is plain values: no clock but the arguments', no I/O, no state kept.
// The same arguments give the same answer, in any order of objects. Everything is safe for concurrent use.
package tenants
