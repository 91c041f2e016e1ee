package state

import (
	"errors"
	"net/netip"
	"strings"

	"butlerlabs.dev/ipam/allocator"
)

// Addresses in use: Nodes and Services have addresses of the pool. Each replica observes
// them at other times. If the pool is made anew in other routing domains, the routing
// domain of the cluster's network is configured, or follows from the pools: the second
// pool is in the default routing domain, or in the other.
//
//	Invariant: a replica grants no address that it knows as in use in the routing domain of the cluster's network, unless the address had an owner before.
//	Invariant: a replica denies no address as in use in another routing domain.

// errInUse reports a grant of an address in use, or a denial of an address that is not.
var errInUse = errors.New("wrong about an address in use")

// modelUsers have addresses beside the claims.
var modelUsers = []Key{{Resource: "nodes.test", Name: "node"}, {Resource: "services.test", Namespace: "ns", Name: "service"}}

// startUses lets a replica that starts know no address in use.
func (w *world) startUses(r *replica) {
	r.uses = map[Key][]netip.Addr{}
	if w.clusterDomain != nil {
		r.state.SetClusterDomain(*w.clusterDomain)
	}
}

// setInUse lets a replica observe the addresses of a user.
func (w *world) setInUse(r *replica, user Key, addresses []netip.Addr) {
	r.uses[user] = addresses
	r.state.SetInUse(user, addresses)
}

// useAddresses lets a replica observe up to two addresses of a user other than a claim.
func (w *world) useAddresses(r *replica) {
	user := modelUsers[w.rng.IntN(len(modelUsers))]
	var addresses []netip.Addr
	for a := range modelRange.Addresses() {
		if w.rng.IntN(8) == 0 && len(addresses) < 2 {
			addresses = append(addresses, a)
		}
	}
	w.logf("%s: %s uses %v", r.name(), user, addresses)
	w.setInUse(r, user, addresses)
}

// avoids reports whether a replica must avoid addresses in use in a routing domain.
func (w *world) avoids(r *replica, domain string) bool {
	if w.clusterDomain != nil {
		return domain == *w.clusterDomain
	}
	for _, p := range r.state.pools.byKey {
		if p.RoutingDomain == "" {
			return domain == ""
		}
	}
	return true
}

// grant requests a grant from a replica, and checks it against the addresses in use.
func (w *world) grant(r *replica, q Request) (*OpenGrant, error) {
	domain := q.RoutingDomain
	if p := r.state.pools.find(q.Pool); p != nil {
		domain = p.RoutingDomain
	}
	var free []allocator.Range // addresses in use without an owner
	for _, addresses := range r.uses {
		for _, a := range addresses {
			address := allocator.Range{First: a, Last: a}
			if known := r.state.domains[domain]; known == nil || len(rangesIn(known.core, address)) == 0 {
				free = append(free, address)
			}
		}
	}
	avoids := w.avoids(r, domain)
	g, err := r.state.Grant(w.now, q)
	blocked := (*allocator.BlockedError)(nil)
	switch {
	case errors.As(err, &blocked) && strings.HasPrefix(blocked.What, "is in use"):
		w.tally.deniedInUse++
		if !avoids {
			w.failf("%w: domain %q is not that of the cluster: %v", errInUse, domain, err)
		}
	case err == nil && allocator.OverlapsAny(free)(g.Ranges):
		w.tally.grantedInUse++
		if avoids {
			w.failf("%w: %v granted in domain %q, of which %v are in use", errInUse, g.Ranges, domain, free)
		}
	}
	return g, err
}
