// Package alerts tests the chart's alerts and dashboard with Prometheus' own engine. The
// package is a Go module of its own so that no other module depends on Prometheus.
package alerts
