package state

import (
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// Routing domains: the pool is deleted although claims own its addresses, and made anew
// in another routing domain. A second pool offers the same addresses in one of the two
// routing domains. Other clients change the record of a claim's routing domain while the
// webhooks are not installed.
//
//	Invariant: a claim owns its addresses in the routing domain in which they were granted (object.domain), whatever becomes of its pool and of the record.
//	Invariant: an admitted claim that is Ready is never flagged.
//
// Assumption: a replica that starts, or lists again, observes no record that another
// client has changed. It would believe the record.

const modelOtherDomain = "other"

var modelSecondPool = Key{Resource: modelPools, Namespace: "ns", Name: "second"}

// secondPool returns the pool that stays in its routing domain.
func (w *world) secondPool() Pool {
	p := firstPool()
	p.Key, p.RoutingDomain = modelSecondPool, w.secondDomain
	return p
}

// pickPool returns the pool of a new claim.
func (w *world) pickPool() Key {
	if w.remakesPool && w.rng.IntN(2) == 0 {
		return modelSecondPool
	}
	return modelPool
}

// stepDomains runs one action of users on routing domains, and reports whether it did.
func (w *world) stepDomains() bool {
	if !w.remakesPool {
		return false
	}
	switch w.rng.IntN(10) {
	case 0:
		w.remakePool()
	case 1:
		w.changeRecord()
	default:
		return false
	}
	return true
}

// remakePool deletes the pool, whose finalizer a user has removed, and creates the pool
// in the other routing domain.
func (w *world) remakePool() {
	gone := w.pool
	w.events = append(w.events, event{deleted: true, pool: &gone, resourceVersion: w.nextVersion()})
	if w.pool.RoutingDomain = modelOtherDomain; gone.RoutingDomain == modelOtherDomain {
		w.pool.RoutingDomain = ""
	}
	w.storePool(nil, 0, "made anew in routing domain "+w.pool.RoutingDomain)
	w.tally.poolsRemade++
}

// changeRecord changes or removes the record of the routing domain of a claim.
func (w *world) changeRecord() {
	var owners []*object
	for _, o := range w.objects {
		if len(o.Ranges) > 0 && o.RoutingDomainGranted && !o.unadmitted {
			owners = append(owners, o)
		}
	}
	if len(owners) == 0 {
		return
	}
	slices.SortFunc(owners, func(x, y *object) int { return slices.Compare([]byte(x.UID), []byte(y.UID)) })
	changed := *owners[w.rng.IntN(len(owners))]
	switch {
	case w.rng.IntN(3) == 0:
		changed.RoutingDomain, changed.RoutingDomainGranted = "", false
	case changed.RoutingDomain == "":
		changed.RoutingDomain = modelOtherDomain
	default:
		changed.RoutingDomain = ""
	}
	w.store(&changed, "record of the routing domain changed")
	w.tally.recordsChanged++
}

// recordsTruth reports whether an object records the routing domain of its addresses.
func (o *object) recordsTruth() bool { return o.RoutingDomainGranted && o.RoutingDomain == o.domain }

// hasChangedRecord reports whether the record of a stored object is one that another
// client has changed.
func (w *world) hasChangedRecord() bool {
	for _, o := range w.objects {
		if len(o.Ranges) > 0 && !o.unadmitted && !o.recordsTruth() {
			return true
		}
	}
	return false
}

// restoreRecord restores the record of a claim's routing domain by a write of the leader,
// and reports whether it was wrong.
func (w *world) restoreRecord(r *replica, c *claim) bool {
	o := w.objects[c.Key.Name]
	if c.holding == nil || o == nil || o.UID != c.UID || o.ResourceVersion != c.ResourceVersion || o.RoutingDomainGranted && o.RoutingDomain == c.holding.routingDomain {
		return false
	}
	routingDomain := c.holding.routingDomain
	w.sendUpdate(&claimUpdate{
		reason: r.name() + ": routing domain recorded", name: c.Key.Name, uid: c.UID, resourceVersion: c.ResourceVersion,
		apply: func(c *Claim) { c.RoutingDomain, c.RoutingDomainGranted = routingDomain, true },
	})
	return true
}

// checkKeepsReady checks that an admitted claim that was Ready is not flagged.
func (w *world) checkKeepsReady(o, before *object) {
	if w.remakesPool && before != nil && before.UID == o.UID && before.Ready && !before.unadmitted && o.Flagged {
		w.failf("%w: %s was Ready on %s, and lost them", errOwnedTwice, o.Key.Name, o.Ranges)
	}
}

// ownedIn lists the owned addresses of a routing domain, and those that the stored
// objects name there.
func (w *world) ownedIn(r *replica, domain string) (owned, want []string) {
	routingDomain := r.state.domain(domain)
	for _, window := range []allocator.Range{modelRange, modelIPv6} {
		for h := range routingDomain.core.OwnedIn(window) {
			for a := range h.Range.Addresses() {
				owned = append(owned, a.String())
			}
		}
		for a := range window.Addresses() {
			for _, o := range w.objects {
				if o.domain == domain && !w.isDeferred(o) && slices.ContainsFunc(o.Ranges, func(r allocator.Range) bool { return r.Contains(a) }) {
					want = append(want, a.String())
					break
				}
			}
			if domain == "" && w.isKeptMoved(r.state.State, a) && (len(want) == 0 || want[len(want)-1] != a.String()) {
				want = append(want, a.String())
			}
		}
	}
	return owned, want
}
