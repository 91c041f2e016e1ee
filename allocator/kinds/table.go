// Package kinds is the table of the kinds of pools, claims and address objects that the
// program knows. Its subpackages have the rules of one API each.
package kinds

import (
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/kinds/clusterapi"
	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/kinds/novaedge"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	metal3v1 "butlerlabs.dev/ipam/api/metal3/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// Kind describes one resource of pools, of claims, or of address objects. Functions take
// objects of the Go type of the kind only, and change none. A function is nil if it has
// no meaning for the kind: those of pools for claims and address objects, and vice versa.
type Kind struct {
	// Identity.

	Resource      string   // plural.group: the value of ledger.Key.Resource
	Version       string   // in which the program reads and writes the objects
	Name          string   // "IPAllocation"
	ShortNames    []string // in the CustomResourceDefinition
	ClusterScoped bool
	// Pools lists the resources of the pools to which a claim or address object may
	// refer.
	Pools []string
	// AddressObjects is the resource of the address objects of claims; "" for claims
	// without them.
	AddressObjects string
	// UIDAnnotations lists the annotations with the UID of another object. A claim that
	// is restored from a backup does not keep them, as that object was restored with a
	// new UID.
	UIDAnnotations []string
	// HasRanges: claims of these pools may have several addresses. A claim of other pools
	// has one address of a family.
	HasRanges bool

	goType reflect.Type

	// Reading.

	// ConvertPool converts a pool for the ledger.
	ConvertPool func(metav1.Object) (ledger.Pool, field.ErrorList)
	// ConvertClaim converts a claim or an address object for the ledger. served is false
	// for a claim whose pool belongs to another provider.
	ConvertClaim func(metav1.Object) (c ledger.Claim, served bool)

	// Rules.

	// ValidatePoolUpdate returns the rules that an update of a pool breaks.
	ValidatePoolUpdate func(old, updated metav1.Object) field.ErrorList

	// People.

	// Describe describes a claim or an address object.
	Describe func(metav1.Object) object.Description
	// DescribePool describes a pool.
	DescribePool func(metav1.Object) object.PoolDescription
	// FormatExampleClaim returns the manifest of a claim of the first address of a free
	// range of a pool.
	FormatExampleClaim func(pool metav1.Object, free allocator.Range) string
	// NewClaim returns a claim and the rules that the claim breaks; nil for address
	// objects.
	NewClaim func(object.ClaimTemplate) (metav1.Object, field.ErrorList)

	// Optional.

	// Reservations describes the list that reserves addresses of a pool; nil for pools
	// without such a list.
	Reservations *Reservations
	// CheckWait returns a *clusterpause.WaitError while a claim, or the claims of a pool,
	// must not be reconciled; nil for kinds that nothing pauses.
	CheckWait func(metav1.Object, clusterpause.Clusters) error
}

// Reservations describes the list in the spec of a pool that reserves addresses.
type Reservations struct {
	Field string // of spec
	Max   int    // bound of the number of entries
	// Named: an entry keeps one address for the claim with the name of the entry, in the
	// namespace of the pool. Otherwise an entry keeps a network from every claim.
	Named bool
	// List returns the entries that can be parsed, and the texts of other networks.
	List func(pool metav1.Object) (entries []object.Reservation, invalid []string)
	// Add returns a copy of a pool with further entries.
	Add func(pool metav1.Object, entries []object.Reservation) metav1.Object
	// FindReservable returns the ranges in which networks may be reserved; nil for a list
	// of named entries, which may have every address of the pool.
	FindReservable func(pool metav1.Object) []allocator.Range
}

// IsPool reports whether the objects of a kind are pools.
func (k *Kind) IsPool() bool { return k.ConvertPool != nil }

// IsAddressObject reports whether the objects of a kind record the address of a claim.
func (k *Kind) IsAddressObject() bool { return addressObjects[k.Resource] }

// New returns an empty object.
func (k *Kind) New() metav1.Object { return reflect.New(k.goType.Elem()).Interface().(metav1.Object) }

// GroupVersionResource returns the resource of the API.
func (k *Kind) GroupVersionResource() schema.GroupVersionResource {
	plural, group, _ := strings.Cut(k.Resource, ".")
	return schema.GroupVersionResource{Group: group, Version: k.Version, Resource: plural}
}

// GroupVersionKind returns the kind of the API.
func (k *Kind) GroupVersionKind() schema.GroupVersionKind {
	return k.GroupVersionResource().GroupVersion().WithKind(k.Name)
}

// poolRules is what package kinds needs of the pools of type T.
type poolRules[T metav1.Object] struct {
	convert        func(T) (ledger.Pool, field.ErrorList)
	validateUpdate func(old, updated T) field.ErrorList
	describe       func(T) object.PoolDescription
	formatExample  func(pool T, free allocator.Range) string
	checkWait      func(T, clusterpause.Clusters) error // may be nil
}

// pool completes the kind of pools of type T.
func pool[T metav1.Object](k Kind, rules poolRules[T]) *Kind {
	k.goType = reflect.TypeFor[T]()
	k.ConvertPool = func(o metav1.Object) (ledger.Pool, field.ErrorList) { return rules.convert(o.(T)) }
	k.ValidatePoolUpdate = func(old, updated metav1.Object) field.ErrorList {
		return rules.validateUpdate(old.(T), updated.(T))
	}
	k.DescribePool = func(o metav1.Object) object.PoolDescription { return rules.describe(o.(T)) }
	k.FormatExampleClaim = func(o metav1.Object, free allocator.Range) string { return rules.formatExample(o.(T), free) }
	k.CheckWait = waitOf(rules.checkWait)
	return &k
}

// claimRules is what package kinds needs of the claims, or the address objects, of type
// T.
type claimRules[T metav1.Object] struct {
	convert   func(T) ledger.Claim
	findPool  func(T) (ledger.Key, bool) // false for a claim of another provider; nil if there are none
	describe  func(T) object.Description
	newClaim  func(object.ClaimTemplate) (T, field.ErrorList) // nil for address objects
	checkWait func(T, clusterpause.Clusters) error            // may be nil
}

// claim completes the kind of claims or address objects of type T.
func claim[T metav1.Object](k Kind, rules claimRules[T]) *Kind {
	k.goType = reflect.TypeFor[T]()
	k.ConvertClaim = func(o metav1.Object) (ledger.Claim, bool) {
		if rules.findPool != nil {
			if _, served := rules.findPool(o.(T)); !served {
				return ledger.Claim{}, false
			}
		}
		return rules.convert(o.(T)), true
	}
	k.Describe = func(o metav1.Object) object.Description { return rules.describe(o.(T)) }
	if rules.newClaim != nil {
		k.NewClaim = func(t object.ClaimTemplate) (metav1.Object, field.ErrorList) { return rules.newClaim(t) }
	}
	k.CheckWait = waitOf(rules.checkWait)
	return &k
}

// waitOf converts a CheckWait of one type; nil for nil.
func waitOf[T metav1.Object](
	check func(T, clusterpause.Clusters) error,
) func(metav1.Object, clusterpause.Clusters) error {
	if check == nil {
		return nil
	}
	return func(o metav1.Object, clusters clusterpause.Clusters) error { return check(o.(T), clusters) }
}

// describeAddressObject describes an address object, which belongs to a machine.
func describeAddressObject[T metav1.Object](T) object.Description {
	return object.Description{Purpose: object.PurposeMachine}
}

// All lists the kinds, pools first.
var All = []*Kind{
	pool(Kind{
		Resource: butler.ResourceNetworkPool, Version: butlerv1.GroupVersion.Version, Name: "NetworkPool",
		ShortNames: []string{"np"}, HasRanges: true,
		Reservations: &Reservations{
			Field: "reserved", Max: butler.MaxReserved,
			List: func(o metav1.Object) ([]object.Reservation, []string) {
				return butler.ListReservations(o.(*butlerv1.NetworkPool))
			},
			Add: func(o metav1.Object, entries []object.Reservation) metav1.Object {
				return butler.AddReservations(o.(*butlerv1.NetworkPool), entries)
			},
			FindReservable: func(o metav1.Object) []allocator.Range { return butler.FindReservable(o.(*butlerv1.NetworkPool)) },
		},
	}, poolRules[*butlerv1.NetworkPool]{
		convert: butler.ConvertPool, validateUpdate: butler.ValidateNetworkPoolUpdate, describe: butler.DescribePool,
		formatExample: butler.FormatExampleClaim,
		checkWait: func(p *butlerv1.NetworkPool, _ clusterpause.Clusters) error {
			return clusterapi.CheckNetworkPoolWait(p)
		},
	}),
	pool(Kind{
		Resource: metal3.ResourceIPPool, Version: metal3v1.GroupVersion.Version, Name: "IPPool",
		ShortNames: []string{"ipp", "ippool", "m3ipp", "m3ippool", "m3ippools", "metal3ipp", "metal3ippool", "metal3ippools"},
		Reservations: &Reservations{
			Field: "preAllocations", Max: metal3.MaxPreAllocations, Named: true,
			List: func(o metav1.Object) ([]object.Reservation, []string) {
				return metal3.ListPreAllocations(o.(*metal3v1.IPPool)), nil
			},
			Add: func(o metav1.Object, entries []object.Reservation) metav1.Object {
				return metal3.AddPreAllocations(o.(*metal3v1.IPPool), entries)
			},
		},
	}, poolRules[*metal3v1.IPPool]{
		convert: func(p *metal3v1.IPPool) (ledger.Pool, field.ErrorList) {
			return metal3.ConvertPool(p, metal3.NewRandomSource())
		},
		validateUpdate: metal3.ValidateIPPoolUpdate, describe: metal3.DescribePool, formatExample: metal3.FormatExampleClaim,
		checkWait: metal3.CheckPoolWait,
	}),
	pool(Kind{
		Resource: novaedge.ResourceProxyIPPool, Version: novaedgev1.GroupVersion.Version, Name: "ProxyIPPool",
		ClusterScoped: true,
	}, poolRules[*novaedgev1.ProxyIPPool]{
		convert: novaedge.ConvertPool, validateUpdate: novaedge.ValidateProxyIPPoolUpdate, describe: novaedge.DescribePool,
		formatExample: novaedge.FormatExampleClaim,
	}),
	claim(Kind{
		Resource: butler.ResourceIPAllocation, Version: butlerv1.GroupVersion.Version, Name: "IPAllocation",
		ShortNames: []string{"ipa"}, Pools: []string{butler.ResourceNetworkPool}, UIDAnnotations: []string{butlerv1.AnnotationTenantUID},
	}, claimRules[*butlerv1.IPAllocation]{
		convert: butler.ConvertClaim, describe: butler.DescribeClaim, newClaim: butler.NewClaim,
	}),
	claim(Kind{
		Resource: metal3.ResourceIPClaim, Version: metal3v1.GroupVersion.Version, Name: "IPClaim",
		ShortNames: []string{"ipc", "ipclaim", "m3ipc", "m3ipclaim", "m3ipclaims", "metal3ipc", "metal3ipclaim", "metal3ipclaims"},
		Pools:      []string{metal3.ResourceIPPool}, AddressObjects: metal3.ResourceIPAddress,
	}, claimRules[*metal3v1.IPClaim]{
		convert: metal3.ConvertClaim, describe: metal3.DescribeClaim, newClaim: metal3.NewClaim,
		checkWait: metal3.CheckClaimWait,
	}),
	claim(Kind{
		Resource: metal3.ResourceIPAddress, Version: metal3v1.GroupVersion.Version, Name: "IPAddress",
		ShortNames: []string{"ipaddress", "m3ipa", "m3ipaddress", "m3ipaddresses", "metal3ipa", "metal3ipaddress", "metal3ipaddresses"},
		Pools:      []string{metal3.ResourceIPPool},
	}, claimRules[*metal3v1.IPAddress]{
		convert: metal3.ConvertAddress, describe: describeAddressObject[*metal3v1.IPAddress],
	}),
	claim(Kind{
		Resource: clusterapi.ResourceIPAddressClaim, Version: ipamv1.GroupVersion.Version, Name: "IPAddressClaim",
		Pools: []string{butler.ResourceNetworkPool, metal3.ResourceIPPool}, AddressObjects: clusterapi.ResourceIPAddress,
	}, claimRules[*ipamv1.IPAddressClaim]{
		convert: clusterapi.ConvertClaim, findPool: clusterapi.FindPoolKey, describe: clusterapi.DescribeClaim,
		newClaim: clusterapi.NewClaim, checkWait: clusterapi.CheckWait,
	}),
	claim(Kind{
		Resource: clusterapi.ResourceIPAddress, Version: ipamv1.GroupVersion.Version, Name: "IPAddress",
		Pools: []string{butler.ResourceNetworkPool, metal3.ResourceIPPool},
	}, claimRules[*ipamv1.IPAddress]{
		convert: clusterapi.ConvertAddress, describe: describeAddressObject[*ipamv1.IPAddress],
	}),
	claim(Kind{
		Resource: novaedge.ResourceProxyVIP, Version: novaedgev1.GroupVersion.Version, Name: "ProxyVIP", ClusterScoped: true,
		Pools: []string{novaedge.ResourceProxyIPPool}, UIDAnnotations: []string{novaedgev1.AnnotationServiceUID},
	}, claimRules[*novaedgev1.ProxyVIP]{
		convert: novaedge.ConvertClaim, describe: novaedge.DescribeClaim, newClaim: novaedge.NewClaim,
	}),
}

var (
	byResource = map[string]*Kind{}
	byType     = map[reflect.Type]*Kind{}

	addressObjects = map[string]bool{} // resources
)

func init() {
	for _, k := range All {
		byResource[k.Resource], byType[k.goType] = k, k
		if k.AddressObjects != "" {
			addressObjects[k.AddressObjects] = true
		}
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

// Pools lists the kinds of pools.
func Pools() []*Kind { return selectKinds((*Kind).IsPool) }

// Claims lists the kinds of claims, without address objects.
func Claims() []*Kind {
	return selectKinds(func(k *Kind) bool { return !k.IsPool() && !k.IsAddressObject() })
}

func selectKinds(selects func(*Kind) bool) (list []*Kind) {
	for _, k := range All {
		if selects(k) {
			list = append(list, k)
		}
	}
	return list
}

// ClaimsOf lists the kinds of claims, without address objects, that may refer to pools of
// a resource.
func ClaimsOf(pools string) []*Kind {
	return slices.DeleteFunc(Claims(), func(k *Kind) bool { return !slices.Contains(k.Pools, pools) })
}

// NameOf returns the kind of an object: "IPAllocation". A resource of no kind is returned
// unchanged.
func NameOf(key ledger.Key) string {
	if k := ForResource(key.Resource); k != nil {
		return k.Name
	}
	return key.Resource
}
