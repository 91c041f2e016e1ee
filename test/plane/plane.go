// Package plane runs control planes of tenant clusters for tests. Each control plane
// consists of etcd, kube-apiserver and MetalLB's controller.
package plane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/kubeconfig"
	"butlerlabs.dev/ipam/test/pki"
	"butlerlabs.dev/ipam/test/sandbox"
)

// Plane is the control plane of a tenant.
type Plane struct {
	*sandbox.Sandbox
	Client  client.Client
	MetalLB *sandbox.Process
}

// Start starts a control plane, and returns when MetalLB works. ctx bounds the start
// only: the control plane runs until Stop.
func Start(ctx context.Context) (*Plane, error) {
	s, err := sandbox.Start(ctx, sandbox.Options{})
	if err != nil {
		return nil, err
	}
	p := &Plane{Sandbox: s}
	config := s.Config()
	config.WarningHandler = rest.NoWarnings{}
	if p.Client, err = client.New(config, client.Options{Scheme: clientgoscheme.Scheme}); err == nil {
		p.MetalLB, err = s.StartMetalLB(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return p, nil
}

// Connect acts as the provider of a control plane: it writes the kubeconfig of a
// TenantCluster into a Secret of the management cluster, and the namespace of the Secret
// into the status of the TenantCluster. It returns the created objects.
func Connect(ctx context.Context, management client.Client, c *v1alpha1.TenantCluster, config *rest.Config) ([]client.Object, error) {
	text, err := pki.Kubeconfig("tenant", config, "")
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%s", c.Name, c.UID[:8])}}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: kubeconfig.SecretName(c.Name)},
		Data:       map[string][]byte{kubeconfig.KeyExternal: text},
	}
	made := []client.Object{namespace, secret}
	for _, o := range made {
		if err := management.Create(ctx, o); err != nil {
			return nil, err
		}
	}
	before := c.DeepCopy()
	c.Status.TenantNamespace = namespace.Name
	return made, management.Status().Patch(ctx, c, client.MergeFrom(before))
}

// Balancer returns a Service of type LoadBalancer.
func Balancer(name string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
}

// Address returns the address that MetalLB has assigned to a Service, or an error if
// there is none yet.
func (p *Plane) Address(ctx context.Context, s *corev1.Service) (netip.Addr, error) {
	if err := p.Client.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
		return netip.Addr{}, err
	}
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return netip.Addr{}, fmt.Errorf("service %s has no address", s.Name)
	}
	return netip.ParseAddr(s.Status.LoadBalancer.Ingress[0].IP)
}
