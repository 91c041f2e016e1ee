package state

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// object is a stored claim or address object.
type object struct {
	Claim
	domain     string // routing domain in which the ranges were granted
	unadmitted bool   // stored without admission, or an address object stored after the end of its claim
	dualStack  bool   // requests an address of each family
}

// event is a watch event: of the pool if pool is set, otherwise of a claim or address
// object.
type event struct {
	deleted         bool
	claim           Claim
	pool            *Pool
	resourceVersion uint64
}

// leaseWrite is a write to the journal Lease in flight.
type leaseWrite struct {
	attempt    journal.Revision
	sender     *replica
	senderLife int // life of the sender at the time: a restarted replica does not receive the reply
}

// claimUpdate is a write to a stored claim in flight, or a write of the pool's recorded
// ranges if name is empty. The API server stores the write only on top of the
// resourceVersion the write is based on.
type claimUpdate struct {
	reason          string // for the trace
	name, uid       string
	resourceVersion uint64
	apply           func(*Claim)
	done            func(stored bool)
	earliest        time.Time       // time of arrival, at the earliest
	recorded        []RecordedRange // ranges for the pool to record
}

// createRequest is the create of a claim or address object, in the API server.
type createRequest struct {
	id            int
	name          string // empty for a generated name
	pool          Key
	exact         allocator.Range // requested range; not valid for any
	dualStack     bool            // requests an IPv6 address too
	broughtToken  journal.Token   // token in the object that the client sent
	ownerClaim    Key             // for an address object: the claim
	byLeader      bool            // address object that the leader creates for a claim with a range
	outlivesClaim bool            // the claim of the address object was deleted while the create was in flight
	fromBackup    bool
	flood         string // namespace whose creates are answered and never stored; "" for a create that may be stored
	started       time.Time
	call          *admissionCall
	response      Grant
	responded     bool
	validate      bool     // the API server calls the validating webhook before it stores the object
	validator     *replica // replica that the validating webhook calls; nil before the call
	validatorLife int
	validatedAt   time.Time // begin of the validating call
	approved      bool      // the validating webhook has approved the object
	over          bool      // stored, denied or failed
}

// admissionCall is a call of the mutating webhook for a create, or of the validating
// webhook for a pool update.
type admissionCall struct {
	id        string
	to        *replica
	started   time.Time
	life      int // of the replica at the time: a restart breaks the connection
	grant     *OpenGrant
	committed chan error // receives the result of the journal commit that contains the grant
	ended     bool
}

// store stores an object and checks the invariants of stored objects.
func (w *world) store(o *object, reason string) {
	o.ResourceVersion = w.nextVersion()
	w.checkOffered(o, w.objects[o.Key.Name])
	w.checkKeepsReady(o, w.objects[o.Key.Name])
	if w.hasChangedRecord() {
		defer func() { w.trustedFrom = len(w.events) }()
	}
	w.objects[o.Key.Name] = o
	w.events = append(w.events, event{claim: o.Claim, resourceVersion: w.resourceVersion})
	w.logf("api: store %s %s %v domain=%q recorded=%q %v ready=%v flagged=%v token=%s rv=%d (%s)", o.Key.Name, o.UID, o.Ranges, o.domain, o.RoutingDomain, o.RoutingDomainGranted, o.Ready, o.Flagged, o.Token, w.resourceVersion, reason)
	for _, other := range w.objects {
		if other == o || other.domain != o.domain || !overlap(o.Ranges, other.Ranges) || other.owner() == o.owner() {
			continue
		}
		if !o.unadmitted && !other.unadmitted {
			w.failf("%w: %s and %s own %s", errOwnedTwice, o.Key.Name, other.Key.Name, o.Ranges)
		}
		if o.Ready && other.Ready && o.OwnerClaim == (Key{}) && other.OwnerClaim == (Key{}) {
			w.failf("%w: %s and %s are Ready on %s", errOwnedTwice, o.Key.Name, other.Key.Name, o.Ranges)
		}
	}
	if !o.unadmitted {
		w.checkNotMoved(o)
	}
}

func overlap(a, b []allocator.Range) bool {
	return slices.ContainsFunc(a, func(r allocator.Range) bool { return slices.ContainsFunc(b, r.Overlaps) })
}

// remove deletes a stored object.
func (w *world) remove(o *object) {
	if w.hasChangedRecord() {
		defer func() { w.trustedFrom = len(w.events) }()
	}
	delete(w.objects, o.Key.Name)
	c := o.Claim
	c.ResourceVersion = w.nextVersion()
	w.events = append(w.events, event{deleted: true, claim: c, resourceVersion: w.resourceVersion})
	w.logf("api: delete %s %s rv=%d", o.Key.Name, o.UID, w.resourceVersion)
}

// newObject returns an object with a new UID that is not stored yet.
func (w *world) newObject(name string) *object {
	w.uidCount++
	uid := fmt.Sprintf("u%d", w.uidCount)
	if name == "" {
		name = "gen-" + uid
	}
	return &object{Claim: Claim{Key: Key{Resource: resourceOfName(name), Namespace: "ns", Name: name}, UID: uid, Created: w.now, Pool: modelPool}}
}

// stepAPIServer advances one create or pool update in the API server. A request times out
// after 34 s.
func (w *world) stepAPIServer() {
	w.poolUpdates = slices.DeleteFunc(w.poolUpdates, func(c *poolUpdate) bool { return c.over })
	if n := len(w.poolUpdates); n > 0 && w.rng.IntN(3) == 0 {
		w.admitPoolUpdate(w.poolUpdates[w.rng.IntN(n)])
		return
	}
	var pending []*createRequest
	for _, c := range w.creates {
		if !c.over {
			pending = append(pending, c)
		}
	}
	w.creates = pending
	if len(pending) == 0 {
		return
	}
	c := pending[w.rng.IntN(len(pending))]
	switch {
	case w.now.Sub(c.started) > 34*time.Second:
		c.over = true
	case c.responded:
		w.storeCreate(c)
	default:
		w.admitCreate(c)
	}
}

// admitCreate advances the admission call of a create.
func (w *world) admitCreate(c *createRequest) {
	k, r := c.call, c.call.to
	switch {
	case w.callFailed(k): // the API server retries the call, or the create fails
		k.ended = true
		if w.rng.IntN(3) == 0 {
			c.over = true
			return
		}
		id := ""
		if w.rng.IntN(2) == 0 {
			id = k.id
		}
		c.call = w.newCall(id)
	case w.now.Before(r.pausedUntil):
	case r.unserved && resourceOfName(c.name) == modelOthers: // the replica does not serve the API
		k.ended = true
	case k.grant == nil:
		w.mutateCreate(c, k)
	default:
		select {
		case err := <-k.committed:
			k.ended = true
			if err == nil {
				w.respond(c, k, Grant{Ranges: slices.Clone(k.grant.Ranges), RoutingDomain: k.grant.RoutingDomain, Token: k.grant.Token})
			}
		default:
		}
	}
}

// modelRequests returns the requests of a claim: an IPv4 address (exact, if valid) and,
// for a dual-stack claim, an IPv6 address.
func modelRequests(exact allocator.Range, dualStack bool) []RangeRequest {
	requests := []RangeRequest{{Exact: exact, Count: 1, Bits: 32}}
	if dualStack {
		requests = append(requests, RangeRequest{Count: 1, Bits: 128})
	}
	return requests
}

// mutateCreate is the mutating webhook.
func (w *world) mutateCreate(c *createRequest, k *admissionCall) {
	b := k.to.state
	if g := b.grants.find(c.broughtToken); w.breaks.trustBroughtToken && g != nil && g.state == grantCommitted && g.Ranges[0] == c.exact {
		k.ended = true
		w.respond(c, k, Grant{Ranges: []allocator.Range{c.exact}, Token: c.broughtToken})
		return
	}
	q := Request{Claim: c.objectKey(), RequestUID: k.id, Pool: c.pool, Ranges: modelRequests(c.exact, c.dualStack)}
	if inherited := rangeOfAddressObject(b.State, q.Claim); c.name != "" && !c.exact.IsValid() && c.ownerClaim == (Key{}) && inherited.IsValid() {
		q.Ranges = modelRequests(inherited, false)
	}
	if w.updatesPool && q.Pool == modelPool && (b.HasPendingUpdate(modelPool) || w.rng.IntN(8) == 0) {
		b.AddReadPool(w.now, w.pool)
	}
	g, err := w.grant(k.to, q)
	switch {
	case c.byLeader && isOwnedBy(err, c.ownerClaim):
		k.ended = true
		c.response, c.responded, c.validate = Grant{Ranges: []allocator.Range{c.exact}}, true, true
	case err == nil && c.byLeader: // the claim no longer owns the range
		b.WithdrawGrant(g)
		c.over = true
	case err != nil:
		w.logf("%s: deny create %d: %v", k.to.name(), c.id, err)
		w.checkDenial(c, b.State, err)
		k.ended = true
	case g.state == grantCommitted: // a standby grant, or granted without a commit by a break
		if g.unproven {
			w.tally.standbyUsed++
		}
		k.ended = true
		k.grant = g
		w.respond(c, k, Grant{Ranges: g.Ranges, RoutingDomain: g.RoutingDomain, Token: g.Token})
	default:
		w.logf("%s: grant %s to create %d token %s", k.to.name(), g.Ranges, c.id, g.Token)
		k.grant, k.committed = g, make(chan error, 1)
		g.waiter = k.committed
	}
}

// respond sends the webhook response, and checks that no other request received its
// token.
func (w *world) respond(c *createRequest, k *admissionCall, g Grant) {
	if other, used := w.callOfToken[g.Token]; used && other != k.id && !w.breaks.shareToken && !w.breaks.trustBroughtToken {
		w.failf("token %s is in the responses to %s and %s", g.Token, other, k.id)
	}
	w.callOfToken[g.Token] = k.id
	w.logf("%s: respond to create %d: %s token %s", k.to.name(), c.id, g.Ranges, g.Token)
	c.response, c.responded = g, true
}

// storeCreate stores the object of a create after the webhook response, or drops the
// create: a later admission step denied, the name is taken, or the validating webhook
// denied.
func (w *world) storeCreate(c *createRequest) {
	if w.rng.IntN(2) > 0 { // the object is stored in a later step
		return
	}
	if c.flood != "" {
		w.logf("api: drop create %d after its response", c.id)
		c.over = true
		return
	}
	if c.validate && !c.byLeader && !c.approved && w.objects[c.name] == nil {
		w.validateCreate(c)
		return
	}
	c.over = true
	if w.rng.IntN(4) == 0 || c.name != "" && w.objects[c.name] != nil {
		w.logf("api: drop create %d after its response", c.id)
		return
	}
	o := w.newObject(c.name)
	o.Key, o.OwnerClaim, o.Pool, o.dualStack = c.storedKey(o), c.ownerClaim, c.pool, c.dualStack
	if o.OwnerClaim != (Key{}) {
		o.Ready, o.Flagged = true, true
		w.tally.addressObjects++
	}
	v := w.replicas[w.rng.IntN(len(w.replicas))]
	if c.byLeader {
		if _, err := v.state.Preview(Request{Claim: o.Key, Pool: c.pool, Ranges: modelRequests(c.exact, false)}); !isOwnedBy(err, o.OwnerClaim) {
			w.logf("api: drop create %d, validation: %v", c.id, err)
			return
		}
	}
	o.Ranges, o.Token = c.response.Ranges, c.response.Token
	o.domain, o.RoutingDomain, o.RoutingDomainGranted = c.response.RoutingDomain, c.response.RoutingDomain, true
	o.unadmitted = c.outlivesClaim
	if c.call != nil && c.call.grant != nil && c.call.grant.unproven && !c.approved {
		o.unadmitted = true
		w.tally.unapproved++
	}
	w.store(o, fmt.Sprintf("create %d", c.id))
	w.tally.creates++
	if c.fromBackup {
		w.tally.recreated++
	}
}

// validateCreate calls the validating webhook, which answers in a later step if the grant
// awaits a proof. The call fails after 10 s.
func (w *world) validateCreate(c *createRequest) {
	if c.validator == nil {
		c.validator = w.replicas[w.rng.IntN(len(w.replicas))]
		c.validatorLife, c.validatedAt = c.validator.life, w.now
	}
	v := c.validator
	key := c.objectKey()
	key.Name = cmp.Or(key.Name, "gen")
	switch {
	case w.now.Sub(c.validatedAt) > 10*time.Second, v.life != c.validatorLife, v.unserved && key.Resource == modelOthers:
		c.over = true
		return
	case w.now.Before(v.pausedUntil):
		return
	}
	before := v.state.grants.find(c.response.Token)
	inherited := before != nil && before.IsStandby()
	switch err := v.state.CheckGrant(Claim{Key: key, Pool: c.pool, RoutingDomain: c.response.RoutingDomain, RoutingDomainGranted: true, Ranges: c.response.Ranges, Token: c.response.Token}, "", 0); {
	case err == ErrUnproven: //nolint:errorlint // as the ledger compares it
	case err != nil:
		w.logf("api: drop create %d, validation by %s: %v", c.id, v.name(), err)
		c.over = true
	default:
		w.logf("%s: approve create %d", v.name(), c.id)
		c.approved = true
	}
	if inherited {
		w.tally.approvedInherited++
	}
}

// stepNetwork delivers one write to the API server: of the journal, or of a claim or the
// pool. The reply to a journal write may be lost.
func (w *world) stepNetwork() {
	if len(w.leaseWrites) > 0 && (len(w.updates) == 0 || w.rng.IntN(2) == 0) {
		i := w.rng.IntN(len(w.leaseWrites))
		lw := w.leaseWrites[i]
		w.leaseWrites = slices.Delete(w.leaseWrites, i, i+1)
		w.storeLease(lw)
		return
	}
	if len(w.updates) > 0 {
		i := w.rng.IntN(len(w.updates))
		u := w.updates[i]
		if w.now.Before(u.earliest) && !w.settling {
			return
		}
		w.updates = slices.Delete(w.updates, i, i+1)
		w.storeUpdate(u)
	}
}

// storeLease stores a write to the journal Lease by compare-and-swap, and sends the
// reply.
func (w *world) storeLease(lw *leaseWrite) {
	reply := replyConflict
	if lw.attempt.ResourceVersion == w.lease.ResourceVersion {
		stored, err := journal.Decode(lw.attempt.Encode())
		if err != nil {
			w.failf("journal does not decode: %v", err)
		}
		w.lease = lw.attempt
		w.lease.Snapshot = stored
		w.lease.ResourceVersion = fmt.Sprint(w.nextVersion())
		reply = replyStored
		for r, d := range w.moved {
			granted := slices.ContainsFunc(stored.Entries, func(e journal.Entry) bool { return slices.Contains(e.Ranges, r) })
			d.committed = d.committed || d.recordedAt > 0 && stored.Applied[modelPools] >= d.recordedAt && !granted
		}
		w.logf("journal: term %d commit %d leader %q entries %d", w.lease.Term, w.lease.Commit, w.lease.Leader, len(w.lease.Entries))
	} else {
		w.logf("journal: conflict, term %d commit %d of r%d.%d", lw.attempt.Term, lw.attempt.Commit, lw.sender.id, lw.senderLife)
	}
	r := lw.sender
	switch isLost := w.rng.IntN(8) == 0; {
	case r.life != lw.senderLife || r.commitInFlight == nil || r.commitInFlight.Commit != lw.attempt.Commit || r.commitInFlight.Term != lw.attempt.Term:
		// The sender restarted, or has determined the outcome without the reply.
	case isLost:
		w.logf("journal: reply to %s lost", r.name())
	default:
		r.reply, r.replyVersion = reply, w.lease.ResourceVersion
	}
}

// sendUpdate sends a write. One of stallOdds writes stalls in its connection for up to
// 250 s, longer than the life of a grant; if the journal may be lost, as long as a create
// at most: a leader does not know which claims to fence then.
func (w *world) sendUpdate(u *claimUpdate) {
	u.earliest = w.now
	longest := 250
	if w.losesJournal {
		longest = 34
	}
	if w.rng.IntN(w.stallOdds) == 0 {
		u.earliest = w.now.Add(time.Duration(w.rng.IntN(longest)) * time.Second)
	}
	w.updates = append(w.updates, u)
}

// storeUpdate stores a write to a claim or to the pool, unless the object has another
// resourceVersion meanwhile.
func (w *world) storeUpdate(u *claimUpdate) {
	if u.name == "" {
		if u.resourceVersion == w.pool.ResourceVersion {
			w.earlierPools = append(w.earlierPools, w.pool)
			w.storePool(u.recorded, u.resourceVersion, u.reason)
		}
		return
	}
	o := w.objects[u.name]
	stored := o != nil && o.UID == u.uid && o.ResourceVersion == u.resourceVersion
	if stored {
		n := *o
		u.apply(&n.Claim)
		if n.Token != o.Token { // granted
			n.domain = n.RoutingDomain
		}
		w.store(&n, u.reason)
	}
	if u.done != nil {
		u.done(stored)
	}
}
