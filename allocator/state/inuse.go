package state

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// Addresses in use. Nodes, Machines and Services of the cluster have addresses that no
// claim requested. Such an address is avoided in the routing domain of the cluster's
// network, unless a claim owns the address there or may come to own it. An avoided
// address is not allocated, also not upon a request for exactly this address, except to
// the claim for whose name a pool keeps the address. Owners keep their addresses; a claim
// whose address is in use later is no conflict.
//
// The first row that applies decides which routing domain is that of the cluster's
// network (clusterDomain):
//
//	a routing domain is configured              that routing domain
//	a known pool is in the default domain       the default routing domain
//	no known pool is in the default domain      each: nothing shows which one, and an address in use must not be allocated
//
// Invariant: in a routing domain with areIn, domain.avoided == addresses in use -
// addresses of the holdings with isInUse; elsewhere it is empty.
//
// Invariant: inUse.defaultPools == number of known pools in the default routing domain.

// inUseID marks the addresses in use, and the avoided addresses, in their indexes.
const inUseID allocator.OwnerID = 1

// avoidedName is the name under which a routing domain blocks its avoided addresses. No
// key of a pool is equal: the name of a resource has no blank.
const avoidedName = "addresses in use"

// addressesInUse are the addresses of users beside the claims.
type addressesInUse struct {
	byUser map[Key][]netip.Addr
	users  map[netip.Addr][]Key // in the order in which they were observed
	index  *allocator.Space     // the addresses, each owned by inUseID

	configuredDomain *string // routing domain of the cluster's network; nil if none is configured
	defaultPools     int     // number of known pools in the default routing domain
}

func newAddressesInUse() addressesInUse {
	return addressesInUse{byUser: map[Key][]netip.Addr{}, users: map[netip.Addr][]Key{}, index: allocator.NewSpace()}
}

// clusterDomain returns the routing domain of the cluster's network; false if nothing
// shows which one it is.
func (u *addressesInUse) clusterDomain() (domain string, known bool) {
	if u.configuredDomain != nil {
		return *u.configuredDomain, true
	}
	return "", u.defaultPools > 0
}

// areIn reports whether the addresses in use are avoided in a routing domain.
func (u *addressesInUse) areIn(domain string) bool {
	cluster, known := u.clusterDomain()
	return !known || domain == cluster
}

// SetClusterDomain configures the routing domain of the cluster's network, before any
// event is applied.
func (s *State) SetClusterDomain(domain string) { s.inUse.configuredDomain = &domain }

// ClusterDomain returns the routing domain of the cluster's network; false if nothing
// shows which one it is, and the addresses in use are avoided in each.
func (s *State) ClusterDomain() (domain string, known bool) { return s.inUse.clusterDomain() }

// AvoidsInUse reports whether the addresses in use are avoided in a routing domain, since
// it is or may be that of the cluster's network.
func (s *State) AvoidsInUse(domain string) bool { return s.inUse.areIn(domain) }

// NarrowsInUse lists the routing domains of pools in which addresses in use are avoided
// now, and are no longer once a new pool is stored: the first pool in the default routing
// domain.
func (s *State) NarrowsInUse(p Pool) (freed []string) {
	if s.inUse.configuredDomain != nil || s.inUse.defaultPools > 0 || p.RoutingDomain != "" {
		return nil
	}
	domains := map[string]bool{}
	for other := range s.pools.all() {
		if other.Key != p.Key {
			domains[other.RoutingDomain] = true
		}
	}
	return slices.Sorted(maps.Keys(domains))
}

// countDefaultPools adds to the number of known pools in the default routing domain, if a
// pool is or was there, and updates each routing domain if areIn has changed. It reports
// whether avoided addresses may have become free: the caller evaluates the deferred
// claims again once it has applied the pool.
func (s *State) countDefaultPools(domain string, added int) (freed bool) {
	if domain != "" {
		return false
	}
	had := s.inUse.defaultPools > 0
	s.inUse.defaultPools += added
	if has := s.inUse.defaultPools > 0; s.inUse.configuredDomain != nil || had == has {
		return false
	}
	used := allRanges(s.inUse.index)
	for name := range s.domains {
		s.updateAvoidedIn(name, used)
	}
	return !had
}

// updateAvoidedIn updates the avoided addresses of a routing domain, and reports as
// changed the pools that offer some of those that have changed.
func (s *State) updateAvoidedIn(name string, ranges []allocator.Range) {
	var changed []allocator.Range
	for _, r := range ranges {
		if s.updateAvoided(name, r) {
			changed = append(changed, r)
		}
	}
	s.markBlockChanges(name, nil, changed)
}

// SetInUse replaces the addresses that a user other than a claim has: a Node, a Machine
// or a Service. A user that is gone has no addresses.
func (s *State) SetInUse(user Key, addresses []netip.Addr) {
	before := s.inUse.byUser[user]
	var changed []allocator.Range
	freed := false
	for _, a := range before {
		if slices.Contains(addresses, a) {
			continue
		}
		if s.inUse.users[a] = slices.DeleteFunc(s.inUse.users[a], func(k Key) bool { return k == user }); len(s.inUse.users[a]) == 0 {
			delete(s.inUse.users, a)
			r := allocator.Range{First: a, Last: a}
			s.inUse.index.Release(r, inUseID)
			changed, freed = append(changed, r), true
		}
	}
	for _, a := range addresses {
		if slices.Contains(s.inUse.users[a], user) {
			continue
		}
		if s.inUse.users[a] = append(s.inUse.users[a], user); len(s.inUse.users[a]) == 1 {
			r := allocator.Range{First: a, Last: a}
			s.inUse.index.Assign(r, inUseID)
			changed = append(changed, r)
		}
	}
	if s.inUse.byUser[user] = slices.Clone(addresses); len(addresses) == 0 {
		delete(s.inUse.byUser, user)
	}
	for name := range s.domains {
		s.updateAvoidedIn(name, changed)
	}
	if freed {
		s.admitAllDeferred()
	}
}

// updateAvoided updates which addresses of a range a routing domain avoids, after a
// change of their users or owners, or of areIn, and reports whether that has changed.
func (s *State) updateAvoided(name string, r allocator.Range) bool {
	domain := s.domain(name)
	was, used := rangesIn(domain.avoided, r), s.inUse.rangesIn(name, r)
	if len(was) == 0 && len(used) == 0 {
		return false
	}
	var owned []allocator.Range
	for o := range domain.core.OwnedIn(r) {
		if s.holdings.find(o.OwnerID).isInUse() {
			owned = append(owned, o.Range)
		}
	}
	is := allocator.Subtract(used, owned)
	if slices.Equal(was, is) {
		return false
	}
	for _, part := range was {
		domain.avoided.Release(part, inUseID)
	}
	for _, part := range is {
		domain.avoided.Assign(part, inUseID)
	}
	domain.avoidedShown = false
	return true
}

// blockAvoided blocks the avoided addresses of a routing domain for the requests and
// counters that follow. The cost grows with the number of avoided addresses: so changes
// are collected until a request or a counter depends on them.
func (d *domain) blockAvoided() {
	if d.avoidedShown {
		return
	}
	d.avoidedShown = true
	if all := allRanges(d.avoided); len(all) == 0 {
		d.core.RemovePool(avoidedName)
	} else {
		d.core.SetPool(avoidedName, nil, all)
	}
}

// isEmpty reports whether the routing domain equals a new one.
func (d *domain) isEmpty() bool { return d.core.IsEmptyBut(avoidedName) }

// avoidedIn returns the error for a range with avoided addresses; nil if the range has
// none.
func (s *State) avoidedIn(routingDomain string, r allocator.Range) *allocator.BlockedError {
	for _, part := range rangesIn(s.domain(routingDomain).avoided, r) {
		return s.inUseError(part)
	}
	return nil
}

// inUseError returns the error for a request that contains addresses in use. The error
// names the kind of the user only: its readers may not know the user.
func (s *State) inUseError(r allocator.Range) *allocator.BlockedError {
	e := &allocator.BlockedError{Range: r}
	for _, user := range s.inUse.users[r.First] {
		kind, _, _ := strings.Cut(user.Resource, ".")
		e.What = fmt.Sprintf("is in use by %s of the cluster", kind)
	}
	return e
}

// rangesIn lists the addresses in use within a range of a routing domain.
func (u *addressesInUse) rangesIn(domain string, r allocator.Range) []allocator.Range {
	if !u.areIn(domain) {
		return nil
	}
	return rangesIn(u.index, r)
}

// rangesIn lists the addresses of an index within a range.
func rangesIn(index *allocator.Space, r allocator.Range) (list []allocator.Range) {
	for o := range index.OwnedIn(r) {
		list = append(list, o.Range)
	}
	return list
}

var everyAddress = []allocator.Range{
	allocator.RangeOfPrefix(netip.MustParsePrefix("0.0.0.0/0")), allocator.RangeOfPrefix(netip.MustParsePrefix("::/0")),
}

// allRanges lists the addresses of an index.
func allRanges(index *allocator.Space) []allocator.Range {
	return append(rangesIn(index, everyAddress[0]), rangesIn(index, everyAddress[1])...)
}

// checkInUse verifies the number of pools in the default routing domain, and the avoided
// addresses of each routing domain.
func (s *State) checkInUse() error {
	pools := 0
	for p := range s.pools.all() {
		pools += boolToInt(p.RoutingDomain == "")
	}
	if pools != s.inUse.defaultPools {
		return fmt.Errorf("%d pools are in the default routing domain, counted %d", pools, s.inUse.defaultPools)
	}
	for name, domain := range s.domains {
		var used, owned []allocator.Range
		if c := s.inUse.configuredDomain; c != nil && *c == name || c == nil && (name == "" || pools == 0) {
			used = allRanges(s.inUse.index)
		}
		for _, r := range used {
			for o := range domain.core.OwnedIn(r) {
				if s.holdings.find(o.OwnerID).isInUse() {
					owned = append(owned, o.Range)
				}
			}
		}
		if is, want := allRanges(domain.avoided), allocator.Subtract(used, owned); !slices.Equal(is, want) {
			return fmt.Errorf("domain %q avoids %v, and of the addresses in use there no claim owns %v", name, is, want)
		}
	}
	return nil
}
