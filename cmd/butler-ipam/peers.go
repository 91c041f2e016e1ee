package main

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
	peerDialLimit = time.Second
	peerIdle      = 2 * time.Minute // less than the idleTimeout of the server
	peerConns     = 256             // kept open: every call that waits for the journal is one
)

// newPeerClient makes the client by which this replica asks another one. It shows the certificate that it serves with, where the other asks
// for one.
func newPeerClient(s *webhookServer) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		own, err := s.certificates.GetCertificate(nil)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: s.peerRoots(own.Leaf), ServerName: serverName(own.Leaf), Certificates: []tls.Certificate{*own}, Time: s.now}
		overHTTP1(config)
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: peerDialLimit}, Config: config}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Transport:     &http.Transport{DialTLSContext: dial, MaxIdleConnsPerHost: peerConns, IdleConnTimeout: peerIdle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// peerRoots trusts the authorities of the replicas' certificates, and this replica's own certificate: where no authority is known, all have
// the same one. It is made anew for every connection, so a renewed one counts at once.
func (s *webhookServer) peerRoots(own *x509.Certificate) *x509.CertPool {
	roots := s.certificates.Authorities()
	roots.AddCert(own)
	return roots
}

// serverName is one that the certificate is for.
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

// verifyClient accepts the API server, by the CA of its client certificates, and the other replicas, by the name that all of them serve
// under. While a certificate is being renewed they do not all have the same.
func (s *webhookServer) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
	}
	leaf := state.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	if own, err := s.certificates.GetCertificate(nil); err == nil {
		_, err := leaf.Verify(x509.VerifyOptions{
			Roots: s.peerRoots(own.Leaf), Intermediates: between, DNSName: serverName(own.Leaf), CurrentTime: s.now(),
			// Not every issuer gives both.
			KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		})
		if err == nil {
			return nil
		}
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: s.clients, Intermediates: between, CurrentTime: s.now(), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("client certificate of %q: %w", leaf.Subject, err)
	}
	return nil
}
