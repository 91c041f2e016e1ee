package apiserver

import (
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func date(t time.Time) string { return t.UTC().Format(http.TimeFormat) }

func TestClock_FollowsTheDateOfResponses(t *testing.T) {
	now := noon
	c := NewClock(func() time.Time { return now })
	if by, known := c.Ahead(); known || by != 0 {
		t.Errorf("before the first response: %s, %t", by, known)
	}
	for _, tc := range []struct {
		name       string
		took       time.Duration
		date       string
		want, give time.Duration
	}{
		{"agrees", 10 * time.Millisecond, date(noon), 0, 0},
		{"a second more is the Date's rounding", 10 * time.Millisecond, date(noon.Add(time.Second)), 0, 0},
		{"without a Date", time.Second, "", 0, 0},
		{"no Date", time.Second, "soon", 0, 0},
		{"an hour ahead", 10 * time.Millisecond, date(noon.Add(time.Hour)), time.Hour, time.Second},
		{"a slow response proves little", time.Minute, date(noon.Add(time.Hour + 20*time.Second)), time.Hour, time.Second},
		{"ten years behind", 10 * time.Millisecond, date(noon.AddDate(-10, 0, 0)), noon.AddDate(-10, 0, 0).Sub(noon), time.Second},
		{"corrected", 10 * time.Millisecond, date(noon), 0, 0},
	} {
		c.observe(noon, noon.Add(tc.took), tc.date)
		if by, known := c.Ahead(); !known || (by-tc.want).Abs() > tc.give {
			t.Errorf("%s: %s ahead, %t, want %s", tc.name, by, known, tc.want)
		}
		by, _ := c.Ahead()
		if got := c.Now(); !got.Equal(noon.Add(by)) {
			t.Errorf("%s: now is %s", tc.name, got)
		}
	}
}
