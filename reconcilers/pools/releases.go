package pools

import (
	"cmp"
	"context"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// maxReleases is how many records status.releases of a pool has room for, by its
	// schema. Records of ranges in cooldown may take all of the room.
	maxReleases = 1024
	// keptReleases bounds the records of a pool, unless more must stay: surplus records
	// of ranges that are out of cooldown are removed. A write of a pool with 1,024
	// records costs the API server fifty times as much as a write without records, and
	// the counters of a pool are written all the time.
	keptReleases = 32
	// recordBatch is how many releases share one write of a pool at most.
	recordBatch = 256
	// roomPoll is the longest wait for the end of a cooldown, which depends on the wall
	// clock: an administrator may set the clock.
	roomPoll = time.Minute
)

// recording is the result of adding releases to a pool's release records.
type recording struct {
	records     []v1alpha1.Release
	fresh       int           // number of new records, at the end of records
	left        int           // number of releases that could not be added
	waitForRoom time.Duration // time until the records may have room; 0 if they have room
}

// recordReleases adds released allocations to a pool's release records. Surplus records
// are removed, the oldest first, when the cooldown has ended and the allocation is gone:
// a stored allocation, whose finalizer cannot be removed, would be recorded again by each
// reconcile.
func recordReleases(p *v1alpha1.NetworkPool, released []*v1alpha1.IPAllocation, now time.Time) recording {
	shortenCooldowns(p, now)
	known, stored := keysOf(p.Status.Releases), map[recordKey]bool{}
	var fresh []v1alpha1.Release
	for i := range released {
		record, ok := releaseOf(released[i], p)
		switch {
		case !ok:
		case known[keyOf(record)]:
			stored[keyOf(record)] = true
		default:
			fresh = append(fresh, record)
		}
	}
	slices.SortFunc(fresh, func(x, y v1alpha1.Release) int {
		return cmp.Or(x.ReleasedAt.Compare(y.ReleasedAt.Time), cmp.Compare(x.Name, y.Name))
	})
	mustStay := 0
	roomAt := now.Add(roomPoll)
	for _, r := range p.Status.Releases {
		switch {
		case stored[keyOf(r)]:
			mustStay++
		case isInCooldown(r, now):
			mustStay++
			if r.ReusableAt.Time.Before(roomAt) {
				roomAt = r.ReusableAt.Time
			}
		}
	}
	var to recording
	to.fresh = min(len(fresh), recordBatch, maxReleases-mustStay)
	to.left = len(fresh) - to.fresh
	if to.fresh == 0 && to.left > 0 {
		to.waitForRoom = roomAt.Sub(now)
	}
	excess := len(p.Status.Releases) + to.fresh - keptReleases
	for _, r := range p.Status.Releases {
		if excess > 0 && !isInCooldown(r, now) && !stored[keyOf(r)] {
			excess--
			continue
		}
		to.records = append(to.records, r)
	}
	to.records = append(to.records, fresh[:to.fresh]...)
	return to
}

// isInCooldown reports whether the range of a recorded release is in cooldown.
func isInCooldown(r v1alpha1.Release, now time.Time) bool {
	return r.ReusableAt != nil && r.ReusableAt.After(now)
}

// shortenCooldowns ends the cooldowns of the release records within the pool's current
// delay, counted from the release and from now: a clock that was ahead may have recorded
// the release.
func shortenCooldowns(p *v1alpha1.NetworkPool, now time.Time) {
	delay := ptr.Deref(p.Spec.ReuseDelay, metav1.Duration{}).Duration
	latest := now.Add(delay + time.Second - time.Nanosecond).Truncate(time.Second) // stored times have seconds: rounded up
	for i := range p.Status.Releases {
		r := &p.Status.Releases[i]
		for _, end := range []time.Time{r.ReleasedAt.Add(delay), latest} {
			if r.ReusableAt != nil && end.Before(r.ReusableAt.Time) {
				r.ReusableAt = ptr.To(metav1.NewTime(end))
			}
		}
	}
}

// logReleases logs the new release records: a pool drops records after some time.
func logReleases(ctx context.Context, to recording) {
	log := ctrllog.FromContext(ctx)
	for _, r := range to.records[len(to.records)-to.fresh:] {
		log.Info("Addresses released", "allocation", r.Name, "tenant", r.Tenant.Namespace+"/"+r.Tenant.Name, "range", r.StartAddress+"-"+r.EndAddress)
	}
}

// releaseOf returns the release record of an allocation in phase Released.
func releaseOf(a *v1alpha1.IPAllocation, p *v1alpha1.NetworkPool) (v1alpha1.Release, bool) {
	rng, _, err := butler.FindRange(a)
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
		until := record.ReleasedAt.Add(d.Duration)
		if whole := until.Truncate(time.Second); whole.Before(until) {
			until = whole.Add(time.Second) // stored in whole seconds
		}
		record.ReusableAt = ptr.To(metav1.NewTime(until))
	}
	return record, true
}

// recordKey identifies one release. ReleasedAt is stored in the status of the allocation
// before the pool records the release, so that each attempt computes the same key.
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

// recordedIn returns the allocations that have a release record in a pool, as stored.
func recordedIn(stored *v1alpha1.NetworkPool, released []*v1alpha1.IPAllocation) []*v1alpha1.IPAllocation {
	if len(released) == 0 {
		return nil
	}
	known := keysOf(stored.Status.Releases)
	return slices.DeleteFunc(released, func(a *v1alpha1.IPAllocation) bool {
		record, ok := releaseOf(a, stored)
		return !ok || !known[keyOf(record)]
	})
}
