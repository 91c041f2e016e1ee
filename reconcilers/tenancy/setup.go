package tenancy

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// Options are what the tenants' side stands on.
type Options struct {
	// Namespace is where NetworkPools and IPAllocations of tenants are, and ProviderConfigs that a TenantCluster names without one.
	Namespace string
	Timing    tenants.Timing
	// OrphanAfter is how long the tenant of an allocation must have been gone before that is released.
	OrphanAfter time.Duration
	// ReleaseLimit is how long machines that are left can hold the addresses of a tenant that is being deleted.
	ReleaseLimit time.Duration
	// MaxServices is how many Services of type LoadBalancer of one tenant are looked at.
	MaxServices int
	// Serving tells whether this replica holds the journal.
	Serving func() bool
	// Unheld is those of some addresses that nobody holds in the routing domain of a NetworkPool.
	Unheld func(pool types.NamespacedName, addresses []netip.Addr) []netip.Addr
	// Recorder takes events about TenantClusters, ProviderConfigs, IPAllocations and NetworkPools.
	Recorder record.EventRecorder
	// Now is the clock that measures spans.
	Now func() time.Time
	// Wall is the clock of the times in objects, which outlive the process and are read by others; Now where nil.
	Wall func() time.Time
	// Registry takes the metrics; nil for none.
	Registry prometheus.Registerer
	Log      logr.Logger
}

// desk is what every part works with.
type desk struct {
	Options
	client client.Client // writes; reads allocations and pools from the informers
	platform
	secrets corev1client.SecretsGetter
	events  events
	metrics *metrics
	deleted work.Since[identity] // TenantClusters whose deletion has begun
}

const (
	workers = 8 // objects of a kind at a time
	// termEvery is how often it is looked at whether this replica holds the journal.
	termEvery = 200 * time.Millisecond
)

// Register adds everything to a manager that has not started. It works from when the CRDs are served, on the replica that holds the journal.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	if o.Wall == nil {
		o.Wall = o.Now
	}
	core, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	p, err := newPlatform(mgr)
	if err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &v1alpha1.IPAllocation{}, indexTenant, tenantOf); err != nil {
		return err
	}
	if err := mgr.Add(p.Cache); err != nil {
		return err
	}
	d := &desk{
		Options: o, client: mgr.GetClient(), platform: p, secrets: core, events: events{o.Recorder}, metrics: newMetrics(o.Registry),
	}
	return mgr.Add(work.Everywhere(func(ctx context.Context) error { return d.start(ctx, mgr) }))
}

// start adds the controllers to the manager as soon as what they work on is served, and has them look at everything whenever a term begins.
func (d *desk) start(ctx context.Context, mgr manager.Manager) (err error) {
	q := &queues{network: work.NewQueue("tenantcluster"), orphans: work.NewQueue("orphan"), providers: work.NewQueue("providerconfig"), platform: work.NewQueue("infrastructure")}
	if err := errors.Join(d.followCRDs(ctx), d.watchPlatform(ctx, mgr.GetCache(), q),
		work.Add(mgr, "infrastructure", q.platform, workers, flow.Spaced(&platformUse{d}, d.client, func() client.Object { return &v1alpha1.NetworkPool{} }, v1alpha1.AnnotationResting))); err != nil {
		return err
	}
	s := newSessions(ctx, d)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return d.follow(ctx, d.machine, func() {
			q.addLeaving(ctx, d)
			q.addPools(ctx, d)
		})
	})
	group.Go(func() error { return d.follow(ctx, d.butlerConfig, func() { q.addTenants(ctx, d) }) })
	group.Go(func() error { return d.serveTenants(ctx, mgr, q, s) })
	group.Go(func() error {
		d.followTerms(ctx, q, s)
		return nil
	})
	return group.Wait()
}

// serveTenants waits for the CRDs of tenants, and begins.
func (d *desk) serveTenants(ctx context.Context, mgr manager.Manager, q *queues, s *sessions) error {
	if !d.awaitKinds(ctx) {
		return nil // the process ends
	}
	n := &network{desk: d, sessions: s, short: newNames()}
	d.Log.Info("Serving tenants", "namespace", d.Namespace)
	return errors.Join(
		d.watch(ctx, mgr.GetCache(), q, n.short, s.short),
		work.Add(mgr, "tenantcluster", q.network, workers, flow.Spaced(n, d.Cache, func() client.Object { return &v1alpha1.TenantCluster{} })),
		work.Add(mgr, "orphan", q.orphans, workers, flow.Spaced(newOrphans(d), d.client, func() client.Object { return &v1alpha1.IPAllocation{} }, v1alpha1.AnnotationTenantUID)),
		work.Add(mgr, "providerconfig", q.providers, workers, flow.Spaced(&providers{d}, d.Cache, func() client.Object { return &v1alpha1.ProviderConfig{} })),
	)
}

// followTerms has everything looked at when this replica takes the journal, and lets go of the tenants when it loses it.
func (d *desk) followTerms(ctx context.Context, q *queues, s *sessions) {
	defer s.stopAll()
	tick := time.NewTicker(termEvery)
	defer tick.Stop()
	for held := false; ; {
		switch serving := d.Serving(); {
		case serving && !held:
			held = q.addAll(ctx, d) == nil
		case !serving && held:
			held = false
			s.stopAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
