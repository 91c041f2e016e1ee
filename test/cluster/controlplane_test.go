//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

// controlPlaneDies kills parts of the control plane, which the node starts again.
func controlPlaneDies(t *testing.T) {
	const address = "--output=jsonpath={.spec.pinnedRange.startAddress}"
	owned := map[string]string{}
	for name, parts := range map[string][]string{"apiserver": {"kube-apiserver"}, "etcd": {"etcd"}, "both": {"etcd", "kube-apiserver"}} {
		for _, part := range parts {
			must(t, "", "pkill", "-KILL", "-x", part)
		}
		until(t, "a create after the death of "+name, func() error {
			_, err := create(t, named("after-"+name))
			if err != nil && strings.Contains(err.Error(), "AlreadyExists") {
				return nil // its answer was lost
			}
			return err
		})
		a := kubectl(t, "get", "ipallocation/after-"+name, address)
		if other, taken := owned[a]; a == "" || taken {
			t.Errorf("after the death of %s comes %q, which %q has", name, a, other)
		}
		owned[a] = name
		kubectl(t, "wait", "--for=condition=Ready", "ipallocation/after-"+name, "--timeout=60s")
	}
	settled(t)
	for a, name := range owned {
		if now := kubectl(t, "get", "ipallocation/after-"+name, address); now != a {
			t.Errorf("what was created after the death of %s had %s, and has %s", name, a, now)
		}
	}
}
