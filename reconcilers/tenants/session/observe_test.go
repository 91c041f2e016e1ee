package session

import (
	"testing"
	"time"

	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestUseOwnClock_IdleTime(t *testing.T) {
	const shrinkAfter = 10 * time.Minute
	for name, tc := range map[string]struct {
		recorded time.Duration // relative to now
		wall     time.Duration // Wall relative to Now
		want     time.Duration // idle time that counts
	}{
		"idle for four minutes":                {-4 * time.Minute, 0, 4 * time.Minute},
		"both clocks are ahead":                {2*time.Hour - 4*time.Minute, 2 * time.Hour, 4 * time.Minute},
		"recorded by a clock that was ahead":   {2 * time.Hour, 0, 0},
		"recorded by a clock that was behind":  {-2 * time.Hour, 0, 9 * time.Minute},
		"idle for nearly long enough":          {-9*time.Minute - 59*time.Second, 0, 9 * time.Minute},
		"recorded by this session this moment": {0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			now := noon
			s := &session{Deps: Deps{
				Timing: plan.Timing{ShrinkAfter: shrinkAfter}, Now: func() time.Time { return now }, Wall: func() time.Time { return now.Add(tc.wall) },
			}}
			for range 3 { // the first observation counts
				blocks := []plan.Block{{Name: "growth", IdleSince: noon.Add(tc.recorded)}}
				if s.useOwnClock(blocks); !blocks[0].IdleSince.Equal(noon.Add(-tc.want)) {
					t.Fatalf("at %s idle since %s, want %s", now, blocks[0].IdleSince, noon.Add(-tc.want))
				}
				now = now.Add(time.Minute)
			}
			blocks := []plan.Block{{Name: "growth"}}
			if s.useOwnClock(blocks); !blocks[0].IdleSince.IsZero() {
				t.Errorf("a used block is idle since %s", blocks[0].IdleSince)
			}
		})
	}
}

func TestUseOwnClock_FailedBlockCountsFromFirstObservation(t *testing.T) {
	now := noon
	s := &session{Deps: Deps{Now: func() time.Time { return now }, Wall: func() time.Time { return now }}}
	created := func(failed bool) time.Time {
		blocks := []plan.Block{{Name: "growth", Failed: failed, Created: noon.Add(-24 * time.Hour)}}
		s.useOwnClock(blocks)
		return blocks[0].Created
	}
	if got := created(true); !got.Equal(noon) {
		t.Errorf("first observation: %s", got)
	}
	now = now.Add(time.Minute)
	if got := created(true); !got.Equal(noon) {
		t.Errorf("second observation: %s", got)
	}
	created(false)
	if got := created(true); !got.Equal(now) {
		t.Errorf("second failure: %s", got)
	}
}
