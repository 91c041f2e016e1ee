// Package v1alpha1 is the part of the API novaedge.io/v1alpha1 that concerns addresses: a
// ProxyIPPool offers addresses, and a ProxyVIP owns one address, or one address of each
// family, in its own spec.
//
// The allocated addresses of a ProxyVIP are stored in spec.address and spec.ipv6Address,
// the fields by which a user could have requested the same addresses. Status only mirrors
// them. All other fields of a ProxyVIP belong to the proxy and are preserved.
//
// Addresses are text, in CIDR notation (10.200.0.1/32, 2001:db8::1/128) or bare; the
// prefix length has no effect. The text of a user is kept unchanged; the allocator writes
// canonical text with prefix length 32 or 128.
//
// +kubebuilder:object:generate=true
// +groupName=novaedge.io
package v1alpha1
