package novaedge

import (
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

func TestAnAPIOfWhichObjectsExistCannotBeSwitchedOff(t *testing.T) {
	dir := t.TempDir()
	start := func(apis string) (*sandbox.Sandbox, client.Client, error) {
		s, err := sandbox.Start(t.Context(), sandbox.Options{
			Dir: dir, Keep: true, Replicas: 1, ManagerArgs: []string{"--apis=" + apis, "--shutdown-delay=0s"},
		})
		if err != nil {
			return nil, nil, err
		}
		scheme := runtime.NewScheme()
		c, err := client.New(s.Config(), client.Options{Scheme: scheme})
		return s, c, errors.Join(err, v1alpha1.AddToScheme(scheme))
	}
	both, c, err := start("butler,novaedge")
	if err != nil {
		t.Fatal(err)
	}
	p := pool("kept", "10.50.0.0/24")
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := both.Stop(); err != nil {
		t.Fatal(err)
	}

	if _, _, err = start("butler"); err == nil {
		t.Fatal("a manager that does not count a ProxyIPPool has started")
	}
	contains(t, err.Error(), "objects of proxyippools.novaedge.io are stored or being created, and this replica is told not to serve them")

	both, c, err = start("butler,novaedge")
	if err != nil {
		t.Fatal(err)
	}
	if err := client.IgnoreNotFound(c.Delete(t.Context(), p)); err != nil {
		t.Fatal(err)
	}
	becomesGone(t, c, p)
	if err := both.Stop(); err != nil {
		t.Fatal(err)
	}
	one, _, err := start("butler")
	if err != nil {
		t.Fatalf("without objects it cannot be switched off either: %v", err)
	}
	if err := one.Stop(); err != nil {
		t.Error(err)
	}
}
