package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/plane"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// tenantPlane is a tenant's control plane, started by the first test that needs one.
// Tests take turns with it.
var tenantPlane *plane.Plane

func startPlane(t *testing.T) {
	t.Helper()
	if tenantPlane != nil {
		return
	}
	var err error
	if tenantPlane, err = plane.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func stopPlane() error {
	if tenantPlane == nil {
		return nil
	}
	return tenantPlane.Stop()
}

// takeDown kills the plane's API server. After the test it is there again, with a MetalLB
// that knows: one that ran on would look for it once a minute, and serve nothing in the
// next tests.
func takeDown(t *testing.T) {
	t.Helper()
	server, metallb := tenantPlane.APIServer(), tenantPlane.MetalLB
	if err := server.Kill(); err != nil {
		t.Fatal(err)
	}
	<-server.Exited()
	t.Cleanup(func() {
		if !server.Serving() {
			bringUp(t, server)
		}
		if err := metallb.Kill(); err != nil {
			t.Error(err)
		}
		<-metallb.Exited()
		bringUp(t, metallb)
	})
}

func bringUp(t *testing.T, p *sandbox.Process) {
	t.Helper()
	if err := errors.Join(p.Start(), p.Ready(context.Background())); err != nil {
		t.Error(err)
	}
}

// live creates a TenantCluster whose control plane is the plane, with more of its spec in
// YAML. The plane is empty again after the test.
func live(t *testing.T, name, provider string, more ...string) *v1alpha1.TenantCluster {
	t.Helper()
	startPlane(t)
	return liveAs(t, tenantPlane.Config(), name, provider, more...)
}

// liveAs is live, with the client configuration by which the tenant is reached.
func liveAs(t *testing.T, config *rest.Config, name, provider string, more ...string) *v1alpha1.TenantCluster {
	t.Helper()
	c := tenant(t, suite.CreateNamespace(t, admin), name, provider, strings.Join(more, ""))
	t.Cleanup(func() {
		ctx := context.Background()
		if t.Failed() {
			t.Log("is there a pool? ", offered(ctx))
			for _, m := range cluster.Managers() {
				t.Log(m.Tail())
			}
			t.Log(tenantPlane.MetalLB.Tail())
		}
		_ = admin.Delete(ctx, c)
		// Until the tenant is gone, the manager may write its pool again, which the next
		// test would find as the pool of another tenant.
		_ = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, suite.Soon, true, func(ctx context.Context) (bool, error) {
			return apierrors.IsNotFound(admin.Get(ctx, client.ObjectKeyFromObject(c), c.DeepCopy())), nil
		})
		_ = tenantPlane.Client.DeleteAllOf(ctx, metallbPool(), client.InNamespace(sandbox.MetalLBNamespace))
		_ = tenantPlane.Client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default"))
		services := &corev1.ServiceList{}
		_ = tenantPlane.Client.List(ctx, services, client.InNamespace("default"))
		for i := range services.Items {
			if services.Items[i].Spec.Type == corev1.ServiceTypeLoadBalancer {
				_ = tenantPlane.Client.Delete(ctx, &services.Items[i])
			}
		}
	})
	if err := admin.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, config)
	return c
}

// giveAccess has a tenant reached by a client configuration.
func giveAccess(t *testing.T, c *v1alpha1.TenantCluster, config *rest.Config) {
	t.Helper()
	made, err := plane.Connect(t.Context(), admin, c, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, o := range made {
			_ = admin.Delete(context.Background(), o)
		}
	})
}

func kubeconfigOf(t *testing.T, config *rest.Config) []byte {
	t.Helper()
	text, err := pki.Kubeconfig("tenant", config, "")
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func metallbPool() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("metallb.io/v1beta1")
	u.SetKind("IPAddressPool")
	u.SetNamespace(sandbox.MetalLBNamespace)
	u.SetName("default-pool")
	return u
}

// offers waits until the tenant's MetalLB pool has exactly these entries; without any
// there is no pool.
func offers(t *testing.T, want ...string) {
	t.Helper()
	suite.Eventually(t, suite.Soon, func(ctx context.Context) error { return offered(ctx, want...) })
}

func offered(ctx context.Context, want ...string) error { return offeredIn(ctx, tenantPlane, want...) }

func offeredIn(ctx context.Context, tenant *plane.Plane, want ...string) error {
	p := metallbPool()
	err := tenant.Client.Get(ctx, client.ObjectKeyFromObject(p), p)
	if apierrors.IsNotFound(err) {
		err = nil
	}
	have, _, _ := unstructured.NestedStringSlice(p.Object, "spec", "addresses")
	if err == nil && !slices.Equal(have, want) {
		err = fmt.Errorf("the tenant's pool has %q, want %q", have, want)
	}
	return err
}

// balancer creates a Service of type LoadBalancer in the tenant.
func balancer(t *testing.T, name string, more ...func(*corev1.Service)) *corev1.Service {
	t.Helper()
	s := plane.Balancer(name)
	for _, m := range more {
		m(s)
	}
	if err := tenantPlane.Client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// served waits until MetalLB has given a Service an address, and says which and how long
// that took.
func served(t *testing.T, s *corev1.Service) (netip.Addr, time.Duration) {
	t.Helper()
	return servedIn(t, tenantPlane, s)
}

func servedIn(t *testing.T, p *plane.Plane, s *corev1.Service) (netip.Addr, time.Duration) {
	t.Helper()
	began := time.Now()
	var address netip.Addr
	suite.Eventually(t, suite.Soon, func(ctx context.Context) (err error) {
		address, err = p.Address(ctx, s)
		return err
	})
	return address, time.Since(began)
}

func dropService(t *testing.T, s *corev1.Service) {
	t.Helper()
	if err := tenantPlane.Client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
