package main

import (
	"context"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// caName is the file in --webhook-cert-dir with the CA of the certificate, as cert-manager puts it there.
const caName = "ca.crt"

const (
	peerDialLimit = time.Second
	peerIdle      = 2 * time.Minute // less than the idleTimeout of the server
	peerConns     = 256             // kept open: every call that waits for the journal is one
)

// newPeerClient makes the client by which this replica asks another one. All replicas serve with one certificate: it is what this
// one accepts, and what it shows where the other asks for a client certificate.
func newPeerClient(o *options, s *webhookServer) *http.Client {
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		own, err := s.certificates.GetCertificate(nil)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{RootCAs: peerRoots(o.certDir, own.Leaf), ServerName: serverName(own.Leaf), Certificates: []tls.Certificate{*own}}
		overHTTP1(config)
		dialer := tls.Dialer{NetDialer: &net.Dialer{Timeout: peerDialLimit}, Config: config}
		return dialer.DialContext(ctx, network, address)
	}
	return &http.Client{
		Transport:     &http.Transport{DialTLSContext: dial, MaxIdleConnsPerHost: peerConns, IdleConnTimeout: peerIdle},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// peerRoots trusts the CA beside the certificate, where there is one, and the certificate itself: the files are read anew for every
// connection, so a renewed one counts at once.
func peerRoots(certDir string, own *x509.Certificate) *x509.CertPool {
	roots := x509.NewCertPool()
	if pem, err := os.ReadFile(filepath.Join(certDir, caName)); err == nil {
		roots.AppendCertsFromPEM(pem)
	}
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

// verifyClient accepts the API server, by the CA of its client certificates, and the other replicas, by the certificate that all of
// them serve with.
func (s *webhookServer) verifyClient(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return errors.New("the client shows no certificate")
	}
	leaf := state.PeerCertificates[0]
	own, err := s.certificates.GetCertificate(nil)
	if err == nil && subtle.ConstantTimeCompare(leaf.Raw, own.Leaf.Raw) == 1 {
		return validAt(leaf, time.Now())
	}
	between := x509.NewCertPool()
	for _, c := range state.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err = leaf.Verify(x509.VerifyOptions{Roots: s.clients, Intermediates: between, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("client certificate of %q: %w", leaf.Subject, err)
	}
	return nil
}
