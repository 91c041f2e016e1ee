package webhooks

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProviderConfig_WarnsOfPoolsOfOtherNamespaces(t *testing.T) {
	got := warnForeignPools([]byte(`{"spec": {"network": {"poolRefs": [{"name": "a"}, {"name": "b", "namespace": "butler-system"}, {"name": "c", "namespace": "team"}]}}}`), "butler-system")
	want := []string{`spec.network.poolRefs[2].namespace: "team" is ignored, the NetworkPool "c" of namespace butler-system is used: create the pool there, and omit namespace`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
}
