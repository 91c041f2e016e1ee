// Package history logs each allocation and each release of a claim, so that a log store answers who owned an address at a past time. With a retention, it stores
// them in AllocationHistories too.
//
// The leader logs a line of logger "history" with the fields of historyrecord.Record:
//
//	message     logged when
//	Allocated   a claim is stored as Ready and was not Ready before, or the ranges of the claim have changed
//	Released    a finalizer of the claim is about to be removed; the claim is gone; or the claim has lost its addresses in a conflict
//
// A release is logged again if the removal of the finalizer fails: readers use the last line.
//
// # Take-over
//
// The journal contains, for each resource, the resourceVersion of the last event that the leader had applied at its last commit
// (journal.Snapshot.Applied). A leader logs an event before it applies the event: the events up to that version are logged. Every follower keeps the events of
// the last two minutes, and logs the events after that version when the follower begins to lead. An event after the last commit of a leader may be logged twice:
// readers drop repeated lines.
//
// The deletion of a claim without a finalizer while no replica runs is not logged.
//
// # Objects
//
// The leader collects the records of each pool, and writes them to the AllocationHistories of the pool every flushEvery and when the leader stops. Records of
// events that the journal contains may therefore not be stored. Instead, each AllocationHistory has an annotation with the versions of the events up to which all
// records were stored before this AllocationHistory was written. A new leader reads the newest of these versions, and stores the events after them that it has
// kept as a follower. Readers drop records that are stored twice.
//
// A leader that ends without a stop may lead again at once, in a new process that has kept nothing. Therefore every follower that observes a new leader stores the
// events that it has kept and that are newer than these versions, storeAfter after the event. A process raises the versions when it has run for keepFor: by then
// the followers have stored the events before its start.
//
// Records are missing in the objects, and not in the log, if (a) all replicas that have observed the event end before they store it: a leader within flushEvery,
// a follower within storeAfter and flushEvery, (b) the API server has not accepted the objects for keepFor, (c) the objects of a pool and a day are full, or
// (d) more than maxPending records wait.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/inventory"
	"butlerlabs.dev/ipam/allocator/inventory/historyrecord"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// keepFor is how long a follower keeps an event: longer than a take-over takes.
	keepFor = 2 * time.Minute
	// maxKept bounds the events that a follower keeps.
	maxKept = 50_000
	// storeAfter is how old an event is when a follower stores the event, unless the leader has: longer than a take-over and the first write of a leader take.
	storeAfter = 30 * time.Second
	// flushEvery is the period of the writes of objects.
	flushEvery = 10 * time.Second
	// maxPending bounds the records that wait for a write of objects.
	maxPending = 100_000
	// deleteEvery is the period in which objects are deleted that are older than the retention.
	deleteEvery = time.Hour
	// poolWrites is the number of pools whose objects are written at the same time.
	poolWrites = 4
)

// Recorder logs allocations and releases. It is safe for concurrent use.
type Recorder struct {
	log    logr.Logger
	ledger *ledger.Ledger
	now    func() time.Time // wall clock

	mu   sync.Mutex
	kept []event
	// released and releasedBefore are the UIDs of the claims whose release was logged in this period and in the period before. A period lasts keepFor.
	released, releasedBefore map[string]struct{}
	periodBegan              time.Time

	objects   *Objects // nil: the records are only logged
	retention int      // of objects, in days
	flushing  sync.Mutex
	pending   map[string][]historyrecord.Record // pool -> records that are not stored in objects
	waiting   int                               // records in pending
	dropped   int                               // records without room in pending since the last flush
	started   time.Time                         // of this process
	// leader is the identity of the last leader that Flush has seen, and leaderSince when Flush saw this leader first.
	leader      string
	leaderSince time.Time
	// replay has the events that this replica kept as a follower, which the objects may lack. readRecorded: the versions up to which the objects
	// have all events have to be read first.
	replay       []event
	readRecorded bool
	// observed has the version of the last event, and complete reports that the objects, pending and replay have all records up to these versions.
	observed versions
	complete bool
	recorded versions // up to which the objects have all records
	flushNow chan struct{}
}

// event is an event that a follower keeps.
type event struct {
	at       time.Time
	resource string
	version  uint64
	record   historyrecord.Record
	replayed bool // the event is, or was, in replay
}

// New returns a Recorder. Call Lead when the ledger begins to lead.
func New(log logr.Logger, l *ledger.Ledger, now func() time.Time) *Recorder {
	return &Recorder{
		log: log.WithName(historyrecord.Logger), ledger: l, now: now, started: time.Now(), released: map[string]struct{}{},
		pending: map[string][]historyrecord.Record{}, observed: versions{}, recorded: versions{}, flushNow: make(chan struct{}, 1),
	}
}

// StoreIn stores the records in objects too, which are deleted after some days. Call StoreIn before the first event, and Run to write the objects.
func (r *Recorder) StoreIn(objects *Objects, days int) { r.objects, r.retention = objects, days }

// Observe records the event of a claim, before the ledger applies the event: before or after is nil if the claim is created or deleted. convert converts the
// claim for the ledger.
func (r *Recorder) Observe(before, after client.Object, convert func(client.Object) ledger.Claim) {
	var was, is ledger.Claim
	if before != nil {
		was = convert(before)
	}
	if after != nil {
		is = convert(after)
	}
	version := max(was.ResourceVersion, is.ResourceVersion)
	switch owned, owns := isAllocated(was), isAllocated(is); {
	case owns && !(owned && slices.Equal(was.Ranges, is.Ranges)):
		at := r.now()
		if since := inventory.AllocatedAt(after); before == nil && !since.IsZero() && since.Before(at) { // listed, not created: a create has no status
			at = since
		}
		r.record(historyrecord.EventAllocated, at, version, is, after)
	case owned && (after == nil || is.Flagged || len(is.Ranges) == 0):
		r.record(historyrecord.EventReleased, r.now(), version, was, before)
	case r.objects != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.observed.reach(cmp.Or(is.Key, was.Key).Resource, version)
	}
}

// isAllocated reports whether a stored claim is, or was, the owner of the ranges that it names, as far as its status reports.
func isAllocated(c ledger.Claim) bool {
	return len(c.Ranges) > 0 && !c.Flagged && (c.Ready || c.AllocatedEarlier)
}

// Release records the release of a claim whose finalizer is about to be removed.
func (r *Recorder) Release(o client.Object, c ledger.Claim) {
	if isAllocated(c) {
		r.record(historyrecord.EventReleased, r.now(), c.ResourceVersion, c, o)
	}
}

// record logs an event if this replica leads, and otherwise keeps the event for the next take-over.
func (r *Recorder) record(what string, at time.Time, version uint64, c ledger.Claim, o client.Object) {
	record := historyrecord.NewRecord(what, at, c, r.domainOf(c), o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed.reach(c.Key.Resource, version)
	if !r.ledger.MayGrant() { // asked under mu: an event that is kept here is kept before Lead, which follows the first grant
		r.complete = false
		r.keep(event{at: time.Now(), resource: c.Key.Resource, version: version, record: record})
		return
	}
	if r.write(record) {
		r.store(record)
	}
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

// write logs a record, and returns true, unless the record is a release that was just logged. The caller holds mu.
func (r *Recorder) write(record historyrecord.Record) bool {
	if time.Since(r.periodBegan) > keepFor {
		r.released, r.releasedBefore, r.periodBegan = map[string]struct{}{}, r.released, time.Now()
	}
	if record.Event == historyrecord.EventAllocated {
		delete(r.released, record.UID)
		delete(r.releasedBefore, record.UID)
	} else {
		_, now := r.released[record.UID]
		_, before := r.releasedBefore[record.UID]
		if now || before {
			return false
		}
		r.released[record.UID] = struct{}{}
	}
	r.log.Info(record.Event, record.Fields()...)
	return true
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
	if r.objects != nil {
		r.replayKept(time.Now())
		r.readRecorded, r.complete = true, true
		select {
		case r.flushNow <- struct{}{}:
		default:
		}
	}
	r.kept = nil
}

// replayKept adds the kept events from before a time to replay, each once. The caller holds mu.
func (r *Recorder) replayKept(before time.Time) {
	for n := range r.kept {
		if e := &r.kept[n]; !e.replayed && e.at.Before(before) {
			e.replayed, r.readRecorded = true, true
			r.replay = append(r.replay, *e)
		}
	}
}

// replayAfterChange adds the kept events to replay, storeAfter after each, that an earlier leader may not have stored. This replica may observe an event, and the
// new leader, later than others do: so events of storeAfter after the change count too. The caller holds mu.
func (r *Recorder) replayAfterChange() {
	now := time.Now()
	if leader, _ := r.ledger.Leader(); leader != r.leader {
		r.leader, r.leaderSince = leader, now
	}
	before := now.Add(-storeAfter)
	if last := r.leaderSince.Add(storeAfter); last.Before(before) {
		before = last
	}
	r.replayKept(before)
}
