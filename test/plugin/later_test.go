package plugin

import (
	"context"
	"testing"

	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// The pages show the objects of an API that is installed while kubectl ipam ui runs.
func TestUI_APIInstalledLater(t *testing.T) {
	suite.SkipShort(t) // the test starts its own control plane
	s, c := suite.StartSandbox(t, sandbox.Options{Replicas: 1, Restart: true})
	ns := suite.CreateNamespace(t, c)
	kind := suite.Kinds[2]
	suite.Create(t, c, kind.Pool(ns, "10.98.0.1", "10.98.0.9"))
	u := startUI(t, s.Kubeconfig())
	u.eventually(t, "/pools", ns+"/pool", true)
	if err := s.InstallCRDs(t.Context(), "bin/clusterapi"); err != nil {
		t.Fatal(err)
	}
	suite.Eventually(t, 2*suite.Soon, func(ctx context.Context) error { // the manager restarts to serve the API
		return c.Create(ctx, kind.Claim(ns, "later", ""))
	})
	u.eventually(t, "/claims", "IPAddressClaim "+ns+"/later", true)
}
