package tenancy

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"butlerlabs.dev/ipam/reconcilers/infrastructure"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// What is written to a tenant.
const (
	metallbNamespace  = "metallb-system"
	advertisementName = "default"
)

var (
	poolResource          = schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "ipaddresspools"}
	advertisementResource = schema.GroupVersionResource{Group: "metallb.io", Version: "v1beta1", Resource: "l2advertisements"}
)

// refusedReason is that of the event by which MetalLB says that it has no address for a Service.
const refusedReason = "AllocationFailed"

// connection is one to a tenant's API server, while it lasts.
type connection struct {
	version string // of the Secret that it comes from
	core    corev1client.CoreV1Interface
	objects dynamic.Interface
	http    *http.Client

	within time.Duration // that a write may take

	services, refusals, pools, advertisements *mirror
	uses                                      uses

	lost chan error // has a value when it is of no use any more
	stop context.CancelFunc
	ends sync.WaitGroup
}

// connect begins to follow what matters in a tenant. changed is told of every change. With a time to answer within, the tenant is asked for a sign
// of life first: a call to an API server that is just starting may hang long after it has started.
func connect(ctx context.Context, config *rest.Config, version string, within time.Duration, changed func()) (*connection, error) {
	over, err := httpClient(config)
	if err != nil {
		return nil, accessError{err}
	}
	c := &connection{version: version, http: over, lost: make(chan error, 1)}
	if c.objects, err = dynamic.NewForConfigAndClient(config, over); err != nil {
		return nil, accessError{err}
	}
	plain := rest.CopyConfig(config)
	plain.ContentType, plain.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf+","+runtime.ContentTypeJSON
	if c.core, err = corev1client.NewForConfigAndClient(plain, over); err != nil {
		return nil, accessError{err}
	}
	if within > 0 {
		soon, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if err := c.core.RESTClient().Get().AbsPath("/version").Do(soon).Error(); err != nil {
			over.CloseIdleConnections()
			return nil, err
		}
	}
	ctx, c.stop = context.WithCancel(ctx)
	lost := func(err error) {
		select {
		case c.lost <- err:
		default: // one is enough
		}
	}
	begin := func(s source, example any, keep func(any) any) *mirror {
		m := newMirror(keep, changed)
		c.ends.Go(func() { m.follow(ctx, s, example, lost) })
		return m
	}
	services, events := c.core.Services(metav1.NamespaceAll), c.core.Events(metav1.NamespaceAll)
	c.services = begin(source{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return services.List(ctx, o) },
		watch: services.Watch,
		only:  fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)),
	}, &corev1.Service{}, func(o any) any {
		if s, ok := o.(*corev1.Service); ok {
			s.ManagedFields = nil
			c.uses.note(s)
		}
		return o
	})
	c.refusals = begin(source{
		list:  func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return events.List(ctx, o) },
		watch: events.Watch,
		only:  fields.SelectorFromSet(fields.Set{"reason": refusedReason, "involvedObject.kind": "Service"}),
	}, &corev1.Event{}, func(o any) any {
		if e, ok := o.(*corev1.Event); ok {
			e.ManagedFields, e.Message = nil, ""
		}
		return o
	})
	begins := func(r schema.GroupVersionResource, name string) *mirror {
		all := c.objects.Resource(r).Namespace(metallbNamespace)
		return begin(source{
			list:     func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return all.List(ctx, o) },
			watch:    func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) { return all.Watch(ctx, o) },
			only:     fields.OneTermEqualSelector("metadata.name", name),
			optional: true,
		}, nil, func(o any) any { return o })
	}
	c.pools = begins(poolResource, tenants.MetalLBPool)
	c.advertisements = begins(advertisementResource, advertisementName)
	return c, nil
}

// whole tells whether everything is known that decisions need.
func (c *connection) whole() bool {
	return c.services.synced.Load() && c.refusals.synced.Load() && c.pools.synced.Load() && c.advertisements.synced.Load()
}

// reached tells whether the tenant has answered. MetalLB need not be installed.
func (c *connection) reached() bool {
	for _, m := range []*mirror{c.services, c.refusals, c.pools, c.advertisements} {
		if !m.synced.Load() && !m.absent.Load() {
			return false
		}
	}
	return true
}

// uses are the addresses that Services had at any time since they were last looked at: one that came and went in between has used its address.
type uses struct {
	mu        sync.Mutex
	addresses []netip.Addr
}

func (u *uses) note(s *corev1.Service) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, a := range infrastructure.OfService(s).Addresses {
		if !slices.Contains(u.addresses, a) {
			u.addresses = append(u.addresses, a)
		}
	}
}

func (u *uses) take() []netip.Addr {
	u.mu.Lock()
	defer u.mu.Unlock()
	defer func() { u.addresses = nil }()
	return u.addresses
}

// object is what is stored of the pool, or of the advertisement; nil where there is none.
func (m *mirror) object() *unstructured.Unstructured {
	for _, o := range m.List() {
		if u, ok := o.(*unstructured.Unstructured); ok {
			return u
		}
	}
	return nil
}

// refusedAt is when MetalLB last said that it has no address for a Service, by the Service's UID.
func (c *connection) refusedAt() map[string]time.Time {
	at := map[string]time.Time{}
	for _, o := range c.refusals.List() {
		e, ok := o.(*corev1.Event)
		if !ok {
			continue
		}
		last := e.LastTimestamp.Time
		if e.EventTime.After(last) {
			last = e.EventTime.Time
		}
		if uid := string(e.InvolvedObject.UID); last.After(at[uid]) {
			at[uid] = last
		}
	}
	return at
}

// usesLive asks the tenant itself whether any Service has or asks for an address of a block, or its pool still offers one.
func (c *connection) usesLive(ctx context.Context, b tenants.Block, m tenants.MetalLB) (bool, error) {
	pool, err := c.objects.Resource(poolResource).Namespace(metallbNamespace).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + tenants.MetalLBPool})
	if err != nil {
		return false, fmt.Errorf("pool: %w", err)
	}
	for i := range pool.Items {
		for _, r := range tenants.PoolRanges(addressesOf(&pool.Items[i])) {
			if r.Overlaps(b.Range) {
				return true, nil
			}
		}
	}
	services, err := c.core.Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "spec.type=" + string(corev1.ServiceTypeLoadBalancer)})
	if err != nil {
		return false, fmt.Errorf("services: %w", err)
	}
	for i := range services.Items {
		s := tenants.ServiceOf(&services.Items[i], m, time.Time{}, false)
		for _, a := range append(s.Has, s.Asks...) {
			if b.Range.Contains(a) {
				return true, nil
			}
		}
	}
	return false, nil
}

// close ends it, and returns when nothing of it runs any more.
func (c *connection) close() {
	c.stop()
	c.ends.Wait()
	c.http.CloseIdleConnections()
}
