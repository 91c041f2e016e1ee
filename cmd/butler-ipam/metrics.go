package main

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsOptions serves metrics, by default over TLS and to those whose token may get the path: the API server is asked.
func metricsOptions(o *options) metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.metricsBind}
	if o.metricsSecure {
		server.SecureServing = true
		server.CertDir, server.CertName, server.KeyName = o.certDir, certName, keyName
		server.TLSOpts = []func(*tls.Config){overHTTP1}
		server.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return server
}

// certificateExpiry is read when it is scraped, so a renewed certificate counts at once.
func certificateExpiry(s *webhookServer) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "butler_ipam_certificate_expiry_timestamp_seconds",
		Help: "When the certificate of the webhooks ends, in Unix time.",
	}, func() float64 {
		certificate, err := s.certificates.GetCertificate(nil)
		if err != nil {
			return 0
		}
		return float64(certificate.Leaf.NotAfter.Unix())
	})
}
