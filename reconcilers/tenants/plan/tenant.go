package plan

import (
	"fmt"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Tenant is what decisions need of a TenantCluster.
type Tenant struct {
	Namespace, Name, UID string
	Team                 string // name of the team; "" if the TenantCluster names none

	LBPoolSize  int32           // requested addresses of the initial block for load balancers; 0: the ProviderConfig decides
	Ingress     bool            // the platform installs an ingress controller, which needs one address
	ManualRange allocator.Range // set by an administrator before NetworkPools existed; invalid if unset
}

// TenantOf returns the tenant of a TenantCluster. An error names the field that is
// invalid; the tenant is usable nevertheless.
func TenantOf(c *v1alpha1.TenantCluster) (Tenant, error) {
	t := Tenant{Namespace: c.Namespace, Name: c.Name, UID: string(c.UID), Ingress: true}
	if c.Spec.TeamRef != nil {
		t.Team = c.Spec.TeamRef.Name
	}
	if a := c.Spec.Addons; a != nil && a.Ingress != nil {
		t.Ingress = ptr.Deref(a.Ingress.Enabled, true)
	}
	n := c.Spec.Networking
	if n == nil {
		return t, nil
	}
	t.LBPoolSize = ptr.Deref(n.LBPoolSize, 0)
	if manual := n.LoadBalancerPool; manual != nil {
		r, err := allocator.ParseRange(manual.Start + "-" + manual.End)
		if err != nil {
			return t, fmt.Errorf("spec.networking.loadBalancerPool: %w: set start and end to the first and the last address, or remove the field", err)
		}
		t.ManualRange = r
	}
	return t, nil
}

// TeamLabel returns label team of the tenant's allocations.
func (t Tenant) TeamLabel() string { return butler.TeamLabel(t.Team, t.Namespace) }

// reference returns the tenantClusterRef of the tenant's allocations.
func (t Tenant) reference() v1alpha1.NamespacedObjectReference {
	return v1alpha1.NamespacedObjectReference{Namespace: t.Namespace, Name: t.Name}
}
