package sandbox

import (
	"context"
	"os"
	"path/filepath"

	"butlerlabs.dev/ipam/test/pki"
)

// writePKI writes the files that the servers read into dir: ca.crt (a copy lies beside
// the webhooks' pair, as with cert-manager), the key pairs etcd, apiserver and
// webhook/tls, and service-account.key.
func writePKI(a *pki.Authority, dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "webhook"), 0o700); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "ca.crt"), a.PEM); err != nil {
		return err
	}
	if err := writeWebhookPair(a, filepath.Join(dir, "webhook")); err != nil {
		return err
	}
	if err := writePair(a, filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	if err := writePair(a, filepath.Join(dir, "apiserver"), "kubernetes.default.svc"); err != nil {
		return err
	}
	_, key, err := a.Server()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "service-account.key"), key)
}

// writeWebhookPair writes the webhooks' key pair and the authority's certificate side by
// side, like cert-manager.
func writeWebhookPair(a *pki.Authority, dir string) error {
	if err := writeFile(filepath.Join(dir, "ca.crt"), a.PEM); err != nil {
		return err
	}
	return writePair(a, filepath.Join(dir, "tls"), webhookService+"."+ManagerNamespace+".svc")
}

// writePair writes a new key pair into name.crt and name.key.
func writePair(a *pki.Authority, name string, dns ...string) error {
	certificate, key, err := a.Server(dns...)
	if err != nil {
		return err
	}
	if err := writeFile(name+".crt", certificate); err != nil {
		return err
	}
	return writeFile(name+".key", key)
}

// RenewAuthority replaces the certificate of the webhooks' authority by a new certificate
// with the same key, as cert-manager renews the authority that the chart installs, and
// configures the API server accordingly. Managers keep their certificates, signed by the
// former authority, until RenewCertificate.
func (s *Sandbox) RenewAuthority(ctx context.Context) error {
	renewed, err := s.webhookAuthority().Renewed()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.webhooks = renewed
	s.mu.Unlock()
	return s.InstallWebhooks(ctx)
}

// RenewCertificate replaces the certificate of one manager, like a kubelet that observes
// a renewed Secret.
func (s *Sandbox) RenewCertificate(m *Manager) error {
	return writeWebhookPair(s.webhookAuthority(), m.certDir)
}

// webhookAuthority returns the authority that signs the certificates of the managers.
func (s *Sandbox) webhookAuthority() *pki.Authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.webhooks != nil {
		return s.webhooks
	}
	return s.authority
}
