package state

import (
	"testing"
	"time"

	"butlerlabs.dev/ipam/allocator/journal"
)

func TestLeadership_EndsQuarantineAndEarlierWritesOnceAfterAGrantLife(t *testing.T) {
	l := leadership{limits: &Limits{GrantLife: time.Minute}}
	l.takeOver(true)
	for _, step := range []struct {
		at   time.Duration
		do   func(time.Time)
		ends bool
	}{
		{at: time.Hour}, // has not caught up
		{at: time.Hour, do: l.begin},
		{at: time.Hour + time.Minute - 1},
		{at: time.Hour + time.Minute, ends: true},
		{at: time.Hour + time.Minute},
	} {
		now := modelStart.Add(step.at)
		if step.do != nil {
			step.do(now)
		}
		if q, w := l.endQuarantine(now), l.endEarlierWrites(now); q != step.ends || w != step.ends {
			t.Errorf("after %s: quarantine ends: %t, earlier writes end: %t, want %t", step.at, q, w, step.ends)
		}
	}
}

// Terms that began more than a grant life ago answer as the one after them does.
func TestLeadership_ForgetsEarlierTerms(t *testing.T) {
	l := leadership{limits: &Limits{GrantLife: time.Minute}}
	now := modelStart
	for term := range int64(20) {
		now = now.Add(15 * time.Second)
		l.recordRevision(now, journal.Revision{Term: term + 1, Snapshot: journal.Snapshot{Applied: map[string]uint64{modelClaims: uint64(term)}}})
		if err := l.check(); err != nil {
			t.Fatal(err)
		}
	}
	l.begin(now)
	if n := len(l.begins); n != 5 {
		t.Errorf("%d terms known, want 5", n)
	}
	if at := l.earlierCreatesEnded(modelClaims, 16); !at.Equal(now.Add(-30 * time.Second)) {
		t.Errorf("ended %s before this term, want 30s", now.Sub(at))
	}
	if at := l.earlierCreatesEnded(modelClaims, 0); !at.Equal(now) {
		t.Errorf("ended %s before this term, want 0s", now.Sub(at))
	}
}
