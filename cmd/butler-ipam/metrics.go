package main

import (
	"crypto/tls"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/webhooks/certificates"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsOptions serves metrics, by default over TLS and to those whose token may get the path: the API server is asked.
func metricsOptions(o *options, source certificates.Source) metricsserver.Options {
	server := metricsserver.Options{BindAddress: o.metricsBind}
	if o.metricsSecure {
		server.SecureServing = true
		server.TLSOpts = []func(*tls.Config){overHTTP1, func(c *tls.Config) { c.GetCertificate = source.GetCertificate }}
		server.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return server
}

// certificateMetrics are read when they are scraped, so a renewed certificate counts at once.
type certificateMetrics struct {
	source  certificates.Source
	renewal certificates.Renewal // nil where nobody is watched
}

var (
	certificateExpiry = prometheus.NewDesc("butler_ipam_certificate_expiry_timestamp_seconds",
		"When the certificate of the webhooks ends, in Unix time.", nil, nil)
	certificateReady = prometheus.NewDesc("butler_ipam_certificate_ready",
		"Whether the certificate of the webhooks is renewed in time: 1, or 0 where cert-manager's Certificate is not Ready or is overdue, or the manager cannot renew its own.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m certificateMetrics) Describe(to chan<- *prometheus.Desc) {
	to <- certificateExpiry
	to <- certificateReady
}

// Collect implements prometheus.Collector.
func (m certificateMetrics) Collect(to chan<- prometheus.Metric) {
	expiry := 0.0
	if certificate, err := m.source.GetCertificate(nil); err == nil {
		expiry = float64(certificate.Leaf.NotAfter.Unix())
	}
	to <- prometheus.MustNewConstMetric(certificateExpiry, prometheus.GaugeValue, expiry)
	if m.renewal == nil {
		return
	}
	switch trouble, known := m.renewal.Trouble(); {
	case trouble != "":
		to <- prometheus.MustNewConstMetric(certificateReady, prometheus.GaugeValue, 0)
	case known:
		to <- prometheus.MustNewConstMetric(certificateReady, prometheus.GaugeValue, 1)
	}
}
