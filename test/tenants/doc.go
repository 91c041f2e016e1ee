// Package tenants tests the tenants' side against real API servers: a management cluster with two managers, and tenants that are control
// planes of their own, with MetalLB's controller giving addresses to their Services. TENANTS_OUTAGE=1m has a tenant's API server away for so long,
// and make soak-tenants puts mixed load on a tenant for half an hour.
package tenants
