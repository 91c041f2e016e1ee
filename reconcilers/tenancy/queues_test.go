package tenancy

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Else an error that differs each time would have a tenant looked at without a pause.
func TestOtherWordsAloneDoNotBringATenantBack(t *testing.T) {
	tenant := func(version, reason, message string, change ...func(*v1alpha1.TenantCluster)) *v1alpha1.TenantCluster {
		c := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version, Generation: 1}}
		c.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionNetworkReady, Status: metav1.ConditionFalse, Reason: reason, Message: message}}
		for _, f := range change {
			f(c)
		}
		return c
	}
	was := tenant("1", "NetworkNotReady", "read tcp 10.0.0.1:41234->10.0.0.2:443")
	for name, tc := range map[string]struct {
		is   *v1alpha1.TenantCluster
		want bool
	}{
		"another port":      {tenant("2", "NetworkNotReady", "read tcp 10.0.0.1:41235->10.0.0.2:443"), true},
		"a resync":          {tenant("1", "NetworkNotReady", "read tcp 10.0.0.1:41234->10.0.0.2:443"), false},
		"another reason":    {tenant("2", "PoolExhausted", "no room"), false},
		"taken away":        {tenant("2", "", "", func(c *v1alpha1.TenantCluster) { c.Status.Conditions = nil }), false},
		"and the spec":      {tenant("2", "NetworkNotReady", "b", func(c *v1alpha1.TenantCluster) { c.Generation = 2 }), false},
		"and its namespace": {tenant("2", "NetworkNotReady", "b", func(c *v1alpha1.TenantCluster) { c.Status.TenantNamespace = "a" }), false},
	} {
		if got := reworded(was, tc.is); got != tc.want {
			t.Errorf("%s: want %t, got %t", name, tc.want, got)
		}
	}
}

// Also where Machines cannot be read: nothing is read any more. The limit counts from the first observation, whatever the API server's clock was.
func TestMachinesHoldNothingAfterTheLimit(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for name, ahead := range map[string]time.Duration{"the same clock": 0, "a clock that is behind": -24 * time.Hour, "a clock that is ahead": 24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			now := now
			d := &desk{Options: Options{ReleaseLimit: time.Hour, Now: func() time.Time { return now }}}
			c := &v1alpha1.TenantCluster{ObjectMeta: metav1.ObjectMeta{UID: "1", DeletionTimestamp: &metav1.Time{Time: now.Add(ahead)}}}
			if left := d.releaseIn(c); left != time.Hour {
				t.Errorf("held for %s more when it is first observed", left)
			}
			if now = now.Add(time.Hour - time.Second); d.releaseIn(c) != time.Second {
				t.Errorf("held for %s more after nearly an hour", d.releaseIn(c))
			}
			now = now.Add(time.Second)
			if why, err := d.holds(t.Context(), c, nil); why != "" || err != nil {
				t.Errorf("%q holds it: %v", why, err)
			}
		})
	}
}
