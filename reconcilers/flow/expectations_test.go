package flow

import (
	"fmt"
	"testing"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestWhatWasSentIsAwaitedUntilItOrAnythingNewerIsShown(t *testing.T) {
	s := NewExpectations()
	s.ExpectVersion(storedAs("claim", 10))
	for _, shown := range []struct {
		uid     types.UID
		version int
		awaited bool
	}{{"claim", 9, true}, {"claim", 10, false}, {"claim", 11, false}, {"successor", 9, false}} {
		if awaited := s.IsStale(storedAs(shown.uid, shown.version)); awaited != shown.awaited {
			t.Errorf("%s at %d: awaited=%t, want %t", shown.uid, shown.version, awaited, shown.awaited)
		}
	}
	s.ExpectDeletion(storedAs("claim", 10)) // as it never was stored
	if !s.IsStale(storedAs("claim", 11)) {
		t.Error("a claim that was let go is written to again")
	}
}

func storedAs(uid types.UID, version int) *v1alpha1.IPAllocation {
	a := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a", UID: uid}}
	a.ResourceVersion = fmt.Sprint(version)
	return a
}
