package certificates

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Source provides the certificate of the webhooks.
type Source interface {
	// GetCertificate returns the certificate to serve, for tls.Config. The certificate's
	// Leaf is set.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Authorities returns the authorities that may have signed the certificates of other
	// replicas.
	Authorities() *x509.CertPool
	// SetupWithManager adds the runnables that keep the certificate up to date to a
	// manager.
	SetupWithManager(manager.Manager) error
}

// Renewal monitors the renewal of the certificate.
type Renewal interface {
	// Trouble returns the problem as a sentence, or "" if there is no problem. known is
	// false until the state was read from the API server.
	Trouble() (what string, known bool)
}

// rememberedCAs is the number of versions of ca.crt that are trusted.
const rememberedCAs = 3

// Files is a Source that reads tls.crt, tls.key and, if present, ca.crt from a directory:
// the layout of a Secret of cert-manager. Changed files are read again.
type Files struct {
	*certwatcher.CertWatcher
	ca string

	mu  sync.Mutex
	cas []string // in PEM, the newest last
}

// NewFiles reads the files of a directory. It returns an error if the directory contains
// no certificate.
func NewFiles(dir string) (*Files, error) {
	watcher, err := certwatcher.New(filepath.Join(dir, certName), filepath.Join(dir, keyName))
	if err != nil {
		return nil, err
	}
	f := &Files{CertWatcher: watcher, ca: filepath.Join(dir, caName)}
	f.Authorities()
	return f, nil
}

// SetupWithManager implements Source.
func (f *Files) SetupWithManager(mgr manager.Manager) error { return mgr.Add(f.CertWatcher) }

// Authorities implements Source. Earlier versions of ca.crt stay trusted, because other
// replicas get new files up to two minutes later.
func (f *Files) Authorities() *x509.CertPool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if text, err := os.ReadFile(f.ca); err == nil && (len(f.cas) == 0 || f.cas[len(f.cas)-1] != string(text)) {
		f.cas = append(f.cas, string(text))
		f.cas = slices.Clone(f.cas[max(0, len(f.cas)-rememberedCAs):])
	}
	pool := x509.NewCertPool()
	for _, text := range f.cas {
		pool.AppendCertsFromPEM([]byte(text))
	}
	return pool
}
