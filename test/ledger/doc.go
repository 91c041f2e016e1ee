// Package ledger tests the ledger and its journal with a real API server. The subjects
// are the Lease that stores the journal, the feed that reads and fences objects, and
// writes that etcd stores after the API server has reported a failure.
//
// If such a late write is stored after its grant has expired, the range may already
// belong to another claim. The allocator cannot prevent this. The late claim is adopted
// if its range is free, and flagged otherwise. Two claims are never Ready with one
// address.
//
// The package also tests address objects that are stored, or observed, after their claim
// was deleted.
package ledger
