package claims

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

func TestReleasedAt_IsNotBeforeTheDeletion(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	a := &v1alpha1.IPAllocation{}
	if at := ReleasedAt(a, now); !at.Equal(now) {
		t.Errorf("released at %s", at)
	}
	for ahead, want := range map[time.Duration]time.Duration{-time.Hour: 0, time.Hour: time.Hour} {
		a.DeletionTimestamp = &metav1.Time{Time: now.Add(ahead)}
		if at := ReleasedAt(a, now); !at.Equal(now.Add(want)) {
			t.Errorf("deleted %s after now: released at %s", ahead, at)
		}
	}
}
