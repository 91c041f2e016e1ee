package metal3

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// Cluster API is installed after the managers: they end one after the other, to serve its
// claims when they are started again, and no create of another kind fails of that.
func TestClusterAPI_InstalledLater(t *testing.T) {
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 2, Restart: true})
	ns := suite.CreateNamespace(t, c)
	suite.Create(t, c, ten(ns, "pool"))
	first := ipClaims.claim(ns, "first", "pool", "")
	suite.Create(t, c, first)
	if answer(first) != "10.0.0.1" {
		t.Errorf("without Cluster API, an IPClaim got %q", answer(first))
	}
	was := map[string]int{}
	for _, m := range s.Managers() {
		was[m.Name()] = m.Pid()
	}

	l := load.Start(t, c, "10.53.0.0/16", 4)
	if err := s.InstallCRDs(t.Context(), "bin/clusterapi"); err != nil {
		t.Fatal(err)
	}
	early := ipAddressClaims.claim(ns, "early", "pool", "")
	suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { return c.Create(ctx, early) }) // until a manager serves it
	// A create that failed because its manager ended keeps its address for a while, so
	// the address is not always 10.0.0.2.
	if got := answer(early); !strings.HasPrefix(got, "10.0.0.") || got == answer(first) {
		t.Errorf("the first IPAddressClaim got %q", got)
	}
	suite.Eventually(t, 2*suite.Soon, func(context.Context) error {
		for _, m := range s.Managers() {
			if m.Pid() == was[m.Name()] {
				return fmt.Errorf("%s still runs as before", m.Name())
			}
		}
		return nil
	})
	l.Await(100)
	if _, failures := l.Stop(); len(failures) > 0 {
		t.Errorf("creates have failed: %v", failures)
	}
	suite.AwaitObject(t, c, early, func(o client.Object) string {
		name, failure := ipAddressClaims.address(o)
		if name == "" {
			return fmt.Sprintf("it names no address: %q", failure)
		}
		return ""
	})
}
