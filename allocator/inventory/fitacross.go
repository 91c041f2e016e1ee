package inventory

import (
	"fmt"

	"butlerlabs.dev/ipam/allocator"
)

// Candidate is a number of addresses that a pool is asked for.
type Candidate struct {
	Pool *Pool
	Size int64
}

// AcrossFit is how many sets of ranges fit into several pools.
type AcrossFit struct {
	Sets    int64
	AtLeast bool // the count has a bound, and more sets fit
	// Next are the pools of the ranges of the next set, in the order of the ranges. They end before the first range that gets no addresses.
	Next []*Pool
	// WaitsFor is the pool that ends the count before it is full; nil if no pool has room.
	WaitsFor *Pool
}

// FitAcross counts the sets of ranges that fit into pools. Each range of a set has candidates, and gets its addresses from the first that has room, whatever the
// other ranges of the set get. A pool for which a claim waits, or which denies a claim for another reason than its room, ends the search for candidates.
func (i *Inventory) FitAcross(set [][]Candidate) (f AcrossFit, err error) {
	pools := map[Key]*allocator.Pool{}
	spaces := map[string]*allocator.Space{} // by routing domain: pools may share addresses
	for _, candidates := range set {
		for _, c := range candidates {
			if c.Size < 1 {
				return f, fmt.Errorf("%d addresses: a range has at least one", c.Size)
			}
			if spaces[c.Pool.Domain] == nil {
				spaces[c.Pool.Domain] = allocator.NewSpace()
			}
			if pools[c.Pool.Key] == nil {
				pools[c.Pool.Key] = spaces[c.Pool.Domain].SetPool(fmt.Sprint(c.Pool.Key), i.Free(c.Pool, 1), nil)
			}
		}
	}
	if len(set) == 0 {
		return f, fmt.Errorf("no size: name at least one number of addresses")
	}
	for ; f.Sets < maxFit; f.Sets++ {
		for _, candidates := range set {
			p, found := firstWithRoom(candidates, pools, allocator.OwnerID(f.Sets+1))
			if !found {
				f.WaitsFor = p
				return f, nil
			}
			if f.Sets == 0 {
				f.Next = append(f.Next, p)
			}
		}
	}
	f.AtLeast = true
	return f, nil
}

// firstWithRoom allocates a range from the first candidate that has room. If none has, the result is the pool that ended the search, or nil.
func firstWithRoom(candidates []Candidate, pools map[Key]*allocator.Pool, owner allocator.OwnerID) (p *Pool, found bool) {
	for _, c := range candidates {
		if !c.Pool.Serves() {
			return c.Pool, false
		}
		if _, err := pools[c.Pool.Key].Allocate(c.Size, c.Pool.converted.Policy, owner); err == nil {
			return c.Pool, true
		}
	}
	return nil, false
}

// Serves reports whether the pool allocates addresses to claims that do not name them, as long as it has room.
func (p *Pool) Serves() bool { return !p.Paused && !p.Manual && !p.Deleting && p.Fault == "" }
