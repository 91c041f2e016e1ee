package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Names of the files in --webhook-cert-dir.
const (
	certName = "tls.crt"
	keyName  = "tls.key"
)

// newWebhookServer serves HTTP/1.1 only: over HTTP/2 the API server would keep all its calls on the one connection that it has, and
// "ask another replica" would come back to this one.
func newWebhookServer(o *options) (webhook.Server, error) {
	configure := []func(*tls.Config){plainTLS}
	if o.clientCA != "" {
		pem, err := os.ReadFile(o.clientCA)
		if err != nil {
			return nil, fmt.Errorf("--webhook-client-ca: %w", err)
		}
		clients := x509.NewCertPool()
		if !clients.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--webhook-client-ca %s holds no certificate in PEM", o.clientCA)
		}
		configure = append(configure, func(c *tls.Config) {
			c.ClientCAs, c.ClientAuth = clients, tls.RequireAndVerifyClientCert
		})
	}
	return webhook.NewServer(webhook.Options{
		Host: o.webhookHost, Port: o.webhookPort, CertDir: o.certDir, CertName: certName, KeyName: keyName, TLSOpts: configure,
	}), nil
}

func plainTLS(c *tls.Config) {
	c.NextProtos = []string{"http/1.1"}
	c.MinVersion = tls.VersionTLS12
}

// webhooksServe checks that the server accepts calls and that its certificate is valid now.
func webhooksServe(server webhook.Server, certDir string) healthz.Checker {
	started := server.StartedChecker() // it calls the server, which stays once it is there
	var wasStarted atomic.Bool
	return func(r *http.Request) error {
		if !wasStarted.Load() {
			if err := started(r); err != nil {
				return err
			}
			wasStarted.Store(true)
		}
		return certificateValid(certDir, time.Now())
	}
}

func certificateValid(dir string, now time.Time) error {
	path := filepath.Join(dir, certName)
	pair, err := tls.LoadX509KeyPair(path, filepath.Join(dir, keyName))
	switch {
	case err != nil:
		return err
	case now.Before(pair.Leaf.NotBefore):
		return fmt.Errorf("certificate %s is not valid before %s", path, pair.Leaf.NotBefore)
	case now.After(pair.Leaf.NotAfter):
		return fmt.Errorf("certificate %s has expired on %s: renew it", path, pair.Leaf.NotAfter)
	}
	return nil
}
