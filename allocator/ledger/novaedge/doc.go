// Package novaedge translates ProxyIPPools and ProxyVIPs into the ledger's words. Webhooks and reconcilers use it alike, so that both
// read one object in one way; nothing else does.
//
//	ProxyIPPool                                ledger.Pool
//	  spec.cidrs without their edges    ─┐
//	  spec.addresses                    ─┴──▶  Window
//	  spec.autoAssign                    ──▶   Manual, where it is false
//	  label routing-domain               ──▶   Space
//
//	ProxyVIP                                   ledger.Claim
//	  spec.address, spec.ipv6Address, else
//	  the addresses that status alone has ──▶  Ranges: one for each family that it has, IPv4 first
//	  annotation grant                   ──▶   Token
//	  conditions Bound, Conflict         ──▶   Ready, Flagged
//
// What is stored is read leniently: whatever has one meaning counts, also where today's rules would refuse to store it. What is
// about to be stored is held to every rule (Validate…); of an update, only to those that the stored object keeps.
//
// Every function is pure: no clock, no I/O, the arguments are left as they are. All are safe for concurrent use.
package novaedge
