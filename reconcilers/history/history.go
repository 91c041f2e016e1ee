// Package history logs each allocation and each release of a claim, so that a log store
// can answer which claim owned an address at a past time. With a retention, the package
// also stores the records in AllocationHistories.
//
// The leader logs a line of logger "history" with the fields of historyrecord.Record:
//
//	message     logged when
//	Allocated   a stored claim has an allocation (isAllocated), and its earlier version had none, or had other ranges
//	Released    a finalizer of the claim is about to be removed
//	Released    the claim is deleted
//	Released    the claim no longer has an allocation: it has lost its addresses in a conflict, or names no ranges, or others that are not allocated to it yet
//
// Every record follows from two versions of a claim alone, on each replica alike. A
// version between two statuses counts too: its grant shows the allocation.
//
// If the removal of the finalizer fails, a release may be logged again: readers use the
// last line.
//
// # Take-over
//
// The journal contains, for each resource, the resourceVersion of the last event that the
// leader had applied at its last commit (journal.Snapshot.Applied). A leader logs an
// event before the leader applies the event: the events up to the version in the journal
// are logged. Every follower keeps the events of the last two minutes. When a follower
// begins to lead, the follower logs the kept events after the version in the journal. An
// event after the last commit of a leader may be logged twice: readers drop repeated
// lines.
//
// A process that has just started has listed the claims, and has no events of them. When
// such a process begins to lead, the process logs the allocation of each stored claim
// whose version is after the version in the journal.
//
// The deletion of a claim without a finalizer is not logged if no replica runs at the
// time of the deletion.
//
// # Objects
//
// The leader collects the records of each pool. Every flushEvery, and when the leader
// stops, the leader writes the records to the AllocationHistories of the pool. Therefore
// records may not be stored yet although the journal contains the versions of their
// events. To find these records, each AllocationHistory has an annotation with versions:
// when the AllocationHistory was written, the records of the events up to these versions
// had been stored. A new leader reads the newest versions from the annotations, and
// stores the later events that the new leader has kept as a follower; soon after the
// start of its process, also the allocations of the stored claims with later versions.
// Readers drop records that are stored twice.
//
// A leader that ends without a stop may lead again at once, in a new process without kept
// events. Therefore every follower that observes a new leader stores the kept events that
// are newer than the versions in the annotations, storeAfter after the event. A process
// raises the versions in the annotations after the process has run for keepFor: by then,
// the followers have stored the events from before the start of the process.
//
// Records are missing in the objects, but not in the log, in these cases:
//
//   - Every replica that has observed the event ends before the replica stores the event:
//     a leader within flushEvery, a follower within storeAfter and flushEvery.
//   - The API server has not accepted the objects for keepFor.
//   - The objects of a pool and a day are full.
//   - More than maxPending records wait.
package history

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"butlerlabs.dev/ipam/allocator/historyrecord"
	"butlerlabs.dev/ipam/allocator/kinds"
	"butlerlabs.dev/ipam/allocator/kinds/object"
	"butlerlabs.dev/ipam/allocator/ledger"
)

const (
	// keepFor is the time for which a follower keeps an event: longer than a take-over
	// takes.
	keepFor = 2 * time.Minute
	// maxKept bounds the number of events that a follower keeps: the oldest events are
	// dropped first.
	maxKept = 50_000
	// storeAfter is the age at which a follower stores an event that the leader may not
	// have stored: longer than a take-over and the first write of a leader take.
	storeAfter = 30 * time.Second
	// flushEvery is the interval between writes of objects.
	flushEvery = 10 * time.Second
	// maxPending bounds the number of records that wait for a write of objects.
	maxPending = 100_000
	// deleteEvery is the interval between deletions of objects older than the retention.
	deleteEvery = time.Hour
	// poolWrites bounds the number of pools whose objects are written at the same time.
	poolWrites = 4
)

// Recorder logs allocations and releases. A Recorder is safe for concurrent use.
type Recorder struct {
	log    logr.Logger
	ledger *ledger.Ledger
	now    func() time.Time // wall clock
	claims []Claims

	mu   sync.Mutex
	kept []event // Invariant: len(kept) <= maxKept
	// released and releasedBefore contain the UIDs of the claims whose release was logged
	// in this period and in the previous period. A period lasts at least keepFor.
	released, releasedBefore map[string]struct{}
	periodBegan              time.Time

	objects   *Objects // nil if the records are only logged
	retention int      // of objects, in days
	flushing  sync.Mutex
	pending   map[string][]historyrecord.Record // pool -> records not yet stored in objects
	waiting   int                               // number of records in pending
	dropped   int                               // number of records without room in pending since the last flush
	started   time.Time                         // start of this process
	// leader is the identity of the leader at the last Flush, and leaderSince the time of
	// the first Flush with this leader.
	leader      string
	leaderSince time.Time
	// replay contains the events that this replica kept as a follower and that the
	// objects may lack. readRecorded reports that the versions in the annotations of the
	// objects have to be read before replay is stored.
	replay       []event
	readRecorded bool
	replayStored bool // the objects may lack allocations of claims that were listed at the start of this process
	// observed maps a resource to the version of its last event. complete reports that
	// objects, pending and replay together contain every record up to these versions.
	observed versions
	complete bool
	recorded versions // the objects contain every record up to these versions
	flushNow chan struct{}
}

// event is an event kept by a follower.
type event struct {
	at       time.Time
	resource string
	version  uint64
	record   historyrecord.Record
	replayed bool // the event is or was in replay
}

// New returns a Recorder. Call SetLedger before any other method, and Lead when the
// ledger begins to lead.
func New(log logr.Logger, now func() time.Time) *Recorder {
	return &Recorder{
		log: log.WithName(historyrecord.Logger), now: now, started: time.Now(), released: map[string]struct{}{},
		pending: map[string][]historyrecord.Record{}, observed: versions{}, recorded: versions{}, flushNow: make(chan struct{}, 1),
	}
}

// SetLedger sets the ledger, which itself calls Lead and so is made after the Recorder.
func (r *Recorder) SetLedger(l *ledger.Ledger) { r.ledger = l }

// StoreIn makes the Recorder store the records in objects too. The retention of the
// objects is the given number of days. Call StoreIn before the first event, and Run to
// write the objects.
func (r *Recorder) StoreIn(objects *Objects, days int) { r.objects, r.retention = objects, days }

// Claims are the claims of one resource.
type Claims struct {
	Resource string
	Stored   func() []client.Object // as the informer shows them
	Convert  func(client.Object) ledger.Claim
}

// AddClaims adds the claims of a resource, before the first event.
func (r *Recorder) AddClaims(c Claims) { r.claims = append(r.claims, c) }

// Observe records the event of a claim before the ledger applies the event, except the
// events of the list at the start of the process, see Lead. before is nil for a claim
// without an earlier event; after is nil for a deleted claim. convert converts the claim
// for the ledger.
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
		if before == nil { // the claim was listed, not created: a created claim has no status
			at = r.allocatedAt(after)
		}
		r.record(historyrecord.EventAllocated, at, version, is, after)
	case owned && !owns:
		r.record(historyrecord.EventReleased, r.now(), version, was, before)
	case r.objects != nil:
		r.mu.Lock()
		defer r.mu.Unlock()
		r.observed.reach(cmp.Or(is.Key, was.Key).Resource, version)
	}
}

// allocatedAt returns when a claim was allocated, by the status of the claim; now if the
// status has no time in the past.
func (r *Recorder) allocatedAt(o client.Object) time.Time {
	now := r.now()
	if since := kinds.Of(o).Describe(o).AllocatedAt; !since.IsZero() && since.Before(now) {
		return since
	}
	return now
}

// isAllocated reports whether a stored claim is or was the owner of its ranges, according
// to its status, or to its grant: the validating webhook admits a token only with an open
// grant, and the API server stores the status later, or never if the claim is changed or
// deleted at once.
func isAllocated(c ledger.Claim) bool {
	return len(c.Ranges) > 0 && !c.Flagged && (c.Ready || c.AllocatedEarlier || !c.Token.IsZero())
}

// Release records the release of a claim whose finalizer is about to be removed.
func (r *Recorder) Release(o client.Object, c ledger.Claim) {
	if isAllocated(c) {
		r.record(historyrecord.EventReleased, r.now(), c.ResourceVersion, c, o)
	}
}

// record logs an event on the leader. On a follower, record keeps the event for the next
// take-over.
func (r *Recorder) record(what string, at time.Time, version uint64, c ledger.Claim, o client.Object) {
	record := historyrecord.NewRecord(what, at, c, r.domainOf(c), o)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.observed.reach(c.Key.Resource, version)
	if !r.ledger.MayGrant() { // called under mu: Lead is called after MayGrant becomes true, so Lead finds every event kept here
		r.complete = false
		r.keep(event{at: time.Now(), resource: c.Key.Resource, version: version, record: record})
		return
	}
	if r.write(record) {
		r.store(record)
	}
}

// domainOf returns the routing domain of the ranges of a claim: if the claim owns its
// ranges, the domain of the owned ranges; otherwise the domain of the label of the claim.
func (r *Recorder) domainOf(c ledger.Claim) string {
	if o := r.ledger.OwnershipOf(c.UID); o.Allocated {
		return o.RoutingDomain
	}
	return c.RoutingDomain
}

// keep keeps an event for keepFor. Beyond maxKept events, keep drops the oldest, without
// moving the others: append copies them when its array is full. The caller holds mu.
func (r *Recorder) keep(e event) {
	if len(r.kept) == 0 {
		time.AfterFunc(keepFor, r.forget)
	}
	r.kept = append(r.kept, e)
	r.kept = r.kept[max(0, len(r.kept)-maxKept):]
}

// forget drops the events older than keepFor, and schedules the next call until no event
// is left.
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

// write logs a record and returns true. A release of a claim whose release was logged in
// this period or in the previous period is not logged again: write returns false. The
// caller holds mu.
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

// Lead logs the kept events that the previous leader may not have logged: the events
// after applied, the versions in the last commit of the previous leader, by resource. The
// ledger calls Lead when this replica begins to lead.
func (r *Recorder) Lead(applied map[string]uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	listed := time.Since(r.started) < keepFor
	if listed {
		for _, e := range r.storedAfter(applied) {
			r.write(e.record)
		}
	}
	for _, e := range r.kept {
		if e.version > applied[e.resource] {
			r.write(e.record)
		}
	}
	if r.objects != nil {
		r.replayKept(time.Now())
		r.readRecorded, r.replayStored, r.complete = true, listed, true
		select {
		case r.flushNow <- struct{}{}:
		default:
		}
	}
	r.kept = nil
}

// storedAfter returns the allocations of the stored claims whose version is after the
// version of their resource.
func (r *Recorder) storedAfter(after map[string]uint64) (allocations []event) {
	for _, all := range r.claims {
		for _, o := range all.Stored() {
			version := object.ResourceVersion(o)
			if version <= after[all.Resource] {
				continue
			}
			if c := all.Convert(o); isAllocated(c) {
				record := historyrecord.NewRecord(historyrecord.EventAllocated, r.allocatedAt(o), c, r.domainOf(c), o)
				allocations = append(allocations, event{resource: all.Resource, version: version, record: record})
			}
		}
	}
	return allocations
}

// replayKept adds the kept events older than a time to replay, each event once. The
// caller holds mu.
func (r *Recorder) replayKept(before time.Time) {
	for n := range r.kept {
		if e := &r.kept[n]; !e.replayed && e.at.Before(before) {
			e.replayed, r.readRecorded = true, true
			r.replay = append(r.replay, *e)
		}
	}
}

// replayAfterChange adds to replay the kept events that an earlier leader may not have
// stored, storeAfter after each event. The caller holds mu.
//
// This replica may observe an event, or the new leader, later than other replicas do.
// Therefore events up to storeAfter after the change of the leader count too.
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
