package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// writePair writes a self-signed serving certificate with its key into a directory of its own.
func writePair(t *testing.T) (dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "webhook"}, DNSNames: []string{"webhook.ipam.svc"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	for name, block := range map[string]*pem.Block{certName: {Type: "CERTIFICATE", Bytes: certificate}, keyName: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReplicasKnowOneAnotherByTheirCertificate(t *testing.T) {
	own, other := writePair(t), writePair(t)
	// The API server's CA is another one altogether.
	o := &options{webhookBind: freeAddress(t), certDir: own, clientCA: filepath.Join(writePair(t), certName)}
	defer serve(t, o)()
	for name, tc := range map[string]struct {
		dir string
		ok  bool
	}{"a peer": {own, true}, "a stranger": {other, false}} {
		from := &options{certDir: tc.dir}
		side, err := newWebhookServer(from, logr.Discard())
		if err != nil {
			t.Fatal(err)
		}
		response, err := newPeerClient(from, side).Get("https://" + o.webhookBind + "/")
		if (err == nil) != tc.ok {
			t.Errorf("%s: got error %v", name, err)
		}
		if err == nil {
			response.Body.Close()
		}
	}
	// Whoever trusts the certificate but shows none, or one of his own, is sent away.
	side, err := newWebhookServer(&options{certDir: other}, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	trusted, err := os.ReadFile(filepath.Join(own, certName))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(other, caName), trusted, 0o600); err != nil {
		t.Fatal(err)
	}
	if response, err := newPeerClient(&options{certDir: other}, side).Get("https://" + o.webhookBind + "/"); err == nil {
		response.Body.Close()
		t.Error("a client with a certificate of its own was let in")
	}
}
