package novaedge

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/load"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// startIn starts a sandbox with the objects that an earlier sandbox has stored in the
// directory.
func startIn(t *testing.T, dir string, replicas int, args ...string) (*sandbox.Sandbox, client.Client, error) {
	t.Helper()
	s, err := sandbox.Start(t.Context(), sandbox.Options{Dir: dir, Keep: true, Replicas: replicas, ManagerArgs: append([]string{"--shutdown-delay=0s"}, args...)})
	if err != nil {
		return nil, nil, err
	}
	t.Cleanup(func() { _ = s.Stop() }) // where the test ends early
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), butlerv1.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{}
	c, err := client.New(config, client.Options{Scheme: scheme})
	return s, c, err
}

// Managers start although objects of a disabled API exist; these objects keep their
// addresses.
func TestAPISwitch_OffWhileObjectsExist(t *testing.T) {
	dir := t.TempDir()
	start := func(apis string) (*sandbox.Sandbox, client.Client, error) { return startIn(t, dir, 1, "--apis="+apis) }
	both, c, err := start("butler,novaedge")
	if err != nil {
		t.Fatal(err)
	}
	p := pool("kept", "10.50.0.0/24")
	if err := c.Create(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	old := admin
	t.Cleanup(func() { admin = old })
	admin = c
	v := vip("kept", "kept")
	if err := c.Create(t.Context(), v); err != nil {
		t.Fatal(err)
	}
	bound(t, v)
	if err := both.Stop(); err != nil {
		t.Fatal(err)
	}

	one, c, err := start("butler")
	if err != nil {
		t.Fatal(err)
	}
	namespace := load.NewPool(t, c, "10.50.0.0/24")
	a := load.Claim(namespace, "beside")
	suite.Create(t, c, a)
	if a.Spec.PinnedRange == nil || a.Spec.PinnedRange.StartAddress+"/32" == v.Spec.Address {
		t.Errorf("beside %s it got %+v", v.Spec.Address, a.Spec.PinnedRange)
	}
	pinned := load.Claim(namespace, "pinned")
	address := strings.TrimSuffix(v.Spec.Address, "/32")
	pinned.Spec.Count, pinned.Spec.PinnedRange = nil, &butlerv1.PinnedIPRange{StartAddress: address, EndAddress: address}
	suite.RequireDenied(t, c.Create(t.Context(), pinned), http.StatusForbidden, "owned by proxyvips/kept")
	if err := one.Stop(); err != nil {
		t.Fatal(err)
	}

	both, c, err = start("butler,novaedge")
	if err != nil {
		t.Fatal(err)
	}
	admin = c
	counts(t, p, 1, 253) // the IPAllocation has the first address, which the ProxyIPPool does not offer
	suite.Delete(t, c, v)
	if err := client.IgnoreNotFound(c.Delete(t.Context(), p)); err != nil {
		t.Fatal(err)
	}
	suite.AwaitGone(t, c, p)
	if err := both.Stop(); err != nil {
		t.Fatal(err)
	}
	one, c, err = start("butler")
	if err != nil {
		t.Fatal(err)
	}
	suite.Create(t, c, pinned)
	if err := one.Stop(); err != nil {
		t.Error(err)
	}
}

// An update installs all webhooks of an API at once, and the replicas that serve the API
// one after the other. The first updated replica becomes the leader, and the other
// replicas forward calls of the API that they do not serve.
func TestAPISwitch_OnReplicaByReplica(t *testing.T) {
	s, c, err := startIn(t, t.TempDir(), 2, "--apis=butler", "--shutdown-delay=2s")
	if err != nil {
		t.Fatal(err)
	}
	earlier := s.Managers()
	l := load.Start(t, c, "10.52.0.0/16", 8)
	if _, err := s.AddManager(t.Context(), "--apis=butler,novaedge"); err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	create := func(from, to int) {
		for i := from; i < to; i++ {
			v := vip(fmt.Sprintf("switched-%d", i), "switched")
			if err := c.Create(t.Context(), v); err != nil {
				t.Fatal(err)
			}
			given[strings.TrimSuffix(v.Spec.Address, "/32")] = true
		}
	}
	if err := c.Create(t.Context(), pool("switched", "10.52.0.0/16")); err != nil {
		t.Fatal(err)
	}
	create(0, 20)
	for _, m := range earlier {
		if err := m.Terminate(); err != nil {
			t.Fatal(err)
		}
		_ = m.Wait(t.Context()) // the load says how it went
		create(len(given), len(given)+10)
		l.Await(40)
	}
	if _, failures := l.Stop(); len(failures) > 0 {
		t.Errorf("creates have failed: %v", failures)
	}
	var all butlerv1.IPAllocationList
	if err := c.List(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for _, a := range all.Items {
		if given[a.Spec.PinnedRange.StartAddress] {
			t.Errorf("%s has %s, which a ProxyVIP has", a.Name, a.Spec.PinnedRange.StartAddress)
		}
	}
	if len(given) != 40 {
		t.Errorf("40 ProxyVIPs have %d addresses", len(given))
	}
}

// Cases S13 and N9: without the flag a Service gets no ProxyVIP. If a Service is deleted
// while no manager runs, its address is released after the next start of a manager.
func TestAPISwitch_ServiceVIPs(t *testing.T) {
	dir := t.TempDir()
	start := func(replicas int, args ...string) (*sandbox.Sandbox, client.Client) {
		s, c, err := startIn(t, dir, replicas, args...)
		if err != nil {
			t.Fatal(err)
		}
		return s, c
	}
	stop := func(s *sandbox.Sandbox) {
		if err := s.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	old := admin
	t.Cleanup(func() { admin = old })
	var s *sandbox.Sandbox
	s, admin = start(1)
	p := pool("default", "10.51.0.0/28")
	web, gone, anew := service("default", "web", "vip-mode", "BGP"), service("default", "gone", "vip-mode", "BGP"), service("default", "anew", "vip-mode", "BGP")
	for _, o := range []client.Object{p, web, gone, anew} {
		if err := admin.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	counts(t, p, 0, 14)
	withoutVIP(t, web)
	stop(s)

	s, admin = start(1, "--service-vips")
	for _, each := range []*corev1.Service{web, gone, anew} {
		bound(t, vipFor(each))
	}
	counts(t, p, 3, 11)
	stop(s)

	s, admin = start(0)
	for _, each := range []*corev1.Service{gone, anew} {
		if err := admin.Delete(t.Context(), each); err != nil {
			t.Fatal(err)
		}
	}
	again := service("default", "anew", "vip-mode", "BGP")
	if err := errors.Join(admin.Create(t.Context(), again), admin.Get(t.Context(), client.ObjectKeyFromObject(web), web)); err != nil {
		t.Fatal(err)
	}
	stop(s)

	s, admin = start(1, "--service-vips")
	suite.AwaitGone(t, admin, vipFor(gone))
	suite.AwaitObject(t, admin, vipFor(again), func(v *v1alpha1.ProxyVIP) string {
		return cmp.Diff(string(again.UID), v.Annotations[v1alpha1.AnnotationServiceUID])
	})
	counts(t, p, 2, 12)
	shows(t, web, web.Status.LoadBalancer.Ingress[0].IP)
	stop(s)
}
