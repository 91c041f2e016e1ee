package inventory

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	jsonpatch "github.com/evanphx/json-patch/v5"

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

// NetworkPoolOf returns the stored NetworkPool of a pool, and an error for a pool of
// another kind.
func NetworkPoolOf(p *Pool) (*butlerv1.NetworkPool, error) {
	stored, ok := p.Object.(*butlerv1.NetworkPool)
	if !ok {
		kind := KindOf(p.Key)
		article := "a"
		if strings.HasPrefix(kind, "I") {
			article = "an"
		}
		return nil, fmt.Errorf("pool %s is %s %s, and plan serves NetworkPools only: check a change of %[2]s %[3]s by kubectl apply --dry-run=server", NameOf(p.Key), article, kind)
	}
	return stored, nil
}

// Apply returns a changed copy of a pool. A network that spec.reserved lists already is
// not added again.
func (c PoolChange) Apply(p *butlerv1.NetworkPool) (*butlerv1.NetworkPool, error) {
	p = p.DeepCopy()
	if c.CIDR != "" {
		p.Spec.CIDR = c.CIDR
	}
	for _, network := range c.Unreserve {
		if slices.ContainsFunc(c.Reserve, func(other string) bool { return equalNetworks(network, other) }) {
			return nil, fmt.Errorf("reserve and unreserve name %s: name the network in one of them", network)
		}
		kept := slices.DeleteFunc(slices.Clone(p.Spec.Reserved), reserves(network))
		if len(kept) == len(p.Spec.Reserved) {
			return nil, fmt.Errorf("unreserve %s: spec.reserved has no such network: name a network that it lists", network)
		}
		p.Spec.Reserved = kept
	}
	for _, network := range c.Reserve {
		if !slices.ContainsFunc(p.Spec.Reserved, reserves(network)) {
			p.Spec.Reserved = append(p.Spec.Reserved, butlerv1.ReservedRange{CIDR: network})
		}
	}
	if len(c.Ranges) > 0 {
		if p.Spec.TenantAllocation == nil {
			p.Spec.TenantAllocation = &butlerv1.TenantAllocation{}
		}
		p.Spec.TenantAllocation.Ranges = nil
		p.Spec.TenantAllocation.Start, p.Spec.TenantAllocation.End = "", "" // ranges has priority over these fields
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

// reserves returns a function that reports whether an entry of spec.reserved is a
// network.
func reserves(network string) func(butlerv1.ReservedRange) bool {
	return func(r butlerv1.ReservedRange) bool { return equalNetworks(r.CIDR, network) }
}

// equalNetworks reports whether two texts are the same network, in canonical form or not.
func equalNetworks(x, y string) bool {
	first, err1 := netip.ParsePrefix(x)
	second, err2 := netip.ParsePrefix(y)
	return x == y || err1 == nil && err2 == nil && first.Masked() == second.Masked()
}

// SpecPatch returns the JSON merge patch that changes the spec of a stored pool to the
// spec of an updated pool; nil if the specs are equal. The patch has only the fields that
// differ, and null for a removed field. A list in the patch replaces the stored list.
func SpecPatch(stored, updated *butlerv1.NetworkPool) ([]byte, error) {
	before, err := json.Marshal(map[string]any{"spec": stored.Spec})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(map[string]any{"spec": updated.Spec})
	if err != nil {
		return nil, err
	}
	patch, err := jsonpatch.CreateMergePatch(before, after)
	if err != nil || string(patch) == "{}" {
		return nil, err
	}
	return patch, nil
}

// DefaultSizes returns the default numbers of addresses per tenant of a pool: for nodes,
// then for load balancers; nil for a pool without defaults.
func DefaultSizes(p *butlerv1.NetworkPool) []int64 {
	if p.Spec.TenantAllocation == nil || p.Spec.TenantAllocation.Defaults == nil {
		return nil
	}
	d := p.Spec.TenantAllocation.Defaults
	return []int64{int64(d.NodesPerTenant), int64(d.LBPoolPerTenant)}
}
