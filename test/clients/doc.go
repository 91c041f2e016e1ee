// Package clients runs programs of others against the API server as their users do. OpenTofu applies, changes and destroys the example in
// config/samples/terraform, by the provider kubectl, in a cluster with kube-controller-manager.
//
// Both programs are built from Go modules, each in a module of its own: OpenTofu replaces a dependency, which counts only there. OpenTofu finds the
// provider in a directory, so that nothing is downloaded.
package clients
