// Package infrastructure finds which addresses of a NetworkPool the platform itself uses: its Services of type LoadBalancer in reserved
// networks, its Nodes, and the Machines of Cluster API. It only decides, on plain values; every function is pure and safe for
// concurrent use.
package infrastructure

import (
	"cmp"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Source is what kind of object an address was seen on. It is the source of a status entry.
type Source string

// Sources, in the order in which they name an address that several have.
const (
	MetalLB Source = "metallb"
	Node    Source = "node"
	Machine Source = "machine"
)

var sources = []Source{MetalLB, Node, Machine}

// Sighting is an object and the addresses it has, in order.
type Sighting struct {
	Source          Source
	Namespace, Name string // no namespace for a Node
	Addresses       []netip.Addr
}

// Equal tells whether two states of an object come to the same.
func (s Sighting) Equal(o Sighting) bool {
	return s.Source == o.Source && s.Namespace == o.Namespace && s.Name == o.Name && slices.Equal(s.Addresses, o.Addresses)
}

// OfService sees the addresses that a Service of type LoadBalancer has been given; any other has none.
func OfService(s *corev1.Service) Sighting {
	seen := Sighting{Source: MetalLB, Namespace: s.Namespace, Name: s.Name}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, ingress := range s.Status.LoadBalancer.Ingress {
			seen.add(ingress.IP)
		}
	}
	return seen
}

// OfNode sees the internal addresses of a Node.
func OfNode(n *corev1.Node) Sighting {
	seen := Sighting{Source: Node, Name: n.Name}
	for _, a := range n.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			seen.add(a.Address)
		}
	}
	return seen
}

// OfMachine sees the internal addresses of a Machine of Cluster API, of any version that has status.addresses.
func OfMachine(m *unstructured.Unstructured) Sighting {
	seen := Sighting{Source: Machine, Namespace: m.GetNamespace(), Name: m.GetName()}
	addresses, _, _ := unstructured.NestedSlice(m.Object, "status", "addresses")
	for _, a := range addresses {
		if fields, ok := a.(map[string]any); ok && fields["type"] == "InternalIP" {
			text, _ := fields["address"].(string)
			seen.add(text)
		}
	}
	return seen
}

// add keeps what can be read of text.
func (s *Sighting) add(text string) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return
	}
	if at, found := slices.BinarySearchFunc(s.Addresses, a.Unmap(), netip.Addr.Compare); !found {
		s.Addresses = slices.Insert(s.Addresses, at, a.Unmap())
	}
}

// Use is what of a pool is in use by the platform.
type Use struct {
	// Allocations is addresses that tenants cannot be given, by address: of Services where the pool reserves them, of Nodes and Machines
	// anywhere in its network.
	Allocations []v1alpha1.InfrastructureAllocation
	// Inside is addresses of Nodes and Machines that tenants can be given. Unless an IPAllocation holds them they must be avoided.
	Inside []netip.Addr
}

// Of is what of a pool is in use. An address is named by the first of its sources; further ones add their references, and of two objects of
// one source the first by namespace and name counts. A pool that breaks a rule, or is going, is not looked at.
func Of(p *v1alpha1.NetworkPool, seen []Sighting) Use {
	pool, errs := butler.PoolOf(p)
	network, err := allocator.ParseRange(p.Spec.CIDR)
	if err != nil || len(errs) > 0 || pool.Deleting {
		return Use{}
	}
	seen = slices.Clone(seen)
	slices.SortStableFunc(seen, func(a, b Sighting) int {
		return cmp.Or(
			cmp.Compare(slices.Index(sources, a.Source), slices.Index(sources, b.Source)),
			cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	entries := map[netip.Addr]*v1alpha1.InfrastructureAllocation{}
	inside := map[netip.Addr]bool{}
	for _, s := range seen {
		for _, a := range s.Addresses {
			reserved := contains(pool.Blocked, a)
			switch {
			case !network.Contains(a), s.Source == MetalLB && !reserved:
			case s.Source != MetalLB && !reserved && contains(pool.Window, a):
				inside[a] = true
			default:
				if entries[a] == nil {
					entries[a] = &v1alpha1.InfrastructureAllocation{IP: a.String(), Source: string(s.Source)}
				}
				refer(entries[a], s)
			}
		}
	}
	var use Use
	for _, a := range ordered(entries) {
		use.Allocations = append(use.Allocations, *entries[a])
	}
	use.Inside = ordered(inside)
	return use
}

// Entries is what to say of addresses that tenants could be given, in the order of the addresses: all that was seen there, in the order of
// sources.
func Entries(addresses []netip.Addr, seen []Sighting) []v1alpha1.InfrastructureAllocation {
	var entries []v1alpha1.InfrastructureAllocation
	for _, a := range addresses {
		var e *v1alpha1.InfrastructureAllocation
		for _, source := range sources {
			for _, s := range seen {
				if s.Source != source || !slices.Contains(s.Addresses, a) {
					continue
				}
				if e == nil {
					e = &v1alpha1.InfrastructureAllocation{IP: a.String(), Source: string(s.Source)}
				}
				refer(e, s)
			}
		}
		if e != nil {
			entries = append(entries, *e)
		}
	}
	return entries
}

// Sort puts entries in the order of their addresses.
func Sort(entries []v1alpha1.InfrastructureAllocation) {
	slices.SortFunc(entries, func(a, b v1alpha1.InfrastructureAllocation) int {
		x, _ := netip.ParseAddr(a.IP)
		y, _ := netip.ParseAddr(b.IP)
		return x.Compare(y)
	})
}

func refer(e *v1alpha1.InfrastructureAllocation, s Sighting) {
	switch {
	case s.Source == MetalLB && e.ServiceRef == nil:
		e.ServiceRef = &v1alpha1.ServiceReference{Name: s.Name, Namespace: s.Namespace}
	case s.Source == Node && e.NodeRef == nil:
		e.NodeRef = &v1alpha1.NodeReference{Name: s.Name}
	case s.Source == Machine && e.MachineRef == nil:
		e.MachineRef = &v1alpha1.MachineReference{Name: s.Name, Namespace: s.Namespace}
	}
}

func contains(ranges []allocator.Range, a netip.Addr) bool {
	return slices.ContainsFunc(ranges, func(r allocator.Range) bool { return r.Contains(a) })
}

func ordered[V any](by map[netip.Addr]V) (addresses []netip.Addr) {
	for a := range by {
		addresses = append(addresses, a)
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	return addresses
}
