package webhooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPoolsOfOtherNamespacesInAProviderConfig(t *testing.T) {
	got := foreignPools([]byte(`{"spec": {"network": {"poolRefs": [{"name": "a"}, {"name": "b", "namespace": "butler-system"}, {"name": "c", "namespace": "team"}]}}}`), "butler-system")
	want := []string{`spec.network.poolRefs[2].namespace: "team" does not count, the NetworkPool "c" of namespace butler-system is meant: create the pool there, and leave namespace out`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
