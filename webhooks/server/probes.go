package server

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"

	"butlerlabs.dev/ipam/webhooks/certificates"
)

// Probes serves /healthz and /readyz. With controller-runtime's probes a check either
// passes or fails. Two conditions need a third outcome:
//
//	the certificate is not renewed    must not restart a replica whose certificate is still valid
//	an API cannot be read             must not keep the replica from serving the other APIs
//
// /readyz?verbose lists such conditions as warnings, and the check passes.
type Probes struct {
	healthy, ready healthz.Handler
	renewal        certificates.Renewal  // nil: no renewal is monitored
	startup        atomic.Pointer[error] // why the startup waits for the API server; nil after the wait
	ledger         atomic.Pointer[LedgerState]
}

// LedgerState is the part of the ledger that the probes report.
type LedgerState interface {
	Ready() error
	Warnings() []string
}

var errStartupPending = errors.New("the API server has not been contacted yet")

// NewProbes returns the probes of a manager that waits for the API server. Additional
// readiness checks are keyed by name.
func NewProbes(server *Server, renewal certificates.Renewal, additional map[string]healthz.Checker, log logr.Logger) *Probes {
	p := &Probes{renewal: renewal}
	p.startup.Store(&errStartupPending)
	p.healthy.Checks = map[string]healthz.Checker{"webhooks": func(r *http.Request) error {
		if p.startup.Load() != nil {
			return nil // a restart would not help
		}
		return server.checkServing(r) // a restart would not help against a missing or expired certificate either: a new one is loaded at once
	}}
	p.ready.Checks = map[string]healthz.Checker{"webhooks": server.StartedChecker(), "ledger": p.checkLedger, "apiserver": p.checkStartup}
	for name, check := range additional {
		p.ready.Checks[name] = check
	}
	for name, check := range p.ready.Checks {
		p.ready.Checks[name] = withChangeLog(check, log.WithValues("check", name))
	}
	return p
}

// SetStartup records why the startup waits for the API server; nil ends the wait.
func (p *Probes) SetStartup(reason error) {
	if reason == nil {
		p.startup.Store(nil)
		return
	}
	p.startup.Store(&reason)
}

// SetLedger makes the readiness of the ledger part of /readyz.
func (p *Probes) SetLedger(l LedgerState) { p.ledger.Store(&l) }

func (p *Probes) checkLedger(*http.Request) error {
	if l := p.ledger.Load(); l != nil {
		return (*l).Ready()
	}
	return errors.New("waits for the API server")
}

func (p *Probes) checkStartup(*http.Request) error {
	if reason := p.startup.Load(); reason != nil {
		return *reason
	}
	return nil
}

// withChangeLog logs each change of a check's result.
func withChangeLog(check healthz.Checker, log logr.Logger) healthz.Checker {
	var last atomic.Value
	last.Store("")
	return func(r *http.Request) error {
		err := check(r)
		reason := ""
		if err != nil {
			reason = err.Error()
		}
		if changed := last.Swap(reason) != reason; changed && err != nil {
			log.Info("Not ready", "why", reason)
		} else if changed {
			log.Info("Ready")
		}
		return err
	}
}

// ListenAndServe starts to serve the probes and returns. The probes are served until the
// process ends. Address "0" disables the probes.
func (p *Probes) ListenAndServe(address string, log logr.Logger) error {
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
		mux.Handle(path+"/", h) // single checks: /readyz/NAME
	}
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}
	go func() { log.Error(server.Serve(listener), "Probes are no longer served") }()
	return nil
}

func (p *Probes) serveReady(w http.ResponseWriter, r *http.Request) {
	p.ready.ServeHTTP(w, r)
	if _, verbose := r.URL.Query()["verbose"]; !verbose {
		return
	}
	var warnings []string
	if l := p.ledger.Load(); l != nil {
		warnings = (*l).Warnings()
	}
	if p.renewal != nil {
		if problem, _ := p.renewal.Trouble(); problem != "" {
			warnings = append(warnings, problem)
		}
	}
	for _, text := range warnings {
		fmt.Fprintf(w, "warn: %s\n", text)
	}
}
