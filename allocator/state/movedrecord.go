package state

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"butlerlabs.dev/ipam/allocator"
)

// Moved ranges are stored twice: in the cooldown list of their pool, which people see and
// edit, and in the moved record, in ConfigMaps of the manager's namespace. The moved
// record has room for all moved ranges, survives an update of the pool that drops the
// annotation (kubectl replace), is deleted with the pool, and is written before the list.
// In this file, "recorded" means in the moved record, and "listed" means in the cooldown
// list.
//
//	decided ──▶ recorded ──▶ listed, revision r ──▶ observed as listed: ListedSince = r ──▶ recorded with ListedSince ──▶ removed from a list of revision >= r: free
//	                    └──▶ no room in the list: IgnoreListsUntil = revision of that list, ListedSince = 0
//
// The revision of a cooldown list is the resourceVersion of the pool version that the
// manager replaced when it wrote the list. A person who edits the list keeps its
// revision. If a list lacks a range and its revision is not before that of the first list
// that was observed to show the range, a person removed the range.
//
// A replica writes a list only if its State has observed the version that the list
// replaces, and leaves out a range that this version lists as moved only after it has
// proven that it leads: a former leader that was suspended does not know the moves of its
// successor.
//
// Invariant: a list of revision r lacks a recorded range only if ListedSince is 0 (no
// list since IgnoreListsUntil has been observed to show the range), r < ListedSince, r <=
// IgnoreListsUntil, or a person removed the range.

// MovedRecord is the moved record of a pool, as stored. A range stays in its part: no
// write moves a range between parts.
type MovedRecord struct {
	Pool  Key
	UID   string // of the pool
	Parts []MovedRecordPart
	Fault error // why a part cannot be read. The pool allocates nothing meanwhile, as the ranges of that part are not known
}

// MovedRecordPart is a stored object that contains a part of a MovedRecord.
type MovedRecordPart struct {
	Name    string
	Version string // resourceVersion of the stored object
	Moved   []Moved
}

// Moved is a range whose claim was moved to another cluster.
type Moved struct {
	Range            allocator.Range
	Claim            Key    // owner of the range in the other cluster; the claim may come back with the range
	MovedUID         string // UID of the object that was moved; "" if not known
	ListedSince      uint64 // revision of the first cooldown list that was observed to show the range; 0 for none
	IgnoreListsUntil uint64 // cooldown lists of this revision and earlier revisions count as not showing the range; 0 for none
}

// Identity returns m without its list revisions.
func (m Moved) Identity() Moved { return Moved{Range: m.Range, Claim: m.Claim, MovedUID: m.MovedUID} }

// MovedCount counts the moved ranges of a pool.
type MovedCount struct {
	Listed     int // in the moved record and in the cooldown list, where people can remove them
	Unlisted   int // in the moved record only
	Unrecorded int // not in the moved record yet: kept only while a replica runs
}

// Compare orders moved ranges by address, then claim.
func (m Moved) Compare(o Moved) int {
	return cmp.Or(m.Range.First.Compare(o.Range.First), m.Range.Last.Compare(o.Range.Last), cmp.Compare(m.Claim.Name, o.Claim.Name),
		cmp.Compare(m.Claim.Namespace, o.Claim.Namespace), cmp.Compare(m.MovedUID, o.MovedUID))
}

// movedRecords are the moved records of all pools, as last read or written, and the
// faults of those that cannot be read.
//
// Invariant: a record is listed under its pool.
type movedRecords struct {
	byPool  map[Key]MovedRecord // pool -> stored record
	faults  map[string]error    // UID of a pool -> why the record of the pool's moved ranges cannot be read
	changes uint64              // see MovedRecordChanges
}

func newMovedRecords() movedRecords {
	return movedRecords{byPool: map[Key]MovedRecord{}, faults: map[string]error{}}
}

// forget removes all records and faults, before a new leader reads them.
func (m *movedRecords) forget() {
	clear(m.byPool)
	clear(m.faults)
}

// read applies a record as read, with its fault.
func (m *movedRecords) read(r MovedRecord) {
	m.changes++
	if r.Fault != nil {
		m.faults[r.UID] = r.Fault
	} else {
		delete(m.faults, r.UID)
	}
	m.byPool[r.Pool] = r
}

// saved applies a record as written. Without parts it was deleted.
func (m *movedRecords) saved(r MovedRecord) {
	m.changes++
	if len(r.Parts) == 0 {
		delete(m.byPool, r.Pool)
		delete(m.faults, r.UID)
		return
	}
	m.byPool[r.Pool] = r
}

// of returns the stored record of a pool, which may be of an earlier pool with its key.
func (m *movedRecords) of(pool Key) MovedRecord { return m.byPool[pool] }

// faultOf returns why the record of the pool with this UID cannot be read; nil if it can
// be read, or the UID is not known.
func (m *movedRecords) faultOf(uid string) error {
	if uid == "" {
		return nil
	}
	return m.faults[uid]
}

// check verifies the invariant.
func (m *movedRecords) check() error {
	for pool, r := range m.byPool {
		if r.Pool != pool {
			return fmt.Errorf("the moved record of %s is listed under %s", r.Pool, pool)
		}
	}
	return nil
}

// RecordFaults returns why records of moved ranges cannot be read: UID of the pool ->
// error.
func (s *State) RecordFaults() map[string]error { return s.movedRecords.knownFaults() }

func (m *movedRecords) knownFaults() map[string]error { return maps.Clone(m.faults) }

// ClearRecordFault removes the fault of a pool whose record was deleted.
func (s *State) ClearRecordFault(poolUID string) { s.movedRecords.clearFault(poolUID) }

func (m *movedRecords) clearFault(uid string) { delete(m.faults, uid) }

// MovedRecordChanges counts the calls of SetMovedRecord and MovedRecordSaved. A save in
// flight is not counted yet: a record that was read during that save may be older than
// the saved record. Such a record can only keep a range that is free, never free a range.
func (s *State) MovedRecordChanges() uint64 { return s.movedRecords.countChanges() }

func (m *movedRecords) countChanges() uint64 { return m.changes }

// SetMovedRecords replaces all moved records by the records that a new leader has read.
func (s *State) SetMovedRecords(all []MovedRecord) {
	s.movedRecords.forget()
	for _, r := range all {
		s.SetMovedRecord(r)
	}
}

// SetMovedRecord applies the moved record of a pool as read.
func (s *State) SetMovedRecord(r MovedRecord) {
	s.movedRecords.read(r)
	if p := s.pools.find(r.Pool); p != nil {
		s.applyMovedRecord(p)
	}
}

// applyMovedRecord applies the moved record of a pool to its holdings.
func (s *State) applyMovedRecord(p *pool) {
	r := s.movedRecords.of(p.Key)
	if r.UID != p.UID || len(r.Parts) == 0 {
		return
	}
	for _, part := range r.Parts {
		for _, m := range part.Moved {
			switch h := s.keepMoved(p, RecordedRange{Range: m.Range, Claim: m.Claim, MovedUID: m.MovedUID}); {
			case h == nil:
			case h.isOfMove(m.MovedUID):
				h.listedSince, h.ignoreListsUntil = m.ListedSince, m.IgnoreListsUntil
			default: // the claim came back and was moved again, and the order of the two moves is not known here: no list known so far frees the range
				h.listedSince, h.ignoreListsUntil = 0, max(h.ignoreListsUntil, m.IgnoreListsUntil, p.ResourceVersion)
			}
		}
	}
	for _, c := range p.Recorded { // the cooldown list may be newer
		if c.IsMoved() {
			s.recordListed(p, c)
		}
	}
	s.freeUnlistedMoved(p, false)
	s.changed[p.Key] = struct{}{}
}

// MovedRecordSaved applies a moved record that was stored, or deleted if it has no parts.
// The record may declare that cooldown lists up to a revision do not show a range
// (IgnoreListsUntil).
func (s *State) MovedRecordSaved(r MovedRecord) {
	s.movedRecords.saved(r)
	ignoredUntil := map[Moved]uint64{}
	for _, part := range r.Parts {
		for _, m := range part.Moved {
			ignoredUntil[m.Identity()] = m.IgnoreListsUntil
		}
	}
	for h := range s.cooldowns.of(r.Pool) {
		if !h.isMoved() || len(h.ranges) != 1 {
			continue
		}
		if at := ignoredUntil[Moved{Range: h.ranges[0], Claim: h.key, MovedUID: h.movedUID}]; at > h.ignoreListsUntil {
			h.ignoreListsUntil = at
			if h.listedSince <= at {
				h.listedSince = 0
			}
		}
	}
}

// MovedOf lists the moved ranges of a pool in address order, and returns the stored moved
// record. known is false if no pool with this UID is known.
func (s *State) MovedOf(k Key, uid string) (list []Moved, stored MovedRecord, known bool) {
	if p := s.pools.find(k); p == nil || p.UID != uid {
		return nil, s.movedRecords.of(k), false
	}
	for h := range s.cooldowns.of(k) {
		if h.isMoved() && !s.moves.isUndecided(h) {
			for _, r := range h.ranges {
				list = append(list, Moved{r, h.key, h.movedUID, h.listedSince, h.ignoreListsUntil})
			}
		}
	}
	slices.SortFunc(list, Moved.Compare)
	return list, s.movedRecords.of(k), true
}

// MayBeListed reports whether a stored cooldown list, up to this version of the pool, may
// show a moved range that the moved record does not declare as left out. Before a list
// without the range is written, the moved record must declare the range as left out
// (IgnoreListsUntil). Otherwise a replica that observed the earlier list would conclude
// that a person removed the range. The result is false only if IgnoreListsUntil covers
// the list that this version of the pool has: a list between two observed versions may
// show the range.
func (s *State) MayBeListed(k Key, version uint64, m Moved) bool {
	p := s.pools.find(k)
	return p == nil || p.ResourceVersion != version || p.MovedListRevision == 0 || m.ListedSince > 0 || m.IgnoreListsUntil < p.MovedListRevision
}

// CountMoved counts the moved ranges of a pool.
func (s *State) CountMoved(k Key) (n MovedCount) {
	p := s.pools.find(k)
	if p == nil || s.cooldowns.isEmpty(k) {
		return n
	}
	moved, stored, _ := s.MovedOf(k, p.UID)
	recorded := map[Moved]bool{}
	for _, part := range stored.Parts {
		for _, m := range part.Moved {
			recorded[m.Identity()] = stored.UID == p.UID
		}
	}
	listed := map[allocator.Range]bool{}
	for _, c := range p.Recorded {
		listed[c.Range] = c.IsMoved()
	}
	for _, m := range moved {
		switch {
		case !recorded[m.Identity()]:
			n.Unrecorded++
		case listed[m.Range]:
			n.Listed++
		default:
			n.Unlisted++
		}
	}
	return n
}
