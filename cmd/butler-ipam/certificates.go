package main

import (
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"butlerlabs.dev/ipam/webhooks/certificates"
	"butlerlabs.dev/ipam/webhooks/servertime"
)

// certificateParts say where the certificate of the webhooks comes from, and who sees to its renewal. The last two are nil where they are not
// what the options ask for, the renewal where it is nobody's business here.
type certificateParts struct {
	source      certificates.Source
	renewal     certificates.Renewal
	selfManaged *certificates.SelfManaged
	certManager *certificates.CertManager
}

func newCertificates(o *options, kube *rest.Config, clock *servertime.Clock, log logr.Logger) (p certificateParts, err error) {
	if o.certSecret != "" {
		p.selfManaged = certificates.NewSelfManaged(certificates.SelfManagedConfig{
			Secret:   types.NamespacedName{Namespace: o.namespace, Name: o.certSecret},
			Host:     fmt.Sprintf("%s.%s.svc", o.service, o.namespace),
			Mutating: o.mutating, Validating: o.validating, Life: o.certLife, Now: now, Log: log,
		})
		p.source, p.renewal = p.selfManaged, p.selfManaged
		return p, nil
	}
	if p.source, err = certificates.NewFiles(o.certDir); err != nil {
		return p, fmt.Errorf("--webhook-cert-dir: %w", err)
	}
	if o.certificate != "" {
		p.certManager, err = certificates.NewCertManager(kube, types.NamespacedName{Namespace: o.namespace, Name: o.certificate}, clock.Now, log)
		p.renewal = p.certManager
	}
	return p, err
}

// caches narrow down what the manager's cache holds for them.
func (p certificateParts) caches() map[client.Object]cache.ByObject {
	if p.selfManaged == nil {
		return nil
	}
	return p.selfManaged.Caches()
}

// setUp has a manager run them.
func (p certificateParts) setUp(mgr manager.Manager) error {
	if p.certManager != nil {
		if err := mgr.Add(p.certManager); err != nil {
			return err
		}
	}
	return p.source.SetupWithManager(mgr)
}
