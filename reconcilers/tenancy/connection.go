package tenancy

import (
	"context"
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

// connect begins to follow what matters in a tenant, of each kind so many objects at most. changed is told of every change. With a time to answer
// within, the tenant is asked for a sign of life first: a call to an API server that is just starting may hang long after it has started.
func connect(ctx context.Context, config *rest.Config, version string, most int, within time.Duration, changed func()) (*connection, error) {
	c := &connection{version: version, uses: uses{most: most}, lost: make(chan error, 1)}
	lost := func(err error) {
		select {
		case c.lost <- err:
		default: // one is enough
		}
	}
	var err error
	if c.http, err = httpClient(config, lost); err != nil {
		return nil, accessError{err}
	}
	if c.objects, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return nil, accessError{err}
	}
	if c.core, err = corev1client.NewForConfigAndClient(config, c.http); err != nil {
		return nil, accessError{err}
	}
	if within > 0 {
		soon, cancel := context.WithTimeout(ctx, within)
		defer cancel()
		if err := c.core.RESTClient().Get().AbsPath("/version").Do(soon).Error(); err != nil {
			c.http.CloseIdleConnections()
			return nil, err
		}
	}
	ctx, c.stop = context.WithCancel(ctx)
	begin := func(s source) *mirror {
		s.over = c.core.RESTClient()
		m := newMirror(s, changed)
		c.ends.Go(func() { m.follow(ctx, lost) })
		return m
	}
	c.services = begin(source{
		path: "/api/v1/services", watch: c.core.Services(metav1.NamespaceAll).Watch, most: most,
		only:  fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)),
		empty: func() runtime.Object { return &corev1.Service{} },
		keep: func(o runtime.Object) runtime.Object {
			if s, ok := o.(*corev1.Service); ok {
				o = tenants.Lean(s)
				c.uses.note(s)
			}
			return o
		},
	})
	c.refusals = begin(source{
		path: "/api/v1/events", watch: c.core.Events(metav1.NamespaceAll).Watch, most: most, hints: true,
		only:  fields.SelectorFromSet(fields.Set{"reason": refusedReason, "involvedObject.kind": "Service"}),
		empty: func() runtime.Object { return &corev1.Event{} },
		keep: func(o runtime.Object) runtime.Object {
			if e, ok := o.(*corev1.Event); ok {
				o = &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, ResourceVersion: e.ResourceVersion},
					InvolvedObject: corev1.ObjectReference{UID: e.InvolvedObject.UID}, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime,
				}
			}
			return o
		},
	})
	begins := func(r schema.GroupVersionResource, name string) *mirror {
		return begin(source{
			path:  "/apis/" + r.GroupVersion().String() + "/namespaces/" + metallbNamespace + "/" + r.Resource,
			watch: c.objects.Resource(r).Namespace(metallbNamespace).Watch, most: 1,
			only:     fields.OneTermEqualSelector("metadata.name", name),
			empty:    func() runtime.Object { return &unstructured.Unstructured{} },
			keep:     func(o runtime.Object) runtime.Object { return o },
			optional: true,
		})
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
	most      int // beyond which no more are noted
	mu        sync.Mutex
	addresses map[netip.Addr]bool
}

func (u *uses) note(s *corev1.Service) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.addresses == nil {
		u.addresses = map[netip.Addr]bool{}
	}
	for _, a := range infrastructure.OfService(s).Addresses {
		if len(u.addresses) < u.most {
			u.addresses[a] = true
		}
	}
}

func (u *uses) take() map[netip.Addr]bool {
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

// usesLive asks the tenant itself whether any Service has or asks for an address of a block, or its pool still offers one. Of more Services than are
// looked at any may.
func (c *connection) usesLive(ctx context.Context, b tenants.Block, m tenants.MetalLB) (used bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reachWithin)
	defer cancel()
	if _, err := c.pools.each(ctx, func(o runtime.Object) bool {
		used = used || slices.ContainsFunc(tenants.PoolRanges(addressesOf(o.(*unstructured.Unstructured))), b.Range.Overlaps)
		return !used
	}); err != nil || used {
		return used, err
	}
	seen := 0
	_, err = c.services.each(ctx, func(o runtime.Object) bool {
		s := tenants.ServiceOf(o.(*corev1.Service), m, time.Time{}, false)
		seen++
		used = seen > c.services.most || slices.ContainsFunc(slices.Concat(s.Has, s.Asks), b.Range.Contains)
		return !used
	})
	return used, err
}

// close ends it, and returns when nothing of it runs any more.
func (c *connection) close() {
	c.stop()
	c.ends.Wait()
	c.http.CloseIdleConnections()
}
