// Package pki creates the keys and certificates of a test's control plane. The components
// of the control plane authenticate each other with these certificates.
package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"time"
)

// Authority is a CA that signs certificates of servers and clients. Its key exists only
// in memory.
type Authority struct {
	Certificate *x509.Certificate
	PEM         []byte // of Certificate
	key         *ecdsa.PrivateKey
}

// New creates a CA.
func New(name string) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return selfSigned(name, key)
}

// Renewed returns a CA with a new certificate and the same key.
func (a *Authority) Renewed() (*Authority, error) {
	return selfSigned(a.Certificate.Subject.CommonName, a.key)
}

func selfSigned(name string, key *ecdsa.PrivateKey) (*Authority, error) {
	t, err := template(pkix.Name{CommonName: name})
	if err != nil {
		return nil, err
	}
	t.IsCA, t.BasicConstraintsValid = true, true
	t.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &Authority{Certificate: certificate, PEM: block("CERTIFICATE", der), key: key}, nil
}

// Server issues a certificate for 127.0.0.1, localhost and the given names and addresses.
// It is valid on both sides of a connection, because etcd uses one certificate as server
// and as client of its peers.
func (a *Authority) Server(hosts ...string) (certificate, key []byte, err error) {
	t, err := template(pkix.Name{CommonName: "localhost"})
	if err != nil {
		return nil, nil, err
	}
	for _, host := range append([]string{"localhost", "127.0.0.1"}, hosts...) {
		if ip := net.ParseIP(host); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else {
			t.DNSNames = append(t.DNSNames, host)
		}
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	return a.issue(t)
}

// Client issues a certificate that authenticates a user with groups to an API server.
func (a *Authority) Client(user string, groups ...string) (certificate, key []byte, err error) {
	t, err := template(pkix.Name{CommonName: user, Organization: groups})
	if err != nil {
		return nil, nil, err
	}
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	return a.issue(t)
}

func (a *Authority) issue(t *x509.Certificate) (certificate, key []byte, err error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, t, a.Certificate, private.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		return nil, nil, err
	}
	return block("CERTIFICATE", der), block("EC PRIVATE KEY", keyDER), nil
}

func template(subject pkix.Name) (*x509.Certificate, error) {
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

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
