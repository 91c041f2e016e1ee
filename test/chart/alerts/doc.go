// Package alerts tries the chart's alerts and its dashboard in Prometheus' own engine. It is a module of its own so that nothing else depends
// on Prometheus.
package alerts
