package state

import (
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// termBegin is the begin of a term, as this replica knows it.
type termBegin struct {
	at time.Time // when this replica first read a revision of the term, or began to grant in its own term: not before the begin
	// applied has the versions in the last revision of earlier terms that this replica
	// read: resource -> version. The leader of the term grants, and writes objects, after
	// it has applied them.
	applied map[string]uint64
}

// RecordRevision records a revision of the journal that this replica has read or written.
func (s *State) RecordRevision(now time.Time, v journal.Revision) {
	if s.term != v.Term && s.term != 0 {
		s.termsBegun = append(s.termsBegun, termBegin{now, s.termApplied})
		for len(s.termsBegun) > 1 && now.Sub(s.termsBegun[1].at) >= s.limits.GrantLife { // the later term answers the same
			s.termsBegun = s.termsBegun[1:]
		}
	}
	s.term, s.termApplied = v.Term, v.Applied
}

// LandingWindow returns for how long the API server may still store an address object
// after a create for the claim. The create came from this leader at the time sent (zero
// for never), or from an earlier leader: its last create can be stored for a grant life
// after this leader began to grant. An earlier leader can have confirmed only two kinds
// of claims: a claim that was bound before this term (boundAtCommit 0), and a claim whose
// grant it left in the journal.
func (s *State) LandingWindow(now time.Time, uid string, sent time.Time) time.Duration {
	return s.landingWindow(now, uid, sent, s.grantingSince)
}

// ReleaseWindow is LandingWindow for a claim that is being deleted. No leader creates an
// address object for a claim of whose deletion it knows. So the last creates of earlier
// leaders count from the begin of the first term whose leader has applied the deletion
// before it wrote anything: further changes of the leader do not prolong the wait.
func (s *State) ReleaseWindow(now time.Time, uid string, sent time.Time) time.Duration {
	ended := s.grantingSince
	if c := s.claims[uid]; c != nil && c.deletionVersion > 0 {
		knew := func(t termBegin) bool { return t.applied[c.Key.Resource] >= c.deletionVersion }
		if n := slices.IndexFunc(s.termsBegun, knew); n >= 0 && s.termsBegun[n].at.Before(ended) {
			ended = s.termsBegun[n].at
		}
	}
	return s.landingWindow(now, uid, sent, ended)
}

// landingWindow is LandingWindow if earlier leaders have sent no create since a time.
func (s *State) landingWindow(now time.Time, uid string, sent, ended time.Time) time.Duration {
	c := s.claims[uid]
	if c != nil && c.holding != nil && s.granting && (c.boundAtCommit == 0 || c.inheritedGrant) && ended.After(sent) {
		sent = ended
	}
	if sent.IsZero() {
		return 0
	}
	return max(0, sent.Add(s.limits.GrantLife).Sub(now))
}

// ReleasesAwaited returns for how long a claim of the pool that is being deleted, and
// whose status names no allocation yet, waits at most for creates of earlier leaders; 0
// without such a claim. The cost grows with the number of the pool's owners.
func (s *State) ReleasesAwaited(now time.Time, pool Key) (wait time.Duration) {
	for c := range s.ownersByPool[pool] {
		if c.Deleting && !c.AllocatedEarlier && c.OwnerClaim == (Key{}) {
			wait = max(wait, s.ReleaseWindow(now, c.UID, time.Time{}))
		}
	}
	return wait
}
