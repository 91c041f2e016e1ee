// Package clusterctl moves claims and their pools between two control planes with Cluster API's own clusterctl. It is a module of its own, as
// clusterctl brings more dependencies than the product has.
package clusterctl
