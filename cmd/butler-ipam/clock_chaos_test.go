//go:build chaos

package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestClock_MeasuresDurationsAfterItIsSet(t *testing.T) {
	file := filepath.Join(t.TempDir(), "clock")
	t.Setenv(clockVariable, file)
	for _, by := range []time.Duration{0, 2 * time.Hour, -90 * time.Minute} {
		before, right := now(), time.Now()
		if err := os.WriteFile(file, []byte(by.String()+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		got := now()
		if span := got.Sub(right); span < 0 || span > time.Minute {
			t.Errorf("set by %s: %s between two readings a moment apart", by, span)
		}
		if got.Before(before) {
			t.Errorf("set by %s: a later reading is before an earlier one", by)
		}
		// Round(0) removes the monotonic reading. Stored times have no monotonic reading.
		if moved := got.Round(0).Sub(right.Round(0)); moved < by || moved > by+time.Minute {
			t.Errorf("set by %s, the wall clock has moved by %s", by, moved)
		}
	}
}
