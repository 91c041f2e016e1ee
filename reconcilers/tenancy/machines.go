package tenancy

import (
	"context"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/infrastructure"
	"butlerlabs.dev/ipam/reconcilers/tenants"
)

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=nodes,verbs=get;list;watch

// machineKind is that of Cluster API.
var machineKind = schema.GroupKind{Group: "cluster.x-k8s.io", Kind: "Machine"}

// machineAddresses is the field of it that is read.
var machineAddresses = []string{"status", "addresses"}

// holds says why the addresses of a tenant may not be released yet; "" when they may. What the informers know is enough to wait; that
// nothing is in the way, the API server itself says. After ReleaseLimit, counted from when this process first observed the deletion, none of this counts
// any more, nor whether it can be read: something is broken then that waiting does not mend.
func (d *desk) holds(ctx context.Context, c *v1alpha1.TenantCluster, blocks []tenants.Block) (string, error) {
	if d.releaseIn(c) <= 0 {
		return "", nil
	}
	for _, from := range []client.Reader{d.Cache, d.live} {
		machines, seen, err := d.machinesAnd(ctx, from)
		if err != nil {
			return "", err
		}
		own := 0
		for i := range machines {
			if machines[i].GetNamespace() == c.Status.TenantNamespace {
				own++
			}
		}
		if why := tenants.Holds(blocks, own, seen); why != "" {
			return why, nil
		}
	}
	return "", nil
}

// identity of an object: another may have its name later.
type identity struct {
	name types.NamespacedName
	uid  types.UID
}

// releaseIn is for how long machines may still hold the addresses of a tenant that is being deleted.
func (d *desk) releaseIn(c *v1alpha1.TenantCluster) time.Duration {
	return d.deleted.Observe(identity{client.ObjectKeyFromObject(c), c.UID}, d.Now()).Add(d.ReleaseLimit).Sub(d.Now())
}

// inUse says which address of an allocation whose tenant is gone a Node or Machine has still; "" where none does. As long as that is so it holds.
func (d *desk) inUse(ctx context.Context, a *v1alpha1.IPAllocation) (string, error) {
	for _, from := range []client.Reader{d.Cache, d.live} {
		_, seen, err := d.machinesAnd(ctx, from)
		if err != nil {
			return "", err
		}
		if why := tenants.InUse(a, seen); why != "" {
			return why, nil
		}
	}
	return "", nil
}

// machinesAnd is the Machines, and every address that Nodes and Machines have, whoever's.
func (d *desk) machinesAnd(ctx context.Context, from client.Reader) (machines []unstructured.Unstructured, seen []netip.Addr, err error) {
	machines, err = d.machines(ctx, from)
	if err != nil {
		return nil, nil, err
	}
	for i := range machines {
		seen = append(seen, infrastructure.OfMachine(&machines[i]).Addresses...)
	}
	nodes := &corev1.NodeList{}
	if err := from.List(ctx, nodes); err != nil {
		return nil, nil, err
	}
	for i := range nodes.Items {
		seen = append(seen, infrastructure.OfNode(&nodes.Items[i]).Addresses...)
	}
	return machines, seen, nil
}

// machines is those that there are. Where Cluster API is not installed, or is no more, there are none.
func (d *desk) machines(ctx context.Context, from client.Reader) ([]unstructured.Unstructured, error) {
	kind, err := d.versionOf(ctx, d.machine)
	if err != nil || kind == nil {
		return nil, err
	}
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = from.List(ctx, all)
	return all.Items, err
}
