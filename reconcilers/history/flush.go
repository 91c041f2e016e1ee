package history

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"butlerlabs.dev/ipam/allocator/historyrecord"
)

// store adds a record to the records that wait for the next write of objects. Without
// room, store drops and counts the record. The caller holds mu.
func (r *Recorder) store(record historyrecord.Record) {
	switch {
	case r.objects == nil:
	case r.waiting >= maxPending:
		r.dropped++
	default:
		r.pending[record.Pool] = append(r.pending[record.Pool], record)
		r.waiting++
	}
}

// Run writes the objects every flushEvery until ctx ends. On the leader, Run also deletes
// the objects older than the retention. After Run, the caller calls Flush to write the
// remaining records.
func (r *Recorder) Run(ctx context.Context) error {
	if r.objects == nil {
		return nil
	}
	flush, deletion := time.NewTicker(flushEvery), time.Time{}
	defer flush.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-flush.C:
		case <-r.flushNow:
		}
		r.Flush(ctx)
		if r.ledger.MayGrant() && time.Since(deletion) >= deleteEvery {
			deletion = time.Now()
			r.deleteOld(ctx)
		}
	}
}

// deleteOld deletes the objects older than the retention.
func (r *Recorder) deleteOld(ctx context.Context) {
	before := r.now().UTC().AddDate(0, 0, -r.retention).Format(dayFormat)
	n, err := r.objects.DeleteBefore(ctx, before)
	if n > 0 {
		r.log.Info("Deleted objects that are older than the retention", "objects", n, "before", before)
	}
	if err != nil && ctx.Err() == nil {
		r.log.Error(err, "Deleting old objects failed; retrying", "before", before)
	}
}

// Flush writes the waiting records to the objects. Records of a failed write wait for the
// next Flush. A replica that does not lead writes:
//
//   - the records that the replica recorded as the leader
//   - after a change of the leader, the events that the replica has kept as a follower
func (r *Recorder) Flush(ctx context.Context) {
	if r.objects == nil {
		return
	}
	r.flushing.Lock()
	defer r.flushing.Unlock()
	if err := r.storeReplay(ctx); err != nil {
		r.logWriteError(ctx, err)
		return
	}
	r.mu.Lock()
	batch, reached, recorded := r.pending, maps.Clone(r.observed), maps.Clone(r.recorded)
	complete := r.complete && !r.readRecorded && r.dropped == 0 && time.Since(r.started) >= keepFor
	if r.dropped > 0 {
		r.log.Error(nil, "Records are missing in the objects, and only in the log: too many waited to be written", "records", r.dropped)
	}
	r.pending, r.waiting, r.dropped = map[string][]historyrecord.Record{}, 0, 0
	r.mu.Unlock()
	if len(batch) == 0 {
		return
	}

	day := r.now().UTC().Format(dayFormat)
	var (
		group errgroup.Group
		mu    sync.Mutex
		left  = map[string][]historyrecord.Record{}
		first error
	)
	group.SetLimit(poolWrites)
	for pool, records := range batch {
		group.Go(func() error {
			rest, err := r.objects.Store(ctx, pool, day, records, recorded)
			if errors.Is(err, errNoRoom) {
				r.log.Error(err, "Records are missing in the objects, and only in the log", "pool", pool, "day", day)
				return nil
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				left[pool], first = rest, err
			}
			return nil
		})
	}
	_ = group.Wait() // the functions of the group return no error
	r.mu.Lock()
	defer r.mu.Unlock()
	for pool, records := range left {
		r.pending[pool] = append(records, r.pending[pool]...)
		r.waiting += len(records)
	}
	if first != nil {
		r.logWriteError(ctx, first)
	} else if complete {
		r.recorded.raise(reached)
	}
}

// storeReplay adds the events of replay that are newer than the versions in the
// annotations of the objects to the waiting records, and, if the replica listed its
// claims shortly before it began to lead, the allocations of the stored claims that are
// newer.
func (r *Recorder) storeReplay(ctx context.Context) error {
	r.mu.Lock()
	r.replayAfterChange()
	must, listed := r.readRecorded, r.replayStored
	r.mu.Unlock()
	if !must {
		return nil
	}
	today := r.now().UTC()
	recorded, err := r.objects.Recorded(ctx, today.AddDate(0, 0, -1).Format(dayFormat), today.Format(dayFormat))
	if err != nil {
		return err
	}
	var stored []event
	if listed {
		stored = r.storedAfter(recorded)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range stored {
		r.observed.reach(e.resource, e.version)
		r.store(e.record)
	}
	for _, e := range r.replay {
		if e.version > recorded[e.resource] {
			r.store(e.record)
		}
	}
	r.replay, r.readRecorded, r.replayStored = nil, false, false
	r.recorded.raise(recorded)
	return nil
}

func (r *Recorder) logWriteError(ctx context.Context, err error) {
	if ctx.Err() == nil {
		r.log.Error(err, "Writing the records to objects failed; retrying")
	}
}
