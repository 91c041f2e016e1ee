// Package annotated has what the IPClaims of Metal3 and the IPAddressClaims of Cluster
// API share: the address is in the annotation ipAddress of the claim, and an address
// object records the address for the clients of the claim.
//
//	annotation ipAddress    ──▶   AddressRequest, before the allocation: an exact address, or a free address
//	annotation ipAddress    ──▶   ledger.Claim.Ranges, after the allocation
//	Failure                 ──▶   text in the status of a claim without an address
//
// No function uses a clock or I/O. FillAddress and CompleteMetadata change their claim;
// the other functions change no argument. Concurrent use is safe.
package annotated
