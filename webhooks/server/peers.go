package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

const (
	peerDialTimeout    = time.Second
	peerIdleTimeout    = 2 * time.Minute // less than idleTimeout of the server
	maxPeerConnections = 256             // idle connections kept open: during a failover every waiting call is forwarded at once
)

// NewPeerClient returns the HTTP client for calls to other replicas. The client presents
// the serving certificate of this replica if the other replica asks for a client
// certificate.
func NewPeerClient(s *Server) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		own, err := s.Certificates.GetCertificate(nil)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: s.peerRoots(own.Leaf), ServerName: serverName(own.Leaf), Certificates: []tls.Certificate{*own}, Time: s.Now}
		RestrictToHTTP1(config)
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: peerDialTimeout}, Config: config}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Transport:     &http.Transport{DialTLSContext: dial, MaxIdleConnsPerHost: maxPeerConnections, IdleConnTimeout: peerIdleTimeout},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// peerRoots returns the authorities of the replicas' certificates and this replica's own
// certificate: without a known authority all replicas share one certificate. The pool is
// built for each connection, so a renewed authority takes effect with the next
// connection.
func (s *Server) peerRoots(own *x509.Certificate) *x509.CertPool {
	roots := s.Certificates.Authorities()
	roots.AddCert(own)
	return roots
}

// serverName returns a name for which the certificate is valid.
func serverName(c *x509.Certificate) string {
	switch {
	case len(c.DNSNames) > 0:
		return c.DNSNames[0]
	case len(c.IPAddresses) > 0:
		return c.IPAddresses[0].String()
	default:
		return c.Subject.CommonName
	}
}

// verifyClient accepts the API server, by the CA of its client certificates, and other
// replicas, by the DNS name in their serving certificates. During a renewal replicas
// serve different certificates for the same name.
func (s *Server) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client presents no certificate")
	}
	leaf := state.PeerCertificates[0]
	intermediates := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		intermediates.AddCert(c)
	}
	if own, err := s.Certificates.GetCertificate(nil); err == nil {
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: s.peerRoots(own.Leaf), Intermediates: intermediates, DNSName: serverName(own.Leaf), CurrentTime: s.Now(),
			// Some issuers set only one of the two usages.
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		if err == nil {
			return nil
		}
	}
	_, err := leaf.Verify(x509.VerifyOptions{
		Roots: s.clients, Intermediates: intermediates, CurrentTime: s.Now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("client certificate of %q: %w", leaf.Subject, err)
	}
	return nil
}
