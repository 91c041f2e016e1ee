package main

import (
	"crypto/tls"

	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"butlerlabs.dev/ipam/webhooks/certificates"
	"butlerlabs.dev/ipam/webhooks/server"
)

// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// metricsOptions configures the server of /metrics. By default the server uses TLS and
// requires a bearer token with the right to get /metrics. The API server reviews the
// token and the right.
func metricsOptions(o *options, source certificates.Source) metricsserver.Options {
	metrics := metricsserver.Options{BindAddress: o.metricsBind}
	if o.metricsSecure {
		metrics.SecureServing = true
		metrics.TLSOpts = []func(*tls.Config){server.RestrictToHTTP1, func(c *tls.Config) { c.GetCertificate = source.GetCertificate }}
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	return metrics
}
