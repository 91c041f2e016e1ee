package pools

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/kinds/butler"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/status,verbs=update

// NetworkPools is the adapter of NetworkPools.
var NetworkPools Adapter[*v1alpha1.NetworkPool] = networkPools{}

// networkPools writes the counters, conditions and release records of a NetworkPool.
type networkPools struct{}

var _ releaseRecorder[*v1alpha1.NetworkPool] = networkPools{}

func (networkPools) NewObject() *v1alpha1.NetworkPool { return &v1alpha1.NetworkPool{} }

func (networkPools) NewList() client.ObjectList { return &v1alpha1.NetworkPoolList{} }

func (networkPools) ToPool(p *v1alpha1.NetworkPool) (ledger.Pool, field.ErrorList) {
	return butler.ConvertPool(p)
}

func (networkPools) finalizerName() string { return v1alpha1.FinalizerNetworkPool }

// listReleased lists the released allocations of a pool: their finalizer stays until the
// pool has their release records.
func listReleased(ctx context.Context, d *deps, pool client.ObjectKey) ([]*v1alpha1.IPAllocation, error) {
	return claims.ListIndexed[*v1alpha1.IPAllocation](ctx, d.Client, &v1alpha1.IPAllocationList{}, claims.IndexReleased, pool.Namespace, pool.Name)
}

func (networkPools) hasReleasedAllocations(ctx context.Context, d *deps, pool types.NamespacedName) (bool, error) {
	released, err := listReleased(ctx, d, pool)
	return len(released) > 0, err
}

// writeStatus writes the cooldown list, or, if the list is up to date or cannot be
// written now, the status with the release records: the event of the first write requeues
// the pool for the second.
func (n networkPools) writeStatus(ctx context.Context, d *deps, before, p *v1alpha1.NetworkPool, usage ledger.Usage, m *memory) (reconcile.Result, error) {
	key := butler.NetworkPoolKey(p.Namespace, p.Name)
	ranges := rangesForList(d.Ledger.RangesToRecord(key), p.Status.Releases, d.Wall())
	written, again := d.writeCooldownList(ctx, before, key, ranges, m)
	if written {
		return reconcile.Result{}, nil
	}
	next := flow.Soonest{Wait: again}
	err := n.writeStatusAndRemoveFinalizers(ctx, d, before, p, usage, m, &next)
	return reconcile.Result{RequeueAfter: next.Wait}, err
}

// writeStatusAndRemoveFinalizers writes counters, conditions and release records in one
// write, and then removes the finalizers of the allocations that have a release record.
func (networkPools) writeStatusAndRemoveFinalizers(ctx context.Context, d *deps, before, p *v1alpha1.NetworkPool, usage ledger.Usage, m *memory, again *flow.Soonest) error {
	released, err := listReleased(ctx, d, client.ObjectKeyFromObject(p))
	if err != nil {
		return err
	}
	// The last recorded write to an allocation in phase Released can only be the removal
	// of its finalizer.
	released = slices.DeleteFunc(released, func(a *v1alpha1.IPAllocation) bool { return d.IsStale(a) })
	_, faults := butler.ConvertPool(p)
	releases := recordReleases(p, released, d.Wall())
	p.Status = *poolStatus(p, usage, d.countInCooldown(p), faults)
	p.Status.Releases = releases.records
	if !equality.Semantic.DeepEqual(before, p) {
		m.statusEntries = len(p.Status.Releases)
		written, err := d.ReplaceStatus(ctx, before, p)
		if isSpecInvalid(err) && len(faults) > 0 {
			// Before Kubernetes 1.33 a pool that was stored under an earlier schema, and
			// breaks a rule of the present schema, has no status until the spec is
			// corrected. A pool with faults allocates nothing before the correction.
			// Without a release record, a range that another pool offers too may be
			// allocated from that pool before the cooldown ends, if all replicas restart
			// meanwhile.
			m.statusWritten = d.Now()
			if m.mayReport(eventStatusRefused, d.Now()) {
				d.reportStatusRefused(p, err)
			}
			claims.RemoveFinalizers(ctx, d.Deps, released, v1alpha1.FinalizerIPAllocation, again)
			again.Add(flow.LongestPause)
			return nil
		}
		if write.IsTooLarge(err) {
			// The lists in the status are bounded (package object): labels, annotations,
			// spec or managedFields are as large as that. Releases do not wait for a
			// record that may never be stored: the cooldown list records their ranges, as
			// far as it has room.
			m.statusWritten = d.Now()
			if m.mayReport(eventStatusTooLarge, d.Now()) {
				d.reportStatusTooLarge(p, err)
			}
			claims.RemoveFinalizers(ctx, d.Deps, released, v1alpha1.FinalizerIPAllocation, again)
			again.Add(flow.LongestPause)
			return nil
		}
		if !written {
			return err
		}
		m.statusWritten = d.Now()
		logReleases(ctx, releases)
	}
	for _, c := range findCrossings(before.Status.Conditions, p.Status.Conditions) {
		if m.mayReport(c.reason+c.condition, d.Now()) {
			d.reportCrossing(p, c)
		}
	}
	if releases.waitForRoom > 0 && m.mayReport(eventReleasesWait, d.Now()) {
		d.reportReleasesWait(p, releases.left)
	}
	if p.DeletionTimestamp != nil && releases.waitForRoom > 0 { // the release records are deleted with the pool, and room may never appear, as in a namespace that is being deleted
		claims.RemoveFinalizers(ctx, d.Deps, released, v1alpha1.FinalizerIPAllocation, again)
		return nil
	}
	// p is as stored: written above, or equal to before.
	claims.RemoveFinalizers(ctx, d.Deps, recordedIn(p, released), v1alpha1.FinalizerIPAllocation, again)
	switch {
	case releases.waitForRoom > 0:
		again.Add(releases.waitForRoom)
	case releases.left > 0:
		again.Add(urgent.every)
	}
	return nil
}

// IsListFull reports whether a list in the status has no room.
func (networkPools) IsListFull(p *v1alpha1.NetworkPool) bool {
	return butler.UnlistedInfrastructure(p) > 0
}

// isSpecInvalid reports whether the API server denied a write because of the spec of the
// object. A policy that denies names no field.
func isSpecInvalid(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "spec" || strings.HasPrefix(c.Field, "spec.")
	})
}

func (networkPools) requeueReleasedAllocations(ctx context.Context, d *deps, pool types.NamespacedName) error {
	released, err := listReleased(ctx, d, pool)
	for _, a := range released {
		d.Queues.Claims.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
	}
	return err
}
