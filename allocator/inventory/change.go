package inventory

import (
	"fmt"
	"slices"

	"butlerlabs.dev/ipam/allocator"
	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// PoolChange is a change of the spec of a NetworkPool. Empty fields change nothing.
type PoolChange struct {
	Reserve   []string // networks to add to spec.reserved
	Unreserve []string // networks to remove from spec.reserved
	CIDR      string   // new spec.cidr
	Ranges    []string // new spec.tenantAllocation.ranges, as FIRST-LAST
}

// IsEmpty reports whether every field of the change is empty.
func (c PoolChange) IsEmpty() bool {
	return c.CIDR == "" && len(c.Reserve) == 0 && len(c.Unreserve) == 0 && len(c.Ranges) == 0
}

// Apply returns a changed copy of a pool.
func (c PoolChange) Apply(p *butlerv1.NetworkPool) (*butlerv1.NetworkPool, error) {
	p = p.DeepCopy()
	if c.CIDR != "" {
		p.Spec.CIDR = c.CIDR
	}
	for _, network := range c.Unreserve {
		n := slices.IndexFunc(p.Spec.Reserved, func(r butlerv1.ReservedRange) bool { return r.CIDR == network })
		if n < 0 {
			return nil, fmt.Errorf("unreserve %s: spec.reserved has no such network: name a network that it lists", network)
		}
		p.Spec.Reserved = slices.Delete(p.Spec.Reserved, n, n+1)
	}
	for _, network := range c.Reserve {
		p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network})
	}
	if len(c.Ranges) > 0 {
		if p.Spec.TenantAllocation == nil {
			p.Spec.TenantAllocation = &butlerv1.TenantAllocation{}
		}
		p.Spec.TenantAllocation.Ranges = nil
		for _, text := range c.Ranges {
			r, err := allocator.ParseRange(text)
			if err != nil {
				return nil, fmt.Errorf("ranges: %w", err)
			}
			p.Spec.TenantAllocation.Ranges = append(p.Spec.TenantAllocation.Ranges, butlerv1.IPRange{Start: r.First.String(), End: r.Last.String()})
		}
	}
	return p, nil
}

// DefaultSizes returns the default numbers of addresses per tenant of a pool: for nodes, then for load balancers; nil for a pool without defaults.
func DefaultSizes(p *butlerv1.NetworkPool) []int64 {
	if p.Spec.TenantAllocation == nil || p.Spec.TenantAllocation.Defaults == nil {
		return nil
	}
	d := p.Spec.TenantAllocation.Defaults
	return []int64{int64(d.NodesPerTenant), int64(d.LBPoolPerTenant)}
}
