package state

import (
	"fmt"
	"slices"
	"time"
)

// access is what this replica knows of the resources whose objects it counts: how far it
// has applied their events, how many objects are stored, which resources it may not read,
// and which APIs are switched off. See readaccess.go for the rules of a take-over.
//
// Invariant: stored is the number of known claims, or known pools, of the resource.
type access struct {
	limits   *Limits
	applied  map[string]uint64 // resource -> resourceVersion of the last event applied
	stored   map[string]int    // resource -> number of stored claims or pools
	unserved map[string]bool   // resources whose API is switched off and whose objects are counted
	denied   map[string]denial // resources that the API server denies reading
}

func newAccess(resources []string, limits *Limits) access {
	a := access{limits: limits, applied: map[string]uint64{}, stored: map[string]int{}, unserved: map[string]bool{}, denied: map[string]denial{}}
	for _, resource := range resources {
		a.applied[resource] = 0
	}
	return a
}

// denial records since when the API server denies reading a resource.
type denial struct {
	err      error
	since    time.Time
	observed time.Time // time of the last observation
	expired  bool      // the denial has lasted for a grant life
}

// recordApplied records that the events of a resource have been applied up to a version.
func (a *access) recordApplied(resource string, version uint64) {
	if version > a.applied[resource] {
		a.applied[resource] = version
	}
}

// hasApplied reports whether the events of a resource have been applied up to a version.
func (a *access) hasApplied(resource string, version uint64) bool {
	return a.applied[resource] >= version
}

// objectStored counts an object of a resource, and objectGone no longer does.
func (a *access) objectStored(resource string) { a.stored[resource]++ }
func (a *access) objectGone(resource string)   { a.stored[resource]-- }

// switchOff declares that the API of a resource is switched off.
func (a *access) switchOff(resource string) { a.unserved[resource] = true }

// isSwitchedOff reports whether the API of a resource is switched off.
func (a *access) isSwitchedOff(resource string) bool { return a.unserved[resource] }

// deny records that the API server denies reading a resource, and reports whether the
// denial has now lasted for a grant life without a break.
func (a *access) deny(now time.Time, resource string, err error) (expires bool) {
	before := a.denied[resource]
	d := before
	d.err = err
	if before.err == nil || now.Sub(before.observed) > maxUnobserved {
		d.since = now
	}
	d.observed = now
	d.expired = now.Sub(d.since) >= a.limits.GrantLife
	a.denied[resource] = d
	return d.expired && !before.expired
}

// allow records that a resource may be read, and reports whether a denial had expired.
func (a *access) allow(resource string) (hadExpired bool) {
	hadExpired = a.hasExpired(resource)
	delete(a.denied, resource)
	return hadExpired
}

// isDenied reports whether the API server denies reading a resource.
func (a *access) isDenied(resource string) bool { return a.denied[resource].err != nil }

// hasExpired reports whether the API server has denied reading a resource for a grant
// life.
func (a *access) hasExpired(resource string) bool { return a.denied[resource].expired }

// deniedError returns the error for requests that depend on a resource which the API
// server denies reading.
func (a *access) deniedError(resource string) *NotServingError {
	return &NotServingError{NoOtherReplica: true, RetryAfter: 5 * time.Second, Reason: fmt.Sprintf("objects of %s cannot be read: %v", resource, a.denied[resource].err)}
}

// isEachReadable reports whether no denial is younger than a grant life: an object of a
// resource that is not known would have been found.
func (a *access) isEachReadable() bool {
	for _, d := range a.denied {
		if !d.expired {
			return false
		}
	}
	return true
}

// listed returns what the journal lists for the next leader: the versions that it has to
// observe before it serves, by resource, and the resources among them whose API is
// switched off here. withGrants has the resources with open grants.
func (a *access) listed(withGrants map[string]bool) (versions map[string]uint64, unserved []string) {
	versions = make(map[string]uint64, len(a.applied))
	for k, v := range a.applied {
		switch inUse := withGrants[k] || a.stored[k] > 0 && !a.denied[k].expired; { // objects of k are stored, or grants for k are open
		case inUse && a.unserved[k]:
			unserved = append(unserved, k)
		case a.unserved[k]: // a replica that serves k then serves more resources than the journal lists, and takes the journal over
			continue
		case !inUse:
			v = 0 // the next leader lists the resource from the API server if it may read it, and otherwise need not wait
		}
		versions[k] = v
	}
	slices.Sort(unserved)
	return versions, unserved
}

// check verifies that exactly these objects are counted: resource -> number.
func (a *access) check(stored map[string]int) error {
	for resource, n := range a.stored {
		if n != stored[resource] {
			return fmt.Errorf("%d objects of %s are known, counted %d", stored[resource], resource, n)
		}
	}
	for resource, n := range stored {
		if n != a.stored[resource] {
			return fmt.Errorf("%d objects of %s are known, counted %d", n, resource, a.stored[resource])
		}
	}
	return nil
}

// RecordApplied records how far the events of a resource have been applied. Only events
// in order count: the live read of an object proves nothing about further objects.
func (s *State) RecordApplied(resource string, resourceVersion uint64) {
	s.access.recordApplied(resource, resourceVersion)
}

// SetUnserved declares resources whose API is switched off. Stored objects of these
// resources count as owners; new objects are granted nothing.
func (s *State) SetUnserved(resources []string) {
	for _, resource := range resources {
		s.access.switchOff(resource)
	}
}

// UnservedCounts returns the number of stored objects of each resource whose API is
// switched off.
func (s *State) UnservedCounts() map[string]int { return s.access.unservedCounts() }

func (a *access) unservedCounts() map[string]int {
	counts := make(map[string]int, len(a.unserved))
	for resource := range a.unserved {
		counts[resource] = a.stored[resource]
	}
	return counts
}

// SetReadDenied records whether the API server denies reading a resource; err is nil if
// reading is allowed. The next commit lists a resource again, or no longer.
func (s *State) SetReadDenied(now time.Time, resource string, err error) {
	if err == nil && s.access.allow(resource) || err != nil && s.access.deny(now, resource, err) {
		s.commitQueue.request()
	}
}

// ReadDenials returns why the API server denies reading a resource: resource -> error.
func (s *State) ReadDenials() map[string]error { return s.access.denials() }

func (a *access) denials() map[string]error {
	denials := make(map[string]error, len(a.denied))
	for resource, d := range a.denied {
		denials[resource] = d.err
	}
	return denials
}
