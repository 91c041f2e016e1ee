package ledger

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"butlerlabs.dev/ipam/allocator"
)

// Ranges that went to other clusters are stored twice: in a list on their pool, which people see and edit, and in a record of the manager's own, which has
// room for all and is not lost with the pool's annotations. The record is written first.
//
//	decided ──▶ recorded ──▶ listed, revision r ──▶ seen listed: shown = r ──▶ recorded as shown ──▶ taken out of a list of revision >= r: free
//	                    └──▶ no room in the list: hidden = base of that list, shown = 0
//
// A list has the version of the pool on which it is based as its revision. So a list that lacks a range shows that a person took it out, where its
// revision is not before that of the first list that was seen to show the range.
//
// Invariant: a list of revision r lacks a range that is recorded only if r < shown, r <= hidden, or a person took it out.

// Record is what is stored of the ranges of a pool that went to other clusters. A range stays in its part: no write takes it out of one and puts it into
// another.
type Record struct {
	Pool  Key
	UID   string // of the pool
	Parts []RecordPart
	Fault error // why a part cannot be read; the pool allocates nothing meanwhile, as ranges of that part are not known
}

// RecordPart is one stored object of a Record.
type RecordPart struct {
	Name    string
	Version string // of the stored object
	Moved   []Moved
}

// Moved is a range that went to another cluster.
type Moved struct {
	Range  allocator.Range
	Claim  Key    // that comes back with it, perhaps
	Left   string // UID of the object that went with it, "" where that is not known
	Shown  uint64 // revision of the first list of the pool that was seen to show it, 0 for none
	Hidden uint64 // lists of this revision and earlier ones count as not showing it
}

// Identity is m without what lists have shown of it.
func (m Moved) Identity() Moved { return Moved{Range: m.Range, Claim: m.Claim, Left: m.Left} }

// MovedCount is how many ranges of a pool went to other clusters.
type MovedCount struct {
	Listed     int // on the pool, where people can take them out
	Unlisted   int // stay held, but are not seen on the pool
	Unrecorded int // by the manager itself: held only while a replica runs
}

// Compare orders ranges by their addresses.
func (m Moved) Compare(o Moved) int {
	return cmp.Or(m.Range.First.Compare(o.Range.First), m.Range.Last.Compare(o.Range.Last), cmp.Compare(m.Claim.Name, o.Claim.Name),
		cmp.Compare(m.Claim.Namespace, o.Claim.Namespace), cmp.Compare(m.Left, o.Left))
}

// takeRecords takes in all that is recorded, as a new holder of the journal reads it.
func (b *book) takeRecords(all []Record) {
	clear(b.records)
	clear(b.faults)
	for _, r := range all {
		b.takeRecord(r)
	}
}

// takeRecord takes in the record of a pool as it was read.
func (b *book) takeRecord(r Record) {
	if r.Fault != nil {
		b.faults[r.UID] = r.Fault
	} else {
		delete(b.faults, r.UID)
	}
	b.records[r.Pool] = r
	if p := b.pools[r.Pool]; p != nil {
		b.recallMoved(p)
	}
}

// recallMoved takes in what the record of a pool says.
func (b *book) recallMoved(p *pool) {
	r := b.records[p.Key]
	if r.UID != p.UID || len(r.Parts) == 0 {
		return
	}
	for _, part := range r.Parts {
		for _, m := range part.Moved {
			if h := b.keepAway(p, Cooling{Range: m.Range, Claim: m.Claim, Left: m.Left}); h != nil {
				h.shown, h.hidden = m.Shown, m.Hidden
			}
		}
	}
	for _, c := range p.Cooling { // the list may be newer
		if c.Until.IsZero() {
			b.sawShown(p, c)
		}
	}
	b.settleAway(p, false)
	b.changed[p.Key] = struct{}{}
}

// rereadRecords reads the records again while one has a fault, or the right to read them was missing, so that the pools go on as soon as a person has
// corrected it. Only those records are taken in: of the others this replica may just have written newer ones.
func (l *Ledger) rereadRecords(ctx context.Context, source Source) {
	var faulty map[string]error
	denied := false
	l.do(func(b *book) { faulty, denied = maps.Clone(b.faults), !l.recordsDenied.IsZero() })
	if len(faulty) == 0 && !denied {
		return
	}
	all, err := source.Records(ctx)
	if err != nil {
		l.tell(err, "What is recorded of ranges in other clusters cannot be read, and is tried again")
		return
	}
	l.do(func(b *book) {
		l.recordsDenied = time.Time{}
		for _, r := range all {
			if _, again := faulty[r.UID]; again || denied {
				b.takeRecord(r)
			}
			delete(faulty, r.UID)
		}
		for uid := range faulty { // deleted by a person
			delete(b.faults, uid)
		}
	})
}

// recordSaved takes in that a record was stored, which hides some ranges from lists of a revision and earlier ones.
func (b *book) recordSaved(r Record) {
	if len(r.Parts) == 0 {
		delete(b.records, r.Pool)
		return
	}
	b.records[r.Pool] = r
	hidden := map[Moved]uint64{}
	for _, part := range r.Parts {
		for _, m := range part.Moved {
			hidden[m.Identity()] = m.Hidden
		}
	}
	for h := range b.resting[r.Pool] {
		if !h.away() || len(h.ranges) != 1 {
			continue
		}
		if at := hidden[Moved{Range: h.ranges[0], Claim: h.key, Left: h.left}]; at > h.hidden {
			h.hidden = at
			if h.shown <= at {
				h.shown = 0
			}
		}
	}
}

// movedOf lists the ranges of a pool that went to other clusters, in address order, and what is recorded of them. known is false where the pool with this
// UID is not known.
func (b *book) movedOf(k Key, uid string) (list []Moved, stored Record, known bool) {
	if p := b.pools[k]; p == nil || p.UID != uid {
		return nil, b.records[k], false
	}
	for h := range b.resting[k] {
		if h.away() && !b.isOpen(h) {
			for _, r := range h.ranges {
				list = append(list, Moved{r, h.key, h.left, h.shown, h.hidden})
			}
		}
	}
	slices.SortFunc(list, Moved.Compare)
	return list, b.records[k], true
}

// countMoved counts the ranges of a pool that went to other clusters.
func (b *book) countMoved(k Key) (n MovedCount) {
	p := b.pools[k]
	if p == nil || len(b.resting[k]) == 0 {
		return n
	}
	moved, stored, _ := b.movedOf(k, p.UID)
	recorded := map[Moved]bool{}
	for _, part := range stored.Parts {
		for _, m := range part.Moved {
			recorded[m.Identity()] = stored.UID == p.UID
		}
	}
	listed := map[allocator.Range]bool{}
	for _, c := range p.Cooling {
		listed[c.Range] = c.Until.IsZero()
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
