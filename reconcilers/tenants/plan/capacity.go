package plan

import (
	"fmt"
	"math"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// EstimateCapacity returns how many addresses the NetworkPools of a policy have left, for how many more tenants, and condition PoolAvailable. The number
// of tenants assumes tenants with ingress and default sizes, and ignores how free addresses are distributed over pools and ranges. pools is keyed by name.
func EstimateCapacity(p Policy, pools map[string]*v1alpha1.NetworkPool) (v1alpha1.ProviderCapacity, metav1.Condition) {
	var available, perTenant int64
	names := UsablePools(p, pools)
	for i, name := range names {
		if i == 0 {
			perTenant = int64(min(p.initialLoadBalancers(Tenant{Ingress: true}, pools[name]), p.MaxLoadBalancers))
		}
		if i == 0 && p.Nodes {
			perTenant += int64(p.initialNodes(pools[name]))
		}
		available += min(pools[name].Status.AvailableIPs, math.MaxInt64-available)
	}
	perTenant = max(perTenant, 1)
	capacity := v1alpha1.ProviderCapacity{AvailableIPs: saturate(available), EstimatedTenants: saturate(available / perTenant)}
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
		c.Message = fmt.Sprintf("%s, ~%s", allocator.Counted(available, "IP"), allocator.Counted(available/perTenant, "tenant"))
		if available == math.MaxInt64 {
			c.Message = "2^63 IPs or more, for any number of tenants"
		}
	}
	return capacity, c
}
