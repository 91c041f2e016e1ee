package reconcilers

import (
	"cmp"
	"context"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// maxReleases is how many records status.releases of a pool has room for, by its schema. Those whose range rests may take it all.
	maxReleases = 1024
	// keptReleases is how many records are kept that need not be. A write of a pool with 1,024 of them costs the API server fifty times
	// what one without costs, and its counters are written all the time.
	keptReleases = 32
	// releaseBatch is how many releases share one write of a pool at most.
	releaseBatch = 256
	// lookAgain is the longest wait for a range to have rested, which is a matter of the wall clock: somebody may set that.
	lookAgain = time.Minute
)

// release takes an allocation that is being deleted through its first half: Released, with the time. Its pool's reconciler records
// it and takes the finalizer off. Of a range that it never had for itself there is nothing to record, and without a pool nowhere to.
//
//	deleted ──▶ phase Released ──▶ recorded in the pool ──▶ finalizer off ──▶ gone ──▶ addresses free, or resting
//	              release()            recordReleases()       dropFinalizers()         the ledger, by the informer
func (ipAllocations) release(ctx context.Context, d *desk, a *v1alpha1.IPAllocation) (time.Duration, error) {
	if !controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation) {
		return 0, nil // others have theirs on it
	}
	rng, _, err := butler.RangeOf(a)
	if err != nil || !rng.IsValid() || butler.Flagged(a) || d.ledger.Standing(string(a.UID)).Barred != nil {
		return 0, d.dropFinalizer(ctx, a, v1alpha1.FinalizerIPAllocation)
	}
	if !released(a) {
		before := a.DeepCopy()
		a.Status = *releasedStatus(a, metav1.NewTime(releasedAt(a, d.wall())))
		_, err := d.saveStatus(ctx, before, a)
		return 0, err
	}
	pool := butler.PoolKeyOf(a)
	err = d.client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Name}, &v1alpha1.NetworkPool{})
	switch {
	case apierrors.IsNotFound(err):
		return 0, d.dropFinalizer(ctx, a, v1alpha1.FinalizerIPAllocation)
	case err == nil:
		d.changes.pools.Add(request(pool))
	}
	return 0, err
}

// releasedAt is the time of a release: now, or where this replica's clock is behind the API server's, the deletion, which no release precedes.
func releasedAt(o client.Object, now time.Time) time.Time {
	if deleted := o.GetDeletionTimestamp(); deleted != nil && deleted.After(now) {
		return deleted.Time
	}
	return now
}

// dropFinalizer lets a claim go.
func (d *desk) dropFinalizer(ctx context.Context, c client.Object, finalizer string) error {
	if d.sent.has(c) {
		return nil
	}
	before := copied(c)
	if !controllerutil.RemoveFinalizer(c, finalizer) {
		return nil
	}
	if err := d.save(ctx, before, c); err != nil {
		return d.overtaken.Ignore(ctx, before, err)
	}
	d.sent.end(c)
	return nil
}

// recording is what becomes of a pool's records.
type recording struct {
	records []v1alpha1.Release
	fresh   int           // of them, at the end: those that are new
	left    int           // releases that could not be added
	room    time.Duration // until there may be room for one of them; zero where there is room
}

// recordReleases adds the records of the leaving allocations to a pool's. Records that are more than enough go when their range no longer rests and their
// allocation has gone, the oldest first: one that stays, as its finalizer cannot be removed, would be recorded anew each time.
func recordReleases(p *v1alpha1.NetworkPool, leaving []*v1alpha1.IPAllocation, now time.Time) recording {
	shorten(p, now)
	known, stays := keysOf(p.Status.Releases), map[recordKey]bool{}
	var fresh []v1alpha1.Release
	for i := range leaving {
		record, ok := releaseOf(leaving[i], p)
		switch {
		case !ok:
		case known[keyOf(record)]:
			stays[keyOf(record)] = true
		default:
			fresh = append(fresh, record)
		}
	}
	slices.SortFunc(fresh, func(x, y v1alpha1.Release) int {
		return cmp.Or(x.ReleasedAt.Compare(y.ReleasedAt.Time), cmp.Compare(x.Name, y.Name))
	})
	kept := 0
	room := now.Add(lookAgain) // when there is more
	for _, r := range p.Status.Releases {
		switch {
		case stays[keyOf(r)]:
			kept++
		case rests(r, now):
			kept++
			if r.ReusableAt.Time.Before(room) {
				room = r.ReusableAt.Time
			}
		}
	}
	var to recording
	to.fresh = min(len(fresh), releaseBatch, maxReleases-kept)
	to.left = len(fresh) - to.fresh
	if to.fresh == 0 && to.left > 0 {
		to.room = room.Sub(now)
	}
	excess := len(p.Status.Releases) + to.fresh - keptReleases
	for _, r := range p.Status.Releases {
		if excess > 0 && !rests(r, now) && !stays[keyOf(r)] {
			excess--
			continue
		}
		to.records = append(to.records, r)
	}
	to.records = append(to.records, fresh[:to.fresh]...)
	return to
}

// rests tells whether the range of a recorded release rests still.
func rests(r v1alpha1.Release, now time.Time) bool {
	return r.ReusableAt != nil && r.ReusableAt.After(now)
}

// shorten ends the recorded cooldowns within the delay that the pool has now: of their release, and of now, as that may have been recorded by a
// clock that was ahead.
func shorten(p *v1alpha1.NetworkPool, now time.Time) {
	delay := ptr.Deref(p.Spec.ReuseDelay, metav1.Duration{}).Duration
	latest := now.Add(delay + time.Second - time.Nanosecond).Truncate(time.Second) // as it is stored, and no shorter
	for i := range p.Status.Releases {
		r := &p.Status.Releases[i]
		for _, end := range []time.Time{r.ReleasedAt.Add(delay), latest} {
			if r.ReusableAt != nil && end.Before(r.ReusableAt.Time) {
				r.ReusableAt = ptr.To(metav1.NewTime(end))
			}
		}
	}
}

// logReleases says in the log what the pool itself forgets some day.
func logReleases(ctx context.Context, to recording) {
	log := ctrllog.FromContext(ctx)
	for _, r := range to.records[len(to.records)-to.fresh:] {
		log.Info("Addresses released", "allocation", r.Name, "tenant", r.Tenant.Namespace+"/"+r.Tenant.Name, "range", r.StartAddress+"-"+r.EndAddress)
	}
}

// releaseOf is the record of an allocation marked Released.
func releaseOf(a *v1alpha1.IPAllocation, p *v1alpha1.NetworkPool) (v1alpha1.Release, bool) {
	rng, _, err := butler.RangeOf(a)
	if err != nil || !rng.IsValid() {
		return v1alpha1.Release{}, false
	}
	record := v1alpha1.Release{
		Name:         a.Name,
		Tenant:       v1alpha1.RecordedReference(a.Spec.TenantClusterRef),
		StartAddress: rng.First.String(),
		EndAddress:   rng.Last.String(),
		AllocatedAt:  a.Status.AllocatedAt,
		ReleasedAt:   *a.Status.ReleasedAt,
	}
	if d := p.Spec.ReuseDelay; d != nil && d.Duration > 0 {
		record.ReusableAt = ptr.To(metav1.NewTime(record.ReleasedAt.Add(d.Duration)))
	}
	return record, true
}

// recordKey tells one release from every other: the time stands in the allocation's status before it is recorded.
type recordKey struct {
	name, start, end string
	releasedAt       int64
}

func keyOf(r v1alpha1.Release) recordKey {
	return recordKey{r.Name, r.StartAddress, r.EndAddress, r.ReleasedAt.Unix()}
}

func keysOf(records []v1alpha1.Release) map[recordKey]bool {
	keys := make(map[recordKey]bool, len(records))
	for _, r := range records {
		keys[keyOf(r)] = true
	}
	return keys
}

// recordedIn is those of the allocations whose release is recorded in the pool as stored.
func recordedIn(stored *v1alpha1.NetworkPool, leaving []*v1alpha1.IPAllocation) []*v1alpha1.IPAllocation {
	if len(leaving) == 0 {
		return nil
	}
	known := keysOf(stored.Status.Releases)
	return slices.DeleteFunc(leaving, func(a *v1alpha1.IPAllocation) bool {
		record, ok := releaseOf(a, stored)
		return !ok || !known[keyOf(record)]
	})
}

// dropFinalizers lets go of allocations. Where that fails it is due again: the other releases of the pool do not wait for it.
func (d *desk) dropFinalizers(ctx context.Context, leaving []*v1alpha1.IPAllocation, again *soonest) {
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for _, a := range leaving {
		name, basis := client.ObjectKeyFromObject(a), claimBasis{claim: claimBasisOf(a)}
		if wait := d.tries.Wait(name, basis); wait > 0 {
			again.add(wait)
			continue
		}
		writes.Go(func() error {
			if err := d.dropFinalizer(ctx, a.DeepCopy(), v1alpha1.FinalizerIPAllocation); err != nil {
				again.add(d.tries.Failed(ctx, name, basis, err))
			}
			return nil
		})
	}
	_ = writes.Wait() // no error: each is settled by itself
}
