package ledger

import "context"

// Source gives the ledger access to stored objects. A resource that the API server does
// not serve (its CRD is missing, or was deleted) has no objects.
type Source interface {
	// ReadAccess returns whether the local copy of a resource that the ledger counts
	// follows the API server.
	ReadAccess(resource string) ReadAccess
	// HasObjects reports, from a consistent read, whether an object is stored of a
	// resource that the ledger does not count.
	HasObjects(ctx context.Context, resource string) (bool, error)
	// AppliedVersion returns the resourceVersion up to which the local copy of a resource
	// is complete.
	AppliedVersion(resource string) uint64
	// Refresh feeds all objects of a resource into the ledger (ReplaceClaims or
	// ReplacePools). The objects come from the local copy. If live is set, Refresh first
	// feeds a consistent read of the API server, and then the local copy when the copy
	// has caught up with the read.
	Refresh(ctx context.Context, resource string, live bool) error
	// ScanClaims lists all claims of a resource in one namespace from the API server,
	// consistently.
	ScanClaims(ctx context.Context, resource, namespace string, visit func(Claim)) error
	// ReadClaim reads one claim from the API server, consistently.
	ReadClaim(ctx context.Context, k Key) (c Claim, found bool, err error)
	// FenceWrites makes sure that no write of ranges based on an older resourceVersion
	// can be stored, and returns the present resourceVersion; 0 if the object with this
	// UID is gone. It updates a claim where such a write may be in flight, and only reads
	// pools and address objects.
	FenceWrites(ctx context.Context, k Key, uid string) (resourceVersion uint64, err error)
	// MovedRecords reads all records of moved ranges, consistently.
	MovedRecords(ctx context.Context) ([]MovedRecord, error)
	// AnyStored reports, from a consistent read, whether a pool or a claim of any
	// resource is stored. It returns true for a resource that the API server denies to
	// read.
	AnyStored(ctx context.Context) (bool, error)
}

// ReadAccess reports whether a local copy follows the API server: the zero value means
// that the copy follows.
type ReadAccess struct {
	// Denied is why the API server denies reading the resource: the right is missing. The
	// copy stays unchanged meanwhile.
	Denied error
	// Absent is set if the API server does not serve the resource.
	Absent bool
}
