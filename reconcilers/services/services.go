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
	"butlerlabs.dev/ipam/reconcilers/write"
)

// reconciler reconciles one Service with its ProxyVIP:
//
//	no ProxyVIP requested               the existing one is deleted
//	existing ProxyVIP of another pool   deleted, and created again
//	no ProxyVIP                         created; the response has its addresses
//	else                                updated from the Service
//	then                                addresses written into the Service's status
type reconciler struct {
	client  client.Client
	live    client.Reader
	turn    *leadershipGate
	events  record.EventRecorder
	backoff *flow.Backoff
	waiting *waitingServices
	follow  func([]types.NamespacedName) // requeues Services that follow in a line
	orphans orphans
	grace   time.Duration // how long a restored ProxyVIP waits for its Service
	reads   sync.Map      // Service whose last attempt failed -> serviceState
}

// serviceState is a Service and its ProxyVIP from a live read.
type serviceState struct {
	service *corev1.Service
	vip     *unstructured.Unstructured
	exists  bool // the ProxyVIP is stored
}

func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if !r.turn.isOpen() {
		return reconcile.Result{}, nil
	}
	service, vip, pool := r.readInformers(ctx, req.NamespacedName)
	basis := struct {
		service, vip string // versions: nothing is written to them while attempts fail
		pool         flow.Basis
	}{service.ResourceVersion, vip.ResourceVersion, flow.BasisOf(pool)}
	return r.backoff.Attempt(ctx, req.NamespacedName, basis, func() (reconcile.Result, error) {
		changes := r.waiting.changesOf(poolNamed(service.Annotations)) // before the request
		is, repeatable := r.lastRead(req.NamespacedName, service, vip)
		if !repeatable {
			var err error
			if is, err = r.readLive(ctx, req.NamespacedName); err != nil {
				return reconcile.Result{}, err
			}
		}
		r.reads.Delete(req.NamespacedName)
		result, err := r.reconcileService(ctx, req.NamespacedName, serviceState{is.service.DeepCopy(), is.vip.DeepCopy(), is.exists})
		if err != nil {
			r.reads.Store(req.NamespacedName, is)
		}
		refused := (*denial)(nil)
		if !errors.As(err, &refused) || !refused.awaitsPool() {
			return result, err
		}
		// Only a change of the pool or of the Service causes another attempt. A pool that
		// has changed since the request was sent has no further change.
		r.backoff.Failed(ctx, req.NamespacedName, basis, err)
		if r.waiting.changesOf(poolOf(is.service)) == changes {
			return reconcile.Result{}, flow.ErrNothingToDo
		}
		r.backoff.RetrySoon(req.NamespacedName)
		return reconcile.Result{RequeueAfter: r.backoff.Wait(req.NamespacedName, basis)}, nil
	})
}

// readInformers returns a Service, the ProxyVIP and the pool from the informers. An
// object without a UID is not stored.
func (r *reconciler) readInformers(ctx context.Context, name types.NamespacedName) (service *metav1.PartialObjectMetadata, vip *v1alpha1.ProxyVIP, pool *v1alpha1.ProxyIPPool) {
	service, vip, pool = &metav1.PartialObjectMetadata{}, &v1alpha1.ProxyVIP{}, &v1alpha1.ProxyIPPool{}
	service.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Service"))
	// An error means that the informer does not have the object now.
	_ = r.client.Get(ctx, name, service, client.UnsafeDisableDeepCopy)
	_ = r.client.Get(ctx, client.ObjectKey{Name: vipName(name)}, vip, client.UnsafeDisableDeepCopy)
	_ = r.client.Get(ctx, client.ObjectKey{Name: poolNamed(service.Annotations)}, pool, client.UnsafeDisableDeepCopy)
	return service, vip, pool
}

// lastRead returns the live read of the last attempt for a Service, if that attempt
// failed. Another attempt needs no other live read if the informers show the versions of
// that read, and the attempt deletes nothing.
func (r *reconciler) lastRead(name types.NamespacedName, service *metav1.PartialObjectMetadata, vip *v1alpha1.ProxyVIP) (serviceState, bool) {
	stored, known := r.reads.Load(name)
	if !known {
		return serviceState{}, false
	}
	is := stored.(serviceState)
	same := is.service.ResourceVersion == service.ResourceVersion && is.vip.GetResourceVersion() == vip.ResourceVersion
	keeps := !is.exists || poolOfVIP(is.vip) == poolOf(is.service)
	return is, same && requestsVIP(is.service) && keeps
}

// readLive reads a Service and its ProxyVIP from the API server.
func (r *reconciler) readLive(ctx context.Context, name types.NamespacedName) (is serviceState, err error) {
	is = serviceState{service: &corev1.Service{}, vip: newVIP(vipName(name))}
	if err := client.IgnoreNotFound(r.live.Get(ctx, name, is.service)); err != nil {
		return serviceState{}, err
	}
	err = r.live.Get(ctx, client.ObjectKeyFromObject(is.vip), is.vip)
	is.exists = err == nil
	return is, client.IgnoreNotFound(err)
}

// reconcileService reconciles a Service once, with the result of a live read.
func (r *reconciler) reconcileService(ctx context.Context, name types.NamespacedName, is serviceState) (reconcile.Result, error) {
	s, vip := is.service, is.vip
	if !requestsVIP(s) {
		r.follow(r.waiting.forget(name))
		if !is.exists || !isManaged(vip) && !showsAddressesOf(s, vip) {
			r.orphans.forget(name)
			return reconcile.Result{}, nil
		}
		if isThere := s.UID != "" && s.DeletionTimestamp == nil; !isThere && isRestored(vip) {
			if wait := r.orphans.waitFor(name, vip.GetUID(), time.Now(), r.grace); wait > 0 {
				return reconcile.Result{RequeueAfter: wait}, nil
			}
		}
		return reconcile.Result{}, r.releaseVIP(ctx, s, vip)
	}
	r.orphans.forget(name)
	err := r.ensureVIP(ctx, s, vip, is.exists)
	if errors.Is(err, errAwaitsAddresses) {
		return reconcile.Result{RequeueAfter: awaitAddresses}, nil
	}
	if refused := (*denial)(nil); errors.As(err, &refused) {
		r.reportDenial(s, refused, r.backoff.ShouldReport(name))
		if refused.reason == eventInvalidMode || refused.reason == eventInvalidAnnotation { // a change of the Service requeues the Service
			return reconcile.Result{}, nil
		}
	}
	return reconcile.Result{}, err
}

// ensureVIP creates or updates the ProxyVIP of a Service that requests one, and publishes
// the addresses. The error is a *denial if the request cannot be met.
func (r *reconciler) ensureVIP(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured, there bool) error {
	spec, err := specOf(s)
	if err != nil {
		return err
	}
	if there && !isManaged(vip) && !showsAddressesOf(s, vip) {
		return &denial{reason: eventNotCreated, message: fmt.Sprintf("ProxyVIP %s exists and was not made for this Service: delete it, or create the Service under another name", vip.GetName())}
	}
	if there && vip.GetDeletionTimestamp() != nil {
		return describeDeleting(vip)
	}
	if there && poolOfVIP(vip) != poolOf(s) {
		if err := r.checkCreatable(ctx, s, spec); err != nil && !isOwnedBy(err, vip) {
			return asDenial(s, err)
		}
		if err := r.recordAddresses(ctx, s, nil); err != nil { // the recorded addresses are of the old pool
			return err
		}
		if err := r.deleteVIP(ctx, vip); err != nil {
			return err
		}
		if len(vip.GetFinalizers()) > 0 {
			return describeDeleting(vip)
		}
		vip, there = newVIP(vip.GetName()), false
	}
	if had := recordedAddresses(s, spec); !there && len(had) > 0 {
		err := r.writeVIP(ctx, s, vip, withAddresses(spec, had), false)
		if err == nil {
			return r.publishAddresses(ctx, s, vip)
		}
		refused := (*denial)(nil)
		if !errors.As(err, &refused) {
			return err
		}
		if !refused.forPool { // a policy, a quota or a webhook of another program denies the ProxyVIP, and not its addresses: other addresses would stay for good
			return errors.Join(r.setIngress(ctx, s, nil), err)
		}
		if refused.transient {
			r.reportDenial(s, &denial{reason: refused.reason, message: "the addresses that the Service had are not free yet, and are requested again: " + refused.message, transient: true}, true)
			return errAwaitsAddresses
		}
		if r.backoff.ShouldReport(client.ObjectKeyFromObject(s)) {
			r.events.Eventf(s, corev1.EventTypeWarning, eventNoAddress, "the addresses %s that the Service had cannot be restored, and it gets others: %s", s.Annotations[v1alpha1.AnnotationVIPAddresses], err)
		}
		vip = newVIP(vip.GetName())
	}
	if err = r.writeVIP(ctx, s, vip, spec, there); err == nil {
		return r.publishAddresses(ctx, s, vip)
	}
	if !there && errors.As(err, new(*denial)) { // the status shows the address of a ProxyVIP that is gone
		if err := r.setIngress(ctx, s, nil); err != nil {
			return err
		}
	}
	return err
}

// errAwaitsAddresses is why a restored Service has no ProxyVIP yet: the recorded
// addresses are promised to a create that most likely failed, often the create of the
// Service's ProxyVIP at a change of the leader. The Service waits, since other addresses
// would stay for good.
var errAwaitsAddresses = errors.New("the addresses that the Service had are not free yet")

// awaitAddresses is the pause between two requests for promised addresses.
const awaitAddresses = 5 * time.Second

// describeDeleting explains why a Service gets no ProxyVIP while the old ProxyVIP waits
// for finalizers. The end of the old ProxyVIP requeues the Service.
func describeDeleting(vip *unstructured.Unstructured) error {
	return &denial{reason: eventNotCreated, message: fmt.Sprintf("ProxyVIP %s is being deleted and waits for its finalizers %s: the Service gets another when it is gone",
		vip.GetName(), strings.Join(vip.GetFinalizers(), ", "))}
}

// newVIP returns an empty ProxyVIP of this name.
func newVIP(name string) *unstructured.Unstructured {
	vip := &unstructured.Unstructured{}
	vip.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ProxyVIP"))
	vip.SetName(name)
	return vip
}

// poolOfVIP returns the pool of a ProxyVIP.
func poolOfVIP(vip *unstructured.Unstructured) string {
	pool, _, _ := unstructured.NestedString(vip.Object, "spec", "poolRef", "name")
	return pool
}

// writeVIP stores the ProxyVIP of a Service. A stale write is an error: the addresses in
// memory are not the stored ones.
func (r *reconciler) writeVIP(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured, spec map[string]any, there bool) (err error) {
	before := vip.DeepCopy()
	applySpec(vip, s, spec)
	switch {
	case !there:
		if err = r.client.Create(ctx, vip); err == nil {
			r.events.Eventf(s, corev1.EventTypeNormal, eventCreated, "ProxyVIP %s created", vip.GetName())
		}
	case !equality.Semantic.DeepEqual(before, vip):
		err = r.client.Update(ctx, vip)
	}
	if isDenial(err) && !there && isOwnedBy(err, vip) { // the ledger has yet to observe the end of the last ProxyVIP of this name
		return &denial{reason: eventNoAddress, message: describeFor(s, err), forPool: true, transient: true}
	}
	return asDenial(s, err)
}

// checkCreatable returns an error if a ProxyVIP in the new pool of the Service could not
// be created. The old ProxyVIP is deleted only if a new one can replace it.
func (r *reconciler) checkCreatable(ctx context.Context, s *corev1.Service, spec map[string]any) error {
	vip := newVIP(vipName(client.ObjectKeyFromObject(s)) + ".next")
	applySpec(vip, s, spec)
	if err := r.client.Create(ctx, vip, client.DryRunAll); err != nil {
		return err
	}
	if vip.GetAnnotations()[butlerv1.AnnotationOrigin] == "" { // the ProxyVIP would wait
		return &denial{reason: eventNoAddress, message: fmt.Sprintf("pool %s does not exist: create it, or name another in annotation %s", poolOf(s), v1alpha1.AnnotationAddressPool), forPool: true}
	}
	return nil
}

// isOwnedBy reports whether the API server denies a request because the ProxyVIP owns the
// requested address.
func isOwnedBy(err error, vip *unstructured.Unstructured) bool {
	owner := metav1.StatusCause{Type: butlerv1.CauseOwner, Message: "proxyvips." + v1alpha1.GroupVersion.Group + "/" + vip.GetName()}
	return slices.Contains(causesOf(err), owner)
}

// causesOf returns the causes in the status of an API server's response.
func causesOf(err error) []metav1.StatusCause {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return nil
	}
	return status.Status().Details.Causes
}

// asDenial returns a *denial for a denial by the API server, and every other error
// unchanged.
func asDenial(s *corev1.Service, err error) error {
	if isDenial(err) {
		return &denial{reason: eventNoAddress, message: describeFor(s, err), forPool: fieldOfDenial(err) != "", transient: isTransient(err), field: fieldOfDenial(err)}
	}
	return err
}

// isTransient reports whether the allocator denied an address that may be free within two
// minutes.
func isTransient(err error) bool {
	return slices.ContainsFunc(causesOf(err), func(c metav1.StatusCause) bool { return c.Type == butlerv1.CauseTransient })
}

// isDenial reports whether the API server denied a write: 403 or 422.
func isDenial(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) }

// fieldOfDenial returns the first field of a ProxyVIP for which the allocator denied a
// request; "" if a policy or a quota denied the request.
func fieldOfDenial(err error) string {
	for _, c := range causesOf(err) {
		if c.Field != "" {
			return c.Field
		}
	}
	return ""
}

// publishAddresses writes the addresses of a ProxyVIP into the status of its Service.
func (r *reconciler) publishAddresses(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured) error {
	v, err := toTyped(vip)
	if err != nil {
		return err
	}
	addresses := ingressOf(v)
	if len(addresses) > 0 {
		r.follow(r.waiting.forget(client.ObjectKeyFromObject(s)))
	} else if bound := meta.FindStatusCondition(v.Status.Conditions, v1alpha1.ConditionBound); bound != nil {
		if bound.Reason == v1alpha1.ReasonAllocationFailed && requestsRecorded(s) { // the pool was created after the restore, and does not offer the recorded addresses
			if err := r.recordAddresses(ctx, s, nil); err != nil || requestsRecorded(s) {
				return err
			}
			return r.deleteVIP(ctx, vip)
		}
		r.reportDenial(s, &denial{reason: eventNoAddress, message: bound.Message}, true) // the ProxyVIP waits, and its events requeue the Service
	}
	if err := r.setIngress(ctx, s, addresses); err != nil || len(addresses) == 0 {
		return err
	}
	return r.recordAddresses(ctx, s, addresses)
}

// setIngress writes status.loadBalancer.ingress if it differs.
func (r *reconciler) setIngress(ctx context.Context, s *corev1.Service, addresses []corev1.LoadBalancerIngress) error {
	if sameIPs(s.Status.LoadBalancer.Ingress, addresses) {
		return nil
	}
	before := s.DeepCopy()
	s.Status.LoadBalancer.Ingress = addresses
	return write.IgnoreStale(ctx, r.live, before, r.client.Status().Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// releaseVIP deletes a ProxyVIP that no Service requests. If the Service stays and shows
// the addresses, the status of the Service is cleared first.
func (r *reconciler) releaseVIP(ctx context.Context, s *corev1.Service, vip *unstructured.Unstructured) error {
	if s.UID != "" && s.DeletionTimestamp == nil {
		if v, err := toTyped(vip); err == nil && sameIPs(s.Status.LoadBalancer.Ingress, ingressOf(v)) {
			if err := r.setIngress(ctx, s, nil); err != nil {
				return err
			}
		}
		if err := r.recordAddresses(ctx, s, nil); err != nil {
			return err
		}
	}
	return r.deleteVIP(ctx, vip)
}

// deleteVIP deletes a ProxyVIP, if the stored object has the UID of vip.
func (r *reconciler) deleteVIP(ctx context.Context, vip *unstructured.Unstructured) error {
	return write.IgnoreStale(ctx, r.live, vip, r.client.Delete(ctx, vip, client.Preconditions{UID: ptr.To(vip.GetUID())}))
}

// reportDenial records what keeps a Service from its addresses, and, if one is due, an
// event about it: once for each cause.
func (r *reconciler) reportDenial(s *corev1.Service, about *denial, due bool) {
	isNew, follower := r.waiting.record(s, about, due)
	if isNew {
		r.events.Event(s, corev1.EventTypeWarning, about.reason, about.message)
	}
	r.follow(follower)
}
