//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

func disruptions(t *testing.T) {
	for _, d := range []struct {
		name string
		do   func(*testing.T)
	}{
		{"PodOfTheLeaderDeleted", func(t *testing.T) {
			kubectl(t, "delete", "pod", "--namespace="+namespace, leader(t), "--wait=false")
		}},
		{"PodOfTheLeaderDeletedWithoutGrace", func(t *testing.T) {
			kubectl(t, "delete", "pod", "--namespace="+namespace, leader(t), "--wait=false", "--grace-period=0", "--force")
		}},
		{"Upgraded", func(t *testing.T) { helm(t, "upgrade", withValues("logLevel=debug")...) }},
		{"RolledBack", func(t *testing.T) { helm(t, "rollback") }},
		{"ScaledToOneThreeTwo", func(t *testing.T) {
			for _, replicas := range []string{"1", "3", "2"} {
				helm(t, "upgrade", withValues("replicas="+replicas)...)
				settled(t)
			}
		}},
		{"NodeDrained", drained},
	} {
		t.Run(d.name, func(t *testing.T) {
			settled(t)
			underLoad(t, func() {
				d.do(t)
				settled(t)
			})
		})
	}
}

// drained takes the node's pods away, as far as the disruption budget lets it: with one
// node there is no place for new ones.
func drained(t *testing.T) {
	_, err := try(t, "", "kubectl", "drain", "node", "--pod-selector=app.kubernetes.io/name=butler-ipam", "--timeout=15s")
	defer kubectl(t, "uncordon", "node")
	if err == nil || !strings.Contains(err.Error(), "would violate the pod's disruption budget") {
		t.Errorf("the last pod is not kept: %v", err)
	}
}
