package tenants

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/tenants/platform"
	"butlerlabs.dev/ipam/reconcilers/tenants/report"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// machineInterval is the pause between two checks whether machines still use addresses.
// The deletion of a Machine triggers a check without a pause.
const machineInterval = 10 * time.Second

// releaseTenant deletes the blocks of a TenantCluster that is being deleted, once its
// machines are gone, and then removes the finalizer. Blocks with annotation keep stay.
func (r *tenantReconciler) releaseTenant(ctx context.Context, c *v1alpha1.TenantCluster) (reconcile.Result, error) {
	name := client.ObjectKeyFromObject(c)
	r.sessions.Stop(name)
	if !slices.Contains(c.Finalizers, v1alpha1.FinalizerTenantAddresses) {
		return reconcile.Result{}, nil
	}
	stored, err := r.allocations.ListOf(ctx, name)
	if err != nil {
		return reconcile.Result{}, err
	}
	t, _ := plan.TenantOf(c)
	reason, err := r.reasonNotToRelease(ctx, c, plan.BlocksOf(t, stored))
	if err != nil {
		return reconcile.Result{}, err
	}
	if reason != "" {
		if r.releaseReasons.update(name, reason) {
			r.events.RecordReleaseWaits(c, reason)
		}
		return reconcile.Result{RequeueAfter: min(machineInterval, max(time.Second, r.releaseTimeLeft(c)))}, nil
	}
	r.releaseReasons.update(name, "")
	remaining, err := r.deleteBlocks(ctx, c, t, stored)
	if err != nil || remaining {
		return reconcile.Result{}, err // the DELETED event of the last block queues the tenant again
	}
	if unobserved, err := r.allocations.HasReleasable(ctx, t); err != nil || unobserved {
		return reconcile.Result{}, err // the ADDED event of the block queues the tenant again
	}
	// A patch, because server-side apply removes only finalizers that were applied here:
	// the finalizer may have come with a copy from another cluster.
	before := c.DeepCopy()
	controllerutil.RemoveFinalizer(c, v1alpha1.FinalizerTenantAddresses)
	err = r.client.Patch(ctx, c, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner(report.OwnerNetwork))
	return reconcile.Result{}, write.IgnoreStale(ctx, r.platform.Live, before, err)
}

// deleteBlocks deletes the tenant's blocks without annotation keep, and reports whether
// some are still stored.
func (r *tenantReconciler) deleteBlocks(ctx context.Context, c *v1alpha1.TenantCluster, t plan.Tenant, stored []v1alpha1.IPAllocation) (remaining bool, err error) {
	for i := range stored {
		a := &stored[i]
		if !plan.Owns(t, a) || a.Annotations[v1alpha1.AnnotationKeep] == "true" {
			continue
		}
		remaining = true
		if a.DeletionTimestamp != nil {
			continue
		}
		deleted, err := r.allocations.Delete(ctx, a)
		if err != nil {
			return remaining, err
		}
		if deleted {
			r.events.RecordReleased(c, a)
		}
	}
	return remaining, nil
}

// objectID identifies an object: a later object may have the same name.
type objectID struct {
	name types.NamespacedName
	uid  types.UID
}

// releaseTimeLeft returns for how long machines may still delay the release. ReleaseLimit
// counts from when this process first observed the deletion.
func (d *deps) releaseTimeLeft(c *v1alpha1.TenantCluster) time.Duration {
	return d.deletions.Observe(objectID{client.ObjectKeyFromObject(c), c.UID}, d.Now()).Add(d.ReleaseLimit).Sub(d.Now())
}

// reasonNotToRelease returns why the blocks of a deleted tenant must not be released yet;
// "" if the release may begin. The informers suffice for a reason to wait; before a
// release the API server is read too. After ReleaseLimit the reasons no longer count, and
// the Machines need not be readable: the cause is a fault that waiting does not repair.
func (d *deps) reasonNotToRelease(ctx context.Context, c *v1alpha1.TenantCluster, blocks []plan.Block) (string, error) {
	if d.releaseTimeLeft(c) <= 0 {
		return "", nil
	}
	for _, reader := range []client.Reader{d.platform.Cache, d.platform.Live} {
		machines, addresses, err := d.platform.ListMachineAddresses(ctx, reader)
		if err != nil {
			return "", err
		}
		remaining := 0
		for i := range machines {
			if machines[i].GetNamespace() == c.Status.TenantNamespace {
				remaining++
			}
		}
		if reason := plan.ReasonNotToRelease(blocks, remaining, d.countedIn(addresses)); reason != "" {
			return reason, nil
		}
	}
	return "", nil
}

// countedIn returns a function that returns the addresses of Nodes and Machines which
// count in a routing domain.
func (d *deps) countedIn(m platform.MachineAddresses) func(domain string) []netip.Addr {
	return func(domain string) []netip.Addr { return m.In(d.Ledger.AvoidsInUse(domain)) }
}

// lastReasons has the last recorded reason of each object. Safe for concurrent use; the
// zero value is empty.
type lastReasons struct {
	mu      sync.Mutex
	reasons map[types.NamespacedName]string
}

// update records a reason, "" for none, and reports whether the reason has changed.
func (l *lastReasons) update(name types.NamespacedName, reason string) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.reasons[name] == reason {
		return false
	}
	if l.reasons == nil {
		l.reasons = map[types.NamespacedName]string{}
	}
	if l.reasons[name] = reason; reason == "" {
		delete(l.reasons, name)
	}
	return true
}
