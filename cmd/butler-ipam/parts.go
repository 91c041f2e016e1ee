package main

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/reconcilers/inuse"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
	"butlerlabs.dev/ipam/reconcilers/services"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/webhooks"
	"butlerlabs.dev/ipam/webhooks/review"
)

// parts are the parts of the manager. newParts and the register methods create the parts
// in this order, and each part uses earlier parts only.
//
//	recorder, recorded, changes, forServices ──▶ ledger ──▶ feed, clusters ──▶ reconcilers ──▶ webhooks
type parts struct {
	mgr      manager.Manager
	o        *options
	identity string // of this process among all replicas
	clock    *apiserver.Clock
	served   []reconcilers.API
	log      logr.Logger

	recorder    record.EventRecorder
	recorded    *history.Recorder
	changes     *feed.Changes
	forServices *services.Services
	ledger      *ledger.Ledger
	feed        *feed.Feed
	clusters    *clusters.Watcher // nil if no served API has objects that belong to Clusters
	inUse       *inuse.Watcher
}

// newParts creates the ledger and what it notifies: history, queues and events.
func newParts(ctx context.Context, mgr manager.Manager, o *options, clock *apiserver.Clock, log logr.Logger) (*parts, error) {
	p := &parts{
		mgr: mgr, o: o, identity: journal.NewIdentity(o.identity, o.advertise), clock: clock, served: o.apis.reconcilers(), log: log,
		recorded: history.New(log, clock.Now), forServices: services.New(),
	}
	p.changes = reconcilers.NewChanges(p.served...)
	var err error
	if p.recorder, err = newRecorder(ctx, mgr); err != nil {
		return nil, err
	}
	if p.ledger, err = p.newLedger(); err != nil {
		return nil, err
	}
	p.recorded.SetLedger(p.ledger)
	return p, nil
}

// newLedger returns the ledger with the journal on the Lease.
func (p *parts) newLedger() (*ledger.Ledger, error) {
	store, err := journal.NewLeaseStore(apiserver.ConfigForCalls(p.mgr.GetConfig()), p.o.namespace, takeOverAfter)
	if err != nil {
		return nil, err
	}
	store.Now = p.clock.Now
	claimKinds, poolKinds := allAPIs.kinds()
	return ledger.New(ledger.Config{
		Store:          store,
		Identity:       p.identity,
		ClaimResources: claimKinds,
		PoolResources:  poolKinds,
		Unserved:       slices.Concat(allAPIs.without(p.o.apis).kinds()),
		ClusterDomain:  p.o.clusterDomain.name,
		GrantLife:      p.o.grantLife,
		Timing:         journal.Timing{Expiry: takeOverAfter},
		Metrics:        ledger.NewMetrics(metrics.Registry),
		Log:            p.log.WithName("ledger"),
		Now:            now,
		Skew:           func() time.Duration { by, _ := p.clock.Ahead(); return by },
		Leading:        p.recorded.Lead,
		JournalFull: func(message string) {
			p.recorder.Event(journalReference(p.o.namespace), corev1.EventTypeWarning, eventJournalFull, message)
		},
		Changed: func(keys []ledger.Key) {
			p.changes.Notify(keys)
			p.forServices.Notify(keys)
		},
	}), nil
}

// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// eventJournalFull is the reason of an event on the journal's Lease: creates or pool
// updates are denied, as the journal has no room for their grants.
const eventJournalFull = "JournalFull"

// journalReference returns the journal's Lease as the subject of an event.
func journalReference(namespace string) *corev1.ObjectReference {
	return &corev1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: namespace, Name: journal.LeaseName}
}

// newRecorder returns a recorder that writes one event at a time. Under load, events wait
// or are dropped, and do not delay admission calls and writes.
func newRecorder(ctx context.Context, mgr manager.Manager) (record.EventRecorder, error) {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: "butler-ipam"}), nil
}

// registerReconcilers adds the feed and the reconcilers to the manager.
func (p *parts) registerReconcilers(ctx context.Context) error {
	if p.o.historyDays > 0 {
		p.recorded.StoreIn(history.NewObjects(p.mgr.GetClient(), p.mgr.GetAPIReader(), p.o.namespace, history.Limits{}), p.o.historyDays)
		if err := p.mgr.Add(flow.OnEveryReplica(p.recorded.Run)); err != nil {
			return err
		}
	}
	var err error
	if p.feed, err = reconcilers.NewFeed(ctx, p.mgr, p.ledger, p.recorded, p.served, allAPIs.without(p.o.apis).reconcilers()); err != nil {
		return err
	}
	moved, err := newMovedRecords(p.mgr, p.o.namespace)
	if err != nil {
		return err
	}
	p.feed.SetMovedRecords(moved)
	if err := p.watchClusters(); err != nil {
		return err
	}
	err = reconcilers.Register(ctx, p.mgr, reconcilers.Options{
		Ledger: p.ledger, APIs: p.served, Changes: p.changes, Recorder: p.recorder, History: p.recorded, Now: now, Wall: p.clock.Now,
		Registry: metrics.Registry, Clusters: p.clusters, MovedRecords: moved, OrphanAge: p.o.orphanGrace,
	})
	if err != nil {
		return err
	}
	if p.o.serviceVIPs {
		if err := p.forServices.Register(p.mgr, p.ledger.MayGrant, p.recorder, p.o.orphanGrace); err != nil {
			return err
		}
	}
	if err := p.watchAddressesInUse(ctx); err != nil {
		return err
	}
	return p.o.tenants.register(ctx, p.mgr, p.ledger, p.inUse.Platform, p.recorder, p.clock, p.log.WithName("tenants"))
}

// newMovedRecords returns the store of the records of moved ranges in the manager's
// namespace. The right is in config/rbac/journal_role.yaml.
func newMovedRecords(mgr manager.Manager, namespace string) (*movedrecords.Store, error) {
	kube := apiserver.ConfigForCalls(mgr.GetConfig())
	kube.Timeout = apiserver.CallTimeout
	client, err := corev1client.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	return movedrecords.New(client, namespace), nil
}

// watchClusters adds a watch of Clusters to the manager, if a served API has objects that
// belong to Clusters, and decides from it about moved claims.
func (p *parts) watchClusters() (err error) {
	log := p.log.WithName("clusters")
	if p.o.apis.haveClusters() {
		if p.clusters, err = clusters.New(p.mgr.GetConfig(), log); err != nil {
			return err
		}
		if err := p.mgr.Add(p.clusters); err != nil {
			return err
		}
	}
	return p.mgr.Add(flow.OnEveryReplica(func(ctx context.Context) error { return p.feed.DecideMoves(ctx, p.clusters, log) }))
}

// watchAddressesInUse adds the watches of the addresses that Nodes, Machines and Services
// of the cluster use.
func (p *parts) watchAddressesInUse(ctx context.Context) error {
	cluster, err := platform.NewCluster(p.mgr)
	if err != nil {
		return err
	}
	if err := p.mgr.Add(cluster.Cache); err != nil {
		return err
	}
	p.inUse, err = inuse.Register(ctx, p.mgr, inuse.Options{
		Ledger: p.ledger, Platform: cluster, NetworkPools: p.o.apis.has("butler"), Recorder: p.recorder, Log: p.log.WithName("in-use"),
	})
	return err
}

// registerWebhooks adds the webhooks to the manager. peers calls other replicas.
func (p *parts) registerWebhooks(ctx context.Context, peers *http.Client) {
	hooks, others := p.o.apis.webhooks()
	webhooks.Register(p.mgr.GetWebhookServer(), webhooks.Options{
		Ledger: p.ledger, APIs: append(hooks, p.o.tenants.webhookAPIs()...), Others: others, Cached: p.mgr.GetCache(), Live: p.mgr.GetAPIReader(),
		Stopping: ctx.Done(), Identity: p.identity, Peers: peers, Metrics: review.NewMetrics(metrics.Registry), Clusters: p.clusters,
		Tenants: p.o.tenants.enabled, Log: p.log.WithName("webhooks"),
	})
}

// runLedger runs the ledger once the feed has filled it, and calls filled then. When ctx
// ends, the ledger hands the journal over; then runLedger waits for the shutdown delay.
func (p *parts) runLedger(ctx context.Context, filled func()) error {
	if !p.feed.Synced(ctx) {
		return nil
	}
	filled()
	if !p.clusters.Known(ctx) {
		return nil
	}
	p.inUse.Await(ctx)
	if err := p.ledger.Run(ctx, p.feed); err != nil {
		return err
	}
	p.flushHistory(ctx)
	delay := time.NewTimer(p.o.shutdownDelay)
	defer delay.Stop()
	<-delay.C
	return nil
}

// flushHistory stores the pending history records of this replica in AllocationHistories
// before the process ends. The rights are in config/rbac/history_role.yaml.
func (p *parts) flushHistory(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit/2)
	defer cancel()
	p.recorded.Flush(ctx)
}
