package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	butlerv1 "butlerlabs.dev/ipam/api/butler/v1alpha1"
	"butlerlabs.dev/ipam/api/novaedge/v1alpha1"
	"butlerlabs.dev/ipam/reconcilers/flow"
	"butlerlabs.dev/ipam/reconcilers/overtaken"
)

// reconciler brings one Service and its ProxyVIP together.
//
//	no ProxyVIP is asked for          ──▶ the one there is deleted
//	the one there is of another pool  ──▶ deleted, and made anew
//	there is none                     ──▶ created, which gives it its addresses
//	else                              ──▶ brought to what the Service says
//	then                              ──▶ its addresses into the Service's status
type reconciler struct {
	client  client.Client
	live    client.Reader
	turn    *turn
	events  record.EventRecorder
	backoff *flow.Backoff
	waiting *waiting
	orphans orphans
	grace   time.Duration // that a restored ProxyVIP waits for its Service
	reads   sync.Map      // Service whose last attempt failed -> read
}

// read is a Service and its ProxyVIP, as the API server has them.
type read struct {
	service *corev1.Service
	vip     *unstructured.Unstructured
	there   bool // the ProxyVIP
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.turn.has() {
		return reconcile.Result{}, nil
	}
	service, vip, pool := r.shown(ctx, req.NamespacedName)
	basis := struct {
		service, vip string // versions: nothing is written to them while attempts fail
		pool         flow.Basis
	}{service.ResourceVersion, vip.ResourceVersion, flow.BasisOf(pool)}
	return r.backoff.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) {
		is, repeatable := r.last(req.NamespacedName, service, vip)
		if !repeatable {
			var err error
			if is, err = r.read(ctx, req.NamespacedName); err != nil {
				return reconcile.Result{}, err
			}
		}
		r.reads.Delete(req.NamespacedName)
		result, err := r.attempt(ctx, req.NamespacedName, read{is.service.DeepCopy(), is.vip.DeepCopy(), is.there})
		if err != nil {
			r.reads.Store(req.NamespacedName, is)
		}
		return result, err
	})
}

// shown is what the informers have of a Service, its ProxyVIP and its pool: without a UID where there is none.
func (r *reconciler) shown(ctx context.Context, name types.NamespacedName) (service *metav1.PartialObjectMetadata, vip *v1alpha1.ProxyVIP, pool *v1alpha1.ProxyIPPool) {
	service, vip, pool = &metav1.PartialObjectMetadata{}, &v1alpha1.ProxyVIP{}, &v1alpha1.ProxyIPPool{}
	service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	// An error says that there is none, for now.
	_ = r.client.Get(ctx, name, service, client.UnsafeDisableDeepCopy)
	_ = r.client.Get(ctx, client.ObjectKey{Name: vipName(name)}, vip, client.UnsafeDisableDeepCopy)
	_ = r.client.Get(ctx, client.ObjectKey{Name: poolNamed(service.Annotations)}, pool, client.UnsafeDisableDeepCopy)
	return service, vip, pool
}

// last is what the last attempt for a Service went by, which failed. It may be repeated without another read where the informers show the same, and nothing
// is to be deleted.
func (r *reconciler) last(name types.NamespacedName, service *metav1.PartialObjectMetadata, vip *v1alpha1.ProxyVIP) (read, bool) {
	stored, known := r.reads.Load(name)
	if !known {
		return read{}, false
	}
	is := stored.(read)
	same := is.service.ResourceVersion == service.ResourceVersion && is.vip.GetResourceVersion() == vip.ResourceVersion
	keeps := !is.there || poolOfVIP(is.vip) == poolOf(is.service)
	return is, same && asks(is.service) && keeps
}

func (r *reconciler) read(ctx context.Context, name types.NamespacedName) (is read, err error) {
	is = read{service: &corev1.Service{}, vip: newVIP(vipName(name))}
	if err := client.IgnoreNotFound(r.live.Get(ctx, name, is.service)); err != nil {
		return read{}, err
	}
	err = r.live.Get(ctx, client.ObjectKeyFromObject(is.vip), is.vip)
	is.there = err == nil
	return is, client.IgnoreNotFound(err)
}

func (r *reconciler) attempt(ctx context.Context, name types.NamespacedName, is read) (reconcile.Result, error) {
	s, vip := is.service, is.vip
	if !asks(s) {
		r.waiting.forget(name)
		if !is.there || !ours(vip) && !showsVIP(s, vip) {
			r.orphans.forget(name)
			return reconcile.Result{}, nil
		}
		if isThere := s.UID != "" && s.DeletionTimestamp == nil; !isThere && isRestored(vip) {
			if wait := r.orphans.wait(name, vip.GetUID(), time.Now(), r.grace); wait > 0 {
				return reconcile.Result{RequeueAfter: wait}, nil
			}
		}
		return reconcile.Result{}, r.release(ctx, s, vip)
	}
	r.orphans.forget(name)
	err := r.serve(ctx, s, vip, is.there)
	if refused := (*refusal)(nil); errors.As(err, &refused) {
		if r.backoff.Telling(name) {
			r.complain(s, refused)
		}
		if refused.reason == eventInvalidMode || refused.reason == eventInvalidAnnotation { // a change of the Service brings it here again
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{}, err
}

// serve gives a Service that asks for it its ProxyVIP and its addresses. The error is a *refusal where it asks for what cannot be.
func (r *reconciler) serve(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured, there bool) error {
	spec, err := specOf(s)
	if err != nil {
		return err
	}
	if there && !ours(vip) && !showsVIP(s, vip) {
		return &refusal{eventNotCreated, fmt.Sprintf("ProxyVIP %s exists and was not made for this Service: delete it, or create the Service under another name", vip.GetName()), false}
	}
	if there && vip.GetDeletionTimestamp() != nil {
		return lingers(vip)
	}
	if there && poolOfVIP(vip) != poolOf(s) {
		if err := r.rehearse(ctx, s, spec); err != nil && !isOwnedBy(err, vip) {
			return refused(s, err)
		}
		if err := r.drop(ctx, vip); err != nil {
			return err
		}
		if len(vip.GetFinalizers()) > 0 {
			return lingers(vip)
		}
		vip, there = newVIP(vip.GetName()), false
	}
	if had := recorded(s, spec); !there && len(had) > 0 {
		err := r.write(ctx, s, vip, withAddresses(spec, had), false)
		if err == nil {
			return r.announce(ctx, s, vip)
		}
		if !errors.As(err, new(*refusal)) {
			return err
		}
		why := discreet(err.Error(), s.Namespace)
		if r.backoff.Telling(client.ObjectKeyFromObject(s)) {
			r.events.Eventf(s, corev1.EventTypeWarning, eventNoAddress, "the addresses %s that the Service had cannot be restored, and it gets others: %s", s.Annotations[v1alpha1.AnnotationVIPAddresses], why)
		}
		vip = newVIP(vip.GetName())
	}
	if err = r.write(ctx, s, vip, spec, there); err == nil {
		return r.announce(ctx, s, vip)
	}
	if !there && errors.As(err, new(*refusal)) { // it shows the address of one that is gone
		if err := r.setIngress(ctx, s, nil); err != nil {
			return err
		}
	}
	return err
}

// lingers says why a Service gets no ProxyVIP although the one that it cannot have was deleted. The end of that brings the Service here again.
func lingers(vip *unstructured.Unstructured) error {
	return &refusal{eventNotCreated, fmt.Sprintf("ProxyVIP %s is being deleted and waits for its finalizers %s: the Service gets another when it is gone",
		vip.GetName(), strings.Join(vip.GetFinalizers(), ", ")), false}
}

func newVIP(name string) *unstructured.Unstructured {
	vip := &unstructured.Unstructured{}
	vip.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProxyVIP"))
	vip.SetName(name)
	return vip
}

func poolOfVIP(vip *unstructured.Unstructured) string {
	pool, _, _ := unstructured.NestedString(vip.Object, "spec", "poolRef", "name")
	return pool
}

// write stores a ProxyVIP as a Service wants it. What another write got ahead of is an error too: its addresses are not those that are stored.
func (r *reconciler) write(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured, spec map[string]any, there bool) (err error) {
	before := vip.DeepCopy()
	fill(vip, s, spec)
	switch {
	case !there:
		if err = r.client.Create(ctx, vip); err == nil {
			r.events.Eventf(s, corev1.EventTypeNormal, eventCreated, "ProxyVIP %s created", vip.GetName())
		}
	case !equality.Semantic.DeepEqual(before, vip):
		err = r.client.Update(ctx, vip)
	}
	return refused(s, err)
}

// rehearse says whether a ProxyVIP could be made beside the one that there is: that one goes only where it can be replaced.
func (r *reconciler) rehearse(ctx context.Context, s *corev1.Service, spec map[string]any) error {
	vip := newVIP(vipName(client.ObjectKeyFromObject(s)) + ".next")
	fill(vip, s, spec)
	if err := r.client.Create(ctx, vip, client.DryRunAll); err != nil {
		return err
	}
	if vip.GetAnnotations()[butlerv1.AnnotationOrigin] == "" { // it would wait
		return &refusal{eventNoAddress, fmt.Sprintf("pool %s does not exist: create it, or name another in annotation %s", poolOf(s), v1alpha1.AnnotationAddressPool), true}
	}
	return nil
}

// isOwnedBy reports whether the API server denies a request because the ProxyVIP owns the requested address.
func isOwnedBy(err error, vip *unstructured.Unstructured) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	owner := metav1.StatusCause{Type: butlerv1.CauseOwner, Message: "proxyvips." + v1alpha1.GroupVersion.Group + "/" + vip.GetName()}
	return slices.Contains(status.Status().Details.Causes, owner)
}

// refused tells the API server's refusal of what is asked for from other errors.
func refused(s *corev1.Service, err error) error {
	if isRefusal(err) {
		return &refusal{eventNoAddress, wordsFor(s, err), namesField(err)}
	}
	return err
}

func isRefusal(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// namesField tells the allocator's own refusal, for what a pool has and for what is asked of it, from that of a policy or a quota.
func namesField(err error) bool {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) || answer.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(answer.Status().Details.Causes, func(c metav1.StatusCause) bool { return c.Field != "" })
}

// announce writes the addresses of a ProxyVIP into the status of its Service.
func (r *reconciler) announce(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured) error {
	v, err := typed(vip)
	if err != nil {
		return err
	}
	addresses := ingress(v)
	if len(addresses) > 0 {
		r.waiting.forget(client.ObjectKeyFromObject(s))
	} else if bound := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); bound != nil {
		if bound.Reason == v1alpha1.ReasonAllocationFailed && len(recorded(s, nil)) > 0 { // the pool came later, and does not have what the Service had
			if err := r.recordAddresses(ctx, s, nil); err != nil || len(recorded(s, nil)) > 0 {
				return err
			}
			return r.drop(ctx, vip)
		}
		r.complain(s, &refusal{eventNoAddress, bound.Message, true})
	}
	if err := r.setIngress(ctx, s, addresses); err != nil || len(addresses) == 0 {
		return err
	}
	return r.recordAddresses(ctx, s, addresses)
}

func (r *reconciler) setIngress(ctx context.Context, s *corev1.Service, addresses []corev1.LoadBalancerIngress) error {
	if sameIPs(s.Status.LoadBalancer.Ingress, addresses) {
		return nil
	}
	before := s.DeepCopy()
	s.Status.LoadBalancer.Ingress = addresses
	return overtaken.Ignore(ctx, r.live, before, r.client.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// release lets go of a ProxyVIP that nobody asks for any more. A Service that stays, and still shows its addresses, shows them no longer.
func (r *reconciler) release(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured) error {
	if s.UID != "" && s.DeletionTimestamp == nil {
		if v, err := typed(vip); err == nil && sameIPs(s.Status.LoadBalancer.Ingress, ingress(v)) {
			if err := r.setIngress(ctx, s, nil); err != nil {
				return err
			}
		}
		if err := r.recordAddresses(ctx, s, nil); err != nil {
			return err
		}
	}
	return r.drop(ctx, vip)
}

func (r *reconciler) drop(ctx context.Context, vip *unstructured.Unstructured) error {
	return overtaken.Ignore(ctx, r.live, vip, r.client.Delete(ctx, vip, client.Preconditions{UID: ptr.To(vip.GetUID())}))
}

// complain tells of what keeps a Service from its addresses, once until it is something else.
func (r *reconciler) complain(s *corev1.Service, about *refusal) {
	if message := discreet(about.message, s.Namespace); r.waiting.add(s, message, about.forPool) {
		r.events.Event(s, corev1.EventTypeWarning, about.reason, message)
	}
}
