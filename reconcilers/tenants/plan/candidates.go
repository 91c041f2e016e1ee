package plan

import (
	"slices"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// Candidate is a number of addresses to allocate from one pool.
type Candidate struct {
	Pool  string
	Count int32 // 0: the pool's default
}

// AllocateFirst calls allocate with each candidate in order until an allocation succeeds,
// and returns the successful candidate. allocate returns false if the pool has no room;
// an error ends the search.
func AllocateFirst(candidates []Candidate, allocate func(Candidate) (bool, error)) (Candidate, bool, error) {
	for _, c := range candidates {
		if allocated, err := allocate(c); allocated || err != nil {
			return c, allocated, err
		}
	}
	return Candidate{}, false, nil
}

// AllocateParts allocates addresses from the pools, in order, and returns how many. The
// first request is for a block of want addresses, the next for need addresses, further
// requests for smaller and smaller blocks, until need addresses are allocated or no pool
// has a single address.
func AllocateParts(pools []string, need, want int32, allocate func(Candidate) (bool, error)) (allocated int32, err error) {
	for size := want; size > 0 && allocated < need; {
		candidates := make([]Candidate, len(pools))
		for i, pool := range pools {
			candidates[i] = Candidate{pool, size}
		}
		_, ok, err := AllocateFirst(candidates, allocate)
		switch {
		case err != nil:
			return allocated, err
		case ok:
			allocated += size
			size = min(size, need-allocated)
		case size > need-allocated:
			size = need - allocated
		default:
			size /= 2
		}
	}
	return allocated, nil
}

// UsablePools returns the pools of a policy that exist and are not being deleted, in the
// order of the policy. pools is keyed by name.
func UsablePools(p Policy, pools map[string]*v1alpha1.NetworkPool) []string {
	var names []string
	for _, name := range p.Pools {
		if pool := pools[name]; pool != nil && pool.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	return names
}

// UnusablePools returns the pools of a policy that do not exist or are being deleted.
func UnusablePools(p Policy, pools map[string]*v1alpha1.NetworkPool) []string {
	usable := UsablePools(p, pools)
	return slices.DeleteFunc(slices.Clone(p.Pools), func(name string) bool { return slices.Contains(usable, name) })
}
