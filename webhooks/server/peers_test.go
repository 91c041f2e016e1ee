package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"butlerlabs.dev/ipam/webhooks/certificates"
)

// Files in --webhook-cert-dir.
const (
	certName = "tls.crt"
	keyName  = "tls.key"
	caName   = "ca.crt"
)

// host is whom the certificates of these tests are for.
const host = "webhook.ipam.svc"

// authority signs certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.key, a.certificate = (*authority)(nil).sign(t, &x509.Certificate{Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true})
	return a
}

// sign makes a certificate for an hour; with no authority it signs itself.
func (a *authority) sign(t *testing.T, template *x509.Certificate) (*ecdsa.PrivateKey, *x509.Certificate) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber, template.NotBefore, template.NotAfter = big.NewInt(1), time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	if a == nil {
		a = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return key, certificate
}

// writePair writes a serving certificate with its key into a directory, which it gives
// back. With no authority it signs itself.
func (a *authority) writePair(t *testing.T, dir, host string) string {
	t.Helper()
	key, certificate := a.sign(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "webhook"}, DNSNames: []string{host}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	})
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, filepath.Join(dir, certName), "CERTIFICATE", certificate.Raw)
	writePEM(t, filepath.Join(dir, keyName), "PRIVATE KEY", private)
	return dir
}

// writePair writes a self-signed serving certificate with its key into a directory of its
// own.
func writePair(t *testing.T) (dir string) {
	t.Helper()
	return (*authority)(nil).writePair(t, t.TempDir(), host)
}

// trusted has the directory's replica trust an authority.
func (a *authority) trusted(t *testing.T, dir string) {
	t.Helper()
	writePEM(t, filepath.Join(dir, caName), "CERTIFICATE", a.certificate.Raw)
}

func writePEM(t *testing.T, path, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// files are the certificates of a directory.
func files(t *testing.T, dir string) *certificates.Files {
	t.Helper()
	f, err := certificates.NewFiles(dir)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// peerWith is the client by which a replica with a directory's certificates asks others.
func peerWith(t *testing.T, dir string) *http.Client {
	t.Helper()
	server, err := New(Config{Certificates: files(t, dir), Now: time.Now, Log: logr.Discard()})
	if err != nil {
		t.Fatal(err)
	}
	return NewPeerClient(server)
}

// reaches says whether a call is answered.
func reaches(client *http.Client, c Config) error {
	response, err := client.Get("https://" + c.Address + "/")
	if err == nil {
		response.Body.Close()
	}
	return err
}

func TestPeers_AuthenticateByCertificate(t *testing.T) {
	own, other := writePair(t), writePair(t)
	// The API server's CA is another one altogether.
	c := testConfig(t, own)
	c.ClientCA = filepath.Join(writePair(t), certName)
	defer serve(t, c)()
	if err := reaches(peerWith(t, own), c); err != nil {
		t.Errorf("a peer is not let in: %v", err)
	}
	if reaches(peerWith(t, other), c) == nil {
		t.Error("a stranger was let in")
	}
	// Whoever trusts the certificate but shows one of his own is sent away.
	trusted, err := os.ReadFile(filepath.Join(own, certName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, caName), trusted, 0o600); err != nil {
		t.Fatal(err)
	}
	if reaches(peerWith(t, other), c) == nil {
		t.Error("a client with a certificate of its own was let in")
	}
}

// Replicas get their new files at different times.
func TestPeers_AuthenticateDuringRenewal(t *testing.T) {
	before, after := newAuthority(t), newAuthority(t)
	server := before.writePair(t, t.TempDir(), host)
	before.trusted(t, server)
	c := testConfig(t, server)
	c.ClientCA = filepath.Join(writePair(t), certName)
	defer serve(t, c)()
	client := func(a *authority, host string) *http.Client {
		dir := a.writePair(t, t.TempDir(), host)
		before.trusted(t, dir)
		return peerWith(t, dir)
	}
	renewed := client(before, host)
	if err := reaches(renewed, c); err != nil {
		t.Errorf("a peer with another certificate of the same authority is not let in: %v", err)
	}
	if reaches(client(before, "registry.ipam.svc"), c) == nil {
		t.Error("a certificate of the same authority for another name was let in")
	}
	if reaches(client(after, host), c) == nil {
		t.Error("a certificate of an authority that is not known here was let in")
	}

	// Another authority comes into the server's directory, and both count.
	after.trusted(t, server)
	if err := reaches(client(after, host), c); err != nil {
		t.Errorf("a peer with a certificate of the new authority is not let in: %v", err)
	}
	renewed.CloseIdleConnections()
	if err := reaches(renewed, c); err != nil {
		t.Errorf("a peer with a certificate of the former authority is not let in any more: %v", err)
	}
}
