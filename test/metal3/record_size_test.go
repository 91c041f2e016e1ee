package metal3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/poolrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// A pool is restored with 5,750 ranges that went to other clusters, one address is free.
func TestMovedRecord_Thousands(t *testing.T) {
	t.Parallel()
	const moved = 5750
	box, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, ClusterAPI: true})
	ns := suite.CreateNamespace(t, c)
	var all []ledger.RecordedRange
	at := netip.MustParseAddr("10.0.0.1")
	for i := range moved {
		claim := ledger.Key{Resource: "ipclaims.ipam.metal3.io", Namespace: ns, Name: fmt.Sprintf("web-%d", i)}
		all = append(all, ledger.RecordedRange{Range: allocator.Range{First: at, Last: at}, Claim: claim})
		at = at.Next()
	}
	pool := ipPool(ns, "pool", v1alpha1.IPPoolSpec{Pools: []v1alpha1.Pool{between("10.0.0.1", at.String())}})
	text, omitted := poolrecord.FormatList(pool, all, 0)
	if len(omitted) > 0 {
		t.Fatalf("the list has no room for %d", len(omitted))
	}
	pool.Annotations = map[string]string{butlerv1.AnnotationCooldown: text}
	suite.Create(t, c, pool)
	listed := func(n int) {
		t.Helper()
		suite.AwaitObject(t, c, pool, func(p *v1alpha1.IPPool) string {
			if l := poolrecord.ReadList(p); len(l.Ranges) != n {
				return fmt.Sprintf("it lists %d ranges", len(l.Ranges))
			}
			return ""
		})
	}
	count := 0
	given := func(want string) {
		t.Helper()
		count++
		claim := ipClaims.claim(ns, fmt.Sprintf("new-%d", count), "pool", "")
		suite.Create(t, c, claim)
		if answer(claim) != want {
			t.Errorf("%s got %q, want %q", claim.GetName(), answer(claim), want)
		}
		if want == "" {
			suite.Delete(t, c, claim)
		}
	}
	manager := box.Managers()[0]
	counted := func(state string, n int) {
		t.Helper()
		suite.Eventually(t, suite.Soon, func(context.Context) error {
			line := fmt.Sprintf(`butler_ipam_moved_ranges{namespace=%q,pool="pool",resource="ippools.ipam.metal3.io",state=%q} %d`, ns, state, n)
			if text, err := metrics(manager); err != nil || !strings.Contains(text, line) {
				return fmt.Errorf("no %s: %w", line, err)
			}
			return nil
		})
	}

	recorded(t, c, pool, moved, moved)
	counted("listed", moved)
	given(at.String()) // the one that is free
	given("")

	replaceWithout(t, c, pool)
	listed(moved)
	given("")

	suite.Change(t, c, pool, func(o *v1alpha1.IPPool) {
		o.Annotations = map[string]string{"example.com/large": strings.Repeat("x", 246<<10)}
	})
	toldOf(t, c, pool, "MovedNotListed", "are not allocated again")
	given("")
	recorded(t, c, pool, moved, moved)
	counted("unlisted", moved)
	if err := errors.Join(manager.Terminate(), manager.Wait(t.Context()), manager.Start(), manager.Ready(t.Context())); err != nil {
		t.Fatal(err)
	}
	given("")
	suite.Create(t, c, ipClaims.claim(ns, "web-7", "pool", "10.0.0.8")) // comes back
	recorded(t, c, pool, moved-1, moved-1)
	given("")

	suite.Change(t, c, pool, func(o *v1alpha1.IPPool) { delete(o.Annotations, "example.com/large") })
	listed(moved - 1)
	recorded(t, c, pool, moved-1, moved-1)
	suite.Change(t, c, pool, func(o *v1alpha1.IPPool) { // a person knows that the first is free
		l := poolrecord.ReadList(o)
		first := slices.IndexFunc(l.Ranges, func(r ledger.RecordedRange) bool { return r.Range == all[0].Range })
		o.Annotations[butlerv1.AnnotationCooldown], _ = poolrecord.FormatList(o, slices.Delete(l.Ranges, first, first+1), l.StoredRevision())
	})
	recorded(t, c, pool, moved-2, moved-2)
	given("10.0.0.1")
	given("")
}

// metrics reads those of a manager.
func metrics(m *sandbox.Manager) (string, error) {
	response, err := http.Get("http://" + m.MetricsAddress + "/metrics")
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return string(text), err
}
