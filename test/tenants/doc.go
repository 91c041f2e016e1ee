// Package tenants tests allocations for tenant clusters on real API servers. One
// management cluster with two managers serves tenants with control planes of their own,
// in which MetalLB's controller assigns addresses to Services.
//
// The environment variable TENANTS_OUTAGE=1m sets how long a tenant's API server is down.
// `make soak-tenants` puts mixed load on a tenant for half an hour.
package tenants
