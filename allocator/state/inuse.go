package state

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// Addresses in use. Nodes, Machines and Services of the cluster have addresses that no
// claim requested. The network of the cluster may be any routing domain: an address in
// use is avoided in each routing domain in which no claim owns the address, or may come
// to own it. An avoided address is not allocated, also not upon a request for exactly
// this address, except to the claim for whose name a pool keeps the address. Owners keep
// their addresses; a claim whose address is in use later is no conflict.
//
// Invariant: space.avoided == addresses in use - addresses of the holdings with isInUse.

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
}

func newAddressesInUse() addressesInUse {
	return addressesInUse{byUser: map[Key][]netip.Addr{}, users: map[netip.Addr][]Key{}, index: allocator.NewSpace()}
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
	for _, r := range changed {
		for name, domain := range s.spaces {
			if s.updateAvoided(domain, r) {
				s.markBlockChanges(name, nil, []allocator.Range{r})
			}
		}
	}
	if freed {
		s.admitAllDeferred()
	}
}

// updateAvoided updates which addresses of a range a routing domain avoids, after a
// change of their users or owners, and reports whether that has changed.
func (s *State) updateAvoided(domain *space, r allocator.Range) bool {
	was, used := rangesIn(domain.avoided, r), rangesIn(s.inUse.index, r)
	if len(was) == 0 && len(used) == 0 {
		return false
	}
	var owned []allocator.Range
	for o := range domain.core.OwnedIn(r) {
		if s.holdings[o.OwnerID].isInUse() {
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
func (domain *space) blockAvoided() {
	if domain.avoidedShown {
		return
	}
	domain.avoidedShown = true
	if all := allRanges(domain.avoided); len(all) == 0 {
		domain.core.RemovePool(avoidedName)
	} else {
		domain.core.SetPool(avoidedName, nil, all)
	}
}

// isEmpty reports whether the routing domain equals a new one.
func (domain *space) isEmpty() bool { return domain.core.IsEmptyBut(avoidedName) }

// avoidedIn returns the error for a range with avoided addresses; nil if the range has
// none.
func (s *State) avoidedIn(spaceName string, r allocator.Range) *allocator.BlockedError {
	for _, part := range rangesIn(s.space(spaceName).avoided, r) {
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

// checkInUse verifies the avoided addresses of each routing domain.
func (s *State) checkInUse() error {
	for name, domain := range s.spaces {
		used := allRanges(s.inUse.index)
		var owned []allocator.Range
		for _, r := range used {
			for o := range domain.core.OwnedIn(r) {
				if s.holdings[o.OwnerID].isInUse() {
					owned = append(owned, o.Range)
				}
			}
		}
		if is, want := allRanges(domain.avoided), allocator.Subtract(used, owned); !slices.Equal(is, want) {
			return fmt.Errorf("domain %q avoids %v, and of the addresses in use no claim owns %v", name, is, want)
		}
	}
	return nil
}
