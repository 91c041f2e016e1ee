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
	"butlerlabs.dev/ipam/reconcilers/informers"
	"butlerlabs.dev/ipam/reconcilers/records"
	"butlerlabs.dev/ipam/reconcilers/services"
	"butlerlabs.dev/ipam/reconcilers/work"
	"butlerlabs.dev/ipam/webhooks"
	"butlerlabs.dev/ipam/webhooks/certificates"
	"butlerlabs.dev/ipam/webhooks/servertime"
)

// version is set when the binary is built.
var version = "dev"

// takeOverAfter is how long the journal's holder may be silent before another replica takes its place.
const takeOverAfter = 4 * time.Second

// stopLimit bounds how long the process takes to stop, the shutdown delay not counted.
const stopLimit = 10 * time.Second

func main() {
	o, err := parse(os.Args[1:], os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fmt.Fprintln(os.Stderr, "butler-ipam:", strings.ReplaceAll(err.Error(), "\n", "\nbutler-ipam: "))
		os.Exit(2)
	case o.version:
		fmt.Println(version)
		return
	}
	log, err := newLogger(o.logFormat, o.logLevel)
	if err != nil {
		fmt.Fprintln(os.Stderr, "butler-ipam:", err)
		os.Exit(2)
	}
	ctrllog.SetLogger(log)
	klog.SetLogger(log.WithName("client-go"))
	setPings()
	ctx := signals.SetupSignalHandler()
	limitMemory(ctx, log.WithName("memory"))
	if err := run(ctx, o, log); err != nil {
		log.Error(err, "Ended")
		os.Exit(1)
	}
}

// run serves until it is told to stop. Before its informers are filled it has nothing to hand over, and stops at once: whoever waits for an API
// server that says nothing is not told, and controller-runtime waits for its informers, whatever it is told.
func run(ctx context.Context, o *options, log logr.Logger) error {
	filled, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- manage(ctx, o, log, func() { close(filled) }) }()
	select {
	case <-filled:
	case err := <-ended:
		return err
	case <-ctx.Done():
		log.Info("Told to stop before anything was served")
		return nil
	}
	return <-ended
}

// manage is what the process does. It calls filled, once, when its informers are.
func manage(ctx context.Context, o *options, log logr.Logger, filled func()) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	kube, err := config.GetConfig()
	if err != nil {
		return err
	}
	kube.UserAgent = "butler-ipam/" + version
	kube.QPS = -1 // a write held back here is an allocation that is not Ready: the API server's own fairness decides
	reach(kube)
	clock := servertime.New(now)
	kube.Wrap(clock.Wrap)
	certs, err := newCertificates(o, kube, clock, log.WithName("certificates"))
	if err != nil {
		return err
	}
	server, err := newWebhookServer(o, certs.source, log.WithName("webhooks"))
	if err != nil {
		return err
	}
	server.now = clock.Now
	metrics.Registry.MustRegister(certificateMetrics{certs.source, certs.renewal})
	checks := newProbes(server, certs, log)
	if err := checks.serve(o.probeBind, log); err != nil {
		return err
	}
	apiServer, err := discovery.NewDiscoveryClientForConfig(kube)
	if err != nil {
		return err
	}
	switchedOn := o.apis
	if err := awaitAPIServer(ctx, apiServer, switchedOn.except(clusterAPI), o.grantLife, checks, log); err != nil {
		return err
	}
	late := &latecomer{switchedOn.named(clusterAPI), apiServer, log}
	if o.apis, err = late.without(switchedOn); err != nil {
		return err
	}
	mgr, err := newManager(kube, o, server, certs, log)
	if err != nil {
		return err
	}
	l, err := wire(ctx, mgr, o, newPeerClient(server), clock, checks, filled, log)
	if err != nil {
		return err
	}
	if len(o.apis) < len(switchedOn) {
		if err := mgr.Add(late.awaited(l, end)); err != nil {
			return err
		}
	}
	if err := certs.setUp(mgr); err != nil {
		return err
	}
	log.Info("Starting", "version", version, "identity", o.identity, "address", o.advertise)
	return mgr.Start(ctx)
}

func newManager(kube *rest.Config, o *options, server *webhookServer, certs certificateParts, log logr.Logger) (manager.Manager, error) {
	scheme := runtime.NewScheme()
	if err := certificates.AddToScheme(scheme); err != nil {
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
			ByObject:                    certs.caches(),
			DefaultTransform:            cache.TransformStripManagedFields(), // nobody here reads them, and they are half of an object
			ReaderFailOnMissingInformer: true,                                // a read of another kind would watch all of it, unasked
			NewInformer:                 informers.New(log, reconcilers.Objects(counted...)...),
		},
		Metrics:                 metricsOptions(o, certs.source),
		PprofBindAddress:        o.pprofBind,
		WebhookServer:           server,
		NewClient:               newWriter,
		GracefulShutdownTimeout: &stop,
	})
}

// newWriter makes the client of the reconcilers.
func newWriter(kube *rest.Config, options client.Options) (client.Client, error) {
	kube = forCalls(kube)
	kube.Timeout = callLimit
	kube.WarningHandlerWithContext = contractual{ctrllog.NewKubeAPIWarningLogger(ctrllog.KubeAPIWarningLoggerOptions{})}
	over, err := rest.HTTPClientFor(kube)
	if err != nil {
		return nil, err
	}
	options.HTTPClient = over
	return client.New(kube, options)
}

// wire puts the parts together around a ledger. What one of them needs of another it gets here.
func wire(ctx context.Context, mgr manager.Manager, o *options, peers *http.Client, clock *servertime.Clock, checks *probes, filled func(), log logr.Logger) (*ledger.Ledger, error) {
	store, err := journal.NewLeaseStore(forCalls(mgr.GetConfig()), o.namespace, takeOverAfter)
	if err != nil {
		return nil, err
	}
	store.Now = clock.Now
	identity := journal.NewIdentity(o.identity, o.advertise)
	served, unserved := o.apis.reconcilers(), allAPIs.without(o.apis)
	claimKinds, poolKinds := allAPIs.kinds()
	changes, forServices := reconcilers.NewChanges(served...), services.New()
	ledgerMetrics := ledger.NewMetrics(metrics.Registry)
	l := ledger.New(ledger.Config{
		Store:      store,
		Identity:   identity,
		ClaimKinds: claimKinds,
		PoolKinds:  poolKinds,
		Unserved:   slices.Concat(unserved.kinds()),
		GrantLife:  o.grantLife,
		Timing:     journal.Timing{Expiry: takeOverAfter},
		Metrics:    ledgerMetrics,
		Log:        log.WithName("ledger"),
		Now:        now,
		Skew:       func() time.Duration { by, _ := clock.Ahead(); return by },
		Changed:    func(keys []ledger.Key) { changes.Notify(keys); forServices.Notify(keys) },
	})
	feed, err := reconcilers.NewFeed(ctx, mgr, l, served...)
	if err != nil {
		return nil, err
	}
	if err := feed.Count(ctx, mgr, unserved.reconcilers()...); err != nil {
		return nil, err
	}
	moved, err := newRecords(mgr, o.namespace)
	if err != nil {
		return nil, err
	}
	feed.Keep(moved)
	recorder, err := newRecorder(ctx, mgr)
	if err != nil {
		return nil, err
	}
	var clusters *reconcilers.Clusters
	if o.apis.haveClusters() {
		if clusters, err = reconcilers.NewClusters(mgr.GetConfig(), log.WithName("clusters")); err != nil {
			return nil, err
		}
		if err := mgr.Add(clusters); err != nil {
			return nil, err
		}
	}
	err = reconcilers.Register(ctx, mgr, reconcilers.Options{
		Ledger: l, APIs: served, Metrics: ledgerMetrics, Changes: changes, Recorder: recorder, Now: now, Wall: clock.Now, Registry: metrics.Registry, Clusters: clusters, Records: moved,
		OrphanAge: o.orphanGrace,
	})
	if err != nil {
		return nil, err
	}
	if o.serviceVIPs {
		if err := forServices.Register(mgr, l.Serving, recorder, o.orphanGrace); err != nil {
			return nil, err
		}
	}
	if err := o.tenants.register(ctx, mgr, l, recorder, clock, log.WithName("tenants")); err != nil {
		return nil, err
	}
	hooks, others := o.apis.webhooks()
	webhooks.Register(mgr.GetWebhookServer(), webhooks.Options{
		Ledger: l, APIs: append(hooks, o.tenants.webhooks()...), Others: others, Cached: mgr.GetCache(), Live: mgr.GetAPIReader(), Stopping: ctx.Done(), Identity: identity, Peers: peers,
		Metrics: webhooks.NewMetrics(metrics.Registry), Clusters: clusters, Tenants: o.tenants.on, Log: log.WithName("webhooks"),
	})
	err = mgr.Add(work.Everywhere(func(ctx context.Context) error { return feed.DecideMoved(ctx, clusters, log.WithName("clusters")) }))
	if err != nil {
		return nil, err
	}
	checks.ledger.Store(l)
	return l, mgr.Add(work.Everywhere(func(ctx context.Context) error {
		if !feed.Synced(ctx) {
			return nil
		}
		filled()
		if !clusters.Known(ctx) {
			return nil
		}
		if err := l.Run(ctx, feed); err != nil {
			return err
		}
		delay := time.NewTimer(o.shutdownDelay) // the journal is handed over
		defer delay.Stop()
		<-delay.C
		return nil
	}))
}

// newRecords keeps records in the manager's own namespace. The right to that is in config/rbac/journal_role.yaml.
func newRecords(mgr manager.Manager, namespace string) (*records.Store, error) {
	kube := forCalls(mgr.GetConfig())
	kube.Timeout = callLimit
	client, err := corev1client.NewForConfig(kube)
	if err != nil {
		return nil, err
	}
	return records.New(client, namespace), nil
}

// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// newRecorder writes events one at a time: under load they wait, and are dropped before they hold up anything else.
func newRecorder(ctx context.Context, mgr manager.Manager) (record.EventRecorder, error) {
	client, err := corev1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.Events("")})
	return broadcaster.NewRecorder(mgr.GetScheme(), corev1.EventSource{Component: "butler-ipam"}), nil
}
