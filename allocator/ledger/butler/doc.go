// Package butler translates NetworkPools and IPAllocations into the ledger's words. Webhooks and reconcilers use it alike, so that
// both read one object in one way; nothing else does.
//
//	NetworkPool                                ledger.Pool
//	  spec.tenantAllocation.ranges      ─┐
//	  else its start and end             ├──▶  Window
//	  else spec.cidr, every address     ─┘
//	  spec.reserved, spec.gateway        ──▶   Blocked
//	  spec.routingDomain                 ──▶   Space
//	  status.releases[].reusableAt       ──▶   Cooling
//
//	IPAllocation                               ledger.Claim
//	  spec.pinnedRange, else the range
//	  that status alone has              ──▶   Ranges
//	  annotation grant                   ──▶   Token
//	  condition Ready                    ──▶   Ready
//
// What is stored is read leniently: whatever has one meaning counts, also where today's rules would refuse to store it. What is
// about to be stored is held to every rule (Validate…); of an update, only to those that the stored object keeps.
//
// Every function is pure: no clock, no I/O, the arguments are left as they are. All are safe for concurrent use.
package butler
