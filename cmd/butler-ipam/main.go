package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"butlerlabs.dev/ipam/allocator/journal"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/history"
	"butlerlabs.dev/ipam/reconcilers/informers"
	"butlerlabs.dev/ipam/reconcilers/inuse"
	"butlerlabs.dev/ipam/reconcilers/movedrecords"
	"butlerlabs.dev/ipam/reconcilers/services"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/webhooks"
	"butlerlabs.dev/ipam/webhooks/apiserver"
	"butlerlabs.dev/ipam/webhooks/certificates"
	"butlerlabs.dev/ipam/webhooks/review"
	"butlerlabs.dev/ipam/webhooks/server"
)

// version is set by the linker.
var version = "dev"

// takeOverAfter is how long the journal stays unchanged before another replica becomes
// the leader.
const takeOverAfter = 4 * time.Second

// stopLimit bounds the time from SIGTERM to the end of the process, in addition to the
// shutdown delay.
const stopLimit = 10 * time.Second

func main() {
	if len(os.Args) > 1 && os.Args[1] == consoleCommand {
		o, err := parseConsoleOptions(os.Args[2:], os.Getenv, os.Stderr)
		exitOnUsage(err)
		log := mustLogger(o.logFormat, o.logLevel)
		end(log, runConsole(signals.SetupSignalHandler(), o, log))
		return
	}
	o, err := parseOptions(os.Args[1:], os.Getenv, os.Stderr)
	exitOnUsage(err)
	if o.version {
		fmt.Println(version)
		return
	}
	log := mustLogger(o.logFormat, o.logLevel)
	apiserver.ConfigurePings()
	ctx := signals.SetupSignalHandler()
	limitMemory(ctx, log.WithName("memory"))
	end(log, run(ctx, o, log))
}

// exitOnUsage ends the process if the command line contains --help or is invalid.
func exitOnUsage(err error) {
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "butler-ipam:", strings.ReplaceAll(err.Error(), "\n", "\nbutler-ipam: "))
		os.Exit(2)
	}
}

// mustLogger returns the logger for the flags, and sets the logger of the libraries. It
// ends the process if the flags are invalid.
func mustLogger(format, level string) logr.Logger {
	log, err := newLogger(format, level)
	exitOnUsage(err)
	ctrllog.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	return log
}

// end logs the error and ends the process; nothing happens without an error.
func end(log logr.Logger, err error) {
	if err != nil {
		log.Error(err, "Ended")
		os.Exit(1)
	}
}

// run runs the manager until ctx ends. If ctx ends before the informers have synced, run
// returns without waiting for the manager: this replica does not lead and has no journal
// to hand over, and controller-runtime would wait for its informers even after the end of
// ctx.
func run(ctx context.Context, o *options, log logr.Logger) error {
	filled, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- runManager(ctx, o, log, func() { close(filled) }) }()
	select {
	case <-filled:
	case err := <-ended:
		return err
	case <-ctx.Done():
		log.Info("Stopping before the informers have synced")
		return nil
	}
	return <-ended
}

// runManager runs the manager and calls filled once, when the informers have synced.
func runManager(ctx context.Context, o *options, log logr.Logger, filled func()) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	kube, err := config.GetConfig()
	if err != nil {
		return err
	}
	kube.UserAgent = "butler-ipam/" + version
	kube.QPS = -1 // no limit in the client, because a delayed write delays Ready; API Priority and Fairness limits requests
	apiserver.BoundDialing(kube)
	clock := apiserver.NewClock(now)
	kube.Wrap(clock.Wrap)
	certs, err := certificates.NewSetup(o.certificateOptions(), kube, clock, log.WithName("certificates"))
	if err != nil {
		return err
	}
	hooks, err := server.New(server.Config{
		Address: o.webhookBind, ClientCA: o.clientCA, Certificates: certs.Source, Now: clock.Now, Log: log.WithName("webhooks"),
	})
	if err != nil {
		return err
	}
	metrics.Registry.MustRegister(certificates.Metrics{Setup: certs})
	probes := server.NewProbes(hooks, certs.Renewal, certs.Checks(), log)
	if err := probes.ListenAndServe(o.probeBind, log); err != nil {
		return err
	}
	api, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return err
	}
	switchedOn := o.apis
	if err := apiserver.Await(ctx, api, switchedOn.except(clusterAPI).required(), o.grantLife, probes.SetStartup, log); err != nil {
		return err
	}
	missing := func() ([]string, error) { return switchedOn.named(clusterAPI).missingCRDs(api) }
	if crds, err := missing(); err != nil {
		return err
	} else if len(crds) > 0 {
		log.Info("Cluster API is not installed, or is older than 1.11: its claims are served after its installation", "missing", crds)
		o.apis = switchedOn.except(clusterAPI)
	}
	mgr, err := newManager(kube, o, hooks, certs, log)
	if err != nil {
		return err
	}
	l, err := connectParts(ctx, mgr, o, server.NewPeerClient(hooks), clock, probes, filled, log)
	if err != nil {
		return err
	}
	if len(o.apis) < len(switchedOn) {
		if err := mgr.Add(clusters.RestartWhenInstalled(missing, l.MayGrant, end, log)); err != nil {
			return err
		}
	}
	if err := certs.SetupWithManager(mgr); err != nil {
		return err
	}
	log.Info("Starting", "version", version, "identity", o.identity, "address", o.advertise)
	return mgr.Start(ctx)
}

func newManager(kube *rest.Config, o *options, hooks *server.Server, certs certificates.Setup, log logr.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(certificates.AddToScheme(scheme), networkingv1.AddToScheme(scheme)); err != nil { // pools are compared with ServiceCIDRs
		return nil, err
	}
	for _, a := range allAPIs {
		if err := a.addToScheme(scheme); err != nil {
			return nil, err
		}
	}
	counted := allAPIs.reconcilers()
	stop := o.shutdownDelay + stopLimit
	return manager.New(kube, manager.Options{
		Scheme: scheme,
		Logger: log,
		MapperProvider: func(kube *rest.Config, client *http.Client) (meta.RESTMapper, error) {
			own, err := reconcilers.NewMapper(scheme, counted...)
			if err != nil {
				return nil, err
			}
			others, err := apiutil.NewDynamicRESTMapper(kube, client)
			return meta.FirstHitRESTMapper{MultiRESTMapper: meta.MultiRESTMapper{own, others}}, err
		},
		Cache: cache.Options{
			ByObject:                    certs.Caches(),
			DefaultTransform:            cache.TransformStripManagedFields(), // the manager does not read managedFields, about half of an object
			ReaderFailOnMissingInformer: true,                                // without this, a read of another kind would start a watch of its objects
			NewInformer:                 informers.New(log, reconcilers.Objects(counted...)...),
		},
		Metrics:                 metricsOptions(o, certs.Source),
		PprofBindAddress:        o.pprofBind,
		WebhookServer:           hooks,
		NewClient:               newWriter,
		GracefulShutdownTimeout: &stop,
	})
}

// newWriter returns the client of the reconcilers.
func newWriter(kube *rest.Config, options client.Options) (client.Client, error) {
	kube = apiserver.ConfigForCalls(kube)
	kube.Timeout = apiserver.CallTimeout
	kube.WarningHandlerWithContext = warningFilter{ctrllog.NewKubeAPIWarningLogger(ctrllog.KubeAPIWarningLoggerOptions{})}
	over, err := rest.HTTPClientFor(kube)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = over
	return client.New(kube, options)
}

// newLedger returns the ledger with the journal on the Lease. The ledger calls changed
// with the keys of changed claims and pools, and leading when this replica becomes the
// leader, and full when the journal has no room.
func newLedger(kube *rest.Config, o *options, identity string, clock *apiserver.Clock, metrics *ledger.Metrics, changed func([]ledger.Key), leading func(map[string]uint64), full func(string), log logr.Logger) (*ledger.Ledger, error) {
	store, err := journal.NewLeaseStore(apiserver.ConfigForCalls(kube), o.namespace, takeOverAfter)
	if err != nil {
		return nil, err
	}
	store.Now = clock.Now
	claimKinds, poolKinds := allAPIs.kinds()
	return ledger.New(ledger.Config{
		Store:          store,
		Identity:       identity,
		ClaimResources: claimKinds,
		PoolResources:  poolKinds,
		Unserved:       slices.Concat(allAPIs.without(o.apis).kinds()),
		GrantLife:      o.grantLife,
		Timing:         journal.Timing{Expiry: takeOverAfter},
		Metrics:        metrics,
		Log:            log.WithName("ledger"),
		Now:            now,
		Skew:           func() time.Duration { by, _ := clock.Ahead(); return by },
		Leading:        leading,
		JournalFull:    full,
		Changed:        changed,
	}), nil
}

// newWatcher adds a watch of Clusters to the manager. It returns nil if no served API has
// objects that belong to Clusters.
func newWatcher(mgr manager.Manager, o *options, log logr.Logger) (*clusters.Watcher, error) {
	if !o.apis.haveClusters() {
		return nil, nil
	}
	watcher, err := clusters.New(mgr.GetConfig(), log.WithName("clusters"))
	if err != nil {
		return nil, err
	}
	return watcher, mgr.Add(watcher)
}

// connectParts creates the ledger, the feed, the reconcilers and the webhooks, and adds
// them to the manager.
func connectParts(ctx context.Context, mgr manager.Manager, o *options, peers *http.Client, clock *apiserver.Clock, probes *server.Probes, filled func(), log logr.Logger) (*ledger.Ledger, error) {
	identity := journal.NewIdentity(o.identity, o.advertise)
	served := o.apis.reconcilers()
	changes, forServices := reconcilers.NewChanges(served...), services.New()
	changed := func(keys []ledger.Key) { changes.Notify(keys); forServices.Notify(keys) }
	ledgerMetrics := ledger.NewMetrics(metrics.Registry)
	var recorded *history.Recorder
	leading := func(applied map[string]uint64) { recorded.Lead(applied) }
	recorder, err := newRecorder(ctx, mgr)
	if err != nil {
		return nil, err
	}
	full := func(message string) {
		recorder.Event(journalReference(o.namespace), corev1.EventTypeWarning, eventJournalFull, message)
	}
	l, err := newLedger(mgr.GetConfig(), o, identity, clock, ledgerMetrics, changed, leading, full, log)
	if err != nil {
		return nil, err
	}
	recorded = history.New(log, l, clock.Now)
	if o.historyDays > 0 {
		recorded.StoreIn(history.NewObjects(mgr.GetClient(), mgr.GetAPIReader(), o.namespace, history.Limits{}), o.historyDays)
		if err := mgr.Add(flow.OnEveryReplica(recorded.Run)); err != nil {
			return nil, err
		}
	}
	feed, err := reconcilers.NewFeed(ctx, mgr, l, recorded, served, allAPIs.without(o.apis).reconcilers())
	if err != nil {
		return nil, err
	}
	moved, err := newMovedRecords(mgr, o.namespace)
	if err != nil {
		return nil, err
	}
	feed.SetMovedRecords(moved)
	watcher, err := newWatcher(mgr, o, log)
	if err != nil {
		return nil, err
	}
	err = reconcilers.Register(ctx, mgr, reconcilers.Options{
		Ledger: l, APIs: served, Changes: changes, Recorder: recorder, History: recorded, Now: now, Wall: clock.Now, Registry: metrics.Registry, Clusters: watcher, MovedRecords: moved,
		OrphanAge: o.orphanGrace,
	})
	if err != nil {
		return nil, err
	}
	if o.serviceVIPs {
		if err := forServices.Register(mgr, l.MayGrant, recorder, o.orphanGrace); err != nil {
			return nil, err
		}
	}
	uses, err := watchAddressesInUse(ctx, mgr, o, l, recorder, log.WithName("in-use"))
	if err != nil {
		return nil, err
	}
	if err := o.tenants.register(ctx, mgr, l, uses.Platform, recorder, clock, log.WithName("tenants")); err != nil {
		return nil, err
	}
	hooks, others := o.apis.webhooks()
	webhooks.Register(mgr.GetWebhookServer(), webhooks.Options{
		Ledger: l, APIs: append(hooks, o.tenants.webhookAPIs()...), Others: others, Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Stopping: ctx.Done(), Identity: identity, Peers: peers,
		Metrics: review.NewMetrics(metrics.Registry), Clusters: watcher, Tenants: o.tenants.enabled, Log: log.WithName("webhooks"),
	})
	err = mgr.Add(flow.OnEveryReplica(func(ctx context.Context) error { return feed.DecideMoves(ctx, watcher, log.WithName("clusters")) }))
	if err != nil {
		return nil, err
	}
	probes.SetLedger(l)
	return l, mgr.Add(flow.OnEveryReplica(func(ctx context.Context) error {
		if !feed.Synced(ctx) {
			return nil
		}
		filled()
		if !watcher.Known(ctx) {
			return nil
		}
		uses.Await(ctx)
		if err := l.Run(ctx, feed); err != nil {
			return err
		}
		flushHistory(ctx, recorded)
		delay := time.NewTimer(o.shutdownDelay) // the journal is handed over by now
		defer delay.Stop()
		<-delay.C
		return nil
	}))
}

// watchAddressesInUse adds the watches of the addresses that Nodes, Machines and Services
// of the cluster use.
func watchAddressesInUse(ctx context.Context, mgr manager.Manager, o *options, l *ledger.Ledger, recorder record.EventRecorder, log logr.Logger) (*inuse.Watcher, error) {
	cluster, err := platform.NewCluster(mgr)
	if err != nil {
		return nil, err
	}
	if err := mgr.Add(cluster.Cache); err != nil {
		return nil, err
	}
	return inuse.Register(ctx, mgr, inuse.Options{Ledger: l, Platform: cluster, NetworkPools: o.apis.has("butler"), Recorder: recorder, Log: log})
}

// flushHistory stores the pending history records of this replica in AllocationHistories
// before the process ends. The rights are in config/rbac/history_role.yaml.
func flushHistory(ctx context.Context, recorded *history.Recorder) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopLimit/2)
	defer cancel()
	recorded.Flush(ctx)
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
