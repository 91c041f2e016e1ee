package tenants

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// After the limit nothing is read: deps.platform is nil here. The limit counts from the
// first observation, whatever the clock of the API server.
func TestReasonNotToRelease_IsEmptyAfterReleaseLimit(t *testing.T) {
	for name, ahead := range map[string]time.Duration{"equal clocks": 0, "API server behind": -24 * time.Hour, "API server ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := noon
			d := &deps{Options: Options{Settings: Settings{ReleaseLimit: time.Hour}, Now: func() time.Time { return now }}}
			c := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: &metav1.Time{Time: now.Add(ahead)}}}
			if left := d.releaseTimeLeft(c); left != time.Hour {
				t.Errorf("%s left at the first observation", left)
			}
			if now = now.Add(time.Hour - time.Second); d.releaseTimeLeft(c) != time.Second {
				t.Errorf("%s left after an hour less a second", d.releaseTimeLeft(c))
			}
			now = now.Add(time.Second)
			if reason, err := d.reasonNotToRelease(t.Context(), c, nil); reason != "" || err != nil {
				t.Errorf("reason %q, error %v", reason, err)
			}
		})
	}
}
