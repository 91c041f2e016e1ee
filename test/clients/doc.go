// Package clients tests third-party clients with the API server. The cluster has
// kube-controller-manager.
//
// OpenTofu applies, changes and destroys the example of config/samples/terraform, with
// the provider kubectl. OpenTofu finds the provider in a local directory, so nothing is
// downloaded.
//
// The manager of Cluster API Provider Metal3 (CAPM3) claims addresses for machines,
// writes them into the data of the machines, and releases them. The tests create and
// delete what Cluster API creates and deletes for a machine. Hosts are objects without a
// controller: they are available from the beginning.
//
// Each client is built from Go modules, through a module of its own: OpenTofu and CAPM3
// replace a dependency, and a replace directive applies only in the main module.
package clients
