// Package manager tests the manager's process. The subjects are probes, ports, metrics,
// the conditions of readiness, shutdown, and messages about the Certificate that
// cert-manager issues for the webhooks.
package manager
