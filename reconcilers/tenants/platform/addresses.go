package platform

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	novaedgev1 "butlerlabs.dev/ipam/api/novaedge/v1alpha1"
)

// SourceKind is the field source of an entry of status.infrastructureAllocations.
type SourceKind string

// Kinds of sources.
const (
	MetalLB SourceKind = "metallb" // a Service
	Node    SourceKind = "node"
	Machine SourceKind = "machine"
)

// sourceOrder ranks kinds: the first kind that has an address is the source of its entry.
var sourceOrder = []SourceKind{MetalLB, Node, Machine}

// AddressSource is an object and its addresses, in ascending order.
type AddressSource struct {
	Kind            SourceKind
	Namespace, Name string // no namespace for a Node
	Addresses       []netip.Addr
}

// Resource returns the resource of the objects of a kind.
func (k SourceKind) Resource() string {
	return map[SourceKind]string{MetalLB: "services", Node: "nodes", Machine: "machines.cluster.x-k8s.io"}[k]
}

// SourceOf returns the addresses that an object of the management cluster uses: a
// Service, Node or Machine. Another object uses none.
func SourceOf(o any) AddressSource {
	switch o := o.(type) {
	case *corev1.Service:
		return InUseByService(o)
	case *corev1.Node:
		return OfNode(o)
	case *unstructured.Unstructured:
		return OfMachine(o)
	}
	return AddressSource{}
}

// Equal reports whether two versions of an object have the same addresses.
func (s AddressSource) Equal(o AddressSource) bool {
	return s.Kind == o.Kind && s.Namespace == o.Namespace && s.Name == o.Name && slices.Equal(s.Addresses, o.Addresses)
}

// OfService returns the addresses in the status of a Service of type LoadBalancer; no
// addresses for another type.
func OfService(s *corev1.Service) AddressSource {
	source := AddressSource{Kind: MetalLB, Namespace: s.Namespace, Name: s.Name}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			source.addAddress(ingress.IP)
		}
	}
	return source
}

// InUseByService returns the addresses that a Service of the management cluster uses: its
// external addresses, and those in the status of a Service of type LoadBalancer. The
// addresses in the status of a Service that requests a ProxyVIP are those of the
// ProxyVIP, which is a claim: the Service is no second user, and a ProxyVIP that was lost
// is created again with these addresses.
func InUseByService(s *corev1.Service) AddressSource {
	source := OfService(s)
	if _, requestsVIP := s.Annotations[novaedgev1.AnnotationVIPMode]; requestsVIP {
		source.Addresses = nil
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		for _, a := range s.Spec.ExternalIPs {
			source.addAddress(a)
		}
	}
	return source
}

// OfNode returns the internal addresses of a Node.
func OfNode(n *corev1.Node) AddressSource {
	source := AddressSource{Kind: Node, Name: n.Name}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			source.addAddress(a.Address)
		}
	}
	return source
}

// OfMachine returns the internal addresses of a Machine of Cluster API, in any version
// with status.addresses.
func OfMachine(m *unstructured.Unstructured) AddressSource {
	source := AddressSource{Kind: Machine, Namespace: m.GetNamespace(), Name: m.GetName()}
	addresses, _, _ := unstructured.NestedSlice(m.Object, machineAddressesField...)
	for _, a := range addresses {
		if fields, ok := a.(map[string]any); ok && fields["type"] == "InternalIP" {
			text, _ := fields["address"].(string)
			source.addAddress(text)
		}
	}
	return source
}

// addAddress inserts the address that text contains, and ignores other text.
func (s *AddressSource) addAddress(text string) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	if at, found := slices.BinarySearchFunc(s.Addresses, a.Unmap(), netip.Addr.Compare); !found {
		s.Addresses = slices.Insert(s.Addresses, at, a.Unmap())
	}
}

// Usage lists the addresses of a NetworkPool that the platform uses.
type Usage struct {
	// Allocations are addresses outside of the ranges for tenants, in ascending order: of
	// Services in reserved networks, and of Nodes and Machines anywhere in the network of
	// the pool.
	Allocations []v1alpha1.InfrastructureAllocation
	// Allocatable are addresses inside the ranges for tenants. The allocator must avoid
	// those that no claim owns.
	Allocatable []netip.Addr
}

// UsageOf returns the usage of a pool. If several sources have an address, the first kind
// in sourceOrder is the source of its entry, and of each kind the first object by
// namespace and name is referenced. A pool that is invalid or being deleted has no usage.
func UsageOf(p *v1alpha1.NetworkPool, sources []AddressSource) Usage {
	pool, errs := butler.ConvertPool(p)
	network, err := allocator.ParseRange(p.Spec.CIDR)
	if err != nil || len(errs) > 0 || pool.Deleting {
		return Usage{}
	}
	sources = slices.Clone(sources)
	slices.SortStableFunc(sources, func(a, b AddressSource) int {
		return cmp.Or(
			cmp.Compare(slices.Index(sourceOrder, a.Kind), slices.Index(sourceOrder, b.Kind)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	entries := map[netip.Addr]*v1alpha1.InfrastructureAllocation{}
	allocatable := map[netip.Addr]bool{}
	for _, s := range sources {
		for _, a := range s.Addresses {
			reserved := containsAddress(pool.Blocked, a)
			switch {
			case !network.Contains(a):
			case !reserved && containsAddress(pool.Window, a):
				allocatable[a] = true
			case s.Kind == MetalLB && !reserved:
			default:
				if entries[a] == nil {
					entries[a] = &v1alpha1.InfrastructureAllocation{IP: a.String(), Source: string(s.Kind)}
				}
				addReference(entries[a], s)
			}
		}
	}
	var usage Usage
	for _, a := range sortedKeys(entries) {
		usage.Allocations = append(usage.Allocations, *entries[a])
	}
	usage.Allocatable = sortedKeys(allocatable)
	return usage
}

// EntriesFor returns an entry for each of the addresses that a source has, in the order
// of the addresses.
func EntriesFor(addresses []netip.Addr, sources []AddressSource) []v1alpha1.InfrastructureAllocation {
	var entries []v1alpha1.InfrastructureAllocation
	for _, a := range addresses {
		var entry *v1alpha1.InfrastructureAllocation
		for _, kind := range sourceOrder {
			for _, s := range sources {
				if s.Kind != kind || !slices.Contains(s.Addresses, a) {
					continue
				}
				if entry == nil {
					entry = &v1alpha1.InfrastructureAllocation{IP: a.String(), Source: string(s.Kind)}
				}
				addReference(entry, s)
			}
		}
		if entry != nil {
			entries = append(entries, *entry)
		}
	}
	return entries
}

// SortEntries sorts entries by address.
func SortEntries(entries []v1alpha1.InfrastructureAllocation) {
	slices.SortFunc(entries, func(a, b v1alpha1.InfrastructureAllocation) int {
		x, _ := netip.ParseAddr(a.IP)
		y, _ := netip.ParseAddr(b.IP)
		return x.Compare(y)
	})
}

// addReference adds a reference to the source, unless the entry has one of that kind.
func addReference(e *v1alpha1.InfrastructureAllocation, s AddressSource) {
	switch {
	case s.Kind == MetalLB && e.ServiceRef == nil:
		e.ServiceRef = &v1alpha1.ServiceReference{Name: s.Name, Namespace: s.Namespace}
	case s.Kind == Node && e.NodeRef == nil:
		e.NodeRef = &v1alpha1.NodeReference{Name: s.Name}
	case s.Kind == Machine && e.MachineRef == nil:
		e.MachineRef = &v1alpha1.MachineReference{Name: s.Name, Namespace: s.Namespace}
	}
}

func containsAddress(ranges []allocator.Range, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r allocator.Range) bool { return r.Contains(a) })
}

func sortedKeys[V any](byAddress map[netip.Addr]V) (addresses []netip.Addr) {
	for a := range byAddress {
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}
