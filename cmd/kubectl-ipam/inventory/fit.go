package inventory

import (
	"fmt"
	"math"
	"math/big"
	"strconv"

	"butlerlabs.dev/ipam/allocator"
)

// manyDigits is the number of sets from which Fit.Text returns a power of two in place of
// digits.
const manyDigits = 1 << 53

// Fit is the number of sets of ranges that fit into free addresses. Counts saturate at
// MaxInt64.
type Fit struct {
	Sets int64
	// Exact is the number of sets as a float64, because the number may exceed an int64.
	Exact float64
	// AtLeast reports that Sets is a lower bound: see allocator.SetCount. Left is not
	// known then, and beyond MaxInt64 free addresses, unless a set has one range.
	AtLeast bool
	// Left is the number of free addresses that the sets leave unused. Unfragmented is
	// the number of sets that would fit if the free addresses were one block.
	Left, Unfragmented int64
	// Largest is the size of the largest block of free addresses.
	Largest int64
}

// Text returns the number of sets for messages: "76", "at least 50000" or "about 2^62".
func (f Fit) Text() string {
	switch {
	case f.Exact >= manyDigits:
		return allocator.About(f.Exact)
	case f.AtLeast:
		return fmt.Sprintf("at least %d", f.Sets)
	}
	return strconv.FormatInt(f.Sets, 10)
}

// IsPrecise reports whether Text returns the exact number of sets. Without the exact
// number, Left and Unfragmented add no information.
func (f Fit) IsPrecise() bool { return !f.AtLeast && f.Exact < manyDigits }

// Fits counts the sets of ranges that the pool can still allocate. sizes are the numbers
// of addresses of the ranges of a set, in the order of their allocation. A claim of some
// kinds of pools has one address of a family (kinds.Kind.HasRanges).
func (i *Inventory) Fits(p *Pool, sizes []int64) (Fit, error) {
	if !p.Kind.HasRanges && (len(sizes) != 1 || sizes[0] != 1) {
		return Fit{}, fmt.Errorf("a claim of %s has one address: count ranges of one address", TitleOf(p.Key))
	}
	return CountFits(i.Free(p, 1), p.converted.Policy, sizes)
}

// CountFits counts the sets of ranges that fit into free addresses if the policy (nil:
// BestFit) allocates set after set. See Fits for sizes.
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
	if len(sizes) == 1 { // BestFit and Sequential fill each block from its head; pools with Random serve only requests of size 1
		f.countBlocks(free, perSet)
		return f, nil
	}
	set := make([][]allocator.Choice, len(sizes))
	from := &allocator.Vacancy{Free: free, Policy: policy}
	for n, size := range sizes {
		set[n] = []allocator.Choice{{Vacancy: from, Size: size}}
	}
	count := allocator.CountSets(set)
	f.Sets, f.Exact, f.AtLeast = count.Sets, float64(count.Sets), count.AtLeast
	if !f.AtLeast && available < math.MaxInt64 {
		f.Left = available - f.Sets*perSet
	}
	return f, nil
}

// countBlocks counts the ranges of one size that fit into blocks of free addresses.
func (f *Fit) countBlocks(free []allocator.Range, size int64) {
	sets, left, total, divisor := new(big.Int), new(big.Int), new(big.Int), big.NewInt(size)
	for _, r := range free {
		n := countAddresses(r)
		total.Add(total, n)
		quotient, rest := new(big.Int).QuoRem(n, divisor, new(big.Int))
		sets.Add(sets, quotient)
		left.Add(left, rest)
	}
	f.Exact, _ = new(big.Float).SetInt(sets).Float64()
	f.Sets, f.Left, f.Unfragmented, f.AtLeast = saturated(sets), saturated(left), saturated(total.Quo(total, divisor)), !sets.IsInt64()
}

// countAddresses counts the addresses of a range.
func countAddresses(r allocator.Range) *big.Int {
	first, last := r.First.As16(), r.Last.As16()
	n := new(big.Int).SetBytes(last[:])
	return n.Sub(n, new(big.Int).SetBytes(first[:])).Add(n, big.NewInt(1))
}

func saturated(n *big.Int) int64 {
	if !n.IsInt64() {
		return math.MaxInt64
	}
	return n.Int64()
}
