package certificates

import (
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// Options select the source of the certificate:
//
//	Secret is set         SelfManaged: the manager issues and renews the certificate
//	Certificate is set    files in Dir, renewed by cert-manager, whose Certificate is monitored
//	neither               files in Dir, not monitored
type Options struct {
	Namespace   string
	Dir         string // of the files
	Secret      string // name of the Secret of SelfManaged
	Certificate string // name of cert-manager's Certificate
	Service     string // name of the Service of the webhooks
	// Mutating and Validating are names of webhook configurations whose caBundle
	// SelfManaged writes.
	Mutating, Validating []string
	Life                 time.Duration // of a certificate of SelfManaged
	Now                  func() time.Time
	NewServerClock       func() ServerClock
}

// Setup is the selected source of the certificate with its renewal. Renewal is nil if no
// renewal is monitored.
type Setup struct {
	Source      Source
	Renewal     Renewal
	selfManaged *SelfManaged
	certManager *CertManager
}

// NewSetup selects the source of the certificate. Errors: the files cannot be read, or
// the client configuration is invalid.
func NewSetup(o Options, kube *rest.Config, clock ServerClock, log logr.Logger) (s Setup, err error) {
	if o.Secret != "" {
		s.selfManaged = NewSelfManaged(SelfManagedConfig{
			Secret:   types.NamespacedName{Namespace: o.Namespace, Name: o.Secret},
			Host:     fmt.Sprintf("%s.%s.svc", o.Service, o.Namespace),
			Mutating: o.Mutating, Validating: o.Validating, Life: o.Life, Now: o.Now,
			NewServerClock: o.NewServerClock, Log: log,
		})
		s.Source, s.Renewal = s.selfManaged, s.selfManaged
		return s, nil
	}
	if s.Source, err = NewFiles(o.Dir); err != nil {
		return s, fmt.Errorf("--webhook-cert-dir: %w", err)
	}
	if o.Certificate != "" {
		s.certManager, err = NewCertManager(kube, types.NamespacedName{Namespace: o.Namespace, Name: o.Certificate}, clock.Now, log)
		s.Renewal = s.certManager
	}
	return s, err
}

// Caches restricts the manager's cache to the objects of the source.
func (s Setup) Caches() map[client.Object]cache.ByObject {
	if s.selfManaged == nil {
		return nil
	}
	return s.selfManaged.Caches()
}

// Checks returns the readiness checks of the source, by name.
func (s Setup) Checks() map[string]healthz.Checker {
	if s.selfManaged == nil {
		return nil
	}
	return map[string]healthz.Checker{"authorities": s.selfManaged.Check}
}

// SetupWithManager adds the source and the renewal to a manager.
func (s Setup) SetupWithManager(mgr manager.Manager) error {
	if s.certManager != nil {
		if err := mgr.Add(s.certManager); err != nil {
			return err
		}
	}
	return s.Source.SetupWithManager(mgr)
}
