package annotated

import (
	"net/netip"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
)

// AddressRequest is what a claim requests from its pool.
type AddressRequest struct {
	Address netip.Addr // exact address; a free address if not valid
	// IgnorePoolBlocks: the claim may get Address although the pool reserves it:
	// preAllocations reserves Address for this claim, or the claim names an earlier
	// allocation.
	IgnorePoolBlocks bool
}

// ToLedger converts a request for the ledger.
func (r AddressRequest) ToLedger() []ledger.RangeRequest {
	if !r.Address.IsValid() {
		return []ledger.RangeRequest{{Count: 1}}
	}
	return []ledger.RangeRequest{{Exact: allocator.Range{First: r.Address, Last: r.Address}, IgnorePoolBlocks: r.IgnorePoolBlocks}}
}

// FindAddressObject returns the first address object that owns an address of a pool on
// behalf of a claim: the address that the claim names, or any address if the claim names
// none. Objects of other pools do not count: claims of different pools may have the same
// name.
func FindAddressObject(pool ledger.Key, named netip.Addr, objects ...ledger.Claim) (ledger.Claim, bool) {
	for _, o := range objects {
		if o.Pool == pool && len(o.Ranges) == 1 && !o.Deleting && (!named.IsValid() || o.Ranges[0].First == named) {
			return o, true
		}
	}
	return ledger.Claim{}, false
}
