// Package tenants tests the tenants' side against real API servers: a management cluster with two managers, and tenants that are control
// planes of their own, with MetalLB's controller giving addresses to their Services.
package tenants
