package main

import (
	"crypto/tls"

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
