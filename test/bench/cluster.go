package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/test/sandbox"
)

const (
	// patience is how long the work behind the answers of one run may take.
	patience = 5 * time.Minute
	pollGap  = 20 * time.Millisecond
)

// bench is a sandbox with what the measurements need.
type bench struct {
	sandbox *sandbox.Sandbox
	idle    *idleWebhooks    // nil where nothing is compared with them
	peer    *sandbox.Process // nil where a manager of this project allocates
	setup   client.Client    // for what is not measured
	raw     rest.Interface   // bytes in and bytes out: the machine is shared with what is measured
	etcd    *clientv3.Client
	runs    int // so far; names namespaces and chooses addresses
}

// onSandbox measures on a sandbox of its own, in bin/: a temporary directory may be
// memory, where a write costs etcd nothing.
func onSandbox(ctx context.Context, replicas int, do func(*bench) ([]figure, error), more ...func(*sandbox.Options)) (figures []figure, err error) {
	options := sandbox.Options{
		Dir: filepath.Join("bin", "bench-sandbox"), Replicas: replicas, ClusterAPI: true, Log: os.Stderr,
		APIServerArgs: []string{"--delete-collection-workers=16"}, // cleaning up is not measured
	}
	for _, m := range more {
		m(&options)
	}
	s, err := sandbox.Start(ctx, options)
	if err != nil {
		return nil, err
	}
	b := &bench{sandbox: s}
	defer func() { err = errors.Join(err, b.stop()) }()
	if err := b.connect(); err != nil {
		return nil, err
	}
	return do(b)
}

func (b *bench) connect() error {
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), v1alpha1.AddToScheme(known), novaedgev1.AddToScheme(known), metal3v1.AddToScheme(known)); err != nil {
		return err
	}
	config := b.sandbox.Config()
	config.WarningHandler = rest.NoWarnings{}
	var err error
	if b.setup, err = client.New(config, client.Options{Scheme: known}); err != nil {
		return err
	}
	config.ContentConfig = rest.ContentConfig{
		ContentType: runtime.ContentTypeJSON, GroupVersion: &schema.GroupVersion{}, NegotiatedSerializer: scheme.Codecs.WithoutConversion(),
	}
	if b.raw, err = rest.RESTClientFor(config); err != nil {
		return err
	}
	b.etcd, err = b.sandbox.EtcdClient()
	return err
}

// addBaseline adds the kinds and the webhooks that IPAllocations are compared with.
func (b *bench) addBaseline(ctx context.Context) (err error) {
	for _, subject := range []subject{plainCR, hookedCR, committedCR, hookedClaim, plainAddress} {
		if err := b.copyCRD(ctx, subject); err != nil {
			return fmt.Errorf("CRD of %s: %w", subject.name, err)
		}
	}
	b.idle, err = b.startIdleWebhooks(ctx)
	return err
}

func (b *bench) stop() error {
	var err error
	if b.idle != nil {
		err = b.idle.stop()
	}
	if b.etcd != nil {
		err = errors.Join(err, b.etcd.Close())
	}
	return errors.Join(err, b.sandbox.Stop())
}

// collection is the objects of one subject in a namespace made for one run.
type collection struct {
	*bench
	subject
	namespace string
	pool      client.Object // nil where the subject needs none
}

func (b *bench) newCollection(ctx context.Context, of subject) (*collection, error) {
	b.runs++
	c := &collection{bench: b, subject: of, namespace: fmt.Sprintf("bench-%d", b.runs)} // those of no namespace have the cluster for themselves
	if err := b.setup.Create(ctx, c.namespaceObject()); err != nil {
		return nil, err
	}
	if !of.hasPool {
		return c, nil
	}
	cidr := fmt.Sprintf("10.%d.0.0/16", b.runs%256)
	switch of {
	case vip:
		c.pool = proxyPool(cidr)
	case inClusterClaim:
		c.pool = inClusterPool(c.namespace, cidr)
	case ipClaim, addressClaim, metal3Claim:
		c.pool = &metal3v1.IPPool{
			ObjectMeta: metav1.ObjectMeta{Name: poolName, Namespace: c.namespace},
			Spec:       metal3v1.IPPoolSpec{NamePrefix: c.namespace, Pools: []metal3v1.Pool{{Subnet: &cidr}}, Prefix: 16},
		}
	default:
		c.pool = &v1alpha1.NetworkPool{ObjectMeta: metav1.ObjectMeta{Name: poolName, Namespace: c.namespace}, Spec: v1alpha1.NetworkPoolSpec{CIDR: cidr}}
	}
	return c, b.setup.Create(ctx, c.pool)
}

func (c *collection) namespaceObject() *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
}

func (c *collection) path() string {
	root := "/apis/"
	if c.apiVersion == "v1" {
		root = "/api/"
	}
	if c.clusterScoped {
		return root + c.apiVersion + "/" + c.resource
	}
	return root + c.apiVersion + "/namespaces/" + c.namespace + "/" + c.resource
}

// clear deletes the objects and returns when none is left.
func (c *collection) clear(ctx context.Context) error {
	if err := c.raw.Delete().AbsPath(c.path()).Do(ctx).Error(); err != nil {
		return err
	}
	if err := await(ctx, c.empty); err != nil {
		return fmt.Errorf("objects in %s do not go: %w", c.namespace, err)
	}
	return nil
}

// remove deletes everything and returns when nothing of it is left.
func (c *collection) remove(ctx context.Context) error {
	if err := c.clear(ctx); err != nil {
		return err
	}
	if c.pool != nil {
		if err := await(ctx, c.deletePool); err != nil {
			return fmt.Errorf("pool in %s does not go: %w", c.namespace, err)
		}
	}
	if err := c.setup.Delete(ctx, c.namespaceObject()); err != nil {
		return err
	}
	// No controller manager runs here that would see that it is empty.
	return c.setup.SubResource("finalize").Update(ctx, c.namespaceObject())
}

func (c *collection) empty(ctx context.Context) error {
	body, err := c.raw.Get().AbsPath(c.path()).Param("limit", "1").Do(ctx).Raw()
	if err != nil {
		return err
	}
	var list struct{ Items []json.RawMessage }
	if err := json.Unmarshal(body, &list); err != nil {
		return err
	}
	if len(list.Items) > 0 {
		return errors.New("there is still one")
	}
	return nil
}

// deletePool succeeds when the pool is gone, which is when the ledger has everything
// back. Until then it may be refused.
func (c *collection) deletePool(ctx context.Context) error {
	err := c.setup.Delete(ctx, c.pool)
	if err == nil {
		return errors.New("it is still there")
	}
	return client.IgnoreNotFound(err)
}

// await polls until state holds, and says what was last missing when that takes too long.
func await(ctx context.Context, state func(context.Context) error) error {
	var missing error
	err := wait.PollUntilContextTimeout(ctx, pollGap, patience, true, func(ctx context.Context) (bool, error) {
		missing = state(ctx)
		return missing == nil, nil
	})
	if err != nil {
		return errors.Join(err, missing)
	}
	return nil
}
