package journal

import (
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// Version is one stored state of the journal.
type Version struct {
	ResourceVersion string // of the Lease; "" where the Lease does not exist
	Holder          string // identity of the replica that may commit; "" after a hand-over
	Epoch           int64  // the Lease's leaseTransitions
	Commit          uint64 // counts the commits of all epochs
	Record
}

// Record is what a journal version says.
type Record struct {
	// Quarantine: an earlier journal was lost, so that nobody knows what it promised. The holder grants nothing until a grant's
	// whole life has passed, and then clears it.
	Quarantine bool
	// Seen maps each kind of claim and pool that the holder serves, or of which it counts stored objects, to the resourceVersion of the last event it
	// had applied. A successor serves when it has applied as much; of a kind with 0 it reads what is stored first.
	Seen map[string]uint64
	// Unserved are the kinds in Seen of which objects are stored and counted, while the holder does not serve their API. It is no part of Encode,
	// which earlier releases read: a Store keeps it beside.
	Unserved []string
	// Lines are the open grants.
	Lines []Line
}

// Line is one open grant: one token, one admission request.
type Line struct {
	Token     Token
	Space     string
	Ranges    []allocator.Range
	Kind      string // of the claim; see ledger.Key
	Namespace string
	NameHash  uint64 // HashName of the claim's name, 0 where the API server was yet to generate it
	// Stored and UID name the claim where it was stored before it was answered; both are empty for a grant to a create.
	Stored string
	UID    string
}

// Next is the version that follows v in the same epoch, with the given content.
func (v Version) Next(r Record) Version {
	v.Commit++
	v.Record = r
	return v
}

// TakenOver is the version by which the replica called holder fences every earlier epoch. The open grants stay.
func (v Version) TakenOver(holder string) Version {
	v.Epoch++
	v.Commit++
	v.Holder = holder
	return v
}

// Serving is v with a holder that serves these kinds. Of those that are new it has applied nothing yet.
func (v Version) Serving(kinds []string) Version {
	seen := make(map[string]uint64, len(kinds))
	for _, kind := range kinds {
		seen[kind] = 0
	}
	maps.Copy(seen, v.Seen)
	v.Seen, v.Unserved = seen, nil
	for _, kind := range slices.Sorted(maps.Keys(seen)) {
		if !slices.Contains(kinds, kind) {
			v.Unserved = append(v.Unserved, kind)
		}
	}
	return v
}

// HandedOver is the version by which a stopping holder lets the next one in without a wait.
func (v Version) HandedOver(r Record) Version {
	v = v.Next(r)
	v.Holder = ""
	return v
}

// Outcome says what became of an attempt to write.
type Outcome int

// The outcomes of an attempt.
const (
	Landed  Outcome = iota // it is what is stored
	Pending                // nothing was written since; it may still land, and may be sent again as it is
	Lost                   // something else was written in its place: it can land no more
)

// Settle compares an attempt with what a consistent read found afterwards. The attempt's ResourceVersion is the one it was to
// replace. A commit number is written by one attempt only: an epoch has one writer, which settles an attempt before the next.
func Settle(attempt, stored Version) Outcome {
	switch {
	case stored.Epoch == attempt.Epoch && stored.Holder == attempt.Holder && stored.Commit == attempt.Commit:
		return Landed
	case stored.ResourceVersion == attempt.ResourceVersion:
		return Pending
	default:
		return Lost
	}
}

// HashName is the FNV-1a hash of a claim's name, never 0 for a name that is not empty.
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

// Clone gives a copy of l that shares nothing with it.
func (l Line) Clone() Line {
	l.Ranges = slices.Clone(l.Ranges)
	return l
}
