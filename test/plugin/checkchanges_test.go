package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
	"butlerlabs.dev/ipam/test/suite"
)

// checkRuns is the number of runs of check while clients change objects, unless the
// variable CHECK_RUNS has another.
const checkRuns = 20

// Four clients create, change and delete Services, claims, pools and Nodes. No address
// has two users, so check finds no error meanwhile.
func TestCheck_WhileObjectsChange(t *testing.T) {
	suite.SkipShort(t)
	t.Parallel()
	runs := checkRuns
	if text := os.Getenv("CHECK_RUNS"); text != "" {
		var err error
		if runs, err = strconv.Atoi(text); err != nil {
			t.Fatalf("CHECK_RUNS=%s: %v", text, err)
		}
	}
	s := &checkedCluster{}
	s.Sandbox, s.client = suite.StartSandbox(t, sandbox.Options{Replicas: 1, ManagerArgs: []string{"--shutdown-delay=0s", "--service-vips"}})
	s.ns = suite.CreateNamespace(t, s.client)
	vips := suite.Kinds[4].Pool("vips", "10.160.0.0", "10.160.0.255").(*novaedgev1.ProxyIPPool)
	machines := suite.Kinds[1].Pool(s.ns, "10.161.0.0", "10.161.0.255").(*metal3v1.IPPool)
	vips.Labels, machines.Labels = nil, nil // in the default routing domain, as the network of the cluster
	suite.Create(t, s.client, vips, machines, networkPool(s.ns, "changing", "10.162.0.0/24", ""))

	ctx, end := context.WithCancel(t.Context())
	var changes atomic.Int64
	clients, ctx := errgroup.WithContext(ctx)
	for name, change := range map[string]func(changer, string) error{
		"service": changer.changeService, "claim": changer.changeClaim, "pool": changer.changePool, "node": changer.changeNode,
	} {
		clients.Go(func() error {
			for n := 0; ctx.Err() == nil; n++ {
				c := changer{context.WithoutCancel(ctx), s, n} // each round ends: no object stays
				if err := change(c, fmt.Sprintf("%s-%d", name, n)); err != nil {
					return fmt.Errorf("%s %d: %w", name, n, err)
				}
				changes.Add(1)
			}
			return nil
		})
	}
	begun := time.Now()
	for n := 0; n < runs && ctx.Err() == nil; n++ {
		r := run(t, s.Kubeconfig(), "check", "-o", "json")
		var c checked
		if err := json.Unmarshal([]byte(r.stdout), &c); err != nil || r.code > 1 {
			t.Errorf("run %d: exit code %d: %v: %s", n, r.code, err, r.stderr)
		}
		for _, f := range c.Findings {
			if f.Severity == "error" {
				t.Errorf("run %d: %+v", n, f)
			}
		}
	}
	took := time.Since(begun)
	end()
	if err := clients.Wait(); err != nil {
		t.Error(err)
	}
	t.Logf("%d runs of check in %s, %d rounds of changes", runs, took.Round(time.Second), changes.Load())
	if changes.Load() < int64(runs) {
		t.Errorf("%d rounds of changes in %d runs: too few", changes.Load(), runs)
	}
}

// changer is a client that creates, changes and deletes objects. Each method is one round
// of changes.
type changer struct {
	ctx context.Context
	*checkedCluster
	round int
}

// await waits until the stored version of an object meets a condition.
func (c changer) await(o client.Object, holds func() bool) error {
	return wait.PollUntilContextTimeout(c.ctx, 10*time.Millisecond, suite.Soon, true, func(ctx context.Context) (bool, error) {
		err := c.client.Get(ctx, client.ObjectKeyFromObject(o), o)
		return err == nil && holds(), err
	})
}

// delete deletes objects, one after the other, and waits until each is gone.
func (c changer) delete(objects ...client.Object) error {
	for _, o := range objects {
		if err := c.client.Delete(c.ctx, o); err != nil {
			return err
		}
		if err := c.await(o, func() bool { return false }); !apierrors.IsNotFound(err) {
			return errors.Join(fmt.Errorf("%T %s is still stored", o, o.GetName()), err)
		}
	}
	return nil
}

// changeService lets a Service get the address of a ProxyVIP. In each second round, the
// Service first becomes one without an address; in each third, another load balancer
// assigns the address.
func (c changer) changeService(name string) error {
	o := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.ns, Name: name, Annotations: map[string]string{novaedgev1.AnnotationVIPMode: "L2ARP", "novaedge.io/address-pool": "vips"}},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Port: 80}}},
	}
	if c.round%3 == 2 {
		o.Annotations = nil
	}
	if err := c.client.Create(c.ctx, o); err != nil {
		return err
	}
	if o.Annotations == nil {
		o.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: fmt.Sprintf("10.160.0.%d", 200+c.round%50)}}
		if err := c.client.Status().Update(c.ctx, o); err != nil {
			return err
		}
		return c.delete(o)
	}
	if err := c.await(o, func() bool { return len(o.Status.LoadBalancer.Ingress) > 0 }); err != nil {
		return err
	}
	if c.round%2 == 1 {
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"type": "ClusterIP"}}`))
		if err := c.client.Patch(c.ctx, o, patch); err != nil {
			return err
		}
	}
	return c.delete(o)
}

// changeClaim creates an IPAllocation, changes a label, and deletes the IPAllocation.
func (c changer) changeClaim(name string) error {
	a := suite.Kinds[0].Claim(c.ns, name, "").(*butlerv1.IPAllocation)
	a.Spec.PoolRef.Name = "changing"
	if err := c.client.Create(c.ctx, a); err != nil {
		return err
	}
	if err := c.client.Patch(c.ctx, a, client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"labels": {"changed": "true"}}}`))); err != nil {
		return err
	}
	return c.delete(a)
}

// changePool creates a NetworkPool and a claim in it, enlarges the pool, and deletes
// both.
func (c changer) changePool(name string) error {
	p := networkPool(c.ns, name, "10.164.0.0/24", "")
	a := suite.Kinds[0].Claim(c.ns, name, "").(*butlerv1.IPAllocation)
	a.Spec.PoolRef.Name = name
	for _, o := range []client.Object{p, a} {
		if err := c.client.Create(c.ctx, o); err != nil {
			return err
		}
	}
	if err := c.client.Patch(c.ctx, p, client.RawPatch("application/merge-patch+json", []byte(`{"spec": {"cidr": "10.164.0.0/22"}}`))); err != nil {
		return err
	}
	return c.delete(a, p)
}

// changeNode creates IPClaims and a Node with their addresses, and deletes the Node and
// the IPClaims. In each second round, the Node first changes an address.
func (c changer) changeNode(name string) error {
	var claims []client.Object
	var addresses []string
	for n := range 3 {
		claim := suite.Kinds[1].Claim(c.ns, fmt.Sprintf("%s-%d", name, n), "")
		if err := c.client.Create(c.ctx, claim); err != nil {
			return err
		}
		claims, addresses = append(claims, claim), append(addresses, suite.Kinds[1].Address(claim))
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := c.client.Create(c.ctx, node); err != nil {
		return err
	}
	for n := range 1 + c.round%2 {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addresses[0]}, {Type: corev1.NodeExternalIP, Address: addresses[1+n]}}
		if err := c.client.Status().Update(c.ctx, node); err != nil {
			return err
		}
	}
	return c.delete(append([]client.Object{node}, claims...)...)
}
