package tenants

import (
	"fmt"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Tenant is a TenantCluster as far as its addresses are concerned.
type Tenant struct {
	Namespace, Name, UID string

	LBPoolSize int32           // what it asks for to begin with; 0 for its provider's number
	Ingress    bool            // an ingress controller is installed, which takes one address
	ByHand     allocator.Range // addresses that an administrator gave it before there were NetworkPools; not valid without
}

// TenantOf reads a TenantCluster. The error says what in it cannot be read; the rest counts all the same.
func TenantOf(c *v1alpha1.TenantCluster) (Tenant, error) {
	t := Tenant{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), Ingress: true}
	if a := c.Spec.Addons; a != nil && a.Ingress != nil {
		t.Ingress = ptr.Deref(a.Ingress.Enabled, true)
	}
	n := c.Spec.Networking
	if n == nil {
		return t, nil
	}
	t.LBPoolSize = ptr.Deref(n.LBPoolSize, 0)
	if hand := n.LoadBalancerPool; hand != nil {
		r, err := allocator.ParseRange(hand.Start + "-" + hand.End)
		if err != nil {
			return t, fmt.Errorf("spec.networking.loadBalancerPool: %w: set start and end to the first and the last address, or remove it", err)
		}
		t.ByHand = r
	}
	return t, nil
}

func (t Tenant) ref() v1alpha1.NamespacedObjectReference {
	return v1alpha1.NamespacedObjectReference{Namespace: t.Namespace, Name: t.Name}
}
