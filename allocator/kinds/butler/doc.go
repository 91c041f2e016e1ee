// Package butler converts NetworkPools and IPAllocations to the types of the ledger.
// Webhooks and reconcilers share the conversions, so an object has one meaning in both.
//
//	NetworkPool                                ledger.Pool
//	  spec.tenantAllocation.ranges      ─┐
//	  else its start and end             ├──▶  Window
//	  else spec.cidr, every address     ─┘
//	  spec.reserved, spec.gateway,
//	  status.infrastructureAllocations   ──▶   Blocked
//	  spec.routingDomain                 ──▶   RoutingDomain
//	  status.releases[].reusableAt,
//	  annotation cooldown                ──▶   Recorded
//	  spec.reuseDelay                    ──▶   ReuseDelay
//
//	IPAllocation                               ledger.Claim
//	  spec.pinnedRange, else the range
//	  in status                          ──▶   Ranges
//	  annotation grant                   ──▶   Token
//	  condition Ready                    ──▶   Ready
//
// Stored objects are parsed leniently: an unambiguous value counts even if today's rules
// would deny the object. New objects must satisfy every rule (Validate…); an update must
// satisfy the rules that the stored object satisfies.
//
// No function uses a clock or I/O. FillSpec, RestoreSpec and CompleteMetadata change
// their allocation; the other functions change no argument. Concurrent use is safe.
package butler
