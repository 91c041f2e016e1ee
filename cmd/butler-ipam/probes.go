package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/webhooks/certificates"
)

// probes serve /healthz and /readyz as controller-runtime does, which cannot say what is wrong while all is well: that a certificate is not
// renewed must not end a replica whose certificate is still good, and that an API cannot be read must not keep it from serving the others. So
// /readyz?verbose says it.
type probes struct {
	healthy, ready healthz.Handler
	renewal        certificates.Renewal  // nil where nobody is watched
	awaited        atomic.Pointer[error] // what the API server lacks yet, see awaitAPIServer; nil once it has it
	ledger         atomic.Pointer[ledger.Ledger]
}

var errNotAsked = errors.New("the API server was not asked yet")

func newProbes(server *webhookServer, certs certificateParts, log logr.Logger) *probes {
	serve := server.StartedChecker()
	p := &probes{renewal: certs.renewal}
	p.awaited.Store(&errNotAsked)
	p.healthy.Checks = map[string]healthz.Checker{"webhooks": func(r *http.Request) error {
		if p.awaited.Load() != nil {
			return nil // to be started again would not help
		}
		return server.served(r) // nor would it against a certificate that is missing or has expired: one that comes is taken in as it is
	}}
	p.ready.Checks = map[string]healthz.Checker{"webhooks": serve, "ledger": func(*http.Request) error {
		if l := p.ledger.Load(); l != nil {
			return l.Ready()
		}
		return errors.New("waits for the API server")
	}, "apiserver": func(*http.Request) error {
		if err := p.awaited.Load(); err != nil {
			return *err
		}
		return nil
	}}
	if certs.selfManaged != nil {
		p.ready.Checks["authorities"] = certs.selfManaged.Check
	}
	for name, check := range p.ready.Checks {
		p.ready.Checks[name] = logged(check, log.WithValues("check", name))
	}
	return p
}

// logged logs each change of what a check answers.
func logged(check healthz.Checker, log logr.Logger) healthz.Checker {
	var last atomic.Value
	last.Store("")
	return func(r *http.Request) error {
		err := check(r)
		why := ""
		if err != nil {
			why = err.Error()
		}
		if changed := last.Swap(why) != why; changed && err != nil {
			log.Info("Not ready", "why", why)
		} else if changed {
			log.Info("Ready")
		}
		return err
	}
}

// serve serves them until the process ends.
func (p *probes) serve(address string, log logr.Logger) error {
	if address == "0" {
		return nil
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("--health-probe-bind-address: %w", err)
	}
	mux := http.NewServeMux()
	for path, h := range map[string]http.Handler{"/healthz": &p.healthy, "/readyz": http.HandlerFunc(p.serveReady)} {
		h = http.StripPrefix(path, h)
		mux.Handle(path, h)
		mux.Handle(path+"/", h) // each check by its name
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: 90 * time.Second}
	go func() { log.Error(server.Serve(listener), "Probes are served no more") }()
	return nil
}

func (p *probes) serveReady(w http.ResponseWriter, r *http.Request) {
	p.ready.ServeHTTP(w, r)
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		return
	}
	var warnings []string
	if l := p.ledger.Load(); l != nil {
		warnings = l.Warnings()
	}
	if p.renewal != nil {
		if trouble, _ := p.renewal.Trouble(); trouble != "" {
			warnings = append(warnings, trouble)
		}
	}
	for _, text := range warnings {
		fmt.Fprintf(w, "warn: %s\n", text)
	}
}
