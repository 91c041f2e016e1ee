package tenancy

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
	"butlerlabs.dev/ipam/reconcilers/overtaken"
	"butlerlabs.dev/ipam/reconcilers/tenants"
	"butlerlabs.dev/ipam/reconcilers/work"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations/status,verbs=patch

// orphans records for which TenantCluster each allocation is, and releases it some time after that one is gone.
type orphans struct {
	*desk
	pace *rate.Limiter
	gone work.Since[absence]
}

// absence of the tenant of an allocation. The time that condition TenantClusterMissing has is another clock's: it only tells one absence from the next.
type absence struct {
	allocation types.UID
	condition  int64
}

// What an error of ours could do at most until somebody notices.
const (
	collectEvery = time.Second
	collectBurst = 10
)

func newOrphans(d *desk) *orphans {
	return &orphans{desk: d, pace: rate.NewLimiter(rate.Every(collectEvery), collectBurst)}
}

func (r *orphans) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.Serving() || req.Namespace != r.Namespace {
		return reconcile.Result{}, nil
	}
	a := &v1alpha1.IPAllocation{}
	if err := r.client.Get(ctx, req.NamespacedName, a); err != nil || a.DeletionTimestamp != nil || a.Spec.TenantClusterRef.Name == "" {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	uid, err := r.uidOf(ctx, a.Spec.TenantClusterRef, a.Annotations[v1alpha1.AnnotationTenantUID])
	if err != nil {
		return reconcile.Result{}, err
	}
	kinship, at := tenants.KinshipOf(r.observed(a), uid, r.OrphanAfter, r.Now())
	ref := a.Spec.TenantClusterRef
	switch kinship {
	case tenants.Unrecorded:
		before := a.DeepCopy()
		metav1.SetMetaDataAnnotation(&a.ObjectMeta, v1alpha1.AnnotationTenantUID, uid)
		err := r.client.Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		return reconcile.Result{}, overtaken.Ignore(ctx, r.live, before, err)
	case tenants.Related:
		return reconcile.Result{}, r.say(ctx, a, "", "")
	case tenants.Unknown:
		return reconcile.Result{}, r.say(ctx, a, v1alpha1.ReasonTenantNeverSeen,
			fmt.Sprintf("there is no TenantCluster %s/%s, and none was seen: the allocation stays", ref.Namespace, ref.Name))
	case tenants.Kept:
		return reconcile.Result{}, r.say(ctx, a, v1alpha1.ReasonTenantGone,
			fmt.Sprintf("TenantCluster %s/%s is gone: the allocation stays because of annotation %s", ref.Namespace, ref.Name, v1alpha1.AnnotationKeep))
	case tenants.Orphaned:
		err := r.say(ctx, a, v1alpha1.ReasonTenantGone, fmt.Sprintf("TenantCluster %s/%s is gone: the allocation is released %s after that, unless annotation %s is \"true\"",
			ref.Namespace, ref.Name, r.OrphanAfter, v1alpha1.AnnotationKeep))
		return reconcile.Result{RequeueAfter: max(at.Sub(r.Now()), time.Millisecond)}, err
	}
	slot := r.pace.ReserveN(r.Now(), 1)
	if wait := slot.DelayFrom(r.Now()); wait > 0 {
		slot.CancelAt(r.Now())
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	switch why, err := r.inUse(ctx, a); {
	case err != nil:
		return reconcile.Result{}, err
	case why != "":
		slot.CancelAt(r.Now())
		err := r.say(ctx, a, v1alpha1.ReasonTenantGone, fmt.Sprintf("TenantCluster %s/%s is gone, but %s: the allocation is released when it is not", ref.Namespace, ref.Name, why))
		return reconcile.Result{RequeueAfter: lookAtMachines}, err
	}
	if dropped, err := r.drop(ctx, a); !dropped {
		return reconcile.Result{}, err
	}
	r.gone.Forget(func(other absence) bool { return other.allocation == a.UID })
	r.metrics.orphans.Inc()
	pools, err := r.pools(ctx)
	r.events.collected(a, pools[a.Spec.PoolRef.Name])
	return reconcile.Result{}, err
}

// observed is an allocation as KinshipOf takes it: its tenant has been missing since this process first observed the condition that says so.
func (r *orphans) observed(a *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	missing := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	this := absence{allocation: a.UID}
	if missing != nil {
		this.condition = missing.LastTransitionTime.Unix()
	}
	r.gone.Forget(func(other absence) bool { return other.allocation == a.UID && other != this })
	if missing == nil {
		return a
	}
	a = a.DeepCopy()
	meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing).LastTransitionTime = metav1.NewTime(r.gone.Observe(this, r.Now()))
	return a
}

// uidOf is the UID of the TenantCluster of a name, "" where there is none. That there is none, or another one than recorded, is asked of the API
// server, and an answer that may mean something else is an error.
func (r *orphans) uidOf(ctx context.Context, ref v1alpha1.NamespacedObjectReference, recorded string) (string, error) {
	name := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	c := &v1alpha1.TenantCluster{}
	if r.Get(ctx, name, c) == nil && (recorded == "" || recorded == string(c.UID)) {
		return string(c.UID), nil
	}
	c = &v1alpha1.TenantCluster{}
	switch err := r.live.Get(ctx, name, c); {
	case err == nil:
		return string(c.UID), nil
	case !apierrors.IsNotFound(err):
		return "", err
	case !saysGone(err, name.Name) || !r.defined(ctx, tenantClusterKind.Group, "tenantclusters"):
		return "", fmt.Errorf("TenantCluster %s: its kind is not served: %w", name, err)
	}
	return "", nil
}

// saysGone tells the answer that an object is not there from the one that its kind is not.
func saysGone(err error, name string) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name == name && len(status.Status().Details.Causes) == 0
}

// say writes condition TenantClusterMissing, or takes it away where there is no reason.
func (r *orphans) say(ctx context.Context, a *v1alpha1.IPAllocation, reason, message string) error {
	before := a.DeepCopy()
	if reason == "" {
		meta.RemoveStatusCondition(&a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	} else {
		meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{
			Type: v1alpha1.ConditionTenantClusterMissing, Status: metav1.ConditionTrue, Reason: reason, Message: message,
			LastTransitionTime: metav1.NewTime(r.Wall()), ObservedGeneration: a.Generation,
		})
	}
	was := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	is := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionTenantClusterMissing)
	if was == nil && is == nil || was != nil && is != nil && was.Reason == is.Reason && was.Message == is.Message {
		return nil
	}
	if err := r.client.Status().Patch(ctx, a, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return overtaken.Ignore(ctx, r.live, before, err)
	}
	if reason == v1alpha1.ReasonTenantGone {
		r.events.orphaned(a, message)
	}
	return nil
}
