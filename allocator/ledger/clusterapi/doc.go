// Package clusterapi translates the claims and addresses of Cluster API's IPAM contract (ipam.cluster.x-k8s.io) into the ledger's words and
// back. Two kinds of pool serve them: IPPool and NetworkPool. Claims of any other are some other provider's, and none of ours.
//
// The types are Cluster API's own (sigs.k8s.io/cluster-api/api), in v1beta2, the version that it stores; its API server converts the two
// older ones. The module has no dependencies that are not here anyway, and importing it adds three packages of types to the binary. Its CRDs
// are installed by Cluster API, never by us.
//
// Every function is pure: no clock, no I/O, the arguments are left as they are. All are safe for concurrent use.
package clusterapi
