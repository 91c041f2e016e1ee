package server

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
)

const (
	// bodyTimeout bounds the time to read a body, unless the handler sets a read
	// deadline. answerTimeout bounds the TLS handshake, and a call from its headers to
	// its answer. The API server abandons a call after 30 s.
	bodyTimeout   = 15 * time.Second
	answerTimeout = 45 * time.Second
	maxHeader     = 16 << 10
	// idleTimeout is longer than the 90 s for which the API server keeps an idle
	// connection. The sender must close first: a call sent while the server closes the
	// connection fails. This includes connections that the API server has opened for a
	// burst of calls and not used yet: net/http applies ReadHeaderTimeout to them.
	// Connections bounds the memory of senders that never complete their headers.
	idleTimeout = 5 * time.Minute
	// drainLimit bounds the drain at shutdown. At its begin the contexts of calls at work
	// end, so that a call that waits for the API server is answered with 503: closing its
	// connection would fail the create. Without a limit, connections that never carried a
	// call would delay the end of the process by five seconds.
	drainLimit = 500 * time.Millisecond
)

// Config configures a Server.
type Config struct {
	// Address is the host:port to listen on.
	Address string
	// ClientCA is a file with the CA of client certificates; "" to accept every client.
	ClientCA string
	// Certificates provides the serving certificate and the authorities of peers.
	Certificates certificates.Source
	// Now is the time for checks of certificates.
	Now func() time.Time
	Log logr.Logger
}

// Server is controller-runtime's webhook server with its own Start.
type Server struct {
	*webhook.DefaultServer
	Config
	clients *x509.CertPool // nil: every client is accepted
	serving atomic.Bool
}

// New returns a Server, or an error if ClientCA cannot be read.
func New(c Config) (*Server, error) {
	s := &Server{DefaultServer: &webhook.DefaultServer{}, Config: c}
	if c.ClientCA == "" {
		return s, nil
	}
	pem, err := os.ReadFile(c.ClientCA)
	if err != nil {
		return nil, fmt.Errorf("--webhook-client-ca: %w", err)
	}
	s.clients = x509.NewCertPool()
	if !s.clients.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--webhook-client-ca %s contains no PEM certificate", c.ClientCA)
	}
	return s, nil
}

// Start implements webhook.Server.
func (s *Server) Start(ctx context.Context) error {
	config := &tls.Config{GetCertificate: s.Certificates.GetCertificate}
	RestrictToHTTP1(config)
	if s.clients != nil {
		config.ClientAuth, config.VerifyConnection = tls.RequireAnyClientCert, s.verifyClient
	}
	listener, err := tls.Listen("tcp", s.Address, config)
	if err != nil {
		return err
	}
	connections := NewConnections(ConnectionMemory)
	server := &http.Server{
		Handler: endWith(ctx, boundBody(s.WebhookMux())), ReadHeaderTimeout: idleTimeout, WriteTimeout: answerTimeout, IdleTimeout: idleTimeout,
		MaxHeaderBytes: maxHeader, ConnState: connections.ObserveState, ConnContext: connections.AddContext,
		ErrorLog: stdlog.New(connectionLog{s.Log}, "", 0),
	}
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		<-ctx.Done()
		s.serving.Store(false)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainLimit)
		defer cancel()
		_ = listener.Close() // the shutdown delay is over: Services no longer route to this replica
		connections.Drain(limit)
		if server.Shutdown(limit) != nil {
			_ = server.Close() // drainLimit is over
		}
	}()
	s.serving.Store(true)
	s.Log.Info("Serving webhooks", "address", listener.Addr().String(), "clientsVerified", s.clients != nil)
	if err := server.Serve(listener); ctx.Err() == nil {
		return err
	}
	<-drained
	return nil
}

// endWith ends the context of each request with ctx. BaseContext of http.Server would end
// connections too that have not completed the TLS handshake.
func endWith(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		call, end := context.WithCancel(r.Context())
		defer end()
		defer context.AfterFunc(ctx, end)()
		next.ServeHTTP(w, r.WithContext(call))
	})
}

// boundBody sets a read deadline for the body of each request. ReadTimeout of http.Server
// would count from the begin of a connection's first request, which net/http awaits as
// soon as the connection is open.
func boundBody(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyTimeout)) // connections of http.Server support deadlines
		next.ServeHTTP(w, r)
	})
}

// RestrictToHTTP1 makes a TLS server or client offer HTTP/1.1 only, over TLS 1.2 or
// later.
func RestrictToHTTP1(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
	c.MinVersion = tls.VersionTLS12
}

// StartedChecker implements webhook.Server: the check passes while the server accepts
// calls with a certificate valid at the current time.
func (s *Server) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		if err := s.checkServing(r); err != nil {
			return err
		}
		certificate, err := s.Certificates.GetCertificate(nil)
		if err != nil {
			return err
		}
		return checkValidity(certificate.Leaf, s.Now())
	}
}

// checkServing passes while the server accepts calls, with any certificate.
func (s *Server) checkServing(*http.Request) error {
	if !s.serving.Load() {
		return errors.New("the webhooks are not served")
	}
	return nil
}

func checkValidity(c *x509.Certificate, now time.Time) error {
	switch {
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate of the webhooks is not valid before %s: check the clock", c.NotBefore.Format(time.RFC3339))
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate of the webhooks has expired at %s: renew it", c.NotAfter.Format(time.RFC3339))
	}
	return nil
}

// connectionLog logs connection errors of net/http at debug level: port scans, probes,
// clients without a certificate.
type connectionLog struct{ log logr.Logger }

func (l connectionLog) Write(line []byte) (int, error) {
	l.log.V(1).Info("Connection failed", "error", strings.TrimSpace(string(line)))
	return len(line), nil
}
