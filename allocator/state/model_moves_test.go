package state

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Address objects and moved claims. Claims have address objects, as Metal3 IPClaims have
// IPAddresses. A tool moves claims to another cluster: the tool marks the objects as
// moved, removes the annotations with range and token, and deletes the objects. The pool
// records the moved ranges for replicas that start later.
//
//	Invariant: after a commit has the pool version that records a moved range, the range is stored for its claim alone.
//	Invariant: the same before that commit, if all replicas had observed the last version of the claim and none has restarted since.

// movedRange is a range that a claim owns in another cluster.
type movedRange struct {
	claim       Key
	objects     []string // UIDs of the claim and its address objects
	startCount  int      // starts of all replicas at the deletion; 0 if a replica had not observed the last version. Until a restart all replicas know of the move
	recordedAt  uint64   // version of the pool that records the range
	committed   bool     // a commit has that version and no earlier grant of the range: every later leader knows of the move
	unprotected bool     // the move may be unknown to a leader, or has been undone: another claim may own the range
}

// startCount returns the number of starts of all replicas.
func (w *world) startCount() (n int) {
	for _, r := range w.replicas {
		n += r.life
	}
	return n
}

// objectKey returns the key of the object to create, without a name if the name is
// generated.
func (c *createRequest) objectKey() Key {
	resource := resourceOfName(c.name)
	if c.ownerClaim != (Key{}) {
		resource = modelAddresses
	}
	return Key{Resource: resource, Namespace: cmp.Or(c.flood, "ns"), Name: c.name}
}

// storedKey returns the key of the stored object.
func (c *createRequest) storedKey(o *object) Key {
	k := c.objectKey()
	k.Name = o.Key.Name
	return k
}

// rangeOfAddressObject returns the range of an observed address object of a claim; not
// valid if there is none.
func rangeOfAddressObject(b *State, k Key) (r allocator.Range) {
	for _, c := range b.claims.objects[k] {
		if len(c.Ranges) == 1 && !c.MarkedMoved {
			return c.Ranges[0]
		}
	}
	return r
}

// isOwnedBy reports whether a denial names the claim as the owner of the range, or the
// range as moved.
func isOwnedBy(err error, claim Key) bool {
	owned := (*OwnedError)(nil)
	return errors.As(err, &owned) && (owned.Owner == claim || owned.Moved)
}

// list replaces the copies of a replica by the objects in a list: the state of the API
// server after the first n events.
func (w *world) list(r *replica, n int) {
	stored := map[string]event{} // UID -> last event
	first := firstPool()
	pool := &first
	r.state.RecordApplied(modelPools, pool.ResourceVersion)
	if w.remakesPool {
		r.state.ObservePool(w.now, w.secondPool())
	}
	for _, e := range w.events[:n] {
		resource := e.claim.Key.Resource
		switch {
		case e.pool != nil && e.deleted:
			pool, resource = nil, modelPools
		case e.pool != nil:
			pool, resource = e.pool, modelPools
		case e.deleted:
			delete(stored, e.claim.UID)
		default:
			stored[e.claim.UID] = e
		}
		if resource != modelOthers || !w.isUnreadable(resource) && !w.ignoresUnserved(r) {
			r.state.RecordApplied(resource, e.resourceVersion)
		}
	}
	r.position = n
	if pool != nil {
		r.state.ObservePool(w.now, *pool)
	}
	for _, e := range w.events[:n] {
		if last, isStored := stored[e.claim.UID]; isStored && e.pool == nil && last.resourceVersion == e.resourceVersion && !w.hidesEvent(r, e) {
			r.state.ObserveClaim(w.now, e.claim)
		}
	}
}

// appliedVersions returns, per resource, the version up to which the copies of a replica
// are complete.
func (w *world) appliedVersions(r *replica) map[string]uint64 {
	newest := map[string]uint64{modelPools: firstPool().ResourceVersion}
	for _, e := range w.events[:min(r.position, len(w.events))] {
		resource := e.claim.Key.Resource
		if e.pool != nil {
			resource = modelPools
		}
		newest[resource] = e.resourceVersion
	}
	if len(r.hiddenEvents) > 0 {
		newest[modelOthers] = r.othersVersion()
	}
	return newest
}

// relist ends the watches of a replica, and queues the missed changes as a list delivers
// them: first the deleted objects, each with its last observed version, then the stored
// objects in any order.
func (w *world) relist(r *replica) {
	if len(r.relisted) > 0 || r.position >= len(w.events) || w.hasChangedRecord() || r.position < w.trustedFrom {
		return
	}
	to := r.position + 1 + w.rng.IntN(len(w.events)-r.position)
	missed := map[string]event{} // UID, "" for the pool -> its last event
	for _, e := range w.events[r.position:to] {
		missed[e.claim.UID] = e
	}
	var deleted, stored []event
	for _, uid := range slices.Sorted(maps.Keys(missed)) {
		e := missed[uid]
		switch known := r.state.claims.find(uid); {
		case !e.deleted:
			stored = append(stored, e)
		case known == nil:
		default:
			e.claim, e.resourceVersion = known.Claim, known.ResourceVersion
			deleted = append(deleted, e)
			for _, r := range known.Ranges {
				if d := w.moved[r]; d != nil && d.recordedAt == 0 {
					d.unprotected = true // the relist hides the mark of the move
				}
			}
		}
	}
	w.rng.Shuffle(len(stored), func(i, j int) { stored[i], stored[j] = stored[j], stored[i] })
	r.position, r.relisted = to, append(deleted, stored...)
	w.logf("%s: relist, %d deleted, %d stored", r.name(), len(deleted), len(stored))
}

// storePool stores the pool with the recorded ranges.
func (w *world) storePool(recorded []RecordedRange, listRevision uint64, reason string) {
	w.pool.ResourceVersion, w.pool.Recorded, w.pool.MovedListRevision = w.nextVersion(), recorded, listRevision
	stored := w.pool
	w.events = append(w.events, event{pool: &stored, resourceVersion: w.resourceVersion})
	w.logf("api: store pool rv=%[2]d recorded %[1]v (%[3]s)", recorded, w.resourceVersion, reason)
	for _, c := range recorded {
		if d := w.moved[c.Range]; d == nil { // recorded by a replica that had not observed the return: the range is kept until a user removes the entry
			w.moved[c.Range] = &movedRange{claim: c.Claim, unprotected: true}
		} else if d.recordedAt == 0 && slices.Contains(d.objects, c.MovedUID) { // otherwise the entry is of an earlier move
			d.recordedAt = w.resourceVersion
		}
	}
}

// checkNotMoved checks that a stored object names no range that a claim owns in another
// cluster, unless the claim itself returns.
func (w *world) checkNotMoved(o *object) {
	for _, r := range o.Ranges {
		d := w.moved[r]
		switch {
		case d == nil:
		case d.claim != o.owner() && !d.unprotected && (d.committed || d.startCount == w.startCount()):
			w.failf("%w: %s owns %s, which %s owns in another cluster", errOwnedTwice, o.Key.Name, r, d.claim.Name)
		case d.claim != o.owner():
			d.unprotected = true
		case o.OwnerClaim == (Key{}): // the claim has returned; a replica that does not observe the return keeps the range until a user removes the entry
			d.unprotected = true
			w.tally.movedBack++
		}
	}
}

// isKeptMoved reports whether the State keeps, or must keep, an address for a moved
// claim.
func (w *world) isKeptMoved(b *State, a netip.Addr) bool {
	for r, d := range w.moved {
		kept := slices.ContainsFunc(b.RangesToRecord(modelPool), func(c RecordedRange) bool { return c.Range == r })
		if r.Contains(a) && (kept || d.committed && !d.unprotected) {
			return true
		}
	}
	return false
}

// awaitsAddressObject reports whether the create of an address object of a claim is in
// flight. The finalizer delays the deletion of the claim until the create has ended.
func (w *world) awaitsAddressObject(o *object) bool {
	return slices.ContainsFunc(w.creates, func(c *createRequest) bool { return !c.over && c.byLeader && c.ownerClaim == o.Key })
}

// createAddressObject creates the address object of a claim, unless a live read shows
// that the claim is deleted: the replica may lag.
func (w *world) createAddressObject(c *claim) {
	if o := w.objects[c.Key.Name]; o == nil || o.UID != c.UID {
		return
	}
	if !slices.ContainsFunc(w.creates, func(o *createRequest) bool { return !o.over && o.byLeader && o.ownerClaim == c.Key }) {
		name := "address-" + c.Ranges[0].First.String() + "-" + c.Key.Name
		w.sendCreate(&createRequest{name: name, pool: modelPool, exact: c.Ranges[0], ownerClaim: c.Key, byLeader: true})
	}
}

// stepMoves runs one action of users on address objects and the pool, or of tools that
// move claims and restore claims from a backup. stepMoves reports false if the action had
// no object.
func (w *world) stepMoves(name string) bool {
	claim := Key{Resource: modelClaims, Namespace: "ns", Name: name}
	listed, addressObjects, o := len(w.pool.Recorded), w.addressObjectsOf(claim), w.pickMovable()
	switch n := w.rng.IntN(32); {
	case n < 6 && listed > 0: // a moved claim returns
		moved := w.pool.Recorded[w.rng.IntN(listed)]
		w.sendCreate(&createRequest{name: moved.Claim.Name, pool: modelPool, exact: moved.Range})
	case n < 12 && listed > 0:
		w.replacePool()
	case n < 14 && listed > 0 && w.pool.MovedListRevision > 0: // a user removes an entry from the pool's list
		if d := w.moved[w.pool.Recorded[0].Range]; d != nil {
			d.unprotected = true // free once the removal is observed, kept otherwise
		}
		w.storePool(slices.Clone(w.pool.Recorded[1:]), w.pool.MovedListRevision, "entry removed")
	case n < 16 && len(w.lostObjects) > 0:
		w.recreateLost()
	case n < 17 && w.removeFinalizer():
	case n < 20: // a user creates an address object for a claim
		w.sendCreate(&createRequest{name: "kept-for-" + name, pool: modelPool, exact: w.pickAddress(), ownerClaim: claim})
	case n < 21 && len(addressObjects) > 0:
		w.remove(addressObjects[0])
	case o == nil:
		return false
	case n < 26:
		w.moveClaim(o)
	case n < 28: // a user marks and deletes the claim as the tool would, while its Cluster is not paused: the claim was not moved
		w.markedByUser[o.UID] = true
		w.markAndRemove(o)
		w.tally.markedByUser++
	default:
		w.loseObjects(o)
	}
	return true
}

// pickMovable returns a random claim with one range and a pool whose address object is
// not in flight; nil if there is none.
func (w *world) pickMovable() *object {
	var all []*object
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		if o := w.objects[name]; o.OwnerClaim == (Key{}) && len(o.Ranges) == 1 && o.Pool != (Key{}) && !w.awaitsAddressObject(o) {
			all = append(all, o)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[w.rng.IntN(len(all))]
}

// replacePool replaces the pool as a user would: by an earlier version, or without the
// list of recorded ranges.
func (w *world) replacePool() {
	if w.rng.IntN(3) == 0 && len(w.earlierPools) > 0 {
		old := w.earlierPools[w.rng.IntN(len(w.earlierPools))]
		w.storePool(old.Recorded, old.MovedListRevision, "replaced by an earlier version")
	} else {
		w.storePool(nil, 0, "replaced without its list")
	}
	w.tally.poolsReplaced++
}

// addressObjectsOf returns the stored address objects of a claim, oldest write first.
func (w *world) addressObjectsOf(k Key) (all []*object) {
	for _, o := range w.objects {
		if o.OwnerClaim == k {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(x, y *object) int { return int(x.ResourceVersion) - int(y.ResourceVersion) })
	return all
}

// moveClaim moves a claim to another cluster, after its address objects.
func (w *world) moveClaim(o *object) {
	all := append(w.addressObjectsOf(o.Key), o)
	var objects []string
	for _, m := range all {
		objects = append(objects, m.UID)
	}
	for _, m := range all {
		lives := w.startCount()
		for _, r := range w.replicas {
			if observed := r.state.claims.find(m.UID); observed == nil || observed.ResourceVersion != m.ResourceVersion {
				lives = 0
			}
		}
		for _, r := range m.Ranges {
			w.moved[r] = &movedRange{claim: o.Key, objects: objects, startCount: lives}
		}
		delete(w.markedByUser, m.UID) // from before a restore of etcd
		w.markAndRemove(m)
	}
	w.tally.moved++
}

// markAndRemove deletes an object as the tool does: the tool marks the object as moved
// and removes the annotations with range and token of a claim first.
func (w *world) markAndRemove(o *object) {
	n := *o
	n.MarkedMoved = true
	if n.OwnerClaim == (Key{}) {
		n.Ranges, n.Token = nil, journal.Token{}
	}
	w.objects[n.Key.Name] = &n
	n.ResourceVersion = w.nextVersion()
	w.events = append(w.events, event{claim: n.Claim, resourceVersion: w.resourceVersion})
	w.remove(&n)
}

// decideMoves decides the undecided moves of a replica: an object marked by a user was
// not moved.
func (w *world) decideMoves(r *replica) {
	open := r.state.UndecidedMoves()
	slices.SortFunc(open, func(x, y UndecidedMove) int { return strings.Compare(x.UID, y.UID) })
	for _, d := range open {
		r.state.DecideMoved(w.now, d.UID, !w.markedByUser[d.UID])
	}
}

// recordMoved stores the record of moved ranges, and reports whether the stored record is
// complete. If another replica has stored a newer record, recordMoved reads that record
// instead. The list of the pool omits one range, for lack of room.
func (w *world) recordMoved(r *replica, p *pool, omitted RecordedRange) bool {
	moved, stored, _ := r.state.MovedOf(modelPool, "")
	for i, m := range moved {
		if m.Range == omitted.Range && m.Claim == omitted.Claim && r.state.MayBeListed(modelPool, p.ResourceVersion, m) {
			moved[i].ListedSince, moved[i].IgnoreListsUntil = 0, p.ResourceVersion
		}
	}
	var known []Moved
	if len(stored.Parts) > 0 {
		known = stored.Parts[0].Moved
	}
	if slices.Equal(known, moved) {
		return true
	}
	if version := fmt.Sprint(w.movedRecordVersion); len(stored.Parts) > 0 && stored.Parts[0].Version != version || len(stored.Parts) == 0 && len(w.movedRecord) > 0 {
		r.state.SetMovedRecord(w.storedMovedRecord())
		return false
	}
	w.movedRecordVersion++
	w.movedRecord = moved
	r.state.MovedRecordSaved(w.storedMovedRecord())
	w.logf("%s: store record of %d moved ranges", r.name(), len(moved))
	return true
}

// storedMovedRecord returns the stored record of moved ranges.
func (w *world) storedMovedRecord() MovedRecord {
	r := MovedRecord{Pool: modelPool}
	if len(w.movedRecord) > 0 {
		r.Parts = []MovedRecordPart{{Name: "record", Version: fmt.Sprint(w.movedRecordVersion), Moved: slices.Clone(w.movedRecord)}}
	}
	return r
}

// reconcilePool writes the recorded ranges of the pool. While the schedule settles,
// reconcilePool also deletes address objects without a claim.
func (w *world) reconcilePool(r *replica) {
	b := r.state
	p := b.pools.find(modelPool)
	recorded := b.RangesToRecord(modelPool)
	var omitted RecordedRange
	if len(recorded) > 1 && !w.settling && (p.ResourceVersion/versionStep)%3 == 0 { // the pool has room for all ranges but one
		omitted, recorded = recorded[0], recorded[1:]
	}
	if !w.recordMoved(r, p, omitted) {
		return
	}
	if !slices.Equal(recorded, p.Recorded) {
		w.sendUpdate(&claimUpdate{reason: r.name() + ": recorded ranges", resourceVersion: p.ResourceVersion, recorded: recorded})
		return
	}
	for _, name := range slices.Sorted(maps.Keys(w.objects)) {
		o := w.objects[name]
		if known := b.claims.find(o.UID); w.settling && known != nil && o.OwnerClaim != (Key{}) && w.objects[o.OwnerClaim.Name] == nil {
			w.remove(o)
			return
		}
	}
}
