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

// Source is where the certificate comes from that the webhooks serve with.
type Source interface {
	// GetCertificate is for a tls.Config. The certificate's Leaf is set.
	GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// Authorities are those of which other replicas may have their certificates at the moment.
	Authorities() *x509.CertPool
	// SetupWithManager has a manager run what keeps the certificate up to date.
	SetupWithManager(manager.Manager) error
}

// Renewal watches over whoever renews the certificate.
type Renewal interface {
	// Trouble is what is wrong, as a sentence; "" where nothing is. It is not known before the API server has told.
	Trouble() (what string, known bool)
}

// rememberedCAs is how many versions of ca.crt count.
const rememberedCAs = 3

// Files are tls.crt and tls.key in a directory, with ca.crt where there is one, as a Secret of cert-manager has them. They are read again
// when they change.
type Files struct {
	*certwatcher.CertWatcher
	ca string

	mu  sync.Mutex
	cas []string // in PEM, the newest last
}

// NewFiles fails where there is no certificate.
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

// Authorities implements Source. The last ones count on, since other replicas get new files up to two minutes later.
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
