// Package v1alpha1 is the API butler.butlerlabs.dev/v1alpha1: a NetworkPool offers ranges of addresses, an IPAllocation asks for
// one and, once created, holds it in its own spec.
//
// The answer of an IPAllocation is spec.pinnedRange (and spec.count): the field by which its author could have asked for that very
// range. Status only mirrors it. Every rule that CEL can state stands in the markers of this package, so that it holds whether or
// not any webhook is running; rules that need arithmetic on addresses, or other objects, are left to the webhooks. The functions isIP and
// isCIDR need Kubernetes 1.31; test/api/costs checks the rules with the code of that version.
//
// ProviderConfig and TenantCluster belong to the platform around the allocator: where Butler is installed their CRDs exist already and
// know many more fields. The types here have the few that address management reads or writes; the CRDs generated from them keep every
// other field. These types are for reading alone: a client that writes one back has lost what it does not know. What address management
// writes, its own conditions, references and capacity, it applies to the status (server-side apply under a field manager of its own),
// so that nothing of others is ever part of a request.
//
// Addresses and networks are text in canonical form, IPv4 or IPv6, without zones and never IPv4-mapped: equal text is equal value.
//
// +kubebuilder:object:generate=true
// +groupName=butler.butlerlabs.dev
package v1alpha1
