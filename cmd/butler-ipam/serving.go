package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	stdlog "log"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"butlerlabs.dev/ipam/webhooks/certificates"
	"butlerlabs.dev/ipam/webhooks/connections"
)

const (
	// headerTimeout is for the handshake, and for the headers of a request; requestTimeout for these and the body; answerTimeout for all of a call, which
	// the API server gives up after 30 s.
	headerTimeout  = 10 * time.Second
	requestTimeout = 15 * time.Second
	answerTimeout  = 45 * time.Second
	maxHeader      = 16 << 10
	// idleTimeout is longer than the 90 s for which the API server keeps a connection: the side that sends must be the one to close,
	// else a call may meet the closing.
	idleTimeout = 5 * time.Minute
	// drainLimit is how long calls may still take when the server ends. By then they are all answered "ask another replica"; without
	// a limit, connections that never carried a call would hold the process for five seconds.
	drainLimit = 500 * time.Millisecond
)

// webhookServer is controller-runtime's, but for how it serves: over HTTP/1.1 only, since over HTTP/2 the API server would keep to the one
// connection that it has, and "ask another replica" would come back to this one.
type webhookServer struct {
	*webhook.DefaultServer
	address      string
	clients      *x509.CertPool // nil where any client may call
	certificates certificates.Source
	log          logr.Logger
	serving      atomic.Bool
	now          func() time.Time // by which certificates are judged
}

func newWebhookServer(o *options, source certificates.Source, log logr.Logger) (*webhookServer, error) {
	s := &webhookServer{DefaultServer: &webhook.DefaultServer{}, address: o.webhookBind, certificates: source, log: log, now: time.Now}
	if o.clientCA == "" {
		return s, nil
	}
	pem, err := os.ReadFile(o.clientCA)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	s.clients = x509.NewCertPool()
	if !s.clients.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--webhook-client-ca %s holds no certificate in PEM", o.clientCA)
	}
	return s, nil
}

// Start implements webhook.Server.
func (s *webhookServer) Start(ctx context.Context) error {
	config := &tls.Config{GetCertificate: s.certificates.GetCertificate}
	overHTTP1(config)
	if s.clients != nil {
		config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, s.verifyClient
	}
	listener, err := tls.Listen("tcp", s.address, config)
	if err != nil {
		return err
	}
	kept := connections.New(connections.Limit)
	server := &http.Server{
		Handler: s.WebhookMux(), ReadHeaderTimeout: headerTimeout, ReadTimeout: requestTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnState: kept.Note, ConnContext: kept.Context, ErrorLog: stdlog.New(connectionLog{s.log}, "", 0),
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		s.serving.Store(false)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
		defer cancel()
		_ = listener.Close() // by now nobody should come
		kept.Dismiss(limit)
		if server.Shutdown(limit) != nil {
			_ = server.Close() // what it closes has had its time
		}
	}()
	s.serving.Store(true)
	s.log.Info("Serving webhooks", "address", listener.Addr().String(), "clientsVerified", s.clients != nil)
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	<-drained
	return nil
}

func overHTTP1(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
	c.MinVersion = tls.VersionTLS12
}

// StartedChecker implements webhook.Server: calls are taken, and the certificate is one that the API server can accept now.
func (s *webhookServer) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		if err := s.served(r); err != nil {
			return err
		}
		certificate, err := s.certificates.GetCertificate(nil)
		if err != nil {
			return err
		}
		return validAt(certificate.Leaf, s.now())
	}
}

// served tells whether calls are taken, whatever the certificate.
func (s *webhookServer) served(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the webhooks are not served")
	}
	return nil
}

func validAt(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate of the webhooks is not valid before %s: check the clock", c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate of the webhooks has expired at %s: renew it", c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// connectionLog takes what the server says of connections that came to nothing: port scans, probes, clients without certificate.
type connectionLog struct{ log logr.Logger }

func (l connectionLog) Write(line []byte) (int, error) {
	l.log.V(1).Info("Connection failed", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
