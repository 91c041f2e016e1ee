// Package v1alpha1 is the API ipam.metal3.io/v1alpha1, as Metal3's own address manager serves it: an IPPool offers addresses, an IPClaim
// asks for one, and an IPAddress says which one it has, with its prefix, gateway and name servers.
//
// The schema accepts what Metal3's accepts, with the same names, defaults, columns, categories and labels, so that the objects of either can
// live under the other. Two things differ: IPAddress leaves the short name "ipa" to IPAllocation, and what Metal3 leaves to its
// webhooks although CEL can state it stands in the markers of this package, so that it holds whether or not any webhook is running. Rules write
// __namespace__ for the field namespace, a reserved word of CEL: Kubernetes 1.31 knows no other form. An IPPool has at most 131,072 entries of
// pools, more than etcd stores in one object, so that the cost of their rule has a bound.
//
// The answer of an IPClaim is its annotation "ipAddress": the one by which its author could have asked for that very address. It
// survives a move to another cluster, which status does not.
//
// Addresses are text, IPv4 or IPv6, and need not be canonical: 2001:db8::0005 is 2001:db8::5.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.metal3.io
package v1alpha1
