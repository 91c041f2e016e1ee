package tenants

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/kubeconfig"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
)

// plane is a tenant's control plane with MetalLB, started by the first test that needs one. Tests take turns with it.
var plane controlPlane

type controlPlane struct {
	*sandbox.Sandbox
	client client.Client
}

func (p *controlPlane) start(t *testing.T) {
	t.Helper()
	if p.Sandbox != nil {
		return
	}
	s, err := sandbox.Start(t.Context(), sandbox.Options{})
	if err != nil {
		t.Fatal(err)
	}
	p.Sandbox = s
	if p.client, err = clientOf(s); err != nil {
		t.Fatal(err)
	}
	if _, err := s.StartMetalLB(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func (p *controlPlane) stop() error {
	if p.Sandbox == nil {
		return nil
	}
	return p.Stop()
}

// live creates a TenantCluster whose control plane is plane, and waits until its pool is there. Plane is empty again after the test.
func live(t *testing.T, name, provider string) *v1alpha1.TenantCluster {
	t.Helper()
	plane.start(t)
	c := tenant(t, namespace(t), name, provider, "")
	t.Cleanup(func() {
		ctx := context.Background()
		_ = admin.Delete(ctx, c)
		_ = plane.client.DeleteAllOf(ctx, metallbPool(), client.InNamespace(sandbox.MetalLBNamespace))
		_ = plane.client.DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace("default"))
		services := &corev1.ServiceList{}
		_ = plane.client.List(ctx, services, client.InNamespace("default"))
		for i := range services.Items {
			if services.Items[i].Spec.Type == corev1.ServiceTypeLoadBalancer {
				_ = plane.client.Delete(ctx, &services.Items[i])
			}
		}
	})
	if err := admin.Create(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	networkReady(t, c, metav1.ConditionTrue, v1alpha1.ReasonReady)
	giveAccess(t, c, plane.Config())
	return c
}

// giveAccess does what the provider of a control plane does: it writes the kubeconfig, and says where.
func giveAccess(t *testing.T, c *v1alpha1.TenantCluster, config *rest.Config) {
	t.Helper()
	ns := fmt.Sprintf("%s-%s", c.Name, c.UID[:8])
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	create(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: kubeconfig.SecretName(c.Name)},
		Data:       map[string][]byte{kubeconfig.KeyExternal: kubeconfigOf(t, config)},
	})
	before := c.DeepCopy()
	c.Status.TenantNamespace = ns
	if err := admin.Status().Patch(t.Context(), c, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
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

// offers waits until the tenant's MetalLB pool has exactly these entries; without any there is no pool.
func offers(t *testing.T, want ...string) {
	t.Helper()
	eventually(t, soon, func(ctx context.Context) error { return offered(ctx, want...) })
}

func offered(ctx context.Context, want ...string) error {
	p := metallbPool()
	err := plane.client.Get(ctx, client.ObjectKeyFromObject(p), p)
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
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	for _, m := range more {
		m(s)
	}
	if err := plane.client.Create(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	return s
}

// served waits until MetalLB has given a Service an address, and says which and how long that took.
func served(t *testing.T, s *corev1.Service) (netip.Addr, time.Duration) {
	t.Helper()
	began := time.Now()
	eventually(t, soon, func(ctx context.Context) error {
		if err := plane.client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("Service " + s.Name + " has no address")
		}
		return nil
	})
	address, err := netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
	if err != nil {
		t.Fatal(err)
	}
	return address, time.Since(began)
}

func dropService(t *testing.T, s *corev1.Service) {
	t.Helper()
	if err := plane.client.Delete(t.Context(), s); err != nil {
		t.Fatal(err)
	}
}
