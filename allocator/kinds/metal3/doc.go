// Package metal3 converts IPPools, IPClaims and IPAddresses to the types of the ledger.
// Webhooks and reconcilers share the conversions, so an object has one meaning in both.
//
//	IPPool                                     ledger.Pool
//	  spec.pools, in their order         ──▶   Window
//	  spec.preAllocations                ──▶   Blocked, except for the claims named there
//	  spec.allocationStrategy            ──▶   Policy
//	  label routing-domain               ──▶   RoutingDomain
//
//	IPClaim, IPAddressClaim
//	  preAllocations, annotation ipAddress ──▶ annotated.AddressRequest: an exact address, or a free address
//	  the allocated address              ──▶   Settings: prefix, gateway, name servers
//
// # Addresses of an entry of spec.pools
//
// An entry is one range, found by three comparisons of addresses: an IPv6 /64 costs as
// much as a single address.
//
//	start, end          start ├───────────────┤ end
//	start, subnet       start ├──────────┤ last address of subnet      start outside of subnet: none
//	start, end, subnet  start ├─────┤ the lower of the two
//	start               start ├──────────────────────────────▶ the last address of the family
//	subnet       192.168.1.1/26 ○├──────┤ 192.168.1.63                 end does not count without start
//	end                 none
//
// Gateway and broadcast address are allocatable like other addresses. The network address
// is allocatable except in an entry with only a subnet. The first entry with a free
// address is used. An address in several entries has the settings of the first entry.
//
// These rules are the rules of Metal3's own address manager, oddities included: pools
// must keep their meaning after a migration. Probably unintended pools cause warnings
// (FindPoolWarnings); the webhooks deny only what Metal3 denies too.
//
// No function uses a clock or I/O, and none changes an argument. Concurrent use is safe,
// except that pools of ConvertPool draw from the random source of the call.
package metal3
