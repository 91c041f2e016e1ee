// Package novaedge converts ProxyIPPools and ProxyVIPs to the types of the ledger.
// Webhooks and reconcilers share the conversions, so an object has one meaning in both.
//
//	ProxyIPPool                                ledger.Pool
//	  spec.cidrs without their edges    ─┐
//	  spec.addresses                    ─┴──▶  Window
//	  spec.autoAssign: false             ──▶   Manual
//	  label routing-domain               ──▶   RoutingDomain
//
//	ProxyVIP                                   ledger.Claim
//	  spec.address, spec.ipv6Address, else
//	  the addresses in status            ──▶   Ranges: at most one per family, IPv4 first
//	  annotation grant                   ──▶   Token
//	  conditions Bound, Conflict         ──▶   Ready, Flagged
//
// Stored objects are parsed leniently: an unambiguous value counts even if today's rules
// would deny the object. New objects must satisfy every rule (Validate…); an update must
// satisfy the rules that the stored object satisfies.
//
// No function uses a clock or I/O. FillSpec, RestoreSpec, FitFamily and CompleteMetadata
// change their VIP; the other functions change no argument. Concurrent use is safe.
package novaedge
