package backoff

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/suite"
)

// Creates that fail, one a second: each leaves a grant that ends after its life, once a
// read of the API server shows that nothing came of it. The create of a name that exists
// leaves none, and costs one read.
func TestFailedCreates_Reads(t *testing.T) {
	t.Parallel()
	const window = 30 * time.Second
	for _, tc := range []struct {
		name         string
		unnamed      bool
		reads, lists int // in the window at most
	}{
		{"of_a_name_that_exists", false, 33, 0},
		{"without_a_name", true, 0, 4},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ns := suite.CreateNamespace(t, admin)
			suite.Create(t, admin, networkPool(ns, "pool", "10.0.0.0/24"))
			o := allocation(ns, "pool", "web")
			if tc.unnamed {
				o.Name, o.GenerateName = "", "web-"
				forbid(t, ns, o.Labels, "butler.butlerlabs.dev", "ipallocations", func(ctx context.Context) error { return admin.Create(ctx, o.DeepCopy(), client.DryRunAll) }, opCreate)
			} else {
				suite.Create(t, admin, o.DeepCopy())
			}
			began := time.Now()
			reads, lists := 0, 0
			for tick := time.NewTicker(time.Second); time.Since(began) < grantLife+window+5*time.Second; <-tick.C {
				if err := admin.Create(t.Context(), o.DeepCopy()); err == nil || !apierrors.IsAlreadyExists(err) && !tc.unnamed {
					t.Fatalf("create: %v", err)
				}
			}
			for _, c := range calls(t, time.Now().Add(-window)) {
				switch {
				case c.namespace != ns || c.resource != "ipallocations":
				case c.verb == "list":
					lists++
				case c.verb == "get":
					reads++
				}
			}
			t.Logf("%d reads and %d lists in %s", reads, lists, window)
			if reads > tc.reads || lists > tc.lists || reads+lists == 0 {
				t.Errorf("%d reads and %d lists in %s, want %d and %d at most", reads, lists, window, tc.reads, tc.lists)
			}
			stored := networkPool(ns, "pool", "")
			want := int64(1)
			if tc.unnamed {
				want = 0
			}
			suite.Eventually(t, 2*grantLife, func(ctx context.Context) error { // all grants end
				if err := admin.Get(ctx, client.ObjectKeyFromObject(stored), stored); err != nil {
					return err
				}
				if stored.Status.AllocatedIPs != want {
					return errors.New("grants are still open")
				}
				return nil
			})
		})
	}
}
