// Package clusterctl moves claims and their pools between two control planes with Cluster
// API's clusterctl. The package is a Go module of its own, because clusterctl has more
// dependencies than the product.
package clusterctl
