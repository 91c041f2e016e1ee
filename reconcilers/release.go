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

	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

const (
	// maxReleases is how many records status.releases of a pool has room for, by its schema.
	maxReleases = 1024
	// releaseBatch is how many releases share one write of a pool at most.
	releaseBatch = 256
)

// release takes an allocation that is being deleted through its first half: Released, with the time. Its pool's reconciler records
// it and takes the finalizer off. Of a range that it never had for itself there is nothing to record, and without a pool nowhere to.
//
//	deleted ──▶ phase Released ──▶ recorded in the pool ──▶ finalizer off ──▶ gone ──▶ addresses free, or resting
//	              release()            recordReleases()       dropFinalizers()         the ledger, by the informer
func (r *allocations) release(ctx context.Context, a *v1alpha1.IPAllocation) error {
	if !controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation) {
		return nil // others have theirs on it
	}
	rng, _, err := butler.RangeOf(a)
	if err != nil || !rng.IsValid() || butler.Flagged(a) {
		return dropFinalizer(ctx, r.client, a)
	}
	if !released(a) {
		_, err := r.writeStatus(ctx, a, releasedStatus(a, metav1.Now()))
		return err
	}
	pool := butler.PoolKeyOf(a)
	err = r.client.Get(ctx, client.ObjectKey{Namespace: pool.Namespace, Name: pool.Name}, &v1alpha1.NetworkPool{})
	switch {
	case apierrors.IsNotFound(err):
		return dropFinalizer(ctx, r.client, a)
	case err == nil:
		r.changes.pools.Add(request(pool))
	}
	return err
}

func dropFinalizer(ctx context.Context, c client.Client, a *v1alpha1.IPAllocation) error {
	controllerutil.RemoveFinalizer(a, v1alpha1.FinalizerIPAllocation)
	return overtaken(c.Update(ctx, a))
}

// recordReleases gives a pool's records with those of the leaving allocations added, how many could not be added, and in how long
// there is room again. Records whose range still rests are never dropped for others; of the rest, the oldest go first.
func recordReleases(p *v1alpha1.NetworkPool, leaving []v1alpha1.IPAllocation, now time.Time) (records []v1alpha1.Release, left int, room time.Duration) {
	known := keysOf(p.Status.Releases)
	var fresh []v1alpha1.Release
	for i := range leaving {
		if record, ok := releaseOf(&leaving[i], p); ok && !known[keyOf(record)] {
			fresh = append(fresh, record)
		}
	}
	slices.SortFunc(fresh, func(x, y v1alpha1.Release) int {
		return cmp.Or(x.ReleasedAt.Compare(y.ReleasedAt.Time), cmp.Compare(x.Name, y.Name))
	})
	rests := func(r v1alpha1.Release) bool { return r.ReusableAt != nil && r.ReusableAt.After(now) }
	resting := 0
	var next time.Time
	for _, r := range p.Status.Releases {
		if rests(r) {
			resting++
			if next.IsZero() || r.ReusableAt.Time.Before(next) {
				next = r.ReusableAt.Time
			}
		}
	}
	taken := min(len(fresh), releaseBatch, maxReleases-resting)
	if taken == 0 && len(fresh) > 0 {
		room = next.Sub(now)
	}
	excess := len(p.Status.Releases) + taken - maxReleases
	for _, r := range p.Status.Releases {
		if excess > 0 && !rests(r) {
			excess--
			continue
		}
		records = append(records, r)
	}
	return append(records, fresh[:taken]...), len(fresh) - taken, room
}

// releaseOf is the record of an allocation marked Released.
func releaseOf(a *v1alpha1.IPAllocation, p *v1alpha1.NetworkPool) (v1alpha1.Release, bool) {
	rng, _, err := butler.RangeOf(a)
	if err != nil || !rng.IsValid() {
		return v1alpha1.Release{}, false
	}
	record := v1alpha1.Release{
		Name:         a.Name,
		Tenant:       a.Spec.TenantClusterRef,
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

// dropFinalizers lets go of the allocations whose release is recorded in the pool as stored.
func (d *desk) dropFinalizers(ctx context.Context, stored *v1alpha1.NetworkPool, leaving []v1alpha1.IPAllocation) error {
	if len(leaving) == 0 {
		return nil
	}
	known := keysOf(stored.Status.Releases)
	var writes errgroup.Group
	writes.SetLimit(parallelWrites)
	for i := range leaving {
		if record, ok := releaseOf(&leaving[i], stored); ok && known[keyOf(record)] {
			writes.Go(func() error { return dropFinalizer(ctx, d.client, leaving[i].DeepCopy()) })
		}
	}
	return writes.Wait()
}
