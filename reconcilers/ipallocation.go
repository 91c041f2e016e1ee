package reconcilers

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"butlerlabs.dev/ipam/allocator"
	"butlerlabs.dev/ipam/allocator/ledger"
	"butlerlabs.dev/ipam/allocator/ledger/butler"
	"butlerlabs.dev/ipam/api/butler/v1alpha1"
)

// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations,verbs=update
// +kubebuilder:rbac:groups=butler.butlerlabs.dev,resources=ipallocations/status,verbs=update

// desk is what every reconciler works with. Its client reads from the informers and writes to the API server.
type desk struct {
	client  client.Client
	ledger  *ledger.Ledger
	changes *Changes
	now     func() time.Time
	events  *events
	answers *sent  // written to allocations
	drops   *sent  // finalizers taken off them
	mirrors *turns // of statuses that say what the answer to the create has said already
}

// allocations brings one IPAllocation to what the ledger says of it.
//
//	going                            ──▶ release
//	no range                         ──▶ pending, with the others of its pool
//	others have some of its range    ──▶ flagged
//	not confirmed by a commit yet    ──▶ the commit brings it back
//	range not answered by us         ──▶ adoption
//	else                             ──▶ mirrored, Ready
type allocations struct{ desk }

func (r *allocations) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.ledger.Serving() {
		return reconcile.Result{}, nil
	}
	a := &v1alpha1.IPAllocation{}
	if err := r.client.Get(ctx, req.NamespacedName, a); err != nil {
		r.answers.forget(req.NamespacedName)
		r.drops.forget(req.NamespacedName)
		r.mirrors.forget(req.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if a.DeletionTimestamp != nil {
		return reconcile.Result{}, r.release(ctx, a)
	}
	rng, source, err := butler.RangeOf(a)
	if err != nil {
		return reconcile.Result{}, r.refuse(ctx, a, refusedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAllocationFailed, err.Error()))
	}
	if source == butler.Nowhere {
		r.changes.pending.Add(request(butler.PoolKeyOf(a)))
		return reconcile.Result{}, nil
	}
	switch standing := r.ledger.Standing(string(a.UID)); {
	case standing.Clash != nil:
		return reconcile.Result{}, r.flag(ctx, a, standing.Clash)
	case !standing.Confirmed:
		return reconcile.Result{}, nil
	case !answered(a):
		return reconcile.Result{}, r.adopt(ctx, a, rng)
	default:
		r.answers.forget(req.NamespacedName)
		return r.mirror(ctx, a, rng)
	}
}

// answered says whether an allocation carries an answer of ours.
func answered(a *v1alpha1.IPAllocation) bool {
	return a.Spec.PinnedRange != nil && a.Annotations[v1alpha1.AnnotationOrigin] != ""
}

// mirror writes the status of an allocation that has its range. What somebody took off the object is put back first; the event of
// that write brings the allocation here again.
func (r *allocations) mirror(ctx context.Context, a *v1alpha1.IPAllocation, rng allocator.Range) (reconcile.Result, error) {
	missing := butler.MissingLabels(a, r.spaceOf(ctx, a))
	if len(missing) > 0 || !controllerutil.ContainsFinalizer(a, v1alpha1.FinalizerIPAllocation) {
		complete(a, missing)
		return reconcile.Result{}, overtaken(r.client.Update(ctx, a))
	}
	want := allocatedStatus(a, rng, metav1.NewTime(r.now()))
	if equality.Semantic.DeepEqual(&a.Status, want) {
		return reconcile.Result{}, nil
	}
	if wait := r.mirrors.wait(client.ObjectKeyFromObject(a), r.now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	isNew := !meta.IsStatusConditionTrue(a.Status.Conditions, v1alpha1.ConditionReady)
	written, err := r.writeStatus(ctx, a, want)
	if written && isNew {
		r.events.allocated(a, meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady).Message)
	}
	return reconcile.Result{}, err
}

// spaceOf is the routing domain of an allocation: its pool's, or while that is missing what the allocation says itself.
func (d *desk) spaceOf(ctx context.Context, a *v1alpha1.IPAllocation) string {
	var p v1alpha1.NetworkPool
	name := client.ObjectKey{Namespace: a.Namespace, Name: a.Spec.PoolRef.Name}
	if d.client.Get(ctx, name, &p, client.UnsafeDisableDeepCopy) != nil {
		return a.Labels[v1alpha1.LabelRoutingDomain]
	}
	return p.Spec.RoutingDomain
}

// complete adds the labels and the finalizer, without writing them.
func complete(a *v1alpha1.IPAllocation, labels map[string]string) {
	controllerutil.AddFinalizer(a, v1alpha1.FinalizerIPAllocation)
	for k, v := range labels {
		metav1.SetMetaDataLabel(&a.ObjectMeta, k, v)
	}
}

// flag marks an allocation some of whose range others have. It keeps its spec: nobody is moved.
func (r *allocations) flag(ctx context.Context, a *v1alpha1.IPAllocation, clash *ledger.HeldError) error {
	message := fmt.Sprintf("%s: delete this allocation to have it made anew with other addresses, or delete the holder", clash.SeenFrom(a.Namespace))
	isNew := !butler.Flagged(a)
	written, err := r.writeStatus(ctx, a, refusedStatus(a, v1alpha1.PhaseFailed, v1alpha1.ReasonAddressConflict, message))
	if written && isNew {
		r.events.conflict(a, message)
	}
	return err
}

// refuse writes why an allocation has no addresses, and tells of a failure once.
func (d *desk) refuse(ctx context.Context, a *v1alpha1.IPAllocation, want *v1alpha1.IPAllocationStatus) error {
	was := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionReady)
	is := meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady)
	isNew := was == nil || was.Reason != is.Reason
	written, err := d.writeStatus(ctx, a, want)
	if written && isNew && want.Phase == v1alpha1.PhaseFailed {
		d.events.failed(a, is.Message)
	}
	return err
}

// writeStatus writes a status if it differs, and says whether it did.
func (d *desk) writeStatus(ctx context.Context, a *v1alpha1.IPAllocation, want *v1alpha1.IPAllocationStatus) (bool, error) {
	if equality.Semantic.DeepEqual(&a.Status, want) {
		return false, nil
	}
	a.Status = *want
	err := d.client.Status().Update(ctx, a)
	return err == nil, overtaken(err)
}

// overtaken drops the error of a write that a newer version, or the end, of its object got ahead of: the informer brings that.
func overtaken(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
