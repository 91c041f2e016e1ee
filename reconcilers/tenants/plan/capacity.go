package plan

import (
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// TenantCount is the number of further tenants that get all of their initial addresses.
type TenantCount struct {
	Tenants int64
	AtLeast bool // Tenants is a lower bound
	// Next has the pool and the size of each initial block of the next tenant. Next ends
	// before the first block for which no pool has room.
	Next []Candidate
	// WaitsFor is the pool for which further tenants wait because it is paused or
	// invalid; "" without such a pool.
	WaitsFor string
}

// CountTenants counts the tenants that get all of their blocks from pools, tenant after
// tenant, as the manager allocates them. blocks are the MissingBlocks of a tenant;
// vacancies are the free addresses of their candidates, by pool.
func CountTenants(blocks []MissingBlock, vacancies map[string]*allocator.Vacancy) TenantCount {
	names := map[*allocator.Vacancy]string{}
	set := make([][]allocator.Choice, len(blocks))
	for n, b := range blocks {
		for _, c := range b.Candidates {
			names[vacancies[c.Pool]] = c.Pool
			set[n] = append(set[n], allocator.Choice{Vacancy: vacancies[c.Pool], Size: int64(c.Count)})
		}
	}
	count := allocator.CountSets(set)
	t := TenantCount{Tenants: count.Sets, AtLeast: count.AtLeast}
	if count.WaitsFor != nil {
		t.WaitsFor = names[count.WaitsFor]
	}
	for n, from := range count.Next {
		for _, c := range blocks[n].Candidates {
			if vacancies[c.Pool] == from {
				t.Next = append(t.Next, c)
			}
		}
	}
	return t
}

// vacancyOf returns the free addresses of a pool for CountTenants.
func vacancyOf(pool *v1alpha1.NetworkPool, free []allocator.Range) *allocator.Vacancy {
	p, _ := butler.ConvertPool(pool) // an invalid pool has a fault
	return &allocator.Vacancy{Domain: p.RoutingDomain, Free: free, Policy: p.Policy, Waits: p.Paused || p.Fault != ""}
}

// EstimateCapacity returns how many addresses the NetworkPools of a policy have left, for
// how many more tenants, and condition PoolAvailable. The tenants have ingress and
// default sizes. pools are the NetworkPools, and free the blocks of free addresses of
// each usable pool, by name.
func EstimateCapacity(p Policy, pools map[string]*v1alpha1.NetworkPool, free map[string][]allocator.Range) (v1alpha1.ProviderCapacity, metav1.Condition) {
	vacancies := map[string]*allocator.Vacancy{}
	byDomain := map[string][]allocator.Range{} // pools of a routing domain may have addresses in common
	names := UsablePools(p, pools)
	for _, name := range names {
		v := vacancyOf(pools[name], free[name])
		vacancies[name] = v
		byDomain[v.Domain] = append(byDomain[v.Domain], v.Free...)
	}
	var available int64
	for _, ranges := range byDomain {
		available += min(allocator.Total(allocator.Union(ranges)), math.MaxInt64-available)
	}
	blocks := MissingBlocks(Tenant{Ingress: true}, p, nil, pools)
	count := CountTenants(blocks, vacancies)
	capacity := v1alpha1.ProviderCapacity{AvailableIPs: saturate(available), EstimatedTenants: saturate(count.Tenants)}
	c := metav1.Condition{Type: v1alpha1.ConditionPoolAvailable, Status: metav1.ConditionFalse}
	switch {
	case len(p.Pools) == 0:
		c.Reason, c.Message = v1alpha1.ReasonValidationFailed, "the ProviderConfig names no NetworkPool: add a NetworkPool to spec.network.poolRefs"
	case len(names) == 0:
		c.Reason, c.Message = v1alpha1.ReasonPoolNotFound, fmt.Sprintf("none of the NetworkPools of the ProviderConfig exists: create %s", strings.Join(p.Pools, " or "))
	case available == 0:
		c.Reason, c.Message = v1alpha1.ReasonPoolExhausted, "no address is free: grow a NetworkPool, or add another to spec.network.poolRefs"
	default:
		c.Status, c.Reason = metav1.ConditionTrue, v1alpha1.ReasonPoolAvailable
		c.Message = explainCapacity(available, count, blocks)
	}
	return capacity, c
}

// explainCapacity returns the message of condition PoolAvailable while addresses are
// available.
func explainCapacity(available int64, count TenantCount, blocks []MissingBlock) string {
	ips, tenants, then := allocator.Counted(available, "IP"), "~"+allocator.Counted(count.Tenants, "tenant"), ""
	if available == math.MaxInt64 {
		ips = "2^63 IPs or more"
	}
	switch {
	case count.Tenants > math.MaxInt32:
		tenants = "2^31 tenants or more"
	case count.AtLeast:
		tenants = "at least " + tenants[1:]
	}
	switch {
	case count.WaitsFor != "":
		then = fmt.Sprintf("; then tenants wait for NetworkPool %s, which is paused or invalid", count.WaitsFor)
	case count.Tenants == 0:
		then = fmt.Sprintf("; no pool has room for a tenant's addresses for %s", blocks[len(count.Next)].Kind)
	}
	return ips + ", " + tenants + then
}
