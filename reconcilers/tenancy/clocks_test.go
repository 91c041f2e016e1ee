package tenancy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

var clocksNoon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestSession_MeasuresTimesOfBlocksByItsOwnClock(t *testing.T) {
	const shrinkAfter = 10 * time.Minute
	for name, tc := range map[string]struct {
		recorded time.Duration // against now
		wall     time.Duration // the clock of recorded times, against now
		want     time.Duration // idle already, for the session
	}{
		"idle for four minutes":                   {-4 * time.Minute, 0, 4 * time.Minute},
		"its clock is wrong, and known to be":     {2*time.Hour - 4*time.Minute, 2 * time.Hour, 4 * time.Minute},
		"recorded by a clock that was ahead":      {2 * time.Hour, 0, 0},
		"recorded by a clock that was behind":     {-2 * time.Hour, 0, 9 * time.Minute},
		"idle for nearly long enough":             {-9*time.Minute - 59*time.Second, 0, 9 * time.Minute},
		"the session itself has just recorded it": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := clocksNoon
			s := &session{desk: &desk{Options: Options{
				Timing: tenants.Timing{ShrinkAfter: shrinkAfter}, Now: func() time.Time { return now }, Wall: func() time.Time { return now.Add(tc.wall) },
			}}}
			for range 3 { // what was observed first counts
				blocks := []tenants.Block{{Name: "growth", IdleSince: clocksNoon.Add(tc.recorded)}}
				if s.measure(blocks); !blocks[0].IdleSince.Equal(clocksNoon.Add(-tc.want)) {
					t.Fatalf("at %s idle since %s, want %s", now, blocks[0].IdleSince, clocksNoon.Add(-tc.want))
				}
				now = now.Add(time.Minute)
			}
			blocks := []tenants.Block{{Name: "growth"}}
			if s.measure(blocks); !blocks[0].IdleSince.IsZero() {
				t.Errorf("used, and idle since %s", blocks[0].IdleSince)
			}
		})
	}
}

func TestSession_AFailedBlockCountsFromItsFirstObservation(t *testing.T) {
	now := clocksNoon
	s := &session{desk: &desk{Options: Options{Now: func() time.Time { return now }, Wall: func() time.Time { return now }}}}
	created := func(failed bool) time.Time {
		blocks := []tenants.Block{{Name: "growth", Failed: failed, Created: clocksNoon.Add(-24 * time.Hour)}}
		s.measure(blocks)
		return blocks[0].Created
	}
	if got := created(true); !got.Equal(clocksNoon) {
		t.Errorf("first observed: %s", got)
	}
	now = now.Add(time.Minute)
	if got := created(true); !got.Equal(clocksNoon) {
		t.Errorf("observed again: %s", got)
	}
	created(false)
	if got := created(true); !got.Equal(now) {
		t.Errorf("failed again: %s", got)
	}
}

func TestOrphans_CountFromTheFirstObservation(t *testing.T) {
	now := clocksNoon
	r := newOrphans(&desk{Options: Options{Now: func() time.Time { return now }}})
	orphan := func(condition time.Time) (tenants.Kinship, time.Time) {
		a := &v1alpha1.IPAllocation{}
		a.UID, a.Annotations = "1", map[string]string{v1alpha1.AnnotationTenantUID: "gone"}
		a.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionTenantClusterMissing, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(condition)}}
		kinship, at := tenants.KinshipOf(r.observed(a), "", 5*time.Minute, now)
		if got := a.Status.Conditions[0].LastTransitionTime; !got.Time.Equal(condition) {
			t.Errorf("the stored condition is changed: %s", got)
		}
		return kinship, at
	}
	for _, ahead := range []time.Duration{-24 * time.Hour, 0, 24 * time.Hour} {
		condition := clocksNoon.Add(ahead)
		began := now
		for range 5 {
			if kinship, at := orphan(condition); kinship != tenants.Orphaned || !at.Equal(began.Add(5*time.Minute)) {
				t.Fatalf("condition %s ahead: %d until %s", ahead, kinship, at)
			}
			now = now.Add(time.Minute)
		}
		if kinship, _ := orphan(condition); kinship != tenants.Abandoned {
			t.Errorf("condition %s ahead: %d after five minutes", ahead, kinship)
		}
	}
}
