package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Defaults for ProviderConfigs without a number, in addresses.
const (
	DefaultPoolSize    = 8 // of a static tenant, if the pool has no default
	defaultInitialSize = 2 // of an elastic tenant
	defaultIncrement   = 2
)

// Policy is what a ProviderConfig configures for the addresses of each of its tenants,
// with defaults filled in.
type Policy struct {
	IPAM    bool     // addresses come from NetworkPools
	Pools   []string // names, in the order of allocation
	Nodes   bool     // node addresses come from the pools too
	Elastic bool     // load balancers get more addresses on demand

	Headroom    bool  // an elastic tenant without ingress has an initial block for load balancers too
	InitialSize int32 // addresses of the initial block for load balancers
	Increment   int32 // addresses of a growth block, at least

	MaxNodes         int32 // quota for node addresses; MaxInt32 without a quota
	MaxLoadBalancers int32 // quota for load balancer addresses; MaxInt32 without a quota
}

// PolicyAnnotations are the annotations of a ProviderConfig on which its policy depends.
var PolicyAnnotations = []string{v1alpha1.AnnotationNodeAddresses, v1alpha1.AnnotationIngressDisabled}

// PolicyOf returns the policy of a ProviderConfig, with or without the defaults of the
// CRD.
func PolicyOf(c *v1alpha1.ProviderConfig) Policy {
	p := Policy{
		Nodes:       c.Annotations[v1alpha1.AnnotationNodeAddresses] != v1alpha1.NodeAddressesExternal,
		InitialSize: DefaultPoolSize, Increment: defaultIncrement,
		MaxNodes: math.MaxInt32, MaxLoadBalancers: math.MaxInt32,
	}
	n := c.Spec.Network
	if n == nil {
		return p
	}
	p.IPAM = n.Mode == v1alpha1.NetworkModeIPAM
	p.Pools = sortPools(n.PoolRefs)
	if lb := n.LoadBalancer; lb != nil {
		p.Elastic = lb.AllocationMode == v1alpha1.LBAllocationElastic
		p.InitialSize = ptr.Deref(lb.DefaultPoolSize, DefaultPoolSize)
		if p.Elastic {
			p.InitialSize = ptr.Deref(lb.InitialPoolSize, defaultInitialSize)
		}
		p.Increment = ptr.Deref(lb.GrowthIncrement, defaultIncrement)
		mode := cmp.Or(lb.IngressDisabled, v1alpha1.IngressDisabledMode(c.Annotations[v1alpha1.AnnotationIngressDisabled]))
		p.Headroom = mode == v1alpha1.IngressDisabledHeadroom
	}
	if q := n.QuotaPerTenant; q != nil {
		p.MaxNodes = ptr.Deref(q.MaxNodeIPs, math.MaxInt32)
		p.MaxLoadBalancers = ptr.Deref(q.MaxLoadBalancerIPs, math.MaxInt32)
	}
	return p
}

// sortPools returns the names of pools by ascending priority, pools of equal priority in
// their order, without duplicates.
func sortPools(refs []v1alpha1.PoolReference) []string {
	refs = slices.Clone(refs)
	slices.SortStableFunc(refs, func(a, b v1alpha1.PoolReference) int {
		return cmp.Compare(ptr.Deref(a.Priority, 0), ptr.Deref(b.Priority, 0))
	})
	var names []string
	for _, ref := range refs {
		if !slices.Contains(names, ref.Name) {
			names = append(names, ref.Name)
		}
	}
	return names
}

// initialLoadBalancers returns how many addresses the initial block for load balancers
// has before the quota, the first of:
//
//	tenant with lbPoolSize                                        lbPoolSize
//	elastic tenant without ingress, unless Headroom               0: no Service of the platform needs an address, and growth serves the tenant's own
//	static tenant, ProviderConfig with the default of the CRD     the default of the pool, which may be nil
//	other tenants                                                 the number of the ProviderConfig
//
// In the third row DefaultPoolSize counts as no number, because the API server fills the
// default in.
func (p Policy) initialLoadBalancers(t Tenant, pool *v1alpha1.NetworkPool) int32 {
	switch {
	case t.LBPoolSize > 0:
		return t.LBPoolSize
	case p.Elastic && !t.Ingress && !p.Headroom:
		return 0
	case !p.Elastic && p.InitialSize == DefaultPoolSize:
		return butler.RequestedCount(&v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{Type: v1alpha1.TypeLoadBalancer}}, pool)
	}
	return p.InitialSize
}

// initialNodes returns how many node addresses a tenant gets from a pool: the default of
// the pool, within the quota.
func (p Policy) initialNodes(pool *v1alpha1.NetworkPool) int32 {
	return min(p.MaxNodes, butler.RequestedCount(&v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{Type: v1alpha1.TypeNodes}}, pool))
}

// OtherTeamError reports that the ProviderConfig of a tenant is for another team.
type OtherTeamError struct {
	Provider, Team string // the ProviderConfig and its team
	TenantTeam     string // "" if the TenantCluster names no team
}

func (e *OtherTeamError) Error() string {
	tenant := "names no team in spec.teamRef"
	if e.TenantTeam != "" {
		tenant = "is of team " + e.TenantTeam
	}
	return fmt.Sprintf("ProviderConfig %s is for team %s alone (spec.scope), and the TenantCluster %s", e.Provider, e.Team, tenant)
}

// CheckTeam returns an [*OtherTeamError] if a ProviderConfig is not for the team of a
// tenant.
func CheckTeam(p *v1alpha1.ProviderConfig, c *v1alpha1.TenantCluster) error {
	if p.Spec.Scope == nil || p.Spec.Scope.Type != v1alpha1.ScopeTeam {
		return nil
	}
	team, tenantTeam := ptr.Deref(p.Spec.Scope.TeamRef, v1alpha1.LocalObjectReference{}).Name, ptr.Deref(c.Spec.TeamRef, v1alpha1.LocalObjectReference{}).Name
	if team != "" && team == tenantTeam {
		return nil
	}
	return &OtherTeamError{Provider: p.Name, Team: team, TenantTeam: tenantTeam}
}
