package reconcilers

import (
	"errors"
	"fmt"
	"testing"
	"time"
)

// What is wrong is told, beside whatever else has to wait.
func TestOnlyWhatHasNothingElseToSayWaits(t *testing.T) {
	broken := errors.New("broken")
	for _, tc := range []struct {
		err  error
		wait time.Duration
		only bool
	}{
		{nil, 0, false},
		{broken, 0, false},
		{later(time.Second), time.Second, true},
		{fmt.Errorf("status: %w", later(time.Second)), time.Second, true},
		{errors.Join(later(time.Second), later(time.Minute)), time.Minute, true},
		{errors.Join(later(time.Second), broken), 0, false},
		{errors.Join(errors.Join(nil, broken), later(time.Second)), 0, false},
	} {
		if wait, only := waits(tc.err); wait != tc.wait || only != tc.only {
			t.Errorf("%v waits %s, and nothing else: %t; want %s, %t", tc.err, wait, only, tc.wait, tc.only)
		}
	}
}
