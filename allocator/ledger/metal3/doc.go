// Package metal3 translates IPPools, and what is asked of them, into the ledger's words. Webhooks and reconcilers use it alike, so that both
// read one object in one way; nothing else does.
//
//	IPPool                                     ledger.Pool
//	  spec.pools, in their order         ──▶   Window
//	  spec.preAllocations                ──▶   Blocked, but for the claims they are for
//	  spec.allocationStrategy            ──▶   Policy
//	  label routing-domain               ──▶   Space
//
//	IPClaim, IPAddressClaim
//	  preAllocations, annotation ipAddress ──▶ Want: a certain address, or any
//	  the address it got                 ──▶   Settings: prefix, gateway, name servers
//
// # Which addresses an entry of spec.pools has
//
// An entry is one range, found by comparing three addresses, so that an IPv6 /64 costs what a single address costs.
//
//	start, end          start ├───────────────┤ end
//	start, subnet       start ├──────────┤ last address of subnet      start outside of subnet: none
//	start, end, subnet  start ├─────┤ the lower of the two
//	start               start ├──────────────────────────────▶ the last address of the family
//	subnet       192.168.1.1/26 ○├──────┤ 192.168.1.63                 end does not count without start
//	end                 none
//
// Gateway and broadcast address count like any other; so does the network's own, but where a subnet alone is written with it. The first entry
// that has a free address gives it. An address that lies in several entries comes with what the first of them says.
//
// These are the rules of Metal3's own address manager, oddities included: its pools must mean here what they meant there. What is most likely
// not meant is warned of (WarningsFor), and refused only where Metal3 refuses it as well.
//
// Every function is pure: no clock, no I/O, the arguments are left as they are. All are safe for concurrent use; what PoolOf returns draws
// from the source it was given.
package metal3
