// Package clients tests third-party clients with the API server. In a cluster with kube-controller-manager, OpenTofu applies, changes and
// destroys the example of config/samples/terraform, with the provider kubectl.
//
// OpenTofu and the provider are built from Go modules, each through a module of its own: OpenTofu replaces a dependency, and a replace
// directive applies only in the main module. OpenTofu finds the provider in a local directory, so nothing is downloaded.
package clients
