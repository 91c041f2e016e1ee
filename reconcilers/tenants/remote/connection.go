package remote

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

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
)

// SyncTimeout bounds the time until all mirrors of a connection are synced or absent.
const SyncTimeout = 20 * time.Second

// eventAllocationFailed is the reason of the event with which MetalLB reports that no
// address is available for a Service.
const eventAllocationFailed = "AllocationFailed"

// Options configure a connection.
type Options struct {
	// MaxServices bounds the number of Services of type LoadBalancer, and of MetalLB's
	// events, that are kept.
	MaxServices int
	// ProbeTimeout bounds a first call that tests whether the API server answers; 0 skips
	// the call. A call to an API server that is starting may hang long after the start,
	// so a watch must not be the first.
	ProbeTimeout time.Duration
	// OnChanged is called after each change of an object. It must not block.
	OnChanged func()
}

// Connection is a client of one tenant with mirrors of the objects that decisions depend
// on. The first error sent to Lost ends the connection. WriteTimeout belongs to the
// caller; methods are safe for concurrent use.
type Connection struct {
	// WriteTimeout bounds each write.
	WriteTimeout time.Duration

	version string // of the kubeconfig Secret
	core    corev1client.CoreV1Interface
	dynamic dynamic.Interface
	http    *http.Client

	services, refusals, pools, otherPools, advertisements *mirror
	recent                                                recentAddresses

	lost    chan error
	cancel  context.CancelFunc
	mirrors sync.WaitGroup
}

// Connect returns a connection whose mirrors are being filled. version is that of the
// credentials, for [Connection.Version].
func Connect(ctx context.Context, config *rest.Config, version string, o Options) (*Connection, error) {
	c := &Connection{version: version, recent: recentAddresses{maxAddresses: o.MaxServices}, lost: make(chan error, 1)}
	if err := c.createClients(config); err != nil {
		return nil, AccessError{err}
	}
	if o.ProbeTimeout > 0 {
		probeCtx, cancel := context.WithTimeout(ctx, o.ProbeTimeout)
		defer cancel()
		if err := c.core.RESTClient().Get().AbsPath("/version").Do(probeCtx).Error(); err != nil {
			c.http.CloseIdleConnections()
			return nil, err
		}
	}
	ctx, c.cancel = context.WithCancel(ctx)
	start := func(r reader) *mirror {
		r.client = c.core.RESTClient()
		m := newMirror(r, o.OnChanged)
		c.mirrors.Go(func() { m.run(ctx, c.reportLost) })
		return m
	}
	c.services = start(c.serviceReader(o.MaxServices))
	c.refusals = start(c.refusalReader(o.MaxServices))
	c.pools = start(c.metallbReader(poolResource, fields.OneTermEqualSelector(metav1.ObjectNameField, plan.MetalLBPool)))
	c.otherPools = start(c.otherPoolsReader())
	c.advertisements = start(c.metallbReader(advertisementResource, fields.OneTermEqualSelector(metav1.ObjectNameField, AdvertisementName)))
	return c, nil
}

func (c *Connection) createClients(config *rest.Config) (err error) {
	if c.http, err = newHTTPClient(config, c.reportLost); err != nil {
		return err
	}
	if c.dynamic, err = dynamic.NewForConfigAndClient(config, c.http); err != nil {
		return err
	}
	c.core, err = corev1client.NewForConfigAndClient(config, c.http)
	return err
}

// serviceReader reads Services of type LoadBalancer and records the addresses of every
// version.
func (c *Connection) serviceReader(maxObjects int) reader {
	return reader{
		path: "/api/v1/services", openWatch: c.core.Services(metav1.NamespaceAll).Watch, maxObjects: maxObjects,
		selector:  fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)),
		newObject: func() runtime.Object { return &corev1.Service{} },
		trim: func(o runtime.Object) runtime.Object {
			if s, ok := o.(*corev1.Service); ok {
				o = plan.TrimService(s)
				c.recent.addService(s)
			}
			return o
		},
	}
}

// refusalReader reads the events with which MetalLB reports Services without an address.
func (c *Connection) refusalReader(maxObjects int) reader {
	return reader{
		path: "/api/v1/events", openWatch: c.core.Events(metav1.NamespaceAll).Watch, maxObjects: maxObjects, lossy: true,
		selector:  fields.SelectorFromSet(fields.Set{"reason": eventAllocationFailed, "involvedObject.kind": "Service"}),
		newObject: func() runtime.Object { return &corev1.Event{} },
		trim: func(o runtime.Object) runtime.Object {
			if e, ok := o.(*corev1.Event); ok {
				o = &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, ResourceVersion: e.ResourceVersion},
					InvolvedObject: corev1.ObjectReference{UID: e.InvolvedObject.UID}, LastTimestamp: e.LastTimestamp, EventTime: e.EventTime,
				}
			}
			return o
		},
	}
}

// maxOtherPools bounds the IPAddressPools of other names that are kept, and the entries
// of each.
const maxOtherPools, maxPoolEntries = 100, 1000

// otherPoolsReader reads the IPAddressPools of other names.
func (c *Connection) otherPoolsReader() reader {
	r := c.metallbReader(poolResource, fields.OneTermNotEqualSelector(metav1.ObjectNameField, plan.MetalLBPool))
	r.maxObjects, r.lossy = maxOtherPools, true
	r.trim = func(o runtime.Object) runtime.Object {
		if u, ok := o.(*unstructured.Unstructured); ok {
			o = trimPool(u)
		}
		return o
	}
	return r
}

// metallbReader reads one object in MetalLB's namespace. MetalLB need not be installed.
func (c *Connection) metallbReader(r schema.GroupVersionResource, selector fields.Selector) reader {
	return reader{
		path:      "/apis/" + r.GroupVersion().String() + "/namespaces/" + metallbNamespace + "/" + r.Resource,
		openWatch: c.dynamic.Resource(r).Namespace(metallbNamespace).Watch, maxObjects: 1,
		selector:  selector,
		newObject: func() runtime.Object { return &unstructured.Unstructured{} },
		trim:      func(o runtime.Object) runtime.Object { return o },
		optional:  true,
	}
}

// Version returns the version of the credentials.
func (c *Connection) Version() string { return c.version }

// Lost returns a channel that receives the first error after which the connection is
// useless.
func (c *Connection) Lost() <-chan error { return c.lost }

func (c *Connection) reportLost(err error) {
	select {
	case c.lost <- err:
	default: // an earlier error is waiting
	}
}

// IsReached reports whether the API server has answered for every kind. MetalLB's kinds
// may be absent.
func (c *Connection) IsReached() bool {
	for _, m := range []*mirror{c.services, c.refusals, c.pools, c.otherPools, c.advertisements} {
		if !m.synced.Load() && !m.absent.Load() {
			return false
		}
	}
	return true
}

// IsSynced reports whether every mirror is synced, as decisions require. It is false
// while MetalLB is not installed.
func (c *Connection) IsSynced() bool {
	return c.services.synced.Load() && c.refusals.synced.Load() && c.pools.synced.Load() && c.otherPools.synced.Load() && c.advertisements.synced.Load()
}

// Services returns the trimmed Services of type LoadBalancer. partial: the tenant has
// more than are kept.
func (c *Connection) Services() (services []*corev1.Service, partial bool) {
	partial = c.services.partial.Load()
	for _, o := range c.services.List() {
		if s, ok := o.(*corev1.Service); ok {
			services = append(services, s)
		}
	}
	return services, partial
}

// RefusalTimes returns, by the UID of a Service, when MetalLB last reported that no
// address is available.
func (c *Connection) RefusalTimes() map[string]time.Time {
	times := map[string]time.Time{} // UID -> time of the last event
	for _, o := range c.refusals.List() {
		e, ok := o.(*corev1.Event)
		if !ok {
			continue
		}
		last := e.LastTimestamp.Time
		if e.EventTime.After(last) {
			last = e.EventTime.Time
		}
		if uid := string(e.InvolvedObject.UID); last.After(times[uid]) {
			times[uid] = last
		}
	}
	return times
}

// TakeRecentAddresses returns the addresses that any Service had since the last call.
func (c *Connection) TakeRecentAddresses() map[netip.Addr]bool { return c.recent.takeAll() }

// UsesRange reads the tenant and reports whether a MetalLB pool offers an address of the
// range, or a Service has or requests one. With more Services than the bound, the answer
// is yes.
func (c *Connection) UsesRange(ctx context.Context, r allocator.Range, m plan.MetalLB) (used bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, SyncTimeout)
	defer cancel()
	for _, pools := range []*mirror{c.pools, c.otherPools} {
		if _, err := pools.forEach(ctx, func(o runtime.Object) bool {
			used = used || slices.ContainsFunc(plan.ParsePoolEntries(PoolEntries(o.(*unstructured.Unstructured))), r.Overlaps)
			return !used
		}); err != nil || used {
			return used, err
		}
	}
	read := 0
	_, err = c.services.forEach(ctx, func(o runtime.Object) bool {
		s := plan.ServiceOf(o.(*corev1.Service), m, time.Time{}, false)
		read++
		used = read > c.services.maxObjects || slices.ContainsFunc(slices.Concat(s.Addresses, s.Requested), r.Contains)
		return !used
	})
	return used, err
}

// Close ends the mirrors and returns when their goroutines have ended.
func (c *Connection) Close() {
	c.cancel()
	c.mirrors.Wait()
	c.http.CloseIdleConnections()
}

// recentAddresses collects the addresses of Services between two decisions: an address
// was used even if its Service was created and deleted in between.
type recentAddresses struct {
	maxAddresses int // further ones are dropped
	mu           sync.Mutex
	addresses    map[netip.Addr]bool
}

func (r *recentAddresses) addService(s *corev1.Service) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.addresses == nil {
		r.addresses = map[netip.Addr]bool{}
	}
	for _, a := range platform.OfService(s).Addresses {
		if len(r.addresses) < r.maxAddresses {
			r.addresses[a] = true
		}
	}
}

func (r *recentAddresses) takeAll() map[netip.Addr]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() { r.addresses = nil }()
	return r.addresses
}
