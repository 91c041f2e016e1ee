package tenants

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants/allocations"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
	"butlerlabs.dev/ipam/reconcilers/tenants/session"
)

// deps are the dependencies of the controllers.
type deps struct {
	Options
	client      client.Client // writes; reads IPAllocations and NetworkPools from the manager's informers
	platform    *platform.Cluster
	secrets     corev1client.SecretsGetter
	allocations allocations.Store
	status      report.StatusWriter
	events      report.Events
	metrics     *report.Metrics
	deletions   flow.FirstObserved[objectID] // TenantClusters whose deletion has begun
}

const (
	workers = 8 // objects of a kind that are reconciled at a time
	// termInterval is the pause between two checks whether this replica leads.
	termInterval = 200 * time.Millisecond
)

// Register adds the controllers to a manager that has not started. The controllers begin
// when the CRDs are served, and act while this replica leads.
func Register(ctx context.Context, mgr manager.Manager, o Options) error {
	if o.Wall == nil {
		o.Wall = o.Now
	}
	secrets, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return err
	}
	if err := allocations.IndexTenants(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	d := &deps{
		Options: o, client: mgr.GetClient(), platform: o.Platform, secrets: secrets,
		allocations: allocations.Store{Client: mgr.GetClient(), Live: o.Platform.Live, Namespace: o.Namespace},
		status:      report.StatusWriter{Client: mgr.GetClient(), Live: o.Platform.Live},
		events:      report.Events{Recorder: o.Recorder, Log: o.Log}, metrics: report.NewMetrics(o.Registry),
	}
	return mgr.Add(flow.OnEveryReplica(func(ctx context.Context) error { return d.runControllers(ctx, mgr) }))
}

// runControllers adds each controller when the kinds that it needs are served, and
// returns when ctx ends.
func (d *deps) runControllers(ctx context.Context, mgr manager.Manager) error {
	q := newQueues()
	if err := errors.Join(d.platform.WatchCRDs(ctx), d.watchAddressSources(ctx, q)); err != nil {
		return err
	}
	sessions := session.NewManager(ctx, session.Deps{
		Client: d.client, Secrets: d.secrets, Platform: d.platform, Allocations: d.allocations, Status: d.status, Events: d.events, Metrics: d.metrics, Log: d.Log,
		Timing: d.Timing, MaxServices: d.MaxServices, Leads: d.Ledger.MayGrant, ProveLeads: d.Ledger.ProveLeads, Now: d.Now, Wall: d.Wall,
	})
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		return d.platform.WatchOptional(ctx, d.platform.Machines, func() { q.addDeletedTenants(ctx, d) })
	})
	group.Go(func() error {
		return d.platform.WatchOptional(ctx, d.platform.ButlerConfigs, func() { q.addTenants(ctx, d) })
	})
	group.Go(func() error { return d.addTenantControllers(ctx, mgr, q, sessions) })
	group.Go(func() error {
		d.followTerms(ctx, q, sessions)
		return nil
	})
	return group.Wait()
}

// addTenantControllers waits until TenantCluster and ProviderConfig are served, and adds
// the controllers that need them.
func (d *deps) addTenantControllers(ctx context.Context, mgr manager.Manager, q *queues, sessions *session.Manager) error {
	if !d.platform.AwaitTenantKinds(ctx) {
		return nil // the process ends
	}
	r := &tenantReconciler{deps: d, sessions: sessions, waiting: allocations.NewWaitingTenants()}
	d.Log.Info("Serving tenants", "namespace", d.Namespace)
	return errors.Join(
		d.watchTenants(ctx, mgr.GetCache(), q, r.waiting, sessions.WaitingTenants()),
		flow.Add(mgr, "tenantcluster", q.tenants, workers, flow.WithBackoff(r, d.platform.Cache, func() client.Object { return &v1alpha1.TenantCluster{} })),
		flow.Add(mgr, "orphan", q.orphans, workers, flow.WithBackoff(newOrphanReconciler(d), d.client, func() client.Object { return &v1alpha1.IPAllocation{} }, v1alpha1.AnnotationTenantUID)),
		flow.Add(mgr, "providerconfig", q.providers, workers, flow.WithBackoff(&capacityReconciler{d}, d.platform.Cache, func() client.Object { return &v1alpha1.ProviderConfig{} })),
	)
}

// followTerms queues every object when a term of this replica begins, and stops the
// sessions when the term ends.
func (d *deps) followTerms(ctx context.Context, q *queues, sessions *session.Manager) {
	defer sessions.StopAll()
	tick := time.NewTicker(termInterval)
	defer tick.Stop()
	for leading := false; ; {
		switch leads := d.Ledger.MayGrant(); {
		case leads && !leading:
			leading = q.addEverything(ctx, d) == nil
		case !leads && leading:
			leading = false
			sessions.StopAll()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
