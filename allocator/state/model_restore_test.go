package state

import (
	"maps"
	"strconv"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// Restores of etcd from a backup while replicas run. Objects that replicas observed after
// the backup do not exist any more, and no watch event reports that. A replica detects
// the restore because the journal is older than the last revision it observed, and
// restarts.

// versionStep is the distance between consecutive resourceVersions. Each restore
// continues at an offset of its own, so the versions before and after a restore differ.
const versionStep = 16

// backup is the contents of etcd at one time.
type backup struct {
	resourceVersion uint64
	objects         map[string]*object
	eventCount      int
	lease           journal.Revision
	pool            Pool
	moved           map[allocator.Range]*movedRange
	movedRecord     []Moved
	// movedRecordVersion is the version of movedRecord.
	movedRecordVersion int
}

// nextVersion assigns the resourceVersion of the next write.
func (w *world) nextVersion() uint64 {
	w.resourceVersion += versionStep
	return w.resourceVersion
}

// takeBackup copies what etcd contains.
func (w *world) takeBackup() {
	w.backup = &backup{
		resourceVersion: w.resourceVersion, objects: maps.Clone(w.objects), eventCount: len(w.events), lease: w.lease, pool: w.pool, moved: copyMoved(w.moved),
		movedRecord: w.movedRecord, movedRecordVersion: w.movedRecordVersion,
	}
}

func copyMoved(moved map[allocator.Range]*movedRange) map[allocator.Range]*movedRange {
	copies := make(map[allocator.Range]*movedRange, len(moved))
	for r, d := range moved {
		c := *d
		copies[r] = &c
	}
	return copies
}

// restoreEtcd replaces the stored objects by the backup. Requests in flight are lost with
// their connections.
//
// Assumption: a replica that has observed any event, or stored a record of moved ranges,
// after the backup has also observed a later journal revision, because the leader commits
// every second; and the replica reads the journal again before the journal reaches that
// version again. Otherwise restoreEtcd does nothing.
func (w *world) restoreEtcd() {
	b := w.backup
	if b == nil || w.restoreCount == versionStep-1 {
		return
	}
	for _, r := range w.replicas {
		if r.commitInFlight != nil && r.reply == replyStored { // the reply has arrived
			r.newestJournal = parseVersion(r.replyVersion)
		}
		isAhead := max(r.position, r.readPosition) > b.eventCount || r.scannedGrants != nil || r.state.pools.find(modelPool).ResourceVersion > b.pool.ResourceVersion
		isAhead = isAhead || r.state.leadership.granting && w.movedRecordVersion > b.movedRecordVersion
		if isAhead && r.newestJournal <= parseVersion(b.lease.ResourceVersion) {
			return
		}
	}
	for _, r := range w.replicas {
		r.restoredUnder = r.restoredUnder || r.newestJournal > parseVersion(b.lease.ResourceVersion)
	}
	for r, d := range b.moved { // a move that replicas did not know of before the restore stays unknown
		if now := w.moved[r]; now != nil && now.claim == d.claim {
			d.unprotected = d.unprotected || now.unprotected
		}
	}
	w.restoreCount++
	w.resourceVersion = b.resourceVersion + 1
	w.objects, w.events, w.lease, w.pool, w.moved = maps.Clone(b.objects), w.events[:b.eventCount:b.eventCount], b.lease, b.pool, copyMoved(b.moved)
	w.movedRecord, w.earlierPools = b.movedRecord, nil
	w.movedRecordVersion++
	w.creates, w.poolUpdates, w.leaseWrites, w.updates, w.backup = nil, nil, nil, nil, nil
	w.tally.restores++
	w.logf("etcd: restore rv=%d journal term %d commit %d", b.resourceVersion, b.lease.Term, b.lease.Commit)
}

// readJournal reads the journal for a replica. If etcd was restored under the replica,
// the replica restarts and readJournal returns false.
func (w *world) readJournal(r *replica) (journal.Revision, bool) {
	if w.restartRestored(r) {
		return w.lease, false
	}
	r.newestJournal = max(r.newestJournal, parseVersion(w.lease.ResourceVersion)) // a journal that does not exist has no version
	return w.lease, true
}

// restartRestored restarts a replica that reads or has written a revision of the journal
// after etcd was restored under the replica: the revision is older than newestJournal. It
// reports whether it did.
func (w *world) restartRestored(r *replica) bool {
	if !r.restoredUnder || w.breaks.ignoreRestore {
		return false
	}
	w.logf("%s: restart, etcd was restored", r.name())
	w.tally.restartedByRestore++
	w.startReplica(r)
	return true
}

// parseVersion parses a resourceVersion; the empty one of a journal that does not exist
// is 0.
func parseVersion(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
