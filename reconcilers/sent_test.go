package reconcilers

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

func TestWhatWasSentIsAwaitedUntilItOrAnythingNewerIsShown(t *testing.T) {
	const span = "10.0.0.0/29"
	s := newSent()
	s.add(storedAs(t, "claim", 10, span))
	for _, shown := range []struct {
		uid     types.UID
		version int
		awaited bool
	}{{"claim", 9, true}, {"claim", 10, false}, {"claim", 11, false}, {"successor", 9, false}} {
		if awaited := s.has(storedAs(t, shown.uid, shown.version, span)); awaited != shown.awaited {
			t.Errorf("%s at %d: awaited=%t, want %t", shown.uid, shown.version, awaited, shown.awaited)
		}
	}
	s.end(storedAs(t, "claim", 10, span)) // as it never was stored
	if !s.has(storedAs(t, "claim", 11, span)) {
		t.Error("a claim that was let go is written to again")
	}
}
