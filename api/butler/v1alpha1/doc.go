// Package v1alpha1 is the API butler.butlerlabs.dev/v1alpha1: a NetworkPool offers ranges
// of addresses, an IPAllocation requests a range and, once created, owns a range,
// recorded in its own spec.
//
// The allocated range of an IPAllocation is stored in spec.pinnedRange (and spec.count),
// the field by which a user could have requested the same range. Status only mirrors the
// range. Every rule that CEL can express is in the markers of this package, so that the
// rule holds while no webhook runs; the webhooks check rules that need address arithmetic
// or other objects. The functions isIP and isCIDR need Kubernetes 1.31; test/api/costs
// checks the rules with the code of that version.
//
// ProviderConfig and TenantCluster belong to the platform around the allocator. An
// installation of Butler already has their CRDs, with many more fields. The types here
// have only the fields that address management reads or writes; the CRDs generated from
// the types preserve all other fields. Clients must not write objects of these types
// back: an update would drop the fields that the types do not have. Address management
// writes only its own conditions, references and capacity, to the status, by server-side
// apply with its own field manager. So its requests never contain fields of other
// authors.
//
// Addresses and networks are text in canonical form, IPv4 or IPv6, without zones and
// never IPv4-mapped: equal text is equal value.
//
// +kubebuilder:object:generate=true
// +groupName=butler.butlerlabs.dev
package v1alpha1
