package journal

import (
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// Revision is one stored state of the journal.
type Revision struct {
	ResourceVersion string // of the Lease; "" if the Lease does not exist
	Leader          string // identity of the replica that may commit; "" after a hand-over
	Term            int64  // the Lease's leaseTransitions
	Commit          uint64 // number of commits in all terms. Invariant: two revisions of one term never have the same number
	Snapshot
}

// Snapshot is the content of a revision.
type Snapshot struct {
	// Quarantine: an earlier journal may have been lost with its grants. For one grant
	// life the leader grants only what stored claims own already; then it clears the
	// flag.
	Quarantine bool
	// Applied maps each served resource of claims and pools, and each resource that is
	// not served but has objects or open grants, to the resourceVersion of the last event
	// that the leader has applied. The next leader grants after it has applied the same
	// events. Version 0 means that the resource has neither stored objects nor open
	// grants, or that the leader has applied no event: the next leader reads the resource
	// from the API server first.
	Applied map[string]uint64
	// Unserved lists the resources in Applied whose stored objects the leader counts
	// although it does not serve their API. Encode does not include the list, because
	// earlier releases read the encoding: a Store keeps the list separately.
	Unserved []string
	// Entries are the open grants, without those of a resource that the leader could not
	// read for a grant life.
	Entries []Entry
}

// OpenGrants counts the entries that are not standby grants.
func (r *Snapshot) OpenGrants() (n int) {
	for i := range r.Entries {
		if !r.Entries[i].IsStandby() {
			n++
		}
	}
	return n
}

// Entry is one open grant, or the ranges that one pool update withholds.
type Entry struct {
	Token         Token
	RoutingDomain string
	Ranges        []allocator.Range
	Resource      string // of the claim, as in state.Key; "" for a standby grant
	Namespace     string // of the claim; of a standby grant see MarkInherited
	NameHash      uint64 // HashName of the claim's name; 0 if the API server had yet to generate it
	// StoredName and UID identify a claim that was stored before the grant. StoredName
	// alone is the name of a pool whose update withholds the ranges. Both are empty for a
	// grant to a create.
	StoredName string
	UID        string
}

// IsStandby reports whether the entry was written before a create requested its ranges:
// resource, namespace and name of the claim are not known.
func (e *Entry) IsStandby() bool { return e.Resource == "" }

// inheritedNamespace is the Namespace of an inherited standby grant. No namespace can
// have this name.
const inheritedNamespace = "*"

// MarkInherited marks a standby grant as one of an earlier leader, which may have used
// it: its ranges are not free. Other entries do not change.
func (e *Entry) MarkInherited() {
	if e.IsStandby() {
		e.Namespace = inheritedNamespace
	}
}

// IsFree reports whether the ranges of the entry are free: the entry is a standby grant
// that the leader has not used.
func (e *Entry) IsFree() bool { return e.IsStandby() && e.Namespace != inheritedNamespace }

// Next returns the revision that follows v in the same term, with content r.
func (v Revision) Next(r Snapshot) Revision {
	v.Commit++
	v.Snapshot = r
	return v
}

// WithLeader returns the revision by which a replica takes the journal over: once stored,
// all commits of earlier terms fail. The open grants stay.
func (v Revision) WithLeader(leader string) Revision {
	v.Term++
	v.Commit++
	v.Leader = leader
	return v
}

// WithResources returns v for a leader that serves the given resources. The leader has
// applied no events of resources that are new in Applied.
func (v Revision) WithResources(resources []string) Revision {
	applied := make(map[string]uint64, len(resources))
	for _, resource := range resources {
		applied[resource] = 0
	}
	maps.Copy(applied, v.Applied)
	v.Applied, v.Unserved = applied, nil
	for _, resource := range slices.Sorted(maps.Keys(applied)) {
		if !slices.Contains(resources, resource) {
			v.Unserved = append(v.Unserved, resource)
		}
	}
	return v
}

// WithoutLeader returns the revision with which a stopping leader hands the journal over,
// so that the next leader takes over without a wait.
func (v Revision) WithoutLeader(r Snapshot) Revision {
	v = v.Next(r)
	v.Leader = ""
	return v
}

// Outcome is the result of an attempt to write, as far as a later read shows.
type Outcome int

// The outcomes of an attempt.
const (
	Landed  Outcome = iota // the attempt is stored
	Pending                // no write has been stored since; the attempt may still land, and may be sent again unchanged
	Lost                   // another write was stored instead: the attempt can never land
)

// OutcomeOf compares an attempt with the revision that a consistent read found
// afterwards. The ResourceVersion of the attempt is the version that the attempt was to
// replace. Within a term each commit number belongs to one attempt: the term has one
// writer, and the writer settles an attempt before the next.
func OutcomeOf(attempt, stored Revision) Outcome {
	switch {
	case stored.Term == attempt.Term && stored.Leader == attempt.Leader && stored.Commit == attempt.Commit:
		return Landed
	case stored.ResourceVersion == attempt.ResourceVersion:
		return Pending
	default:
		return Lost
	}
}

// HashName returns the FNV-1a hash of a claim's name, never 0 for a name that is not
// empty.
func HashName(name string) uint64 {
	if name == "" {
		return 0
	}
	h := uint64(14695981039346656037)
	for i := range len(name) {
		h = (h ^ uint64(name[i])) * 1099511628211
	}
	return max(h, 1)
}

// Clone returns a copy that shares no memory with the entry.
func (e Entry) Clone() Entry {
	e.Ranges = slices.Clone(e.Ranges)
	return e
}
