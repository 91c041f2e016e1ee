// Package gitops tests that Flux and Argo CD see no drift in objects whose addresses
// Butler IPAM allocated. The applied manifests contain no addresses, the stored objects
// contain them, and both GitOps engines must report no difference.
//
// The tests call the engine libraries of both products in the same way as the products'
// controllers. The applied repository is the folder testdata. The package is a Go module
// of its own because the engines depend on large parts of Kubernetes.
package gitops
