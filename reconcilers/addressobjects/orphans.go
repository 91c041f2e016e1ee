package addressobjects

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"butlerlabs.dev/ipam/allocator/kinds/clusterpause"
	"butlerlabs.dev/ipam/allocator/kinds/metal3"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/api/metal3/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/claims"
	"butlerlabs.dev/ipam/reconcilers/feed"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// DefaultOrphanAge is how long the leader observes an address object without its claim
// before deleting the object. A restore creates claim and address object within minutes.
// The age counts from the first observation in the term, not from the creation time,
// which is of the API server's clock.
const DefaultOrphanAge = 10 * time.Minute

// orphanTimes records since when address objects have been without their claim. The zero
// value is ready.
type orphanTimes struct {
	mu   sync.Mutex
	term time.Time // term of the observations: those of another leader are not known
	of   map[types.NamespacedName]map[types.UID]time.Time
}

// since returns when an address object was first observed without its claim.
func (o *orphanTimes) since(term time.Time, claim types.NamespacedName, address types.UID, now time.Time) time.Time {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.of == nil || !o.term.Equal(term) {
		o.term, o.of = term, map[types.NamespacedName]map[types.UID]time.Time{}
	}
	if o.of[claim] == nil {
		o.of[claim] = map[types.UID]time.Time{}
	}
	first, known := o.of[claim][address]
	if !known {
		first = now
		o.of[claim][address] = now
	}
	return first
}

// retain removes the records of a claim's address objects, except of the given ones,
// which are still without the claim.
func (o *orphanTimes) retain(claim types.NamespacedName, addresses []client.Object) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.of[claim], func(address types.UID, _ time.Time) bool {
		return !slices.ContainsFunc(addresses, func(a client.Object) bool { return a.GetUID() == address })
	})
	if len(o.of[claim]) == 0 {
		delete(o.of, claim)
	}
}

// CleanUp deletes the address objects of a claim that is gone.
func (a Claims[T, A]) CleanUp(ctx context.Context, d *claims.Deps, name types.NamespacedName) (time.Duration, error) {
	all, err := a.addressesOf(ctx, d, name)
	if err != nil {
		return 0, err
	}
	return a.deleteOrphans(ctx, d, name, all, func() (bool, error) {
		err := d.Live.Get(ctx, name, a.NewClaim())
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err) // the informers may show the claim later
	})
}

// DeleteStrays deletes address objects that name a stored claim, but have a pool or
// address that the claim does not have: objects of an earlier claim with the claim's
// name, or of a backup.
func (a Claims[T, A]) DeleteStrays(ctx context.Context, d *claims.Deps, c T) (time.Duration, error) {
	name := client.ObjectKeyFromObject(c)
	all, err := a.addressesOf(ctx, d, name)
	if err != nil || clusterpause.IsMarkedMoved(c) || d.Ledger.OwnershipOf(string(c.GetUID())).Deferred != nil {
		return 0, err // the address object of a deferred claim is the record of the address that the claim had before it was changed around the webhooks
	}
	ranges := a.ConvertClaim(c).Ranges
	others := slices.DeleteFunc(all, func(o A) bool {
		object := a.Kind.Convert(o)
		return a.isAddressObjectOf(c, object) && (len(ranges) == 0 || slices.Equal(object.Ranges, ranges))
	})
	return a.deleteOrphans(ctx, d, name, others, func() (bool, error) { return true, nil })
}

// deleteOrphans deletes address objects without their claim, and returns the time until
// the next check, 0 for none:
//
//	address object                                               action
//	without the manager's finalizer, without a claim as owner    none: users create such objects to keep an address
//	marked as moved, and clusterctl may be moving                none for pollPause
//	being deleted, and isGone confirms the end of the claim      finalizer removed
//	else, of a paused pool                                       none for pollPause: a restore or move may take any time
//	else                                                         deleted after OrphanAge, so that a restore can create the claim first
func (a Claims[T, A]) deleteOrphans(ctx context.Context, d *claims.Deps, name types.NamespacedName, all []A, isGone func() (bool, error)) (time.Duration, error) {
	var orphans []client.Object
	for _, stored := range all {
		if (a.finalizerOn(stored) != "" || a.indexOfOwner(stored, name.Name) >= 0) && len(a.Kind.Convert(stored).Ranges) > 0 {
			orphans = append(orphans, stored)
		}
	}
	a.orphans.retain(name, orphans)
	if len(orphans) == 0 {
		return 0, nil
	}
	term, err := d.Ledger.Term()
	if err != nil {
		return liveReadPause, nil
	}
	var next flow.Soonest
	for _, stored := range orphans {
		if clusterpause.IsMarkedMoved(stored) {
			moving, err := d.Clusters.IsMoving(ctx, d.Live, stored.GetNamespace(), d.Ledger.ClustersOf(a.Kind.Convert(stored)))
			if err != nil {
				return 0, err
			}
			if moving {
				next.Add(pollPause)
				continue
			}
		}
		left := a.orphans.since(term, name, stored.GetUID(), d.Now()).Add(d.OrphanAge).Sub(d.Now())
		if isPaused(ctx, d, a.Kind.Convert(stored).Pool) {
			left = max(left, pollPause) // a restore or a move into a paused Cluster may take any time
		}
		if stored.GetDeletionTimestamp() != nil {
			gone, err := isGone()
			if err != nil {
				return 0, err
			}
			if !gone {
				continue
			}
		} else if left > 0 {
			next.Add(left)
			continue
		}
		if err := a.deleteAddress(ctx, d, write.DeepCopy(stored), a.finalizerOn(stored)); err != nil {
			return 0, err
		}
	}
	return next.Wait, nil
}

// finalizerOn returns the manager's finalizer on an address object, "" if it has none.
func (a Claims[T, A]) finalizerOn(o client.Object) string {
	if i := slices.IndexFunc(a.ManagedFinalizers, func(f string) bool { return controllerutil.ContainsFinalizer(o, f) }); i >= 0 {
		return a.ManagedFinalizers[i]
	}
	return ""
}

// indexOfOwner returns the index of a claim among the owner references of an address
// object, -1 if it is not listed.
func (a Claims[T, A]) indexOfOwner(o client.Object, claim string) int {
	return slices.IndexFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == a.OwnerKind && r.Name == claim })
}

// isPaused reports whether a pool is an IPPool that is paused.
func isPaused(ctx context.Context, d *claims.Deps, pool ledger.Key) bool {
	p := &v1alpha1.IPPool{}
	if pool.Resource != metal3.ResourceIPPool || d.Client.Get(ctx, feed.Request(pool).NamespacedName, p, client.UnsafeDisableDeepCopy) != nil {
		return false
	}
	wait := (*clusterpause.WaitError)(nil)
	return errors.As(metal3.CheckPoolWait(p, d.Clusters), &wait) && !wait.Missing
}
