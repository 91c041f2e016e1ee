package state

import "time"

// LandingWindow returns for how long the API server may still store an address object
// after a create for the claim. The create came from this leader at the time sent (zero
// for never), or from an earlier leader: its last create can be stored for a grant life
// after this leader began to grant. An earlier leader can have confirmed only two kinds
// of claims: a claim that was bound before this term (isBeforeFirstCommit), and a claim
// whose grant it left in the journal.
func (s *State) LandingWindow(now time.Time, uid string, sent time.Time) time.Duration {
	return s.landingWindow(now, uid, sent, s.leadership.since())
}

// ReleaseWindow is LandingWindow for a claim that is being deleted: the creates of
// earlier leaders may have ended before this leader began to grant (earlierCreatesEnded).
func (s *State) ReleaseWindow(now time.Time, uid string, sent time.Time) time.Duration {
	c := s.claims.find(uid)
	if c == nil {
		return s.LandingWindow(now, uid, sent)
	}
	return s.landingWindow(now, uid, sent, s.leadership.earlierCreatesEnded(c.Key.Resource, c.deletionVersion))
}

// landingWindow is LandingWindow if earlier leaders have sent no create since a time.
func (s *State) landingWindow(now time.Time, uid string, sent, ended time.Time) time.Duration {
	c := s.claims.find(uid)
	if c != nil && c.holding != nil && s.leadership.mayGrant() && (c.boundAt.isBeforeFirstCommit() || c.inheritedGrant) && ended.After(sent) {
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
	for c := range s.claims.ownersOf(pool) {
		if c.Deleting && !c.AllocatedEarlier && c.OwnerClaim == (Key{}) {
			wait = max(wait, s.ReleaseWindow(now, c.UID, time.Time{}))
		}
	}
	return wait
}
