// Package v1alpha1 is the API ipam.metal3.io/v1alpha1, compatible with Metal3's own
// address manager: an IPPool offers addresses, an IPClaim requests an address, and an
// IPAddress records the allocated address with its prefix, gateway and name servers.
//
// The schema accepts every object that Metal3's schema accepts, with the same names,
// defaults, columns, categories and labels, so that objects can move between both
// installations. There are two differences. IPAddress leaves the short name "ipa" to
// IPAllocation. Rules that Metal3 leaves to its webhooks although CEL can express them
// are in the markers of this package, so that they hold while no webhook runs. Rules
// write __namespace__ for the field namespace, a reserved word of CEL: Kubernetes 1.31
// accepts only this form. An IPPool has at most 131,072 entries of pools, more than etcd
// stores in one object, so that the cost of their rule is bounded.
//
// The address of an IPClaim is stored in its annotation "ipAddress", by which a user
// could have requested the same address. The annotation survives a move to another
// cluster; status does not.
//
// Addresses are text, IPv4 or IPv6, and need not be canonical: 2001:db8::0005 is
// 2001:db8::5.
//
// +kubebuilder:object:generate=true
// +groupName=ipam.metal3.io
package v1alpha1
