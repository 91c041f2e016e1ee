// Package kinds is the table of the kinds of pools, claims and address objects that the
// program knows. Its subpackages have the rules of one API each.
package kinds

import (
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Kind describes one resource of pools, of claims, or of address objects. Functions take
// objects of the Go type of the kind only.
type Kind struct {
	Resource   string   // plural.group: the value of ledger.Key.Resource
	Name       string   // "IPAllocation"
	ShortNames []string // in the CustomResourceDefinition
	// AddressObjects is the resource of the address objects of claims; "" for claims without
	// them.
	AddressObjects string
	// UIDAnnotations lists the annotations with the UID of another object. A claim that is
	// restored from a backup does not keep them, as that object was restored with a new UID.
	UIDAnnotations []string

	goType reflect.Type
	// ConvertPool converts a pool for the ledger; nil for claims and address objects.
	ConvertPool func(metav1.Object) (ledger.Pool, field.ErrorList)
	// ConvertClaim converts a claim or an address object for the ledger; nil for pools.
	// served is false for a claim whose pool belongs to another provider.
	ConvertClaim func(metav1.Object) (c ledger.Claim, served bool)
	// Describe describes a claim or an address object for people; nil for pools.
	Describe func(metav1.Object) object.Description
}

// IsPool reports whether the objects of a kind are pools.
func (k *Kind) IsPool() bool { return k.ConvertPool != nil }

// pool completes the kind of pools of type T.
func pool[T metav1.Object](k Kind, convert func(T) (ledger.Pool, field.ErrorList)) *Kind {
	k.goType = reflect.TypeFor[T]()
	k.ConvertPool = func(o metav1.Object) (ledger.Pool, field.ErrorList) { return convert(o.(T)) }
	return &k
}

// claim completes the kind of claims or address objects of type T.
func claim[T metav1.Object](k Kind, convert func(T) ledger.Claim, describe func(T) object.Description) *Kind {
	k.goType = reflect.TypeFor[T]()
	k.ConvertClaim = func(o metav1.Object) (ledger.Claim, bool) { return convert(o.(T)), true }
	k.Describe = func(o metav1.Object) object.Description { return describe(o.(T)) }
	return &k
}

// servedOnly restricts a kind of claims to those whose pool belongs to this provider.
func servedOnly[T metav1.Object](k *Kind, findPool func(T) (ledger.Key, bool)) *Kind {
	convert := k.ConvertClaim
	k.ConvertClaim = func(o metav1.Object) (ledger.Claim, bool) {
		if _, served := findPool(o.(T)); !served {
			return ledger.Claim{}, false
		}
		return convert(o)
	}
	return k
}

// describeAddressObject describes an address object, which belongs to a machine.
func describeAddressObject[T metav1.Object](T) object.Description {
	return object.Description{Purpose: object.PurposeMachine}
}

// All lists the kinds, pools first.
var All = []*Kind{
	pool(Kind{Resource: butler.ResourceNetworkPool, Name: "NetworkPool", ShortNames: []string{"np"}}, butler.ConvertPool),
	pool(Kind{
		Resource: metal3.ResourceIPPool, Name: "IPPool",
		ShortNames: []string{"ipp", "ippool", "m3ipp", "m3ippool", "m3ippools", "metal3ipp", "metal3ippool", "metal3ippools"},
	}, func(p *metal3v1.IPPool) (ledger.Pool, field.ErrorList) {
		return metal3.ConvertPool(p, metal3.NewRandomSource())
	}),
	pool(Kind{Resource: novaedge.ResourceProxyIPPool, Name: "ProxyIPPool"}, novaedge.ConvertPool),
	claim(Kind{
		Resource: butler.ResourceIPAllocation, Name: "IPAllocation", ShortNames: []string{"ipa"},
		UIDAnnotations: []string{butlerv1.AnnotationTenantUID},
	}, butler.ConvertClaim, butler.DescribeClaim),
	claim(Kind{
		Resource: metal3.ResourceIPClaim, Name: "IPClaim", AddressObjects: metal3.ResourceIPAddress,
		ShortNames: []string{"ipc", "ipclaim", "m3ipc", "m3ipclaim", "m3ipclaims", "metal3ipc", "metal3ipclaim", "metal3ipclaims"},
	}, metal3.ConvertClaim, metal3.DescribeClaim),
	claim(Kind{Resource: metal3.ResourceIPAddress, Name: "IPAddress"},
		metal3.ConvertAddress, describeAddressObject[*metal3v1.IPAddress]),
	servedOnly(claim(Kind{
		Resource: clusterapi.ResourceIPAddressClaim, Name: "IPAddressClaim", AddressObjects: clusterapi.ResourceIPAddress,
	}, clusterapi.ConvertClaim, clusterapi.DescribeClaim), clusterapi.FindPoolKey),
	claim(Kind{Resource: clusterapi.ResourceIPAddress, Name: "IPAddress"},
		clusterapi.ConvertAddress, describeAddressObject[*ipamv1.IPAddress]),
	claim(Kind{
		Resource: novaedge.ResourceProxyVIP, Name: "ProxyVIP", UIDAnnotations: []string{novaedgev1.AnnotationServiceUID},
	}, novaedge.ConvertClaim, novaedge.DescribeClaim),
}

var (
	byResource = map[string]*Kind{}
	byType     = map[reflect.Type]*Kind{}
)

func init() {
	for _, k := range All {
		byResource[k.Resource], byType[k.goType] = k, k
	}
}

// ForResource returns the kind of a resource; nil for a resource of no kind.
func ForResource(resource string) *Kind { return byResource[resource] }

// Of returns the kind of an object; nil for an object of no kind.
func Of(o metav1.Object) *Kind { return byType[reflect.TypeOf(o)] }

// Resources lists the resources of all kinds, pools first.
func Resources() (resources []string) {
	for _, k := range All {
		resources = append(resources, k.Resource)
	}
	return resources
}

// NameOf returns the kind of an object: "IPAllocation". A resource of no kind is returned
// unchanged.
func NameOf(key ledger.Key) string {
	if k := ForResource(key.Resource); k != nil {
		return k.Name
	}
	return key.Resource
}
