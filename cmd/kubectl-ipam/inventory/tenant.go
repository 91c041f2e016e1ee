package inventory

import (
	"fmt"
	"time"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Tenant contains the stored objects of a tenant beside its claims.
type Tenant struct {
	Cluster  *butlerv1.TenantCluster  // nil if not stored or not read
	Provider *butlerv1.ProviderConfig // with the quota; nil if not known
	NotRead  []string                 // lines about unread objects
}

// NewTenant returns a tenant. providers are the stored ProviderConfigs. The
// ProviderConfig of the tenant is known if exactly one ProviderConfig matches:
//
//	the TenantCluster names      matching ProviderConfigs
//	namespace and name           the ProviderConfig with this namespace and name
//	a name only                  every ProviderConfig with this name: the namespace is an option of the manager
//	no ProviderConfig            every ProviderConfig: the manager selects one by rules that read more objects
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

// Quota returns the largest number of addresses of a tenant for a purpose; 0 without a
// limit, or if the limit is not known.
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

// LoadBalancerRange is a range of an IPAllocation for the load balancers of a tenant.
type LoadBalancerRange struct {
	Range     allocator.Range
	Domain    string // routing domain
	Claim     Key
	Growth    bool      // allocated on demand; the manager releases the range after a long idle time
	IdleSince time.Time // since when no Service uses an address of the range; zero if a Service uses an address, or if the time is not known
	Ready     bool      // the manager offers the range to MetalLB in the tenant, except just before a release
}

// LoadBalancers lists the ranges for the load balancers of a tenant, in the order of
// Claims.
func (i *Inventory) LoadBalancers(tenant string) (list []LoadBalancerRange) {
	for _, c := range i.Claims() {
		if c.Tenant != tenant || c.Key.Resource != butler.ResourceIPAllocation || c.Purpose != PurposeLoadBalancer {
			continue
		}
		for _, r := range c.Ranges {
			list = append(list, LoadBalancerRange{
				Range: r, Domain: c.Domain, Claim: c.Key, Growth: c.Role == butlerv1.RoleGrowth, IdleSince: c.IdleSince, Ready: c.State == ClaimReady && !c.TenantMissing,
			})
		}
	}
	return list
}
