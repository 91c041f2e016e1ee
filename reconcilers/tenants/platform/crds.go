package platform

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

// Kinds that tenants consist of.
var (
	TenantClusterKind  = v1alpha1.GroupVersion.WithKind("TenantCluster")
	ProviderConfigKind = v1alpha1.GroupVersion.WithKind("ProviderConfig")
	crdKind            = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
)

// servedInterval is the pause between two checks whether the API server serves a kind
// whose CRD exists.
const servedInterval = time.Second

// WatchCRDs starts the informer of CRDs, which the other functions of this file read.
func (c *Cluster) WatchCRDs(ctx context.Context) error {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return HandleEvents(ctx, c.Cache, crd, func(_, _ client.Object) { c.crds.send() })
}

// AwaitTenantKinds returns when TenantCluster and ProviderConfig are served, or false
// when ctx ends first.
func (c *Cluster) AwaitTenantKinds(ctx context.Context) bool {
	return c.awaitKind(ctx, TenantClusterKind.GroupKind(), "tenantclusters") && c.awaitKind(ctx, ProviderConfigKind.GroupKind(), "providerconfigs")
}

// awaitKind returns when a kind is served, or false when ctx ends first. It asks the API
// server only while the CRD exists.
func (c *Cluster) awaitKind(ctx context.Context, kind schema.GroupKind, plural string) bool {
	for {
		changed := c.crds.next()
		wait := (<-chan time.Time)(nil)
		if c.isDefined(ctx, kind.Group, plural) {
			if _, err := c.mapper.RESTMapping(kind); err == nil {
				return true
			}
			wait = time.After(servedInterval)
		}
		select {
		case <-ctx.Done():
			return false
		case <-changed:
		case <-wait:
		}
	}
}

// DefinesTenantClusters reports whether the CRD of TenantCluster exists and is not being
// deleted.
func (c *Cluster) DefinesTenantClusters(ctx context.Context) bool {
	return c.isDefined(ctx, TenantClusterKind.Group, "tenantclusters")
}

func (c *Cluster) isDefined(ctx context.Context, group, plural string) bool {
	crd, err := c.readCRD(ctx, group, plural)
	return err == nil && crd.DeletionTimestamp == nil
}

func (c *Cluster) readCRD(ctx context.Context, group, plural string) (*metav1.PartialObjectMetadata, error) {
	crd := &metav1.PartialObjectMetadata{}
	crd.SetGroupVersionKind(crdKind)
	return crd, c.Get(ctx, client.ObjectKey{Name: plural + "." + group}, crd)
}

// broadcast wakes any number of goroutines after a change.
type broadcast struct {
	mu   sync.Mutex
	sent chan struct{} // closed by the next send
}

func newBroadcast() *broadcast { return &broadcast{sent: make(chan struct{})} }

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.sent)
	b.sent = make(chan struct{})
}

// next returns a channel that the next send closes.
func (b *broadcast) next() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.sent
}
