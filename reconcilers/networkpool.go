package reconcilers

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=networkpools/status,verbs=update

// networkPools keeps a NetworkPool's counters, conditions and record of releases.
type networkPools struct{}

func (networkPools) empty() *v1alpha1.NetworkPool { return &v1alpha1.NetworkPool{} }

func (networkPools) emptyList() client.ObjectList { return &v1alpha1.NetworkPoolList{} }

func (networkPools) pool(p *v1alpha1.NetworkPool) (ledger.Pool, field.ErrorList) {
	return butler.PoolOf(p)
}

func (networkPools) finalizer() string { return v1alpha1.FinalizerNetworkPool }

func (networkPools) rests(*desk, *v1alpha1.NetworkPool) error { return nil }

// leaving is the allocations of a pool that wait for their release to be recorded.
func leaving(ctx context.Context, d *desk, pool client.ObjectKey) ([]*v1alpha1.IPAllocation, error) {
	return listIndexed[*v1alpha1.IPAllocation](ctx, d.client, &v1alpha1.IPAllocationList{}, indexReleased, pool.Namespace, pool.Name)
}

func (networkPools) urgent(ctx context.Context, d *desk, req reconcile.Request) (bool, error) {
	waiting, err := leaving(ctx, d, req.NamespacedName)
	return len(waiting) > 0, err
}

// status writes counters, conditions and releases in one, and lets go of the allocations whose release is recorded then.
func (n networkPools) status(ctx context.Context, d *desk, before, p *v1alpha1.NetworkPool, usage ledger.Usage, memory *poolMemory) (reconcile.Result, error) {
	key := butler.NetworkPoolKey(p.Namespace, p.Name)
	resting := d.ledger.Resting(key)
	written, again := d.recordResting(ctx, before, key, unrecorded(resting, p.Status.Releases, d.wall()), memory)
	if written {
		return reconcile.Result{}, nil
	}
	next := soonest{wait: again}
	err := n.counters(ctx, d, before, p, usage, memory, &next)
	return reconcile.Result{RequeueAfter: next.wait}, err
}

// counters writes all that a pool's status says.
func (networkPools) counters(ctx context.Context, d *desk, before, p *v1alpha1.NetworkPool, usage ledger.Usage, memory *poolMemory, again *soonest) error {
	waiting, err := leaving(ctx, d, client.ObjectKeyFromObject(p))
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(a *v1alpha1.IPAllocation) bool { return d.sent.has(a) }) // they go
	_, faults := butler.PoolOf(p)
	releases := recordReleases(p, waiting, d.wall())
	p.Status = *poolStatus(p, usage, faults)
	p.Status.Releases = releases.records
	if !equality.Semantic.DeepEqual(before, p) {
		memory.records = len(p.Status.Releases)
		written, err := d.replaceStatus(ctx, before, p)
		if isSpecInvalid(err) && len(faults) > 0 {
			// Before Kubernetes 1.33 a pool that was stored under an earlier schema, and breaks a rule of the present one, has no status until its spec is
			// corrected. A pool with faults allocates nothing until then, so its releases need no record.
			memory.written = d.now()
			if memory.mayTell(eventStatusRefused, d.now()) {
				d.events.statusRefused(p, err)
			}
			d.dropFinalizers(ctx, waiting, again)
			again.add(flow.LongestPause)
			return nil
		}
		if !written {
			return err
		}
		memory.written = d.now()
		logReleases(ctx, releases)
	}
	if c, ok := crossingOf(before.Status.Conditions, p.Status.Conditions); ok && memory.mayTell(c.reason+c.condition, d.now()) {
		d.events.crossed(p, c)
	}
	if releases.room > 0 && memory.mayTell(eventReleasesWait, d.now()) {
		d.events.releasesWait(p, releases.left)
	}
	if p.DeletionTimestamp != nil && releases.room > 0 { // the record goes with it, and what it is waited for, its namespace perhaps, does not come
		d.dropFinalizers(ctx, waiting, again)
		return nil
	}
	d.dropFinalizers(ctx, recordedIn(p, waiting), again)
	switch {
	case releases.room > 0:
		again.add(releases.room)
	case releases.left > 0:
		again.add(urgent.every)
	}
	return nil
}

// isSpecInvalid reports whether the API server refused a write for what the spec of the object says. A policy that refuses names no field.
func isSpecInvalid(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "spec" || strings.HasPrefix(c.Field, "spec.")
	})
}

// gone lets the allocations go that waited for the pool to record their release.
func (networkPools) gone(ctx context.Context, d *desk, req reconcile.Request) error {
	waiting, err := leaving(ctx, d, req.NamespacedName)
	for _, a := range waiting {
		d.changes.claims.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(a)})
	}
	return err
}
