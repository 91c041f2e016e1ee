// Package clusterapi converts the claims and addresses of Cluster API's IPAM contract
// (ipam.cluster.x-k8s.io) to and from the types of the ledger. IPPools and NetworkPools
// serve these claims; claims of other pools belong to other providers.
//
// The types are Cluster API's own (sigs.k8s.io/cluster-api/api) in the stored version
// v1beta2; Cluster API's conversion serves the two older versions. The module adds no new
// dependencies and three packages of types to the binary. Cluster API installs its CRDs;
// this project never does.
//
// Every function is pure: no clock, no I/O, no change of the arguments. Concurrent use is
// safe.
package clusterapi
