package inventory

import (
	"fmt"
	"math"

	"butlerlabs.dev/ipam/allocator"
)

// maxFit bounds the sets that CountFits allocates one by one.
const maxFit = 200_000

// Fit is how many sets of ranges fit into free addresses.
type Fit struct {
	Sets int64
	// AtLeast: Sets is the bound of the count, more sets fit, and Left is not known.
	AtLeast bool
	// Left is the number of free addresses that no set uses. Unfragmented is how many sets would fit if the free addresses were one run.
	Left, Unfragmented int64
	// Largest is the largest run of free addresses.
	Largest int64
}

// Fits counts the sets of ranges that the pool could still allocate. sizes are the numbers of addresses of a set's ranges, which are allocated in this order.
func (i *Inventory) Fits(p *Pool, sizes []int64) (Fit, error) {
	return CountFits(i.Free(p, 1), p.converted.Policy, sizes)
}

// CountFits counts the sets of ranges that fit into free addresses, if a policy (nil: BestFit) allocates set after set.
func CountFits(free []allocator.Range, policy allocator.Policy, sizes []int64) (f Fit, err error) {
	perSet := int64(0)
	for _, size := range sizes {
		if size < 1 {
			return f, fmt.Errorf("%d addresses: a range has at least one", size)
		}
		perSet += size
	}
	if perSet == 0 {
		return f, fmt.Errorf("no size: name at least one number of addresses")
	}
	available := allocator.Total(free)
	for _, r := range free {
		f.Largest = max(f.Largest, r.Size())
	}
	f.Unfragmented = available / perSet
	if len(sizes) == 1 { // each run is used from its head, so the policy does not matter
		for _, r := range free {
			sets := r.Size() / perSet
			if sets > math.MaxInt64-f.Sets || r.Size() == math.MaxInt64 {
				return Fit{Sets: math.MaxInt64 / perSet, AtLeast: true, Unfragmented: f.Unfragmented, Largest: f.Largest}, nil
			}
			f.Sets += sets
		}
		f.Left = available - f.Sets*perSet
		return f, nil
	}
	pool := allocator.NewSpace().SetPool("free", free, nil)
	for owner := allocator.OwnerID(1); ; owner++ {
		if f.Sets == maxFit {
			f.AtLeast = true
			return f, nil
		}
		for _, size := range sizes {
			if _, err := pool.Allocate(size, policy, owner); err != nil {
				f.Left = available - f.Sets*perSet
				return f, nil //nolint:nilerr // the pool is full: this ends the count
			}
		}
		f.Sets++
	}
}
