//go:build cluster

package cluster

import (
	"strings"
	"testing"
)

func withoutEndpoints(t *testing.T) {
	if _, err := create(t, strings.NewReplacer("name: first", "name: unused", "192.0.2", "198.51.100").Replace(pool)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"labelled", "deleted", "freed"} {
		if _, err := create(t, named(name)); err != nil {
			t.Fatal(err)
		}
		kubectl(t, "wait", "--for=condition=Ready", "ipallocation/"+name, "--timeout=10s")
	}
	scale(t, "0")

	kubectl(t, "label", "ipallocation/labelled", "networkpool/first", "seen=yes")
	kubectl(t, "delete", "ipallocation/deleted", "networkpool/unused", "--wait=false")
	kubectl(t, "patch", "ipallocation/freed", "--type=merge", `--patch={"metadata":{"finalizers":null}}`)
	kubectl(t, "delete", "ipallocation/freed", "--timeout=10s")
	_, err := create(t, named("late"))
	if err == nil || !strings.Contains(err.Error(), `failed calling webhook "ipallocation.butler.butlerlabs.dev"`) || !strings.Contains(err.Error(), "butler-ipam-webhook") {
		t.Errorf("a create without a manager ends with: %v", err)
	}
	t.Logf("a create is refused: %v", err)
	if _, err := try(t, "", "kubectl", "get", "ipallocation/late"); err == nil || !strings.Contains(err.Error(), "NotFound") {
		t.Errorf("the refused create has left an object: %v", err)
	}

	scale(t, "2")
	kubectl(t, "wait", "--for=delete", "ipallocation/deleted", "networkpool/unused", "--timeout=30s")
	until(t, "the way to the pods", func() error {
		_, err := create(t, named("late"), "--dry-run=server")
		return err
	})
}

// scale sets the number of replicas past the chart, which has a minimum of one, and waits
// for the pods.
func scale(t *testing.T, replicas string) {
	t.Helper()
	kubectl(t, "scale", "deployment/butler-ipam", "--namespace="+namespace, "--replicas="+replicas)
	settled(t)
}

// named is the example under another name.
func named(name string) string {
	return strings.Replace(allocation, "name: first", "name: "+name, 1)
}
