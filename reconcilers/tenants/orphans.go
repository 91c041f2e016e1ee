package tenants

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/tenants/plan"
	"butlerlabs.dev/ipam/reconcilers/write"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations/status,verbs=patch

// orphanReconciler records the UID and the team of the TenantCluster of each allocation,
// and deletes the allocation OrphanAfter after the TenantCluster is gone.
type orphanReconciler struct {
	*deps
	deletes  *rate.Limiter
	absences flow.FirstObserved[absence]
}

// absence identifies a period in which the TenantCluster of an allocation is gone. The
// transition time of condition TenantClusterMissing is from another clock and only
// separates one absence from the next.
type absence struct {
	allocation types.UID
	transition int64
}

// Rate of deletes. The rate limits the damage of a wrong decision until people notice.
const (
	deleteInterval = time.Second
	deleteBurst    = 10
)

func newOrphanReconciler(d *deps) *orphanReconciler {
	return &orphanReconciler{deps: d, deletes: rate.NewLimiter(rate.Every(deleteInterval), deleteBurst)}
}

// Reconcile implements reconcile.Reconciler.
func (r *orphanReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Ledger.MayGrant() || req.Namespace != r.Namespace {
		return reconcile.Result{}, nil
	}
	a := &v1alpha1.IPAllocation{}
	if err := r.client.Get(ctx, req.NamespacedName, a); err != nil || a.DeletionTimestamp != nil || a.Spec.TenantClusterRef.Name == "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	t, err := r.findTenant(ctx, a.Spec.TenantClusterRef, a.Annotations[v1alpha1.AnnotationTenantUID])
	if err != nil {
		return reconcile.Result{}, err
	}
	relation, at := plan.RelationOf(r.useOwnClock(a), t.UID, r.OrphanAfter, r.Now())
	ref := a.Spec.TenantClusterRef
	switch relation {
	case plan.Unrecorded, plan.Owned:
		if written, err := r.recordTenant(ctx, a, t); written || err != nil {
			return reconcile.Result{}, err // the event of the write queues the allocation again
		}
		return reconcile.Result{}, r.writeMissing(ctx, a, "", "")
	case plan.TenantUnknown:
		return reconcile.Result{}, r.writeMissing(ctx, a, v1alpha1.ReasonTenantNeverSeen,
			fmt.Sprintf("TenantCluster %s/%s does not exist, and did not when the allocation was observed: the allocation stays", ref.Namespace, ref.Name))
	case plan.Kept:
		return reconcile.Result{}, r.writeMissing(ctx, a, v1alpha1.ReasonTenantGone,
			fmt.Sprintf("TenantCluster %s/%s is gone: the allocation stays because of annotation %s", ref.Namespace, ref.Name, v1alpha1.AnnotationKeep))
	case plan.Orphaned:
		err := r.writeMissing(ctx, a, v1alpha1.ReasonTenantGone, fmt.Sprintf("TenantCluster %s/%s is gone: the allocation is released after %s, unless annotation %s is \"true\"",
			ref.Namespace, ref.Name, r.OrphanAfter, v1alpha1.AnnotationKeep))
		return reconcile.Result{RequeueAfter: max(at.Sub(r.Now()), time.Millisecond)}, err
	default: // plan.Abandoned
		return r.deleteAbandoned(ctx, a)
	}
}

// deleteAbandoned deletes an allocation unless a Node or Machine uses one of its
// addresses, within the rate of deletes.
func (r *orphanReconciler) deleteAbandoned(ctx context.Context, a *v1alpha1.IPAllocation) (reconcile.Result, error) {
	reservation := r.deletes.ReserveN(r.Now(), 1)
	if wait := reservation.DelayFrom(r.Now()); wait > 0 {
		reservation.CancelAt(r.Now())
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	switch reason, err := r.reasonNotToCollect(ctx, a); {
	case err != nil:
		return reconcile.Result{}, err
	case reason != "":
		reservation.CancelAt(r.Now())
		ref := a.Spec.TenantClusterRef
		err := r.writeMissing(ctx, a, v1alpha1.ReasonTenantGone, fmt.Sprintf("TenantCluster %s/%s is gone, but %s: the allocation is released after that use ends", ref.Namespace, ref.Name, reason))
		return reconcile.Result{RequeueAfter: machineInterval}, err
	}
	if deleted, err := r.allocations.Delete(ctx, a); !deleted {
		return reconcile.Result{}, err
	}
	r.absences.ForgetIf(func(known absence) bool { return known.allocation == a.UID })
	r.metrics.CountOrphan()
	pools, err := r.allocations.ListPools(ctx)
	r.events.RecordOrphanDeleted(a, pools[a.Spec.PoolRef.Name])
	return reconcile.Result{}, err
}

// reasonNotToCollect returns which address of an allocation a Node or Machine uses; "" if
// according to informers and API server no address is in use.
func (r *orphanReconciler) reasonNotToCollect(ctx context.Context, a *v1alpha1.IPAllocation) (string, error) {
	for _, reader := range []client.Reader{r.platform.Cache, r.platform.Live} {
		_, addresses, err := r.platform.ListMachineAddresses(ctx, reader)
		if err != nil {
			return "", err
		}
		if reason := plan.ReasonNotToCollect(a, r.countedIn(addresses)); reason != "" {
			return reason, nil
		}
	}
	return "", nil
}

// useOwnClock returns the allocation with condition TenantClusterMissing dated to when
// this process first observed the condition.
func (r *orphanReconciler) useOwnClock(a *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	missing := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	current := absence{allocation: a.UID}
	if missing != nil {
		current.transition = missing.LastTransitionTime.Unix()
	}
	r.absences.ForgetIf(func(known absence) bool { return known.allocation == a.UID && known != current })
	if missing == nil {
		return a
	}
	a = a.DeepCopy()
	meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing).LastTransitionTime = metav1.NewTime(r.absences.Observe(current, r.Now()))
	return a
}

// findTenant returns the tenant of a name, without a UID if the TenantCluster does not
// exist. The API server is read before an allocation is treated as orphaned; an ambiguous
// answer, for example while the CRD is not served, is an error.
func (r *orphanReconciler) findTenant(ctx context.Context, ref v1alpha1.NamespacedObjectReference, recorded string) (plan.Tenant, error) {
	name := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	c := &v1alpha1.TenantCluster{}
	if r.platform.Get(ctx, name, c) != nil || recorded != "" && recorded != string(c.UID) {
		c = &v1alpha1.TenantCluster{}
		switch err := r.platform.Live.Get(ctx, name, c); {
		case err == nil:
		case !apierrors.IsNotFound(err):
			return plan.Tenant{}, err
		case !isObjectMissing(err, name.Name) || !r.platform.DefinesTenantClusters(ctx):
			return plan.Tenant{}, fmt.Errorf("TenantCluster %s: the API server does not serve the kind: %w", name, err)
		default:
			return plan.Tenant{}, nil
		}
	}
	t, _ := plan.TenantOf(c)
	return t, nil
}

// isObjectMissing reports whether a NotFound error is about the object, rather than about
// the kind.
func isObjectMissing(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name && len(status.Status().Details.Causes) == 0
}

// recordTenant writes the UID and the team of the tenant to an allocation, and reports
// whether one was missing.
func (r *orphanReconciler) recordTenant(ctx context.Context, a *v1alpha1.IPAllocation, t plan.Tenant) (written bool, err error) {
	recorded := a.Annotations[v1alpha1.AnnotationTenantUID] == t.UID
	if team := plan.NeedsTeam(t, a); recorded && !team {
		return false, nil
	} else if team {
		stored := &v1alpha1.IPAllocation{} // with managedFields
		if err := r.platform.Live.Get(ctx, client.ObjectKeyFromObject(a), stored); err != nil || stored.ResourceVersion != a.ResourceVersion {
			return true, client.IgnoreNotFound(err) // the event of the later version queues the allocation again
		}
		if a = stored; recorded && !plan.NeedsTeam(t, a) {
			return false, nil
		}
	}
	before := a.DeepCopy()
	metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationTenantUID, t.UID)
	if plan.NeedsTeam(t, a) {
		metav1.SetMetaDataLabel(&a.ObjectMeta, v1alpha1.LabelTeam, t.TeamLabel())
	}
	err = r.client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	return true, write.IgnoreStale(ctx, r.platform.Live, before, err)
}

// writeMissing writes condition TenantClusterMissing, or removes it if reason is "".
func (r *orphanReconciler) writeMissing(ctx context.Context, a *v1alpha1.IPAllocation, reason, message string) error {
	before := a.DeepCopy()
	if reason == "" {
		meta.RemoveStatusCondition(&a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	} else {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionTenantClusterMissing, Status: metav1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(r.Wall()), ObservedGeneration: a.Generation,
		})
	}
	stored := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	wanted := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	if stored == nil && wanted == nil || stored != nil && wanted != nil && stored.Reason == wanted.Reason && stored.Message == wanted.Message {
		return nil
	}
	if err := r.client.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return write.IgnoreStale(ctx, r.platform.Live, before, err)
	}
	if reason == v1alpha1.ReasonTenantGone {
		r.events.RecordOrphaned(a, message)
	}
	return nil
}
