// Package session keeps the load balancer addresses of each tenant at the number that the
// Services need.
//
// A [Manager] has one session, with a goroutine, for each TenantCluster with addresses. A
// session connects to the tenant (package remote), decides (package plan) after each
// change and at [plan.Decision].Next, and carries the decision out:
//
//	Services, pools of others        ──▶ view ──▶ plan.FindAdoptions ──▶ initial blocks, condition adopt.go
//	Services, MetalLB's events, pool ──▶ view ──▶ plan.Decide ──▶ IPAddressPool, L2Advertisement      metallb.go
//	                                                          ──▶ idle times on IPAllocations         decide.go
//	                                                          ──▶ growth blocks, condition            growth.go
//	                                                          ──▶ release of idle blocks              release.go
//	                                                          ──▶ label of the platform's ingress     ingress.go
//
// After an adoption that created a block, the other steps follow with the next decision.
// The steps of a decision are independent: after an error in one step, the next steps
// follow.
//
// # States of a session
//
//	connecting   credentials are read, the connection is made and the mirrors are filled, 20 s at most
//	connected    the tenant has answered for every kind; decisions are made once MetalLB is installed
//	lost         the connection has ended; the next attempt follows after 1/60 of the outage, between 1 s and 30 s
//
// An outage is reported after 10 s: LoadBalancerIPsAvailable becomes Unknown. While a
// tenant is lost, no decision is made and no address released.
package session
