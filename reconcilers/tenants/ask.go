package tenants

import "butlerlabs.dev/ipam/api/butler/v1alpha1"

// First asks one pool after the other and returns the first that does not refuse. ask reports whether the pool gave what was asked; an
// error ends the search, because it says nothing about room.
func First(tries []Try, ask func(Try) (bool, error)) (Try, bool, error) {
	for _, t := range tries {
		if ok, err := ask(t); ok || err != nil {
			return t, ok, err
		}
	}
	return Try{}, false, nil
}

// Spread asks pools, in order, for want addresses in one block. Where none has such a block, it asks for need of them and then in smaller and
// smaller ones, until need are there or no pool has a single one left. It returns how many it got.
func Spread(pools []string, need, want int32, ask func(Try) (bool, error)) (got int32, err error) {
	for size := want; size > 0 && got < need; {
		tries := make([]Try, len(pools))
		for i, pool := range pools {
			tries[i] = Try{pool, size}
		}
		_, ok, err := First(tries, ask)
		switch {
		case err != nil:
			return got, err
		case ok:
			got += size
			size = min(size, need-got)
		case size > need-got:
			size = need - got
		default:
			size /= 2
		}
	}
	return got, nil
}

// PoolsFor is the pools of a policy that exist and stay, in order.
func PoolsFor(p Policy, pools map[string]*v1alpha1.NetworkPool) []string {
	var names []string
	for _, name := range p.Pools {
		if pool := pools[name]; pool != nil && pool.DeletionTimestamp == nil {
			names = append(names, name)
		}
	}
	return names
}
