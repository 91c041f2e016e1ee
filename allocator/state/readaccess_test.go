package state

import (
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

// A replica that was paused cannot know whether reads were denied meanwhile: the pause
// does not count.
func TestSetReadDenied_DenialLastsWhileObserved(t *testing.T) {
	s, c := newTestState(t), UnreadableResources{}
	leader := journal.Snapshot{Applied: map[string]uint64{modelClaims: 7}}
	observe := func(after time.Duration) bool {
		s.now = s.now.Add(after)
		s.SetReadDenied(s.now, modelClaims, ErrBehind)
		c.Update(s.now, leader, func(string, uint64) bool { return true })
		if leads, claims := c.HasExpired(s.now, modelClaims, 7, s.limits.GrantLife), !s.access.denied[modelClaims].expired; leads == claims {
			t.Fatalf("the replica may lead without the resource: %v, its journal counts the resource: %v", leads, claims)
		}
		return s.access.denied[modelClaims].expired
	}
	if observe(0) || observe(s.limits.GrantLife) {
		t.Error("a pause counts as an observed denial")
	}
	for range int(s.limits.GrantLife / maxUnobserved) {
		if s.access.denied[modelClaims].expired {
			t.Error("the denial expired before one grant life of observation")
		}
		observe(maxUnobserved)
	}
	if !s.access.denied[modelClaims].expired {
		t.Error("the denial did not expire after one grant life of observation")
	}
}
