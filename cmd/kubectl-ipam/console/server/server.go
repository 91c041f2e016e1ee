// Package server serves the pages of package console to several persons. Each person sees
// the names of the objects that the person may list.
//
//	request with a token ──▶ gate: TokenReview, SubjectAccessReviews ──▶ pages about an Inventory restricted to the person's scope
//
// The program watches pools and claims with its own rights, the viewer roles. It has no
// right to write, to read Secrets, or to impersonate.
package server

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"

	"butlerlabs.dev/ipam/cmd/kubectl-ipam/cluster"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/console"
	"butlerlabs.dev/ipam/cmd/kubectl-ipam/inventory"
)

const (
	// headerTimeout, writeTimeout, idleTimeout and maxHeader bound a request. The token
	// of a service account has about 1,000 bytes.
	headerTimeout = 5 * time.Second
	writeTimeout  = time.Minute
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
	// stopTimeout bounds the responses in progress after ctx ends.
	stopTimeout = 10 * time.Second
	// retryRead is the period of retries until the cluster can be read, for example until
	// an API of Butler IPAM is installed.
	retryRead = 10 * time.Second
)

// Options are the addresses and the certificate of the server.
type Options struct {
	Bind      string // host:port of the pages, HTTPS
	ProbeBind string // host:port of /healthz and /readyz, HTTP
	CertDir   string // folder of tls.crt and tls.key; changed files are read again
	Version   string // version of the program
	Log       logr.Logger
}

// Run serves the pages and the probes until ctx ends.
func Run(ctx context.Context, kube *rest.Config, o Options) error {
	kube = cluster.Configure(rest.CopyConfig(kube), "butler-ipam-console/"+o.Version)
	certificate, err := certwatcher.New(filepath.Join(o.CertDir, "tls.crt"), filepath.Join(o.CertDir, "tls.key"))
	if err != nil {
		return fmt.Errorf("--cert-dir=%s: %w", o.CertDir, err)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var ready atomic.Bool
	ended := make(chan error, 3)
	go func() { ended <- certificate.Start(ctx) }()
	go func() { ended <- serveProbes(ctx, o.ProbeBind, &ready) }()
	handler, err := newHandler(ctx, kube, o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", o.Bind)
	if err != nil {
		return fmt.Errorf("--bind-address=%s: %w", o.Bind, err)
	}
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, ReadTimeout: headerTimeout, WriteTimeout: writeTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		TLSConfig: &tls.Config{GetCertificate: certificate.GetCertificate, MinVersion: tls.VersionTLS12},
		ErrorLog:  zap.NewStdLog(zap.NewNop()), // drops the errors of broken handshakes, such as those of port scans
	}
	go func() { ended <- server.ServeTLS(listener, "", "") }()
	o.Log.Info("Serving", "version", o.Version, "address", listener.Addr().String())
	ready.Store(true)
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	ready.Store(false)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	return errors.Join(err, server.Shutdown(stopping))
}

// newHandler returns the pages behind the gate. It waits until pools and claims have been
// read once, or until ctx ends.
func newHandler(ctx context.Context, kube *rest.Config, o Options) (http.Handler, error) {
	warn := func(format string, values ...any) {
		o.Log.Info("Reading the cluster", "warning", fmt.Sprintf(format, values...))
	}
	read := cluster.Options{Config: kube, User: "the console", Now: time.Now, Warn: warn}
	var feed *cluster.Feed
	for {
		var err error
		feed, err = cluster.Watch(ctx, read)
		if err == nil {
			break
		}
		o.Log.Error(err, "Reading the cluster")
		select {
		case <-ctx.Done():
			return http.NotFoundHandler(), nil
		case <-time.After(retryRead):
		}
	}
	events, err := cluster.WatchEvents(ctx, read)
	if err != nil {
		return nil, err
	}
	tenants, err := cluster.WatchTenants(ctx, read)
	if err != nil {
		return nil, err
	}
	tenantOf := func(ctx context.Context, namespace, name string) inventory.Tenant {
		return tenants.Tenant(readerOf(ctx).scope, namespace, name)
	}
	pages := console.New(console.Options{View: viewOf(feed), Events: eventsOf(events), Tenant: tenantOf, Now: time.Now, Version: o.Version})
	return newGate(pages, kube, o.Log)
}

// viewOf returns a function that returns the view of the reader of a request. The view
// contains the names of the objects that the reader may list.
func viewOf(feed *cluster.Feed) func(context.Context) (console.View, error) {
	return func(ctx context.Context) (console.View, error) {
		r := readerOf(ctx)
		i, warnings, err := feed.Inventory(ctx, r.scope)
		current, cause := feed.Outdated()
		return console.View{Inventory: i, Warnings: warnings, Current: current, Cause: cause, Namespace: r.namespace, ChooseNamespace: r.limited}, err
	}
}

// eventsOf returns a function that returns the events about a pool that the reader of a
// request may list.
func eventsOf(feed *cluster.EventFeed) func(context.Context, *inventory.Pool) ([]inventory.Event, string) {
	return func(ctx context.Context, p *inventory.Pool) ([]inventory.Event, string) {
		return feed.Events(readerOf(ctx).scope, p)
	}
}

// serveProbes serves /healthz and /readyz until ctx ends.
func serveProbes(ctx context.Context, address string, ready *atomic.Bool) error {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if !ready.Load() {
			http.Error(w, "pools and claims have not been read yet", http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: headerTimeout, MaxHeaderBytes: maxHeader}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
