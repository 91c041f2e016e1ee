package platform

import (
	"context"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=services;nodes,verbs=get;list;watch

// machineKind is the Machine of Cluster API.
var machineKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}

var machineAddressesField = []string{"status", "addresses"}

// ListMachines returns the Machines; none where Cluster API is not installed.
func (c *Cluster) ListMachines(ctx context.Context, from client.Reader) ([]unstructured.Unstructured, error) {
	version, err := c.readableVersion(ctx, c.Machines)
	if err != nil || version == nil {
		return nil, err
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(version.GroupVersion().WithKind(version.Kind + "List"))
	err = from.List(ctx, all)
	return all.Items, err
}

// MachineAddresses are the addresses of all Nodes and Machines.
type MachineAddresses struct{ nodes, machines []netip.Addr }

// In returns the addresses that count in a routing domain. The Nodes are in that of the
// cluster's network (ofCluster), as are the Machines with an address of a Node. The other
// Machines belong to tenants, whose networks may be in each routing domain.
func (m MachineAddresses) In(ofCluster bool) []netip.Addr {
	if ofCluster {
		return slices.Concat(m.nodes, m.machines)
	}
	return slices.DeleteFunc(slices.Clone(m.machines), func(a netip.Addr) bool { return slices.Contains(m.nodes, a) })
}

// ListMachineAddresses returns the Machines, and the addresses of all Nodes and Machines.
func (c *Cluster) ListMachineAddresses(ctx context.Context, from client.Reader) (machines []unstructured.Unstructured, addresses MachineAddresses, err error) {
	machines, err = c.ListMachines(ctx, from)
	if err != nil {
		return nil, MachineAddresses{}, err
	}
	for i := range machines {
		addresses.machines = append(addresses.machines, OfMachine(&machines[i]).Addresses...)
	}
	nodes := &corev1.NodeList{}
	if err := from.List(ctx, nodes); err != nil {
		return nil, MachineAddresses{}, err
	}
	for i := range nodes.Items {
		addresses.nodes = append(addresses.nodes, OfNode(&nodes.Items[i]).Addresses...)
	}
	return machines, addresses, nil
}

// ListAddressSources returns every Service, Node and Machine that the informers have.
func (c *Cluster) ListAddressSources(ctx context.Context) ([]AddressSource, error) {
	var sources []AddressSource
	services, nodes := &corev1.ServiceList{}, &corev1.NodeList{}
	if err := c.List(ctx, services, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range services.Items {
		sources = append(sources, InUseByService(&services.Items[i]))
	}
	if err := c.List(ctx, nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	for i := range nodes.Items {
		sources = append(sources, OfNode(&nodes.Items[i]))
	}
	machines, err := c.ListMachines(ctx, c.Cache)
	for i := range machines {
		sources = append(sources, OfMachine(&machines[i]))
	}
	return sources, err
}
