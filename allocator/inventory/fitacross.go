package inventory

import (
	"fmt"

	"butlerlabs.dev/ipam/allocator"
)

// Candidate is a pool, and the number of addresses to request from the pool.
type Candidate struct {
	Pool *Pool
	Size int64
}

// AcrossFit is the number of sets of ranges that fit into several pools.
type AcrossFit struct {
	Sets    int64
	AtLeast bool // the count ended at maxFit: Sets is a lower bound
	// Next lists the pools of the ranges of the next set, in the order of the ranges. Next ends before the first range without room.
	Next []*Pool
	// WaitsFor is the pool that ended the count because it does not serve; nil if the count ended for lack of room or at maxFit.
	WaitsFor *Pool
}

// FitAcross counts the sets of ranges that fit into pools. Each range of a set gets addresses from its first candidate with room, independently of the other
// ranges of the set.
//
// The search ends at a candidate whose pool does not serve (see Serves): a claim waits for the pool, or the pool denies the claim for a reason other than room.
func (i *Inventory) FitAcross(set [][]Candidate) (f AcrossFit, err error) {
	pools := map[Key]*allocator.Pool{}
	spaces := map[string]*allocator.Space{} // routing domain -> space: the pools of a domain may share addresses
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

// firstWithRoom allocates a range from the first candidate with room. If found is false, p is the pool that does not serve and ended the search; nil if no
// candidate has room.
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

// Serves reports whether the pool, while it has room, allocates addresses to claims without a requested address.
func (p *Pool) Serves() bool { return !p.Paused && !p.Manual && !p.Deleting && p.Fault == "" }
