package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/manager/signals"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"butlerlabs.dev/ipam/reconcilers"
	"butlerlabs.dev/ipam/reconcilers/apiserver"
	"butlerlabs.dev/ipam/reconcilers/clusters"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/informers"
	"butlerlabs.dev/ipam/webhooks/certificates"
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
	p, err := newParts(ctx, mgr, o, clock, log)
	if err != nil {
		return err
	}
	if err := p.registerReconcilers(ctx); err != nil {
		return err
	}
	p.registerWebhooks(ctx, server.NewPeerClient(hooks))
	probes.SetLedger(p.ledger)
	if err := mgr.Add(flow.OnEveryReplica(func(ctx context.Context) error { return p.runLedger(ctx, filled) })); err != nil {
		return err
	}
	if len(o.apis) < len(switchedOn) {
		if err := mgr.Add(clusters.RestartWhenInstalled(missing, p.ledger.MayGrant, end, log)); err != nil {
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
