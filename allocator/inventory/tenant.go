package inventory

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Tenant is what is stored about a tenant beside its claims.
type Tenant struct {
	Cluster  *butlerv1.TenantCluster  // nil if it is not stored, or was not read
	Provider *butlerv1.ProviderConfig // with the quota; nil if it is not known
	NotRead  []string                 // lines about what was not read
}

// NewTenant returns a tenant. providers are the stored ProviderConfigs. The TenantCluster names its ProviderConfig, maybe without the namespace, which an option
// of the manager has. Otherwise the manager selects one, by rules that read more objects: then the ProviderConfig is known if there is only one.
func NewTenant(c *butlerv1.TenantCluster, providers []*butlerv1.ProviderConfig) Tenant {
	t := Tenant{Cluster: c}
	ref := c.Spec.ProviderConfigRef
	var candidates []*butlerv1.ProviderConfig
	for _, p := range providers {
		if ref == nil || p.Name == ref.Name && (ref.Namespace == "" || p.Namespace == ref.Namespace) {
			candidates = append(candidates, p)
		}
	}
	switch {
	case len(candidates) == 1:
		t.Provider = candidates[0]
	case len(candidates) > 1 && ref == nil:
		t.NotRead = append(t.NotRead, "quota: not known, as the TenantCluster names none of the ProviderConfigs")
	case len(candidates) > 1:
		t.NotRead = append(t.NotRead, fmt.Sprintf("quota: not known, as several namespaces have a ProviderConfig %s", ref.Name))
	case ref != nil:
		t.NotRead = append(t.NotRead, fmt.Sprintf("quota: not known, as there is no ProviderConfig %s among those that you may read", ref.Name))
	default:
		t.NotRead = append(t.NotRead, "quota: not known, as there is no ProviderConfig among those that you may read")
	}
	return t
}

// Quota returns the largest number of addresses of a tenant for a purpose; 0 if it has no limit or is not known.
func (t Tenant) Quota(of Purpose) int32 {
	if t.Provider == nil || t.Provider.Spec.Network == nil || t.Provider.Spec.Network.QuotaPerTenant == nil {
		return 0
	}
	switch q := t.Provider.Spec.Network.QuotaPerTenant; of {
	case PurposeNodes:
		return ptr.Deref(q.MaxNodeIPs, 0)
	case PurposeLoadBalancer:
		return ptr.Deref(q.MaxLoadBalancerIPs, 0)
	}
	return 0
}

// LoadBalancerRange is the addresses of an IPAllocation for the load balancers of a tenant.
type LoadBalancerRange struct {
	Range     allocator.Range
	Claim     Key
	Growth    bool      // allocated on demand; the manager releases it when it has been idle for long
	IdleSince time.Time // since when no Service uses an address of the range; zero if some is used, or it is not known
	Ready     bool      // the manager offers the range to MetalLB in the tenant, unless it is about to release it
}

// LoadBalancers lists the ranges for the load balancers of a tenant, in the order of Claims.
func (i *Inventory) LoadBalancers(tenant string) (list []LoadBalancerRange) {
	for _, c := range i.Claims() {
		if c.Tenant != tenant || c.Key.Resource != butler.ResourceIPAllocation || c.Purpose != PurposeLoadBalancer {
			continue
		}
		for _, r := range c.Ranges {
			list = append(list, LoadBalancerRange{
				Range: r, Claim: c.Key, Growth: c.Role == butlerv1.RoleGrowth, IdleSince: c.IdleSince, Ready: c.State == ClaimReady && !c.TenantMissing,
			})
		}
	}
	return list
}
