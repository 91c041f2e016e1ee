package ledger

import (
	"maps"
	"strconv"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/journal"
)

// This part of the model restores etcd from a backup while replicas run: what they have seen since is no longer so, and what watches them tells
// nothing of that. Each finds out from the journal that it knows a time that never was, and is to begin anew.

// lineage is how far resourceVersions are apart: each restore continues with others than those that were there before it, as if no two ever met.
const lineage = 16

// backup is all that is stored at one time.
type backup struct {
	rv       uint64
	objects  map[string]*object
	events   int
	lease    journal.Version
	pool     Pool
	departed map[allocator.Range]*departure
	recorded []Moved
}

// nextVersion is the resourceVersion of the next write.
func (w *world) nextVersion() uint64 {
	w.rv += lineage
	return w.rv
}

func (w *world) backUp() {
	w.backup = &backup{rv: w.rv, objects: maps.Clone(w.objects), events: len(w.events), lease: w.lease, pool: w.pool, departed: copiesOf(w.departed), recorded: w.recorded}
}

func copiesOf(departed map[allocator.Range]*departure) map[allocator.Range]*departure {
	copies := make(map[allocator.Range]*departure, len(departed))
	for r, d := range departed {
		c := *d
		copies[r] = &c
	}
	return copies
}

// restore puts the backup in the place of what is stored. All that was under way to the API server, and in it, is lost with the connections. A
// replica that has seen anything since the backup has seen a later version of the journal too, as its holder writes that every second; and it looks
// again before that version is reached anew.
func (w *world) restore() {
	b := w.backup
	if b == nil || w.restores == lineage-1 {
		return
	}
	for _, r := range w.replicas {
		if r.attempt != nil && r.reply == 1 { // which is here
			r.newest = version(r.replyRV)
		}
		knows := max(r.pos, r.looked) > b.events || r.scan != nil || r.book.pools[modelPool].ResourceVersion > b.pool.ResourceVersion
		if knows && r.newest <= version(b.lease.ResourceVersion) {
			return
		}
	}
	for _, r := range w.replicas {
		r.setBack = r.setBack || r.newest > version(b.lease.ResourceVersion)
	}
	for r, d := range b.departed { // what replicas do not know they do not know after that either
		if now := w.departed[r]; now != nil && now.claim == d.claim {
			d.lost = d.lost || now.lost
		}
	}
	w.restores++
	w.rv = b.rv + 1
	w.objects, w.events, w.lease, w.pool, w.departed = maps.Clone(b.objects), w.events[:b.events:b.events], b.lease, b.pool, copiesOf(b.departed)
	w.recorded, w.lists = b.recorded, nil
	w.recordVersion++
	w.creates, w.changes, w.writes, w.updates, w.backup = nil, nil, nil, nil, nil
	w.tally.restores++
	w.logf("restored to rv=%d, journal epoch %d commit %d", b.rv, b.lease.Epoch, b.lease.Commit)
}

// read is a replica's look at the journal; false where that is older than it was, and the replica begins anew.
func (w *world) read(r *replica) (journal.Version, bool) {
	if r.setBack && !w.breaks.noSetBack {
		w.logf("%s was set back", r.name())
		w.tally.setBack++
		w.start(r)
		return w.lease, false
	}
	r.newest = version(w.lease.ResourceVersion)
	return w.lease, true
}

// version reads a resourceVersion, 0 for that of a journal that does not exist.
func version(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64)
	return n
}
