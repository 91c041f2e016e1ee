package sandbox

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority is the one CA of a sandbox: it signs what servers show and what clients show, and lives only in memory.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return selfSigned(key)
}

// renewed is the authority with another certificate and the key that it has.
func (a *authority) renewed() (*authority, error) { return selfSigned(a.key) }

func selfSigned(key *ecdsa.PrivateKey) (*authority, error) {
	template, err := certificateTemplate(pkix.Name{CommonName: "sandbox"})
	if err != nil {
		return nil, err
	}
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, key: key, pem: pemBlock("CERTIFICATE", der)}, nil
}

// server issues a certificate for 127.0.0.1, localhost and the names given, usable on either side of a connection
// (etcd shows the same one to its own peers).
func (a *authority) server(names ...string) (certificate, key []byte, err error) {
	template, err := certificateTemplate(pkix.Name{CommonName: "localhost"})
	if err != nil {
		return nil, nil, err
	}
	template.DNSNames = append([]string{"localhost"}, names...)
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

// client issues a certificate by which the API server knows a user and its groups.
func (a *authority) client(user string, groups ...string) (certificate, key []byte, err error) {
	template, err := certificateTemplate(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return nil, nil, err
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(template)
}

func (a *authority) issue(template *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return pemBlock("CERTIFICATE", der), pemBlock("EC PRIVATE KEY", keyDER), nil
}

func certificateTemplate(subject pkix.Name) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      subject,
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}, nil
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// writePKI writes into dir what the servers read: ca.crt (once more beside the webhooks' pair, as cert-manager does), the key pairs
// etcd, apiserver and webhook/tls, and service-account.key.
func (a *authority) writePKI(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, "webhook"), 0o700); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(dir, "ca.crt"), a.pem); err != nil {
		return err
	}
	if err := a.writeWebhookPair(filepath.Join(dir, "webhook")); err != nil {
		return err
	}
	if err := a.writePair(filepath.Join(dir, "etcd")); err != nil {
		return err
	}
	if err := a.writePair(filepath.Join(dir, "apiserver"), "kubernetes.default.svc"); err != nil {
		return err
	}
	_, key, err := a.server()
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, "service-account.key"), key)
}

// writeWebhookPair writes the webhooks' key pair, and the authority beside it, as cert-manager does.
func (a *authority) writeWebhookPair(dir string) error {
	if err := writeFile(filepath.Join(dir, "ca.crt"), a.pem); err != nil {
		return err
	}
	return a.writePair(filepath.Join(dir, "tls"), webhookService+"."+ManagerNamespace+".svc")
}

// writePair writes a new key pair into name.crt and name.key.
func (a *authority) writePair(name string, dns ...string) error {
	certificate, key, err := a.server(dns...)
	if err != nil {
		return err
	}
	if err := writeFile(name+".crt", certificate); err != nil {
		return err
	}
	return writeFile(name+".key", key)
}

// RenewAuthority gives the authority of the webhooks another certificate with the same key, as cert-manager does with the one that the chart
// installs, and tells the API server. Managers have their certificates of the former one until RenewCertificate.
func (s *Sandbox) RenewAuthority(ctx context.Context) error {
	renewed, err := s.webhookAuthority().renewed()
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.webhooks = renewed
	s.mu.Unlock()
	return s.InstallWebhooks(ctx)
}

// RenewCertificate gives one manager another certificate, as a kubelet does that sees a renewed Secret.
func (s *Sandbox) RenewCertificate(m *Manager) error {
	return s.webhookAuthority().writeWebhookPair(m.certDir)
}

// webhookAuthority signs the certificates of the managers.
func (s *Sandbox) webhookAuthority() *authority {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.webhooks != nil {
		return s.webhooks
	}
	return s.authority
}
