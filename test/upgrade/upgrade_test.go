//go:build upgrade

package upgrade

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

const (
	replicas = 2
	clients  = 4 // that create allocations during the whole test
	// perStep is the number of claims of each kind that are created after each change of
	// the managers.
	perStep = 3
	// All pools have one routing domain and the same addresses, so that an address could
	// be allocated by two kinds.
	domain, first, last = "upgrade", "10.200.0.0", "10.200.0.199"
)

// version is a version of the manager.
type version struct{ name, config, manager string }

// versionIn returns the version in a checkout that make build has been run in.
func versionIn(t *testing.T, name, checkout string) version {
	t.Helper()
	checkout, err := filepath.Abs(checkout)
	if err != nil {
		t.Fatal(err)
	}
	v := version{name, filepath.Join(checkout, "config"), filepath.Join(checkout, "bin", "butler-ipam")}
	for _, path := range []string{v.config, v.manager} {
		if _, err := os.Stat(path); err != nil {
			t.Fatalf("%v: run make test-upgrade, which builds the earlier version", err)
		}
	}
	return v
}

// claim is a claim that was created, with the address in the response.
type claim struct {
	kind    suite.Kind
	object  client.Object
	address string
}

// cluster is a control plane with a pool of each kind, and the claims that were created.
type cluster struct {
	*sandbox.Sandbox
	api        client.Client
	namespaces map[string]string // name of the kind -> namespace of its pool
	claims     []claim
	step       int
}

// TestUpgrade_AndBack replaces the managers one by one, as a Deployment does: from the
// earlier version to this one, and back. After each replacement claims of each kind are
// created and deleted, and all others are what they were.
func TestUpgrade_AndBack(t *testing.T) {
	earlier, current := versionIn(t, "the earlier version", os.Getenv("PREVIOUS_DIR")), versionIn(t, "this version", "../..")
	s, api := suite.StartSandbox(t, sandbox.Options{
		Replicas: replicas, ClusterAPI: true, ConfigDir: earlier.config, ManagerBinary: earlier.manager, ManagerArgs: []string{"--shutdown-delay=0s"},
	})
	c := &cluster{Sandbox: s, api: api, namespaces: map[string]string{}}
	for _, kind := range suite.Kinds {
		ns := suite.CreateNamespace(t, api)
		pool := kind.Pool(ns, first, last)
		if p, ok := pool.(*butlerv1.NetworkPool); ok {
			p.Spec.RoutingDomain = domain
		} else {
			pool.SetLabels(map[string]string{butlerv1.LabelRoutingDomain: domain})
		}
		suite.Create(t, api, pool)
		c.namespaces[kind.Name] = ns
	}
	l := load.Start(t, api, "10.201.0.0/16", clients)
	c.exercise(t)
	c.rollOut(t, current, l)
	if err := s.CheckLogs(); err != nil { // afterwards managers of this version run with the roles of the earlier one
		t.Error(err)
	}
	c.rollOut(t, earlier, l)
	_, failures := l.Stop() // it also checks that no address was allocated twice
	for _, err := range failures {
		t.Errorf("a create failed: %v", err)
	}
	t.Logf("%d claims of %d kinds kept their addresses", len(c.claims), len(suite.Kinds))
}

// rollOut installs the configuration of a version, and replaces the managers.
func (c *cluster) rollOut(t *testing.T, to version, l *load.Load) {
	t.Helper()
	running := c.Managers()
	running = running[len(running)-replicas:]
	if err := c.UseVersion(t.Context(), to.config, to.manager); err != nil {
		t.Fatal(err)
	}
	t.Logf("CRDs, roles and webhooks are those of %s", to.name)
	c.exercise(t)
	for _, manager := range running {
		next, err := c.AddManager(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := manager.Terminate(); err != nil {
			t.Fatal(err)
		}
		if err := manager.Wait(t.Context()); err != nil {
			t.Errorf("%s: %v", manager.Name(), err)
		}
		t.Logf("%s of %s has replaced %s", next.Name(), to.name, manager.Name())
		l.Await(2 * clients)
		c.exercise(t)
	}
}

// exercise creates claims of each kind, deletes the oldest claim of each kind, and checks
// all claims.
func (c *cluster) exercise(t *testing.T) {
	t.Helper()
	c.step++
	for _, kind := range suite.Kinds {
		ns := c.namespaces[kind.Name]
		for i := range perStep {
			o := kind.Claim(ns, fmt.Sprintf("step-%d-%d", c.step, i), "")
			suite.Create(t, c.api, o)
			c.claims = append(c.claims, claim{kind, o, kind.Address(o)})
		}
	}
	c.check(t)
	for _, kind := range suite.Kinds {
		for i, oldest := range c.claims {
			if oldest.kind.Name != kind.Name {
				continue
			}
			if kind.Denied {
				pinned := kind.Claim(c.namespaces[kind.Name], "pinned", oldest.address)
				suite.RequireDenied(t, c.api.Create(t.Context(), pinned), http.StatusForbidden, kind.Taken)
			}
			suite.Delete(t, c.api, oldest.object)
			c.claims = append(c.claims[:i:i], c.claims[i+1:]...)
			break
		}
	}
}

// check waits until the status of each claim confirms the address of its create, and
// fails the test if two claims have one address.
func (c *cluster) check(t *testing.T) {
	t.Helper()
	owners := map[string]string{}
	for _, of := range c.claims {
		name := of.kind.Name + " " + of.object.GetName()
		if of.address == "" {
			t.Fatalf("%s: the response to its create has no address", name)
		}
		if other, found := owners[of.address]; found {
			t.Errorf("%s and %s both have %s", other, name, of.address)
		}
		owners[of.address] = name
		suite.Eventually(t, suite.Soon, func(ctx context.Context) error {
			if err := c.api.Get(ctx, client.ObjectKeyFromObject(of.object), of.object); err != nil {
				return err
			}
			if got := of.kind.Address(of.object); got != of.address || !of.kind.Bound(of.object) || of.kind.Failure(of.object) != "" {
				return fmt.Errorf("%s: address %q, want %q; bound %t, failure %q", name, got, of.address, of.kind.Bound(of.object), of.kind.Failure(of.object))
			}
			return nil
		})
	}
}
