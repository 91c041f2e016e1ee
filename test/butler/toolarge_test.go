package butler

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/suite"
)

// fillWithLabels adds labels to an object until etcd has no room for one more.
func fillWithLabels(t *testing.T, o client.Object) {
	t.Helper()
	added := 0
	domain := strings.Repeat(strings.Repeat("a", 62)+".", 3) + "example"
	for n := 1024; n > 0; {
		labels := map[string]string{}
		for i := range n {
			labels[fmt.Sprintf("%s/%d", domain, added+i)] = strings.Repeat("b", 63)
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			t.Fatal(err)
		}
		err = admin.Patch(t.Context(), o.DeepCopyObject().(client.Object), client.RawPatch("application/merge-patch+json", patch))
		switch {
		case err == nil:
			added += n
		case strings.Contains(err.Error(), "too large"):
			n /= 2
		default:
			t.Fatal(err)
		}
	}
}

// The lists in a status are bounded, but labels are not.
func TestRelease_DoesNotWaitForAStatusThatIsTooLarge(t *testing.T) {
	ns := alone(t)
	p := domainPool(ns, "10.42.0.0/28")
	suite.Create(t, admin, p)
	shows(t, admin, p, "16/0/16")
	var all []*v1alpha1.IPAllocation
	for i := range 8 {
		a := claim(ns, fmt.Sprintf("%d-%s", i, strings.Repeat("c", 200)), 1)
		suite.Create(t, admin, a)
		readyWith(t, admin, a, "")
		all = append(all, a)
	}
	shows(t, admin, p, "16/8/8")
	fillWithLabels(t, p)
	for _, a := range all {
		suite.Delete(t, admin, a)
	}
	suite.AwaitEvent(t, admin, suite.Read(t, admin, p), "StatusTooLarge", "remove large labels and annotations")
	suite.Create(t, admin, claim(ns, "next", 16))
}
