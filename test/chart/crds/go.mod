module butlerlabs.dev/ipam/test/chart/crds

go 1.26.0

require (
	github.com/cert-manager/cert-manager v1.21.2 // indirect
	github.com/prometheus-operator/prometheus-operator v0.85.0 // indirect
	sigs.k8s.io/cluster-api v1.14.2 // indirect
)
