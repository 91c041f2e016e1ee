// Package gitops has the engines of Flux and Argo CD bring a repository to a cluster whose addresses Butler IPAM gives: what they apply
// lacks the addresses, what is stored has them, and neither engine may ever see a difference in that.
//
// The engines are those that the products are made of, driven as their controllers drive them. The repository is the folder testdata.
// They drag in much of Kubernetes: hence a module of its own.
package gitops
