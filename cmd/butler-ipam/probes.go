package main

import (
	"fmt"
	"net"
	"net/http"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/webhooks/certificates"
)

// probes serve /healthz and /readyz as controller-runtime does, which cannot say what is wrong while all is well: that a certificate is not
// renewed must not end a replica whose certificate is still good. So /readyz?verbose says it.
type probes struct {
	healthy, ready healthz.Handler
	renewal        certificates.Renewal // nil where nobody is watched
}

func newProbes(server *webhookServer, certs certificateParts) *probes {
	serve := server.StartedChecker()
	p := &probes{
		healthy: healthz.Handler{Checks: map[string]healthz.Checker{"webhooks": serve}},
		ready:   healthz.Handler{Checks: map[string]healthz.Checker{"webhooks": serve}},
		renewal: certs.renewal,
	}
	if certs.selfManaged != nil {
		p.ready.Checks["authorities"] = certs.selfManaged.Check
	}
	return p
}

// addTo has a manager serve them, before anything else.
func (p *probes) addTo(mgr manager.Manager, address string) error {
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
	return mgr.Add(&manager.Server{
		Name: "probes", Listener: listener, Server: &http.Server{Handler: mux, ReadHeaderTimeout: headerTimeout, IdleTimeout: 90 * time.Second},
	})
}

func (p *probes) serveReady(w http.ResponseWriter, r *http.Request) {
	p.ready.ServeHTTP(w, r)
	if _, verbose := r.URL.Query()["verbose"]; !verbose || p.renewal == nil {
		return
	}
	if trouble, _ := p.renewal.Trouble(); trouble != "" {
		fmt.Fprintf(w, "warn: %s\n", trouble)
	}
}
