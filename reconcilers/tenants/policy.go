package tenants

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"k8s.io/utils/ptr"

	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// What a ProviderConfig without an own number means, in addresses.
const (
	DefaultPoolSize    = 8 // of a static tenant, where its pool has no number of its own
	defaultInitialSize = 2 // of an elastic one
	defaultIncrement   = 2
)

// Policy is what a ProviderConfig says about the addresses of each of its tenants, with its defaults filled in.
type Policy struct {
	IPAM    bool     // addresses come from NetworkPools
	Pools   []string // names, in the order in which they are tried
	Nodes   bool     // nodes get theirs from the pools, too
	Elastic bool     // load balancers get more on demand

	InitialSize int32 // of the first block for load balancers
	Increment   int32 // the least that is added on demand

	MaxNodes         int32 // addresses for nodes at most; MaxInt32 without a quota
	MaxLoadBalancers int32 // the same for load balancers
}

// PolicyOf reads a ProviderConfig, whether its API server fills in defaults or not.
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
	p.Pools = poolsByPriority(n.PoolRefs)
	if lb := n.LoadBalancer; lb != nil {
		p.Elastic = lb.AllocationMode == v1alpha1.LBAllocationElastic
		p.InitialSize = ptr.Deref(lb.DefaultPoolSize, DefaultPoolSize)
		if p.Elastic {
			p.InitialSize = ptr.Deref(lb.InitialPoolSize, defaultInitialSize)
		}
		p.Increment = ptr.Deref(lb.GrowthIncrement, defaultIncrement)
	}
	if q := n.QuotaPerTenant; q != nil {
		p.MaxNodes = ptr.Deref(q.MaxNodeIPs, math.MaxInt32)
		p.MaxLoadBalancers = ptr.Deref(q.MaxLoadBalancerIPs, math.MaxInt32)
	}
	return p
}

// poolsByPriority is the names of pools, the lowest priority first and equal ones in their order, each once.
func poolsByPriority(refs []v1alpha1.PoolReference) []string {
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

// lbIn is how many addresses for load balancers a tenant starts with in a pool, before its quota: none for an elastic tenant without ingress, since
// nothing of the platform needs one and what its own Services need comes on demand. The pool's number counts for a static tenant whose provider says
// none: the API server fills in DefaultPoolSize then. pool may be nil.
func (p Policy) lbIn(t Tenant, pool *v1alpha1.NetworkPool) int32 {
	switch {
	case t.LBPoolSize > 0:
		return t.LBPoolSize
	case p.Elastic && !t.Ingress:
		return 0
	case !p.Elastic && p.InitialSize == DefaultPoolSize:
		return butler.CountFor(&v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{Type: v1alpha1.TypeLoadBalancer}}, pool)
	}
	return p.InitialSize
}

// nodesIn is how many addresses for nodes a tenant gets of a pool: the pool's own number, within the quota.
func (p Policy) nodesIn(pool *v1alpha1.NetworkPool) int32 {
	return min(p.MaxNodes, butler.CountFor(&v1alpha1.IPAllocation{Spec: v1alpha1.IPAllocationSpec{Type: v1alpha1.TypeNodes}}, pool))
}

// OtherTeamError says that a provider's addresses are not for a tenant.
type OtherTeamError struct {
	Provider, Team string // whose they are
	Of             string // the team of the tenant, "" where it names none
}

func (e *OtherTeamError) Error() string {
	of := "names no team in spec.teamRef"
	if e.Of != "" {
		of = "is of team " + e.Of
	}
	return fmt.Sprintf("ProviderConfig %s is for team %s alone (spec.scope), and the TenantCluster %s", e.Provider, e.Team, of)
}

// MayUse is nil where a tenant may have addresses of a provider, else an [*OtherTeamError].
func MayUse(p *v1alpha1.ProviderConfig, c *v1alpha1.TenantCluster) error {
	if p.Spec.Scope == nil || p.Spec.Scope.Type != v1alpha1.ScopeTeam {
		return nil
	}
	team, of := ptr.Deref(p.Spec.Scope.TeamRef, v1alpha1.LocalObjectReference{}).Name, ptr.Deref(c.Spec.TeamRef, v1alpha1.LocalObjectReference{}).Name
	if team != "" && team == of {
		return nil
	}
	return &OtherTeamError{Provider: p.Name, Team: team, Of: of}
}
