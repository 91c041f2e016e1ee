package state

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// stepReplica runs one action of a replica, unless the replica is paused.
func (w *world) stepReplica(r *replica) {
	if w.now.Before(r.pausedUntil) {
		return
	}
	if w.usesAddresses && !w.settling && w.rng.IntN(40) == 0 {
		w.useAddresses(r)
	}
	switch n := w.rng.IntN(400); {
	case n < 4 && w.settling:
	case n < 3:
		longest := []int{1, 10, 100, 400}[w.rng.IntN(4)]
		r.pausedUntil = w.now.Add(time.Duration(w.rng.IntN(longest*1000)) * time.Millisecond)
		w.logf("%s: pause %s", r.name(), r.pausedUntil.Sub(w.now))
		return
	case n < 4 && w.hasChangedRecord():
	case n < 4:
		w.logf("%s: restart", r.name())
		w.startReplica(r)
		return
	case n < r.applyShare || n < 120 && w.settling:
		for range 1 + w.rng.IntN(3) {
			w.deliver(r)
		}
		return
	case n > 390 && w.relists && !w.settling:
		w.relist(r)
		return
	}
	r.state.Tick(w.now)
	w.setReadDenied(r.state.State)
	if w.rng.IntN(4) == 0 {
		w.decideMoves(r)
	}
	switch {
	case w.stepProof(r):
	case r.commitInFlight != nil:
		w.resolveCommit(r)
	case r.phase == phaseFollowing:
		w.follow(r)
	case r.phase == phaseCatchingUp:
		w.catchUp(r)
	default:
		w.lead(r)
	}
}

// resolveCommit determines the outcome of the commit in flight: from the reply, or from
// the journal if the reply was a conflict or is late.
func (w *world) resolveCommit(r *replica) {
	switch {
	case r.reply == replyStored && parseVersion(r.replyVersion) < r.newestJournal && w.restartRestored(r):
	case r.reply == replyStored:
		r.commitInFlight.ResourceVersion = r.replyVersion
		w.commitLanded(r, *r.commitInFlight)
	case r.reply == replyConflict || w.rng.IntN(6) == 0: // no reply in time
		v, ok := w.readJournal(r)
		if !ok {
			return
		}
		switch journal.OutcomeOf(*r.commitInFlight, v) {
		case journal.Landed:
			w.commitLanded(r, v)
		case journal.Pending:
			r.reply = replyNone
			w.leaseWrites = append(w.leaseWrites, &leaseWrite{attempt: *r.commitInFlight, sender: r, senderLife: r.life})
		case journal.Lost:
			w.logf("%s: step down", r.name())
			r.commitInFlight, r.phase, r.current, r.unchangedSince = nil, phaseFollowing, v, w.now
			r.state.StepDown()
			r.proof = nil
		}
	}
}

// proofRead is a consistent read of the journal that is to prove leadership.
type proofRead struct {
	number    uint64
	notBefore uint64            // resourceVersion of the newest commit that had landed when the read began
	shown     *journal.Revision // what the API server returned; nil before
}

// stepProof begins a read of the journal, lets the API server return it, or applies it:
// each in a step of its own, with pauses in between. It reports whether it did one of
// these.
func (w *world) stepProof(r *replica) bool {
	b := r.state
	switch p := r.proof; {
	case !b.leadership.granting || w.rng.IntN(2) == 0:
		return false
	case p == nil && (b.proofs.grantsAwaited() > 0 || b.Pending().Proof):
		r.proof = &proofRead{number: b.BeginProof(), notBefore: parseVersion(r.current.ResourceVersion)}
		w.logf("%s: begin read %d of the journal", r.name(), r.proof.number)
	case p == nil:
		return false
	case p.shown == nil:
		shown := w.lease
		p.shown = &shown
	case p.shown.Leader == r.name() && p.shown.Term == r.current.Term && parseVersion(p.shown.ResourceVersion) >= p.notBefore:
		w.logf("%s: read %d shows its own term", r.name(), p.number)
		w.tally.proofsRead++
		b.ProofLanded(w.now, p.number)
		r.proof = nil
	default:
		w.logf("%s: read %d shows term %d, leader %s", r.name(), p.number, p.shown.Term, p.shown.Leader)
		w.tally.proofsFailed++
		b.ProofFailed()
		r.proof = nil
	}
	return true
}

// commitLanded applies the outcome of a stored commit.
func (w *world) commitLanded(r *replica, v journal.Revision) {
	r.newestJournal, r.current, r.commitInFlight, r.committedAt, r.leaseConfirmedAt = parseVersion(v.ResourceVersion), v, nil, w.now, r.sentAt
	switch r.phase {
	case phaseAcquiring:
		w.logf("%s: lead term %d", r.name(), v.Term)
		r.phase, r.proof = phaseCatchingUp, nil
		r.state.TakeOver(v)
	case phaseResigning:
		w.logf("%s: hand over", r.name())
		r.state.CommitLanded(w.now)
		r.state.StepDown()
		r.proof = nil
		r.phase, r.unchangedSince = phaseFollowing, w.now
	default:
		w.logf("%s: commit %d landed", r.name(), v.Commit)
		r.state.CommitLanded(w.now)
	}
}

// sendCommit sends a revision of the journal.
func (w *world) sendCommit(r *replica, v journal.Revision) {
	w.logf("%s: send commit %d of term %d", r.name(), v.Commit, v.Term)
	r.commitInFlight, r.reply, r.sentAt = &v, replyNone, w.now
	w.leaseWrites = append(w.leaseWrites, &leaseWrite{attempt: v, sender: r, senderLife: r.life})
}

// follow reads the journal, and acquires leadership if there is no leader or the journal
// has not changed for modelLeaseExpiry.
func (w *world) follow(r *replica) {
	v, ok := w.readJournal(r)
	if !ok {
		return
	}
	r.unreadable.Update(w.now, v.Snapshot, w.unobservedBy(r))
	switch {
	case r.unchangedSince.IsZero() || v.ResourceVersion != r.current.ResourceVersion:
		r.current, r.unchangedSince = v, w.now
		if v.Leader != "" {
			return
		}
	case v.Leader != "" && w.now.Sub(r.unchangedSince) < modelLeaseExpiry:
		return
	}
	if !w.mayLead(r) {
		return
	}
	if w.relists && !w.settling && w.rng.IntN(2) == 0 { // the fault that ended the leader's connections also ends those of this replica
		w.relist(r)
	}
	r.predecessor, r.phase = r.current, phaseAcquiring
	next := r.current.WithLeader(r.name())
	next.Quarantine = next.Quarantine || w.wasJournalLost(r.current) && !w.breaks.ignoreLostJournal
	w.sendCommit(r, next)
}

// catchUp starts to serve once the copies of the replica have reached the versions that
// the previous leader applied.
func (w *world) catchUp(r *replica) {
	if w.losesJournal && !w.breaks.lostUnlisted && w.lacksVersions(r.predecessor) {
		w.readAll(r)
	}
	copied := w.appliedVersions(r)
	for _, resource := range modelResources { // in a fixed order, so that the seed determines the schedule
		version := r.predecessor.Applied[resource]
		if w.unobservedBy(r)(resource, version) && !w.breaks.ignoreUnreadable {
			w.logf("%s: read of %s denied", r.name(), resource)
			r.phase, r.unchangedSince = phaseFollowing, w.now
			r.state.StepDown()
			return
		}
		if resource == modelOthers && (w.isUnreadable(resource) || w.ignoresUnserved(r)) {
			continue
		}
		switch {
		case w.breaks.noWatermark, w.breaks.partialList && r.state.access.applied[resource] >= version:
		case copied[resource] < version:
			if !w.deliver(r) {
				w.readJournal(r) // the events do not exist: etcd was restored
			}
			return
		case w.breaks.partialList:
			w.deliver(r)
			return
		default:
			for len(r.relisted) > 0 {
				w.deliver(r)
			}
		}
	}
	r.phase, r.recordsReread = phaseLeading, false
	r.state.SetMovedRecords([]MovedRecord{w.storedMovedRecord()})
	r.state.StartGranting(w.now)
	w.tally.takeOvers++
	if r.state.leadership.quarantined {
		w.tally.ledQuarantined++
	}
	if r.unserved && r.state.access.stored[modelOthers] > 0 {
		w.tally.ledUnserved++
	}
	w.logf("%s: start granting", r.name())
}

// lead runs one action of the leader.
func (w *world) lead(r *replica) {
	b := r.state
	switch n := w.rng.IntN(20); {
	case n < 8 && (b.grants.awaitCommit() > 0 || b.Pending().Confirm || b.Pending().Commit || w.now.Sub(r.committedAt) > time.Second):
		w.sendCommit(r, r.current.Next(b.BeginCommit()))
	case r.restoredUnder && !w.breaks.ignoreRestore: // every action that writes addresses to stored claims follows a commit, which reads the journal
	case n < 11:
		w.expireGrants(r)
	case n < 15:
		w.writeStatus(r)
	case n >= 17 && n < 19 && w.movesClaims:
		w.reconcilePool(r)
	case n < 18:
		w.grantToStored(r)
	case n == 19 && w.rng.IntN(20) == 0 && !w.settling:
		b.StopGranting()
		r.phase = phaseResigning
		w.sendCommit(r, r.current.WithoutLeader(b.BeginCommit()))
	}
}

// expireGrants expires grants in two steps: the first fences stored claims and reads the
// tokens of all stored objects, the second expires the grants whose tokens were not
// found.
func (w *world) expireGrants(r *replica) {
	if r.state.EarlierWritesEnded() && !r.recordsReread { // an earlier leader may have written the record since this leader read it
		r.recordsReread = true
		r.state.SetMovedRecord(w.storedMovedRecord())
	}
	if r.scannedGrants != nil {
		for _, g := range r.scannedGrants {
			if !r.foundTokens[g.Token] {
				w.tally.expired++
				w.expireGrant(r, g)
			}
		}
		r.scannedGrants = nil
		return
	}
	due := r.state.ExpiredGrants(w.now)
	if len(due) == 0 {
		return
	}
	r.foundTokens, r.readPosition = map[journal.Token]bool{}, len(w.events)
	for _, g := range due {
		o := w.objects[g.StoredName]
		switch {
		case g.fenceVersion > 0, w.breaks.noFence && g.StoredName != "":
			w.expireGrant(r, g)
		case g.Resource == modelPools:
			r.state.RecordFence(w.now, g, w.pool.ResourceVersion)
		case g.UID == "":
			r.scannedGrants = append(r.scannedGrants, g)
		case o == nil || o.UID != g.UID:
			r.state.RecordFence(w.now, g, 0)
		default:
			n := *o
			w.store(&n, r.name()+": fence")
			r.state.RecordFence(w.now, g, w.resourceVersion)
			if w.breaks.unobservedFence {
				w.expireGrant(r, g)
			}
		}
	}
	for _, o := range w.objects {
		r.foundTokens[o.Token] = true
	}
}

// expireGrant expires a grant in the State of the leader.
func (w *world) expireGrant(r *replica, g *OpenGrant) {
	w.logf("%s: expire grant token %s", r.name(), g.Token)
	r.state.ExpireGrant(g)
}

// writeStatus writes the status of a random claim: Ready, or flagged as in conflict. A
// Ready claim gets its address object first.
func (w *world) writeStatus(r *replica) {
	c := w.pickClaim(r)
	if c == nil {
		return
	}
	st := r.state.OwnershipOf(c.UID)
	u := &claimUpdate{name: c.Key.Name, uid: c.UID, resourceVersion: c.ResourceVersion}
	switch {
	case !r.state.leadership.granting || c.unserved:
		return
	case c.OwnerClaim != (Key{}), w.restoreRecord(r, c):
		return
	case st.Confirmed && w.now.Sub(r.leaseConfirmedAt) >= modelLeaseExpiry:
		r.state.requireConfirmation(c.holding)
		return
	case st.Confirmed && !c.ready() && w.movesClaims && !w.settling && len(c.Ranges) == 1 && !rangeOfAddressObject(r.state.State, c.Key).IsValid():
		w.createAddressObject(c)
		return
	case st.Confirmed && !c.ready():
		u.reason, u.apply = r.name()+": status Ready", func(c *Claim) { c.Ready, c.Flagged = true, false }
	case st.Conflict != nil && !c.Flagged:
		u.reason, u.apply = r.name()+": status conflict", func(c *Claim) { c.Ready, c.Flagged = false, true }
	default:
		return
	}
	w.sendUpdate(u)
}

// pickClaim returns a random observed claim of a replica; nil if none was found.
func (w *world) pickClaim(r *replica) *claim {
	if r.state.claims.number() == 0 {
		return nil
	}
	uid := fmt.Sprintf("u%d", 1+w.rng.IntN(w.uidCount))
	for range w.uidCount {
		if c := r.state.claims.find(uid); c != nil {
			return c
		}
		uid = fmt.Sprintf("u%d", 1+w.rng.IntN(w.uidCount))
	}
	return nil
}

// grantToStored grants a range to a claim that is stored without one, or writes a
// committed grant to its claim.
func (w *world) grantToStored(r *replica) {
	for _, uid := range slices.Sorted(maps.Keys(r.storedGrants)) {
		f := r.storedGrants[uid]
		if f.sent || w.rng.IntN(2) == 0 {
			continue
		}
		select {
		case err := <-f.committed:
			if err != nil {
				delete(r.storedGrants, uid)
				continue
			}
		default:
			continue
		}
		f.sent = true
		g := f.grant
		w.sendUpdate(&claimUpdate{
			reason: r.name() + ": grant written", name: g.StoredName, uid: uid, resourceVersion: f.resourceVersion,
			apply: func(c *Claim) {
				if len(c.Ranges) > 0 {
					w.tally.extended++
				} else {
					w.tally.grantedToStored++
				}
				if c.RoutingDomain != g.RoutingDomain { // the pool is in another routing domain by now: all ranges are granted there
					c.Ranges = nil
				}
				c.Ranges, c.Token = slices.Concat(c.Ranges, g.Ranges), g.Token
				c.RoutingDomain, c.RoutingDomainGranted = g.RoutingDomain, true
			},
			done: func(bool) { delete(r.storedGrants, uid) },
		})
		return
	}
	c := w.pickClaim(r)
	if c == nil || c.unserved || len(c.Ranges) > 0 || r.storedGrants[c.UID] != nil {
		return
	}
	if inherited := rangeOfAddressObject(r.state.State, c.Key); inherited.IsValid() {
		if w.grantStored(r, c.Claim, modelRequests(inherited, false)) && r.state.leadership.quarantined {
			w.tally.ownedInQuarantine++
		}
		return
	}
	o := w.objects[c.Key.Name]
	w.grantStored(r, c.Claim, modelRequests(allocator.Range{}, o != nil && o.dualStack))
}

// extendClaim is the mutating webhook for an update that requests an IPv6 address in
// addition to the ranges of the claim. The request is based on the stored claim, which
// the replica may not have observed.
func (w *world) extendClaim(r *replica, o *object) {
	if r.storedGrants[o.UID] == nil && !(r.unserved && o.Key.Resource == modelOthers) {
		w.grantStored(r, o.Claim, modelRequests(o.Ranges[0], true))
	}
}

// grantStored grants the missing ranges of a stored claim. Once the grant is committed, a
// later step writes the ranges to the claim, on top of the version in the request. It
// reports whether the ranges were granted.
func (w *world) grantStored(r *replica, c Claim, requests []RangeRequest) bool {
	if len(c.Ranges) > 0 && c.Pool == (Key{}) {
		return false // no pool to allocate from
	}
	g, err := w.grant(r, Request{Claim: c.Key, UID: c.UID, Version: c.ResourceVersion, Pool: c.Pool, Ranges: requests})
	if err != nil {
		return false
	}
	f := &storedGrant{grant: g, committed: make(chan error, 1), resourceVersion: c.ResourceVersion}
	if g.state == grantCommitted {
		f.committed <- nil
	} else {
		g.waiter = f.committed
	}
	r.storedGrants[c.UID] = f
	w.logf("%s: grant %s to stored %s token %s", r.name(), g.Ranges, c.Key.Name, g.Token)
	return true
}

// replica is a replica of the allocator: a State with the informers and the leader
// election around the State.
type replica struct {
	id           int
	life         int // number of starts
	state        *brokenState
	position     int                  // number of events that the watches have delivered or a list has replaced
	relisted     []event              // events before position, from a list, that are not applied yet
	readPosition int                  // number of events at the last consistent read
	applyShare   int                  // applyShare of 400 steps apply events: a low share makes the replica lag
	unserved     bool                 // started without the API of modelOthers
	uses         map[Key][]netip.Addr // user other than a claim -> its addresses, as observed
	hiddenEvents []event              // events of modelOthers that are applied when reads are allowed again
	// versionBeforeHidden is the version up to which modelOthers was observed when
	// hiddenEvents was last empty.
	versionBeforeHidden uint64
	unreadable          UnreadableResources
	pausedUntil         time.Time

	phase            replicaPhase
	newestJournal    uint64           // newest resourceVersion of the Lease that the replica has read or written
	restoredUnder    bool             // etcd was restored to an older version than newestJournal
	current          journal.Revision // last revision that the replica read or committed
	unchangedSince   time.Time        // time of the last observed change of the journal
	commitInFlight   *journal.Revision
	proof            *proofRead // nil if no read is in flight
	reply            leaseReply
	replyVersion     string           // resourceVersion in the reply
	predecessor      journal.Revision // last revision of the previous leader
	committedAt      time.Time
	sentAt           time.Time               // of commitInFlight
	leaseConfirmedAt time.Time               // the last stored commit was sent then, so this replica led at that time
	recordsReread    bool                    // the record of moved ranges was read again after the writes of earlier leaders had ended
	scannedGrants    []*OpenGrant            // expired grants, between consistent read and expiry
	foundTokens      map[journal.Token]bool  // tokens of stored objects in that read
	storedGrants     map[string]*storedGrant // UID of a stored claim -> grant to the claim
}

// storedGrant is a grant to a stored claim, from the request until the write to the claim
// has been stored or has failed.
type storedGrant struct {
	grant           *OpenGrant
	committed       chan error // receives the result of the journal commit that contains the grant
	resourceVersion uint64     // of the claim, at the request
	sent            bool       // the write to the claim is in flight
}

// leaseReply is the reply of the API server to a write to the journal Lease.
type leaseReply int

const (
	replyNone leaseReply = iota
	replyStored
	replyConflict
)

// replicaPhase is the phase of a replica in the leader election.
type replicaPhase int

const (
	phaseFollowing  replicaPhase = iota // reads the journal
	phaseAcquiring                      // the first commit of its own term is in flight
	phaseCatchingUp                     // leads, and waits for the versions that the previous leader applied
	phaseLeading                        // serves
	phaseResigning                      // the commit that gives up leadership is in flight
)

// startReplica starts or restarts a replica with an empty State. The first list is from
// the newer half of the history: the API server may serve a list from an old cache.
func (w *world) startReplica(r *replica) {
	r.life++
	token := func() journal.Token {
		var t journal.Token
		binary.BigEndian.PutUint64(t[:], w.rng.Uint64())
		return t
	}
	r.state = &brokenState{breaks: w.breaks.breaks, State: New(modelResources, w.limits(), token)}
	r.relisted, r.hiddenEvents, r.unreadable, r.unserved = nil, nil, UnreadableResources{}, w.servesPartly && !w.settling && w.rng.IntN(2) == 0
	r.state.access.unserved[modelOthers] = r.unserved
	w.startUses(r)
	r.position, r.readPosition, r.phase, r.newestJournal, r.restoredUnder, r.current = 0, 0, phaseFollowing, 0, false, journal.Revision{}
	r.unchangedSince, r.commitInFlight, r.scannedGrants, r.proof = time.Time{}, nil, nil, nil
	r.storedGrants = map[string]*storedGrant{}
	w.observeSmallPool(r.state.State)
	w.list(r, max(w.trustedFrom, len(w.events)/2+w.rng.IntN(len(w.events)/2+1)))
}

// name returns the name of a replica in the trace: r1.2 is the second life of replica 1.
func (r *replica) name() string { return fmt.Sprintf("r%d.%d", r.id, r.life) }

// deliver applies the next event to a replica, and reports whether there was one.
func (w *world) deliver(r *replica) bool {
	var e event
	switch {
	case len(r.hiddenEvents) > 0 && !w.isUnreadable(modelOthers):
		e, r.hiddenEvents = r.hiddenEvents[0], r.hiddenEvents[1:]
	case len(r.relisted) > 0:
		e, r.relisted = r.relisted[0], r.relisted[1:]
	case r.position < len(w.events):
		e = w.events[r.position]
		r.position++
	default:
		return false
	}
	switch {
	case w.hidesEvent(r, e):
	case e.pool != nil && e.deleted:
		r.state.RemovePool(e.pool.Key, e.resourceVersion)
	case e.pool != nil:
		r.state.RecordApplied(modelPools, e.resourceVersion)
		r.state.ObservePool(w.now, *e.pool)
	case e.deleted:
		r.state.RemoveClaim(w.now, e.claim, e.resourceVersion)
	default:
		r.state.RecordApplied(e.claim.Key.Resource, e.resourceVersion)
		r.state.ObserveClaim(w.now, e.claim)
	}
	return true
}

// pickReplica returns a random replica. The granting replica is more likely than others.
func (w *world) pickReplica() *replica {
	r := w.replicas[w.rng.IntN(len(w.replicas))]
	if !r.state.leadership.granting && w.rng.IntN(2) == 0 {
		r = w.replicas[w.rng.IntN(len(w.replicas))]
	}
	return r
}
