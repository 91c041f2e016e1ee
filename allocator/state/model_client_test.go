package state

import (
	"fmt"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// stepClient runs one action of a user.
func (w *world) stepClient() {
	names := []string{"a", "b", "c", "d"}
	if w.servesPartly {
		names = append(names, "other-a", "other-b", "other-c")
	}
	name := names[w.rng.IntN(len(names))]
	if w.movesClaims && w.rng.IntN(3) == 0 && w.stepMoves(name) {
		return
	}
	if w.stepRooms(name) {
		return
	}
	if w.updatesPool && w.rng.IntN(4) == 0 {
		w.sendPoolUpdate()
		return
	}
	if w.stepDomains() {
		return
	}
	switch n := w.rng.IntN(20); {
	case n < 9:
		w.sendCreate(&createRequest{name: name, pool: w.pickPool(), dualStack: w.rng.IntN(3) == 0})
	case n < 10:
		w.sendCreate(&createRequest{pool: w.pickPool()})
	case n < 11: // without a pool
		w.sendCreate(&createRequest{name: name, exact: w.pickAddress()})
	case n < 12: // range and token of an open grant, copied by the client
		c := &createRequest{name: name, pool: modelPool, exact: w.pickAddress()}
		if g := w.pickGrant(); g != nil {
			c.exact, c.broughtToken = g.Ranges[0], g.Token
		}
		w.sendCreate(c)
	case n < 14 && w.objects[name] == nil: // admitted without a range because the pool was missing
		o := w.newObject(name)
		o.dualStack = w.rng.IntN(3) == 0
		w.store(o, "pending")
	case n < 15 && w.bypassesAdmission && w.objects[name] == nil:
		o := w.newObject(name)
		o.Ranges, o.unadmitted = []allocator.Range{w.pickAddress()}, true
		w.store(o, "without admission")
	case n < 17 && w.objects[name] != nil && len(w.objects[name].Ranges) > 0:
		w.updateClaim(w.objects[name])
	default:
		if o := w.objects[name]; o != nil && !w.awaitsAddressObject(o) {
			w.remove(o)
		}
	}
}

// updateClaim updates a claim with ranges: the update removes the IPv6 address, or
// requests an IPv6 address in addition.
func (w *world) updateClaim(o *object) {
	if o.Ranges[len(o.Ranges)-1].First.Is6() {
		if len(o.Ranges) > 1 {
			n := *o
			n.Ranges, n.dualStack = o.Ranges[:1:1], false
			w.store(&n, "IPv6 address removed")
		}
		return
	}
	w.extendClaim(w.pickReplica(), o)
}

// pickGrant returns an open grant of an IPv4 address in the State of a random replica;
// nil if there is none.
func (w *world) pickGrant() (found *OpenGrant) {
	for _, g := range w.pickReplica().state.ExpiredGrants(w.now.Add(time.Hour)) {
		if g.Ranges[0].First.Is4() && g.Resource != modelPools {
			found = g
		}
	}
	return found
}

// pickAddress returns a random IPv4 address of modelRange.
func (w *world) pickAddress() allocator.Range {
	a := modelRange.First
	for range w.rng.IntN(10) {
		a = a.Next()
	}
	return allocator.Range{First: a, Last: a}
}

// sendCreate starts a create. Half of the creates skip the validating webhook: the
// invariants must not depend on it.
func (w *world) sendCreate(c *createRequest) {
	w.callCount++
	c.id, c.started, c.validate = w.callCount, w.now, w.rng.IntN(2) == 0
	w.creates = append(w.creates, c)
	exact := "any"
	if c.exact.IsValid() {
		exact = c.exact.String()
	}
	w.logf("client: create %d name %q address %s", c.id, c.name, exact)
	c.call = w.newCall("")
}

// newCall calls the webhook of a random replica: with a new request UID if id is empty,
// otherwise as a retry of the request with that UID.
func (w *world) newCall(id string) *admissionCall {
	if id == "" {
		w.callCount++
		id = fmt.Sprintf("call-%d", w.callCount)
	}
	to := w.pickReplica()
	return &admissionCall{id: id, to: to, started: w.now, life: to.life}
}

// callFailed reports whether a call failed: the replica denied the call or restarted, or
// the webhook timeout of 3 s passed.
func (w *world) callFailed(k *admissionCall) bool {
	return k.ended || k.life != k.to.life || w.now.Sub(k.started) > 3*time.Second
}
