package state

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// knownPools are the pools that were observed or read, and their windows in the routing
// domains.
//
// Invariant: a pool is listed under its key. Its windows (pool.core, pool.families,
// pool.orderedParts) and no others are listed under it.
type knownPools struct {
	byKey    map[Key]*pool
	byWindow map[*allocator.Pool]Key // window -> key of its pool
}

func newKnownPools() knownPools {
	return knownPools{byKey: map[Key]*pool{}, byWindow: map[*allocator.Pool]Key{}}
}

// pool is a known pool; or, with a zero Key and without core, a stand-in for a request
// for exact ranges that no pool serves (poolForRequest).
type pool struct {
	Pool
	exactChecker
	core              *allocator.Pool               // nil in a stand-in
	families          map[int]*allocator.Pool       // bits of an address -> part of the pool with that family; core itself if the pool has a single family
	orderedRanges     []allocator.Range             // the pool's ranges if allocated in order; nil otherwise
	orderedParts      []*allocator.Pool             // a part for each of orderedRanges
	readAhead         bool                          // the pool comes from a live read; the event of this version is outstanding
	eventOverdueSince time.Time                     // since when later events have been applied without the pool's event; zero if the event is not overdue
	observedCooldowns map[cooldownRecordID]cooldown // record -> cooldown to which the record was converted when first observed
}

// exactChecker checks whether an exact range is free: in a pool, or, for claims without a
// pool, in the whole routing domain.
type exactChecker interface {
	CheckExact(allocator.Range) error
}

// windowsFor lists the parts of a pool from which a range request may be served, in the
// order in which to try them. The last part covers the whole pool (of the wanted family),
// so the error of the last part has the numbers of the pool.
func (p *pool) windowsFor(w RangeRequest) ([]*allocator.Pool, error) {
	offer, err := p.familyWindow(w)
	if err != nil {
		return nil, err
	}
	return append(slices.Clone(p.orderedParts), offer), nil
}

// familyWindow returns the part of a pool that has addresses of the wanted family.
func (p *pool) familyWindow(w RangeRequest) (*allocator.Pool, error) {
	family := p.families[w.Bits]
	switch {
	case p.core == nil:
		return nil, &NoPoolError{}
	case p.Manual:
		return nil, &NotAutomaticError{Pool: p.Key}
	case w.Bits == 0:
		return p.core, nil
	case family == nil:
		return nil, &FamilyError{Pool: p.Key, Bits: w.Bits}
	}
	return family, nil
}

// find returns the pool with a key; nil if it is not known.
func (k *knownPools) find(key Key) *pool { return k.byKey[key] }

// ofWindow returns the key of the pool with a window.
func (k *knownPools) ofWindow(window *allocator.Pool) Key { return k.byWindow[window] }

// add adds a pool that becomes known.
func (k *knownPools) add(key Key) *pool {
	added := &pool{}
	k.byKey[key] = added
	return added
}

// remove hides and removes a pool that is gone.
func (k *knownPools) remove(p *pool, core *allocator.Space) {
	k.hide(p, core)
	delete(k.byKey, p.Key)
}

// all iterates over all pools. The loop may remove pools.
func (k *knownPools) all() iter.Seq[*pool] { return maps.Values(k.byKey) }

// number returns the number of pools.
func (k *knownPools) number() int { return len(k.byKey) }

// in iterates over the pools of a routing domain.
func (k *knownPools) in(routingDomain string) iter.Seq[*pool] {
	return func(yield func(*pool) bool) {
		for _, p := range k.byKey {
			if p.RoutingDomain == routingDomain && !yield(p) {
				return
			}
		}
	}
}

// blocking returns a pool of a routing domain, besides one, that blocks an address of a
// range, and the blocked range; nil if there is none.
func (k *knownPools) blocking(routingDomain string, r allocator.Range, besides *pool) (by *pool, blocked allocator.Range) {
	for p := range k.in(routingDomain) {
		if i := slices.IndexFunc(p.Blocked, r.Overlaps); i >= 0 && p != besides {
			return p, p.Blocked[i]
		}
	}
	return nil, blocked
}

// show adds the window of a pool to its routing domain: the whole window, each family
// if the window has two, and each range if the pool allocates its ranges in order.
func (k *knownPools) show(p *pool, core *allocator.Space) {
	name := p.Key.coreName()
	for _, part := range p.families {
		delete(k.byWindow, part)
	}
	k.showOrderedParts(p, core)
	p.core = core.SetPool(name, p.Window, p.Blocked)
	p.exactChecker, p.families = p.core, map[int]*allocator.Pool{}
	k.byWindow[p.core] = p.Key
	for _, bits := range families {
		part := slices.DeleteFunc(slices.Clone(p.Window), func(r allocator.Range) bool { return r.First.BitLen() != bits })
		switch {
		case len(part) == 0:
			core.RemovePool(partName(name, bits))
		case len(part) == len(p.Window):
			p.families[bits] = p.core
			core.RemovePool(partName(name, bits))
		default:
			p.families[bits] = core.SetPool(partName(name, bits), part, nil)
			k.byWindow[p.families[bits]] = p.Key
		}
	}
}

// showOrderedParts adds each range of a pool that allocates its ranges in order.
func (k *knownPools) showOrderedParts(p *pool, core *allocator.Space) {
	if !p.Ordered || len(p.Window) < 2 {
		k.setOrderedParts(p, core, nil)
	} else {
		k.setOrderedParts(p, core, p.Window)
	}
}

// setOrderedParts adds these ranges of a pool, and removes all others. A range that was
// added earlier costs little: a pool may have thousands of ranges.
func (k *knownPools) setOrderedParts(p *pool, core *allocator.Space, ranges []allocator.Range) {
	stay := map[allocator.Range]bool{}
	var (
		gone  []string
		shown []allocator.Offer
	)
	for _, r := range ranges {
		stay[r] = true
		shown = append(shown, allocator.Offer{Name: orderedName(p.Key.coreName(), r), Window: []allocator.Range{r}})
	}
	for i, r := range p.orderedRanges {
		if !stay[r] {
			gone = append(gone, orderedName(p.Key.coreName(), r))
			delete(k.byWindow, p.orderedParts[i])
		}
	}
	core.RemovePools(gone...)
	p.orderedRanges, p.orderedParts = ranges, core.SetPools(shown...)
	for _, part := range p.orderedParts {
		k.byWindow[part] = p.Key
	}
}

// hide removes a pool from its routing domain.
func (k *knownPools) hide(p *pool, core *allocator.Space) {
	name := p.Key.coreName()
	core.RemovePool(name)
	delete(k.byWindow, p.core)
	for _, bits := range families {
		core.RemovePool(partName(name, bits))
		delete(k.byWindow, p.families[bits])
	}
	k.setOrderedParts(p, core, nil)
}

// families lists the bits of an IPv4 and an IPv6 address.
var families = []int{32, 128}

func partName(pool string, bits int) string { return fmt.Sprintf("%s/%d", pool, bits) }

func orderedName(pool string, r allocator.Range) string { return pool + "#" + r.String() }

// check verifies the invariant.
func (k *knownPools) check() error {
	windows := 0
	for key, p := range k.byKey {
		if p.Key != key {
			return fmt.Errorf("pool %s is listed as %s", p.Key, key)
		}
		own := append(slices.Collect(maps.Values(p.families)), p.orderedParts...)
		if !slices.Contains(own, p.core) {
			own = append(own, p.core)
		}
		for _, window := range own {
			if k.byWindow[window] != key {
				return fmt.Errorf("a window of pool %s is listed under %s", key, k.byWindow[window])
			}
		}
		windows += len(own)
	}
	if windows != len(k.byWindow) {
		return fmt.Errorf("pools have %d windows, listed are %d", windows, len(k.byWindow))
	}
	return nil
}
