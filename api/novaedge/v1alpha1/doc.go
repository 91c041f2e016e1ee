// Package v1alpha1 is the API novaedge.io/v1alpha1, as far as addresses go: a ProxyIPPool offers addresses, and a ProxyVIP holds one of
// a family, or one of each, in its own spec.
//
// The answer of a ProxyVIP is spec.address and spec.ipv6Address: the fields by which its author could have asked for those very
// addresses. Status only mirrors it. What else a ProxyVIP says is the proxy's, and kept as it is.
//
// Addresses are text in CIDR notation (10.200.0.1/32, 2001:db8::1/128) or bare; the prefix length says nothing. What an author wrote
// stays as it was written; what is filled in is canonical, and a whole /32 or /128.
//
// +kubebuilder:object:generate=true
// +groupName=novaedge.io
package v1alpha1
