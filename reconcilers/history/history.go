// Package history logs every allocation and every release, for all kinds of claims, so that a log store answers who owned an address at a past time.
//
// The leader logs one line, of logger "history" with message "Allocated" or "Released", with the fields of Record:
//
//	Allocated   the claim is stored as Ready, and was not before; or its ranges have changed
//	Released    the finalizer of the claim is about to be removed; or the claim is gone
//
// # Take-over
//
// The journal contains, for each resource, the resourceVersion of the last event that the leader had applied at its last commit (journal.Snapshot.Applied). A leader
// logs an event before it applies the event. So the events up to that version are logged, and the next leader logs the later ones, which every follower keeps for
// the time being. An event after the last commit of a leader may be logged twice: readers drop a line that repeats event, UID and ranges.
//
// One kind of event is not logged: the deletion of a claim without a finalizer while no replica runs.
package history

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// keepFor is how long a follower keeps an event: longer than a take-over takes.
	keepFor = 2 * time.Minute
	// maxKept bounds the events that a follower keeps.
	maxKept = 50_000
)

// Recorder logs allocations and releases. It is safe for concurrent use.
type Recorder struct {
	log    logr.Logger
	ledger *ledger.Ledger
	now    func() time.Time // wall clock

	mu       sync.Mutex
	kept     []event
	released map[string]time.Time // UID -> time at which its release was logged; only recent ones
}

// event is an event that a follower keeps.
type event struct {
	at       time.Time
	resource string
	version  uint64
	record   inventory.Record
}

// New returns a Recorder. Call Lead when the ledger begins to lead.
func New(log logr.Logger, l *ledger.Ledger, now func() time.Time) *Recorder {
	return &Recorder{log: log.WithName(inventory.HistoryLogger), ledger: l, now: now, released: map[string]time.Time{}}
}

// Observe records the event of a claim, before the ledger applies it: before or after is nil if the claim is created or deleted. convert converts the claim for
// the ledger.
func (r *Recorder) Observe(before, after client.Object, convert func(client.Object) ledger.Claim) {
	if after == nil {
		if c := convert(before); isAllocated(c) {
			r.record(inventory.EventReleased, c, before)
		}
		return
	}
	c := convert(after)
	if !isAllocated(c) {
		return
	}
	if before != nil {
		if was := convert(before); isAllocated(was) && slices.Equal(was.Ranges, c.Ranges) {
			return
		}
	}
	r.record(inventory.EventAllocated, c, after)
}

// isAllocated reports whether a stored claim is, or was, the owner of the ranges that it names, as far as its status reports.
func isAllocated(c ledger.Claim) bool {
	return len(c.Ranges) > 0 && !c.Flagged && (c.Ready || c.AllocatedEarlier)
}

// Release records the release of a claim whose finalizer is about to be removed.
func (r *Recorder) Release(o client.Object, c ledger.Claim) {
	if isAllocated(c) {
		r.record(inventory.EventReleased, c, o)
	}
}

// record logs an event if this replica leads, and otherwise keeps the event for the next take-over.
func (r *Recorder) record(what string, c ledger.Claim, o client.Object) {
	now := r.now()
	record := inventory.NewRecord(what, now, c, r.domainOf(c), o)
	leads := r.ledger.MayGrant()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !leads {
		r.keep(event{time.Now(), c.Key.Resource, c.ResourceVersion, record})
		return
	}
	r.write(record)
}

// domainOf returns the routing domain of a claim's ranges: that of its pool, if the pool is known.
func (r *Recorder) domainOf(c ledger.Claim) string {
	if o := r.ledger.OwnershipOf(c.UID); o.Allocated {
		return o.Space
	}
	return c.Space
}

// keep keeps an event for keepFor. The caller holds mu.
func (r *Recorder) keep(e event) {
	if len(r.kept) == 0 {
		time.AfterFunc(keepFor, r.forget)
	}
	r.kept = append(r.kept, e)
	r.kept = slices.Delete(r.kept, 0, max(0, len(r.kept)-maxKept))
}

// forget drops the events that are older than keepFor, and runs again until none is left.
func (r *Recorder) forget() {
	r.mu.Lock()
	defer r.mu.Unlock()
	first := slices.IndexFunc(r.kept, func(e event) bool { return time.Since(e.at) < keepFor })
	if first < 0 {
		r.kept = nil
		return
	}
	r.kept = slices.Clone(r.kept[first:])
	time.AfterFunc(keepFor/4, r.forget)
}

// write logs a record, unless it is a release that was logged already. The caller holds mu.
func (r *Recorder) write(record inventory.Record) {
	if record.Event == inventory.EventReleased {
		maps.DeleteFunc(r.released, func(_ string, at time.Time) bool { return record.Time.Sub(at) > keepFor })
		if _, logged := r.released[record.UID]; logged {
			return
		}
		r.released[record.UID] = record.Time
	}
	r.log.Info(record.Event, record.Fields()...)
}

// Lead logs the events that the previous leader has not logged: those after the versions that its last commit contains, by resource. The ledger calls Lead when
// this replica begins to lead.
func (r *Recorder) Lead(applied map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.kept {
		if e.version > applied[e.resource] {
			r.write(e.record)
		}
	}
	r.kept = nil
}
